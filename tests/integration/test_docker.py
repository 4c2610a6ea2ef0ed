"""The docker feature of hermes-docker against a real Docker Engine: every action, and what must not get through."""
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))

from docker_harness import BOUNDS_OPEN, DockerBox, eventually, run_request  # noqa: E402
from dockerd import Dockerd  # noqa: E402
from engine_proxy import EngineProxy  # noqa: E402
from registry import Registry  # noqa: E402
from scratch_state import UnixConnection  # noqa: E402

GROUP = 4700 + os.getpid() % 90
ENGINE = None
IMAGE = None
OPERATION = "hermes-broker.operation"


def setUpModule():
    global ENGINE, IMAGE
    ENGINE = Dockerd(GROUP)
    IMAGE = ENGINE.image("base:1")


def tearDownModule():
    ENGINE.remove()


class Case(unittest.TestCase):
    settings = {}

    def setUp(self):
        self.box = DockerBox(ENGINE, {"local.image": IMAGE, **self.settings}, group=GROUP)
        self.addCleanup(self.box.__exit__)
        self.addCleanup(self.clear)
        self.box.start()

    def clear(self):
        ids = ENGINE.containers()
        if ids:
            ENGINE.client("rm", "-f", "-v", *ids)
        for name in ENGINE.client("network", "ls", "--format", "{{.Name}}").split():
            if name not in ("bridge", "host", "none"):
                ENGINE.client("network", "rm", name)
        volumes = ENGINE.client("volume", "ls", "-q").split()
        if volumes:
            ENGINE.client("volume", "rm", *volumes)

    def sleeper(self, name="victim", *options):
        return ENGINE.client("run", "-d", "--name", name, "--network", "none", *options, IMAGE, "/bin/sleep", "600")

    def state(self, name):
        return ENGINE.inspect(name)["State"]["Status"]

    def refused(self, code, request, feature="docker"):
        answer = self.box.seal(feature, request)
        self.assertEqual(answer.get("code"), code, answer)
        return answer["error"]

    def approved_then(self, code, request, change, feature="docker"):
        """Sealed and approved, then the world changes: the operation fails with this code. Its status."""
        sealed = self.box.sealed(feature, request)
        change()
        outcome = self.box.finish_sealed(feature, sealed)
        self.assertEqual((outcome["state"], outcome.get("code")), ("failed", code), outcome)
        return outcome


class Actions(Case):
    def test_run_and_its_result(self):
        outcome = self.box.run("docker", run_request(IMAGE, ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], name="one"))
        result = outcome["result"]
        self.assertEqual((outcome["state"], result["returncode"], result["timed_out"]), ("failed", 3, False))
        self.assertEqual(sorted(result["output"].split()), ["err", "out"])
        self.assertEqual((result["stderr"], result["stdout_bytes"], result["stderr_bytes"]), ("err\n", 4, 4))
        self.assertEqual(self.state("one"), "exited")
        outcome = self.box.run("docker", run_request(IMAGE, ["/bin/true"], auto_remove=True, name="two"))
        self.assertEqual(outcome["state"], "succeeded")
        eventually(lambda: ENGINE.names() == ["one"], "the engine removes it")

    def test_existing_container_through_its_life(self):
        self.sleeper()
        for action, state in (("stop", "exited"), ("start", "running"), ("restart", "running")):
            outcome = self.box.docker(action, container="victim")
            self.assertEqual((outcome["state"], outcome["result"]["container_state"]), ("succeeded", state), outcome)
            self.assertEqual(self.state("victim"), state)
        outcome = self.box.docker("remove", container="victim")
        self.assertEqual(outcome["state"], "failed")
        self.assertIn("running", outcome["error"])
        self.assertEqual(self.box.docker("remove", container="victim", force=True)["state"], "succeeded")
        self.assertEqual(ENGINE.names(), [])

    def test_list_and_discover(self):
        self.sleeper("up")
        self.sleeper("down")
        ENGINE.client("kill", "down")
        rows = json.loads(self.box.docker("list")["result"]["output"])
        self.assertEqual([r["name"] for r in rows], ["up"])
        rows = json.loads(self.box.docker("list", all=True)["result"]["output"])
        self.assertEqual(sorted((r["name"], r["state"]) for r in rows), [("down", "exited"), ("up", "running")])
        status, answer = self.box.call("GET", "/containers")
        self.assertEqual((status, answer["status"]), (200, "ok"))
        self.assertEqual(sorted(r["name"] for r in answer["containers"]), ["down", "up"])
        self.assertIn(self.box.call("GET", "/containers", uid=47110)[0], (0, 403))

    def test_inspect_is_redacted(self):
        self.sleeper("victim", "-e", "PASSWORD=hunter2", "--label", "auth.token=tok3n", "--label", "color=red")
        text = self.box.docker("inspect", container="victim")["result"]["output"]
        shown = json.loads(text)
        self.assertNotIn("hunter2", text)
        self.assertNotIn("tok3n", text)
        self.assertIn("PASSWORD=<redacted>", shown["Config"]["Env"])
        self.assertEqual(shown["Config"]["Labels"]["color"], "red")
        self.assertEqual(shown["State"]["Status"], "running")

    def test_h37_logs_framed_and_of_a_terminal(self):
        ENGINE.client("run", "--name", "framed", "--network", "none", IMAGE, "/bin/sh", "-c",
                      "for i in 1 2 3; do echo out$i; echo err$i >&2; done")
        result = self.box.docker("logs", container="framed")["result"]
        self.assertEqual((result["stdout_bytes"], result["stderr_bytes"]), (15, 15))
        self.assertEqual(sorted(result["output"].split()), ["err1", "err2", "err3", "out1", "out2", "out3"])
        self.assertEqual(result["stderr"], "err1\nerr2\nerr3\n")
        self.assertEqual(len(self.box.docker("logs", container="framed", tail=2)["result"]["output"].split()), 2)
        # bytes that look like a frame, from a container with a terminal: nothing is guessed
        ENGINE.client("run", "-t", "--name", "terminal", "--network", "none", IMAGE, "/bin/sh", "-c",
                      r"printf '\001\000\000\000\000\000\000\003abc\n'")
        result = self.box.docker("logs", container="terminal")["result"]
        self.assertEqual(result["stdout_bytes"], 8 + 3 + 2)
        self.assertTrue(result["output"].endswith("abc\r\n"))

    def test_output_is_bounded_and_its_end_kept(self):
        outcome = self.box.run("docker", run_request(IMAGE, ["/bin/sh", "-c", "seq 100000; echo last"]))
        result = outcome["result"]
        self.assertEqual(len(result["output"]), 12000)
        self.assertTrue(result["output"].endswith("100000\nlast\n"))
        self.assertEqual((result["truncated"], result["output_bytes"]), (True, 588895 + 5))

    def test_detached(self):
        outcome = self.box.run("docker", run_request(IMAGE, ["/bin/sleep", "600"], name="bg", detach=True))
        self.assertEqual((outcome["state"], self.state("bg")), ("succeeded", "running"))
        self.box.stop()
        self.assertEqual(self.state("bg"), "running")
        self.box.crash()
        self.box.start()
        eventually(lambda: self.box.health()["checks"]["swept"], "the sweep")
        self.assertEqual(self.state("bg"), "running")

    def test_pull(self):
        with Registry() as registry:
            ENGINE.client("tag", IMAGE, f"{registry.host}/team/app:v1")
            ENGINE.client("push", f"{registry.host}/team/app:v1")
            reference = [d for d in ENGINE.inspect(IMAGE)["RepoDigests"] if registry.host in d][0]
            ENGINE.client("rmi", f"{registry.host}/team/app:v1")
            self.assertEqual(ENGINE.client("image", "ls", "-q", reference), "")
            self.box.bounds(repositories=[f"{registry.host}/team/app"])
            self.assertIn("pull", self.refused("image_absent", run_request(reference)))
            outcome = self.box.docker("pull", image=reference)
            self.assertEqual(outcome["state"], "succeeded", outcome)
            self.assertEqual(self.box.run("docker", run_request(reference, ["/bin/true"]))["state"], "succeeded")
            wrong = reference[:-4] + ("0000" if not reference.endswith("0000") else "1111")
            outcome = self.box.docker("pull", image=wrong)
            self.assertEqual((outcome["state"], outcome["code"] in ("pull_failed", "not_found")), ("failed", True), outcome)
            ENGINE.client("rmi", "-f", reference)

    def test_start_that_fails_leaves_nothing(self):
        outcome = self.box.run("docker", run_request(IMAGE, ["/no/such/program"], name="broken"))
        self.assertEqual((outcome["state"], outcome["code"]), ("failed", "start_failed"))
        self.assertEqual(ENGINE.names(), [])

    def test_name_in_use(self):
        self.sleeper("taken")
        outcome = self.box.run("docker", run_request(IMAGE, name="taken"))
        self.assertEqual((outcome["state"], outcome["code"]), ("failed", "name_in_use"))
        self.assertEqual(self.state("taken"), "running")

    def test_unknown_things(self):
        self.refused("container_unknown", {"action": "stop", "container": "nobody"})
        self.refused("network_unknown", run_request(IMAGE, network="nowhere"))
        self.refused("image_absent", run_request("sha256:" + "0" * 64))

    def test_audit_says_what_was_done(self):
        self.sleeper()
        sealed = self.box.sealed("docker", {"action": "stop", "container": "victim"})
        operation = self.box.begin("docker", sealed)
        self.box.finish(operation)
        records = [r for r in self.box.audit() if r["detail"].get("operation_id") == operation]
        self.assertEqual([(r["status"], r["detail"]["phase"]) for r in records], [("intent", "intent"), ("ok", "outcome")])


class OlderPolicy(Case):
    def test_health_tells_that_an_older_policy_was_put_back(self):
        with open(self.box.state.file("policy/policy.json"), encoding="utf-8") as f:
            old = f.read()
        self.box.policy()
        self.assertEqual(self.box.health()["status"], "ok")
        self.box.state.write("policy/policy.json", old, 0o644, self.box.state.uid("admin"), self.box.state.uid("admin"))
        self.assertIn("an old policy file was put back", self.box.health()["error"])


class Timeouts(Case):
    def test_attached_run_is_ended(self):
        outcome = self.box.run("docker", run_request(IMAGE, ["/bin/sh", "-c", "echo begun; sleep 600"], name="long", timeout=8))
        result = outcome["result"]
        self.assertEqual((outcome["state"], outcome["code"]), ("failed", "timeout"))
        self.assertEqual((result["returncode"], result["timed_out"], result["output"]), (124, True, "begun\n"))
        self.assertIn("was ended", outcome["error"])
        self.assertEqual(self.state("long"), "exited")

    def test_with_a_restart_policy_it_stays_ended(self):
        outcome = self.box.run("docker", run_request(IMAGE, ["/bin/sleep", "600"], name="stubborn", timeout=8,
                                                     restart_policy="always"))
        self.assertEqual(outcome["code"], "timeout")
        self.assertEqual(self.state("stubborn"), "exited")

    def test_stop_that_takes_too_long_says_how_things_are(self):
        # ignores SIGTERM, so the engine needs its 10 seconds
        ENGINE.client("run", "-d", "--name", "deaf", "--network", "none", IMAGE, "/bin/sh", "-c",
                      "trap '' TERM; while :; do sleep 1; done")
        outcome = self.box.docker("stop", container="deaf", timeout=4)
        self.assertEqual((outcome["state"], outcome["code"], outcome["result"]["returncode"]), ("failed", "timeout", 124))
        self.assertIn("may still do it", outcome["error"])
        self.assertIn("running", outcome["error"])

    def test_stopping_the_executor_ends_what_it_waits_for(self):
        operation = self.box.begin("docker", self.box.sealed("docker", run_request(IMAGE, ["/bin/sleep", "600"], name="ww")))
        eventually(lambda: "ww" in ENGINE.names() and self.state("ww") == "running", "it runs")
        self.assertEqual(self.box.stop(), 0)
        self.assertEqual(self.state("ww"), "exited")
        self.box.start()
        status = self.box.status(operation)
        self.assertEqual((status["state"], status["code"]), ("failed", "interrupted"))


class HostReach(Case):
    """H33: every way to the host is a listed field, refused unless the bounds allow it."""

    FIELDS = {"privileged": ({"privileged": True}, "Privileged", True),
              "host_namespaces": ({"pid_mode": "host"}, "PidMode", "host"),
              "devices": ({"devices": ["/dev/null:/dev/thing:r"]}, "Devices",
                          [{"PathOnHost": "/dev/null", "PathInContainer": "/dev/thing", "CgroupPermissions": "r"}]),
              "capabilities": ({"capabilities_add": ["NET_BIND_SERVICE"]}, "CapAdd", ["NET_BIND_SERVICE"]),
              "security_opt": ({"security_opt": ["no-new-privileges", "seccomp=unconfined"]}, "SecurityOpt",
                               ["no-new-privileges", "seccomp=unconfined"])}

    def test_h33_fields_need_the_bounds(self):
        proxy = EngineProxy(self.box.dir, ENGINE.socket, GROUP)
        self.addCleanup(proxy.stop)
        self.box.stop()
        self.box.state.settings["docker.socket"] = proxy.socket
        self.box.state.write_config()
        self.box.start()
        for bound, (fields, name, value) in self.FIELDS.items():
            with self.subTest(bound):
                self.box.bounds()
                self.assertIn(bound, self.refused("out_of_bounds", run_request(IMAGE, **fields)))
                self.box.bounds(**{bound: "yes"})
                sealed = self.box.sealed("docker", run_request(IMAGE, ["/bin/true"], **fields))
                proxy.clear()
                self.box.finish_sealed("docker", sealed)
                # what the engine was asked for; whether this machine has all rights to give is another matter
                sent = json.loads(proxy.calls("POST", "/containers/create")[0][2])
                self.assertEqual(sent["HostConfig"][name], value)
                self.box.bounds()
                operation, answer = self.box.execute("docker", sealed)
                self.assertEqual(answer.get("code"), "out_of_bounds")

    def test_h33_other_ways_to_the_host_are_refused(self):
        self.box.bounds(**BOUNDS_OPEN)
        for fields in ({"Binds": ["/:/host"]}, {"binds": ["/:/host"]}, {"HostConfig": {"Binds": ["/:/host"]}},
                       {"Mounts": []}, {"volumes": {"/x": {}}}, {"volumes_from": ["c"]}, {"VolumesFrom": ["c"]},
                       {"device_cgroup_rules": ["a *:* rwm"]}, {"runtime": "other"}, {"cgroup_parent": "/"},
                       {"Privileged": True}, {"PRIVILEGED": True}, {"network_mode": "host"}, {"oom_score_adj": -1000},
                       {"group_add": ["0"]}, {"log_config": {}}, {"init": True}, {"some_new_field": 1}):
            with self.subTest(fields=fields):
                self.refused("unknown_field", run_request(IMAGE, **fields))
        self.assertEqual(self.box.seal("docker", run_request(IMAGE, network="container:x")).get("code"), "bad_network")
        self.refused("unknown_field", run_request(IMAGE, mounts=[
            {"type": "volume", "source": "v", "target": "/v", "driver_config": {"o": "bind"}}]))

    def test_h33_the_same_key_twice(self):
        body = json.dumps({"feature": "docker", "request": run_request(IMAGE)})
        body = body.replace('"action": "run"', '"action": "run", "privileged": false, "privileged": true')
        conn = UnixConnection(self.box.state.socket("docker"))
        status, answer = self.raw(body.encode())
        self.assertEqual((status, answer["code"]), (400, "duplicate_key"))
        conn.close()

    def raw(self, data, headers=None, path="/seal", method="POST"):
        from docker_harness import as_user  # the broker's uid
        socket_path = self.box.state.socket("docker")

        def work():
            conn = UnixConnection(socket_path, 30)
            conn.putrequest(method, path, skip_accept_encoding=True)
            for name, value in (headers or {"Content-Length": str(len(data))}).items():
                conn.putheader(name, value)
            conn.endheaders()
            conn.send(data)
            answer = conn.getresponse()
            return [answer.status, json.loads(answer.read() or b"{}")]
        return as_user(self.box.state.uid("broker"), [self.box.state.callers_gid("docker")], work)

    def test_h33_volume_with_options_is_any_directory(self):
        ENGINE.client("volume", "create", "--opt", "type=none", "--opt", "o=bind", "--opt", "device=/etc", "sneaky")
        mounts = [{"type": "volume", "source": "sneaky", "target": "/v"}]
        self.refused("volume_reaches_host", run_request(IMAGE, mounts=mounts))
        ENGINE.client("volume", "rm", "sneaky")

        def swap():
            ENGINE.client("volume", "create", "--opt", "type=none", "--opt", "o=bind", "--opt", "device=/etc", "sneaky")
        self.approved_then("volume_reaches_host", run_request(IMAGE, mounts=mounts), swap)
        self.assertEqual(ENGINE.names(), [])

    def test_h33_plain_volume_works(self):
        outcome = self.box.run("docker", run_request(IMAGE, ["/bin/touch", "/v/x"], mounts=[
            {"type": "volume", "source": "plain", "target": "/v", "read_only": False}]))
        self.assertEqual(outcome["state"], "succeeded", outcome)

    def test_h33_devices_by_another_name(self):
        self.box.bounds(**BOUNDS_OPEN)
        link = f"/dev/hb-test-{os.getpid()}"
        os.symlink("/dev/null", link)
        try:
            self.refused("device_link", run_request(IMAGE, devices=[link]))
        finally:
            os.unlink(link)
        self.refused("floor_raw_device", run_request(IMAGE, devices=["/dev"]))
        disk = [d for d in ("/dev/vda", "/dev/sda", "/dev/loop0", "/dev/nvme0n1") if os.path.exists(d)][0]
        self.refused("floor_raw_device", run_request(IMAGE, devices=[disk + ":/dev/x"]))

    def test_our_labels_are_ours(self):
        self.refused("label_reserved", run_request(IMAGE, labels=[OPERATION + "=" + "0" * 32]))

    def test_what_runs_is_what_was_shown(self):
        """Every field as the engine keeps it."""
        request = run_request(IMAGE, ["/bin/sh", "-c", "true"], name="whole", user="10:20", workdir="/tmp",
                              environment=[{"name": "A", "value": "b=c d"}], labels=["k=v"], memory_mb=64, cpus=1,
                              pids_limit=32, mounts=[{"type": "tmpfs", "target": "/scratch"}])
        self.assertEqual(self.box.run("docker", request)["state"], "succeeded")
        found = ENGINE.inspect("whole")
        host, config = found["HostConfig"], found["Config"]
        self.assertEqual((config["User"], config["WorkingDir"], config["Labels"]["k"]), ("10:20", "/tmp", "v"))
        self.assertIn("A=b=c d", config["Env"])
        self.assertEqual((host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]),
                         (64 << 20, 64 << 20, 10**9, 32))
        self.assertEqual((host["CapDrop"], host["SecurityOpt"], host["ReadonlyRootfs"], host["Privileged"]),
                         (["ALL"], ["no-new-privileges"], True, False))
        self.assertEqual((host["NetworkMode"], host["Binds"], host["VolumesFrom"], host["IpcMode"]),
                         ("none", None, None, "private"))

    def test_h34_only_the_listed_routes_exist(self):
        self.sleeper()
        ident = ENGINE.inspect("victim")["Id"]
        for path in ("/containers/victim/exec", f"/v1.41/containers/{ident}/exec", "/exec/x/start", "//containers",
                     "/containers/", "/containers/%2e%2e/seal", "/v1.44/containers/json", "/containers/victim/archive",
                     "/build", "/seal/", "/session"):
            for method in ("POST", "PUT", "DELETE", "GET"):
                status, answer = self.box.call(method, path, {} if method != "GET" else None)
                self.assertIn(status, (404, 405, 400, 0), (method, path, answer))
        status, answer = self.raw(b"", {"Content-Length": "0", "Upgrade": "tcp", "Connection": "Upgrade"}, "/execute")
        self.assertEqual(status, 400)
        for action in ("exec", "update", "rename", "kill", "cp", "build", "commit", ""):
            self.refused("bad_action", {"action": action, "container": "victim"})
        self.assertEqual(self.state("victim"), "running")

    def test_h35_bodies_at_and_over_the_limit(self):
        request = run_request(IMAGE)
        body = json.dumps({"feature": "docker", "request": request}).encode()
        status, answer = self.raw(body + b" " * (262144 - len(body)))
        self.assertEqual((status, answer.get("status")), (200, "ok"), answer)
        self.assertEqual(self.raw(body + b" " * (262145 - len(body)))[0], 413)
        self.assertEqual(self.raw(b"")[0], 400)
        # a second body behind a length of 0 is another request, and no HTTP
        self.assertEqual(self.raw(body, {"Content-Length": "0"})[0], 400)
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        status, answer = self.raw(chunked, {"Transfer-Encoding": "chunked"})
        self.assertIn((status, answer.get("status")), ((200, "ok"), (400, None), (411, None)), answer)
        self.assertEqual(ENGINE.names(), [])


class Binds(Case):
    """H38: sources are compared where they really lead, and again right before use."""

    def bind(self, source, **fields):
        return run_request(IMAGE, ["/bin/ls", "/t"], mounts=[{"type": "bind", "source": source, "target": "/t", **fields}])

    def setUp(self):
        super().setUp()
        self.app = os.path.join(self.box.allowed, "app")
        os.mkdir(self.app)
        with open(os.path.join(self.app, "inside"), "w", encoding="ascii") as f:
            f.write("x")
        self.link = os.path.join(self.box.allowed, "link")

    def test_h38_allowed_directory(self):
        outcome = self.box.run("docker", self.bind(self.app))
        self.assertEqual((outcome["state"], outcome["result"]["output"]), ("succeeded", "inside\n"), outcome)

    def test_h38_read_only_unless_asked(self):
        request = self.bind(self.app)
        request["command"] = ["/bin/touch", "/t/new"]
        self.assertEqual(self.box.run("docker", request)["state"], "failed")
        request["mounts"][0]["read_only"] = False
        self.assertEqual(self.box.run("docker", request)["state"], "succeeded")
        self.assertIn("new", os.listdir(self.app))

    def test_h38_look_alikes(self):
        evil = self.box.allowed + "-evil"
        os.mkdir(evil)
        self.refused("out_of_bounds", self.bind(evil))
        self.refused("bad_mount", self.bind(self.box.allowed + "/app/../../x"))
        self.refused("bad_mount", self.bind(self.box.allowed + "//app"))
        self.refused("bind_missing", self.bind(self.box.allowed + "/nothing"))

    def test_h38_link_out_of_the_allowed_directory(self):
        os.symlink("/etc", self.link)
        self.assertIn("/etc", self.refused("out_of_bounds", self.bind(self.link)))

    def test_h38_resolved_path_is_what_is_sealed(self):
        os.symlink(self.app, self.link)
        sealed = self.box.sealed("docker", self.bind(self.link))
        self.assertEqual(sealed["mounts"][0]["source"], self.app)

    def test_h38_directory_becomes_a_link_after_approval(self):
        def swap():
            shutil.rmtree(self.app)
            os.symlink("/etc", self.app)
        outcome = self.approved_then("bind_changed", self.bind(self.app), swap)
        self.assertIn("nothing was done", outcome["error"])
        self.assertEqual(ENGINE.names(), [])

    def test_h38_our_own_directories_by_any_name(self):
        self.box.bounds(bind_roots=["/tmp", "/mnt"])
        state = self.box.state.path
        for source in (state, os.path.join(state, "docker"), os.path.dirname(state)):
            self.refused("floor_bind", self.bind(source))
        # a bind mount is no link: only the identity of the directory tells
        alias = os.path.join(self.box.dir, "alias")
        os.mkdir(alias)
        subprocess.run(["mount", "--bind", state, alias], check=True)
        try:
            self.refused("floor_bind", self.bind(alias))
            self.refused("floor_bind", self.bind(os.path.join(alias, "public")))
        finally:
            subprocess.run(["umount", alias], check=True)
        subprocess.run(["mount", "--bind", os.path.dirname(state), alias], check=True)
        try:
            self.refused("floor_bind", self.bind(alias))
        finally:
            subprocess.run(["umount", alias], check=True)
        self.refused("floor_bind", self.bind(ENGINE.socket))
        self.refused("floor_bind", self.bind(os.path.join(ENGINE.dir, "root")))


class Changed(Case):
    """Between approval and run the world changes: what was approved happens, or nothing."""

    def test_container_renamed(self):
        self.sleeper("wanted")
        self.sleeper("other")

        def swap():
            ENGINE.client("rename", "wanted", "aside")
            ENGINE.client("rename", "other", "wanted")
        self.approved_then("container_changed", {"action": "remove", "container": "wanted", "force": True}, swap)
        self.assertEqual(ENGINE.names(), ["aside", "wanted"])

    def test_container_made_anew_under_its_name(self):
        self.sleeper("wanted")

        def swap():
            ENGINE.client("rm", "-f", "wanted")
            self.sleeper("wanted")
        self.approved_then("container_changed", {"action": "stop", "container": "wanted"}, swap)
        self.assertEqual(self.state("wanted"), "running")

    def test_image_retagged(self):
        other = ENGINE.image("other:1", extra=[("evil", b"x")])
        with Registry() as registry:
            ENGINE.client("tag", IMAGE, f"{registry.host}/team/app:v1")
            ENGINE.client("push", f"{registry.host}/team/app:v1")
            reference = [d for d in ENGINE.inspect(IMAGE)["RepoDigests"] if registry.host in d][0]
            self.box.bounds(repositories=[f"{registry.host}/team/app"])
            sealed = self.box.sealed("docker", run_request(reference, ["/bin/ls", "/"], name="rr"))
            self.assertEqual(sealed["resolved_image_id"], IMAGE)
            ENGINE.client("tag", other, f"{registry.host}/team/app:v1")
            outcome = self.box.finish_sealed("docker", sealed)
            self.assertEqual(outcome["state"], "succeeded")
            self.assertNotIn("evil", outcome["result"]["output"])
            self.assertEqual(ENGINE.inspect("rr")["Image"], IMAGE)
            ENGINE.client("rm", "rr")
            sealed = self.box.sealed("docker", run_request(reference, ["/bin/true"]))
            ENGINE.client("rmi", "-f", reference)
            outcome = self.box.finish_sealed("docker", sealed)
            self.assertEqual((outcome["state"], outcome["code"]), ("failed", "image_changed"))
        ENGINE.client("rmi", "-f", other)

    def test_network_swapped(self):
        ENGINE.client("network", "create", "--internal", "mine")

        def swap():
            ENGINE.client("network", "rm", "mine")
            ENGINE.client("network", "create", "mine")
        self.approved_then("network_changed", run_request(IMAGE, network="mine"), swap)
        self.assertEqual(ENGINE.names(), [])

    def test_network_is_joined_by_its_id(self):
        ident = ENGINE.client("network", "create", "--internal", "mine")
        outcome = self.box.run("docker", run_request(IMAGE, ["/bin/true"], network="mine", name="nn"))
        self.assertEqual(outcome["state"], "succeeded", outcome)
        self.assertEqual(ENGINE.inspect("nn")["HostConfig"]["NetworkMode"], ident)

    def test_policy_changed(self):
        self.sleeper()
        sealed = self.box.sealed("docker", {"action": "stop", "container": "victim"})
        operation = secrets.token_hex(16)
        envelope = self.box.grant("docker", sealed, operation)
        self.box.policy()
        answer = self.box.execute("docker", sealed, operation, envelope)[1]
        self.assertEqual(answer.get("code"), "grant_old_generation")
        self.box.policy(features=["local"])
        answer = self.box.execute("docker", sealed)[1]
        self.assertEqual(answer.get("code"), "feature_disabled")
        self.assertEqual(self.state("victim"), "running")

    def test_request_changed(self):
        self.sleeper("aa")
        self.sleeper("bb")
        sealed = self.box.sealed("docker", {"action": "stop", "container": "aa"})
        operation = secrets.token_hex(16)
        envelope = self.box.grant("docker", sealed, operation)
        other = dict(sealed, container=ENGINE.inspect("bb")["Id"])
        self.assertEqual(self.box.execute("docker", other, operation, envelope)[1].get("code"), "grant_digest_mismatch")
        self.assertEqual((self.state("aa"), self.state("bb")), ("running", "running"))

    def test_grant_is_used_once(self):
        sealed = self.box.sealed("docker", run_request(IMAGE, ["/bin/true"]))
        operation = secrets.token_hex(16)
        envelope = self.box.grant("docker", sealed, operation)
        self.assertEqual(self.box.execute("docker", sealed, operation, envelope)[1]["status"], "accepted")
        self.box.finish(operation)
        self.assertEqual(self.box.execute("docker", sealed, operation, envelope)[1].get("code"), "grant_replayed")
        self.assertEqual(len(ENGINE.names()), 1)

    def test_queue_refuses_what_changed_meanwhile(self):
        """Four run, the fifth waits with its grant unburnt; the policy changes before its turn."""
        running = [self.box.begin("docker", self.box.sealed("docker", run_request(IMAGE, ["/bin/sleep", "3"])))
                   for _ in range(4)]
        sealed = self.box.sealed("docker", run_request(IMAGE, ["/bin/true"], name="fifth"))
        operation, answer = self.box.execute("docker", sealed)
        self.assertEqual(answer["state"], "queued")
        self.assertEqual(self.box.status(operation)["state"], "queued")
        self.box.policy()
        for each in running:
            self.box.finish(each)
        outcome = self.box.finish(operation)
        self.assertEqual((outcome["state"], outcome["code"]), ("failed", "grant_old_generation"))
        self.assertNotIn("fifth", ENGINE.names())


class Queue(Case):
    settings = {"broker.queue_max": "2"}

    def test_four_at_once_then_a_queue_then_busy(self):
        sealed = [self.box.sealed("docker", run_request(IMAGE, ["/bin/sleep", "4"])) for _ in range(7)]
        answers = [self.box.execute("docker", s)[1] for s in sealed]
        self.assertEqual([a.get("state") for a in answers], ["executing"] * 4 + ["queued"] * 2 + [None])
        self.assertEqual(answers[6]["code"], "busy")
        self.assertEqual(self.box.health()["checks"]["operations"]["queued"], 2)
        eventually(lambda: not any(self.box.health()["checks"]["operations"].values()), "all end")
        self.assertEqual(len(ENGINE.names()), 6)


class Own(Case):
    """What is ours is so by identity."""
    settings = {"docker.protected_containers": "precious", "docker.protected_networks": "secret-net"}

    def test_our_containers_stay_ours_when_renamed(self):
        for name, code in (("app-hermes-broker-1", "floor_own_container"), ("precious", "floor_own_container")):
            self.sleeper(name)
            self.refused(code, {"action": "stop", "container": name})
            ident = ENGINE.inspect(name)["Id"]
            eventually(lambda: ident in self.remembered(), "it is known by its id")
            ENGINE.client("rename", name, "innocent")
            self.refused(code, {"action": "stop", "container": "innocent"})
            self.refused(code, {"action": "remove", "container": ident[:12], "force": True})
            self.assertEqual(self.state("innocent"), "running")
            # also for a process that has only just started
            self.box.stop()
            self.box.start()
            self.refused(code, {"action": "inspect", "container": "innocent"})
            ENGINE.client("rm", "-f", "innocent")

    def remembered(self):
        try:
            with open(self.box.state.file("docker/protected.json"), encoding="ascii") as f:
                return json.load(f)["containers"]
        except FileNotFoundError:
            return []

    def test_container_that_becomes_ours_after_approval(self):
        self.sleeper("plain")
        sealed = self.box.sealed("docker", {"action": "stop", "container": "plain"})
        ENGINE.client("rename", "plain", "hermes-approver")
        outcome = self.box.finish_sealed("docker", sealed)
        self.assertEqual(outcome["state"], "failed", outcome)
        self.assertEqual(outcome["code"], "floor_own_container")
        self.assertEqual(self.state("hermes-approver"), "running")

    def test_networks_of_ours(self):
        ENGINE.client("network", "create", "--internal", "secret-net")
        ENGINE.client("network", "create", "--internal", "control")
        self.refused("floor_own_network", run_request(IMAGE, network="secret-net"))
        ENGINE.client("run", "-d", "--name", "hermes-ssh", "--network", "control", IMAGE, "/bin/sleep", "600")
        self.refused("floor_own_network", run_request(IMAGE, network="control"))


class ProxyCase(Case):
    """Every request to the engine can be seen and held up."""

    def setUp(self):
        self.box = DockerBox(ENGINE, {"local.image": IMAGE}, group=GROUP)
        self.proxy = EngineProxy(self.box.dir, ENGINE.socket, GROUP)
        self.box.state.settings["docker.socket"] = self.proxy.socket
        self.box.state.write_config()
        self.addCleanup(self.box.__exit__)
        self.addCleanup(self.clear)
        self.addCleanup(self.proxy.stop)
        self.box.start()
        eventually(lambda: self.box.health()["checks"]["swept"], "the first sweep")
        self.proxy.clear()


class Crashes(ProxyCase):
    """The executor is killed at each step: nothing unapproved runs, nothing runs twice, nothing is left running."""

    def kill_all(self, request=None):
        """Executor and its workers, so that nothing can be put in order."""
        self.box.process.send_signal(signal.SIGSTOP)
        for pid in self.box.children():
            os.kill(pid, signal.SIGKILL)
        self.box.process.send_signal(signal.SIGKILL)
        self.box.process.wait(60)

    def crash_at(self, method, pattern, when, feature, request):
        sealed = self.box.sealed(feature, request)
        operation = secrets.token_hex(16)
        envelope = self.box.grant(feature, sealed, operation)
        self.proxy.clear()
        self.proxy.on(method, pattern, self.kill_all, when)
        self.box.execute(feature, sealed, operation, envelope)
        self.box.process.wait(60)
        self.proxy.clear()
        self.box.process = None
        self.box.start()
        self.assertEqual(self.box.status(operation)["state"], "outcome_unknown")
        eventually(lambda: self.box.health()["checks"]["swept"], "the sweep")
        again = self.box.execute(feature, sealed, operation, envelope)[1]
        self.assertEqual(again.get("code"), "grant_replayed")
        self.assertEqual(self.proxy.calls("POST", "/containers/create|/start$|/stop|/restart"), [])
        return operation

    STEPS = [("GET", r"^/containers/json", "before"), ("GET", r"^/images/", "after"),
             ("POST", "^/containers/create", "before"), ("POST", "^/containers/create", "after"),
             ("POST", "/attach", "before"), ("POST", "/wait", "before"), ("POST", "/start$", "before"),
             ("POST", "/start$", "after")]

    def test_run_killed_at_each_step(self):
        for method, pattern, when in self.STEPS:
            with self.subTest(step=pattern, when=when):
                self.crash_at(method, pattern, when, "docker", run_request(IMAGE, ["/bin/sleep", "600"], name="xx"))
                # never started: removed; started: ended
                eventually(lambda: self.states() in ([], ["exited"]), "nothing runs and nothing can be started")
                self.clear()

    def states(self):
        return sorted(ENGINE.inspect(i)["State"]["Status"] for i in ENGINE.containers(OPERATION))

    def test_sandbox_killed_at_each_step(self):
        for method, pattern, when in self.STEPS:
            with self.subTest(step=pattern, when=when):
                self.crash_at(method, pattern, when, "local", {"command": "sleep 600"})
                eventually(lambda: not ENGINE.containers(), "the sandbox is removed")

    def test_detached_killed_after_its_start_goes_on(self):
        self.crash_at("POST", "/start$", "after", "docker", run_request(IMAGE, ["/bin/sleep", "600"], name="dd", detach=True))
        self.assertEqual(self.state("dd"), "running")

    def test_change_killed_before_and_after(self):
        for when, state in (("before", "running"), ("after", "exited")):
            self.sleeper()
            self.crash_at("POST", "/stop", when, "docker", {"action": "stop", "container": "victim"})
            self.assertEqual(self.state("victim"), state)
            ENGINE.client("rm", "-f", "victim")

    def test_worker_alone_is_killed(self):
        sealed = self.box.sealed("docker", run_request(IMAGE, ["/bin/sleep", "600"], name="xx"))
        self.proxy.on("POST", "/start$", lambda r: [os.kill(p, signal.SIGKILL) for p in self.box.children()], "after")
        outcome = self.box.finish_sealed("docker", sealed)
        self.assertEqual((outcome["state"], outcome["code"]), ("outcome_unknown", "worker_died"))
        eventually(lambda: self.state("xx") == "exited", "what nobody waits for is ended")

    def test_labels_alone_move_nothing(self):
        """Somebody else's container with our labels, of an operation that the ledger doesn't know."""
        with open(self.box.state.file("public/host-id"), encoding="ascii") as f:
            host = f.read().strip()
        self.sleeper("stranger", "--label", "hermes-broker.host=" + host, "--label", OPERATION + "=" + "0" * 32,
                     "--label", "hermes-broker.kind=sandbox")
        self.box.stop()
        self.box.start()
        eventually(lambda: self.box.health()["checks"]["swept"], "the sweep")
        self.assertEqual(self.state("stranger"), "running")


class EngineTrouble(ProxyCase):
    """The engine goes away or answers half."""

    def test_create_whose_answer_is_lost(self):
        sealed = self.box.sealed("docker", run_request(IMAGE, ["/bin/sleep", "600"], name="xx"))
        self.proxy.on("POST", "/containers/create", self.lose, "after")
        outcome = self.box.finish_sealed("docker", sealed)
        self.assertEqual((outcome["state"], outcome["code"]), ("failed", "engine_bad_reply"), outcome)
        self.assertEqual(ENGINE.names(), [])

    @staticmethod
    def lose(request):
        raise OSError("the answer is lost")

    def test_start_whose_answer_is_lost(self):
        sealed = self.box.sealed("docker", run_request(IMAGE, ["/bin/sleep", "600"], name="xx"))
        self.proxy.on("POST", "/start$", self.lose, "after")
        outcome = self.box.finish_sealed("docker", sealed)
        self.assertEqual(outcome["state"], "outcome_unknown", outcome)
        self.assertEqual(ENGINE.names(), [])

    def test_h37_output_cut_but_the_end_is_learned(self):
        def cut(request):
            return (b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"
                    b"\x01\x00\x00\x00\x00\x00\x00\x05he")
        sealed = self.box.sealed("docker", run_request(IMAGE, ["/bin/sh", "-c", "exit 7"], name="xx"))
        self.proxy.on("POST", "/attach", cut, "answer")
        outcome = self.box.finish_sealed("docker", sealed)
        result = outcome["result"]
        self.assertEqual((outcome["state"], result["returncode"], result["output_incomplete"], result["output"]),
                         ("failed", 7, True, "he"))

    def test_wait_cut_then_inspected(self):
        sealed = self.box.sealed("docker", run_request(IMAGE, ["/bin/sh", "-c", "sleep 2; exit 9"], name="xx"))
        self.proxy.on("POST", "/wait", lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "answer")
        outcome = self.box.finish_sealed("docker", sealed)
        self.assertEqual((outcome["state"], outcome["result"]["returncode"], outcome["result"]["output_incomplete"]),
                         ("failed", 9, True))

    def test_exit_that_nobody_can_tell(self):
        lost = []

        def lose(request):
            lost.append(request)
            return b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"

        def too_late(request):
            if lost:
                eventually(lambda: not ENGINE.containers(), "the engine has removed it")

        sealed = self.box.sealed("docker", run_request(IMAGE, ["/bin/sh", "-c", "sleep 1"], auto_remove=True))
        self.proxy.on("POST", "/wait", lose, "answer")
        self.proxy.on("GET", "/json", too_late)
        outcome = self.box.finish_sealed("docker", sealed)
        self.assertEqual((outcome["state"], outcome["code"]), ("outcome_unknown", "exit_unknown"), outcome)

    def test_engine_gone(self):
        sealed = self.box.sealed("docker", run_request(IMAGE, ["/bin/true"]))
        self.proxy.stop()
        outcome = self.box.finish_sealed("docker", sealed)
        self.assertEqual((outcome["state"], outcome["code"]), ("failed", "engine_unreachable"))
        self.assertIn("can't be reached", self.box.health()["error"])
        self.assertEqual(self.box.seal("docker", run_request(IMAGE))["code"], "engine_unreachable")


if __name__ == "__main__":
    unittest.main()
