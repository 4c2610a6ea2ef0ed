"""Local commands: the promises of the sandbox, the same for a real Docker Engine and for bubblewrap."""
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))

from docker_harness import BUILD, DockerBox, eventually  # noqa: E402
from dockerd import Dockerd, rootfs_tar  # noqa: E402
from engine_proxy import EngineProxy  # noqa: E402

GROUP = 4900 + os.getpid() % 90
ENGINE = None
IMAGE = None
RELEASE = None
MTREE = b"#mtree\n. type=dir\n"


def make_release():
    path = tempfile.mkdtemp(prefix="hermes-release-", dir="/tmp")
    os.chmod(path, 0o755)
    os.mkdir(os.path.join(path, "rootfs"))
    with tarfile.open(fileobj=io.BytesIO(rootfs_tar())) as archive:
        archive.extractall(os.path.join(path, "rootfs"), filter="fully_trusted")
    with open(os.path.join(path, "manifest.mtree"), "wb") as f:
        f.write(MTREE)
    return path


def setUpModule():
    global ENGINE, IMAGE, RELEASE
    ENGINE = Dockerd(GROUP)
    IMAGE = ENGINE.image("base:1")
    RELEASE = make_release()


def tearDownModule():
    ENGINE.remove()
    subprocess.run(["rm", "-rf", RELEASE], check=True)


def processes(text):
    """Processes of this machine with `text` among their arguments."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if text.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def parent(pid):
    with open(f"/proc/{pid}/stat") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


def instead_of_bubblewrap(path):
    """What to put before the executor so that it finds this program."""
    return ["/usr/bin/unshare", "-m", "/bin/sh", "-c", f"mount --bind {path} /usr/bin/bwrap && exec \"$@\"", "sh"]


class Promises:
    """What holds for both backends; the subclasses say which."""
    settings = {}

    def make(self, wrap=(), **settings):
        box = DockerBox(self.engine(), {**self.base(), **self.settings, **settings}, wrap=wrap, group=self.group)
        self.addCleanup(box.__exit__)
        return box

    def setUp(self):
        self.box = self.make()
        self.box.start()
        self.mark = f"31{os.getpid()}{id(self) % 100000}"  # a number of seconds that nothing else sleeps

    def inside(self, command, **fields):
        outcome = self.box.local(command, **fields)
        self.assertEqual(outcome["state"], "succeeded", outcome)
        return outcome["result"]["output"]

    def nothing_left(self):
        eventually(lambda: not processes(self.mark), "every process of it is gone")
        self.assertEqual(ENGINE.containers(), [])

    def test_identity_and_rights(self):
        text = self.inside("id -u; id -g; grep -E 'Cap(Eff|Prm|Bnd|Amb)|NoNewPrivs|Seccomp:' /proc/self/status")
        self.assertEqual(text.split()[:2], ["10002", "10002"])
        self.assertEqual(set(v for k, v in (line.split() for line in text.splitlines()[2:]) if k.startswith("Cap")),
                         {"0000000000000000"})
        self.assertIn("NoNewPrivs:\t1", text)
        self.assertIn("Seccomp:\t2", text)

    def test_only_the_workspace_is_writable(self):
        text = self.inside("for d in / /bin /etc /data /workspace /tmp; do touch $d/probe 2>/dev/null && echo $d; done; true")
        self.assertEqual(text.split(), ["/workspace", "/tmp"])
        self.assertEqual(os.listdir(self.box.workspace), ["probe"])
        self.assertEqual(self.inside("ls /tmp"), "")

    def test_workdir(self):
        os.mkdir(os.path.join(self.box.workspace, "sub"))
        self.assertEqual(self.inside("pwd", workdir="/workspace/sub"), "/workspace/sub\n")

    def test_no_network_unless_asked(self):
        text = self.inside("ls /sys/class/net 2>/dev/null; cat /proc/net/dev | wc -l; nc -w 1 1.1.1.1 80 2>/dev/null; echo $?")
        self.assertEqual(text.split()[-2:], ["3", "1"])  # two lines of heading and loopback; not reachable

    def test_net_raw_only_when_asked(self):
        self.assertEqual(self.inside("grep CapBnd /proc/self/status").split()[1], "0000000000000000")
        self.assertEqual(self.inside("grep CapBnd /proc/self/status", net_raw=True).split()[1], "0000000000002000")

    def test_environment_is_clean(self):
        names = {line.split("=")[0] for line in self.inside("env").splitlines()}
        self.assertLessEqual(names, {"PATH", "HOME", "TMPDIR", "HOSTNAME", "PWD", "SHLVL", "OLDPWD"})

    def test_processes_and_memory_are_limited(self):
        box = self.make(**{"local.pids_limit": "16", "local.memory_mb": "32"})
        box.start()
        outcome = box.local("for i in $(seq 40); do sleep 20 & done; echo made; kill $(ps -o pid | tail -n +2) 2>/dev/null")
        self.assertIn("fork", outcome["result"]["output"].lower())
        outcome = box.local("head -c 200000000 /dev/zero | tail -c 199000000 | wc -c")
        self.assertNotIn("199000000", outcome["result"]["output"])
        box.stop()

    def test_exit_status(self):
        outcome = self.box.local("echo a; echo b >&2; exit 42")
        result = outcome["result"]
        self.assertEqual((outcome["state"], result["returncode"], result["stderr"]), ("failed", 42, "b\n"))

    def test_h39_background_child_holds_the_pipe(self):
        outcome = self.box.local(f"sleep {self.mark} & echo done")
        self.assertEqual((outcome["state"], outcome["result"]["output"]), ("succeeded", "done\n"))
        self.nothing_left()

    def test_h39_tail_of_300_kb(self):
        outcome = self.box.local("head -c 300000 /dev/zero | tr '\\0' x; echo END")
        result = outcome["result"]
        self.assertEqual((result["output_bytes"], len(result["output"]), result["truncated"]), (300004, 12000, True))
        self.assertTrue(result["output"].endswith("xEND\n"))

    def test_h39_endless_output(self):
        outcome = self.box.local("yes", timeout=6)
        result = outcome["result"]
        self.assertEqual((outcome["code"], result["timed_out"], result["returncode"]), ("timeout", True, 124))
        self.assertGreater(result["output_bytes"], 1000000)
        self.assertLessEqual(len(result["output"]), 12000)
        self.assertTrue(result["truncated"])
        self.nothing_left()

    def test_h39_child_in_its_own_session(self):
        outcome = self.box.local(f"setsid sh -c 'while :; do echo more; sleep {self.mark}; done' & sleep 1; echo end")
        self.assertEqual(outcome["state"], "succeeded")
        self.assertTrue(outcome["result"]["output"].endswith("end\n"))
        self.nothing_left()

    def test_h39_timeout_ends_the_whole_tree(self):
        outcome = self.box.local(f"trap '' TERM INT HUP; setsid sleep {self.mark} & sleep {self.mark}", timeout=8)
        self.assertEqual((outcome["state"], outcome["code"]), ("failed", "timeout"))
        self.assertIn("was ended", outcome["error"])
        self.nothing_left()

    def test_stop_of_the_executor_ends_it(self):
        operation = self.box.begin("local", self.box.sealed("local", {"command": f"sleep {self.mark}"}))
        eventually(lambda: processes(self.mark), "it runs")
        self.box.stop()
        self.nothing_left()
        self.box.start()
        self.assertEqual(self.box.status(operation)["code"], "interrupted")

    def test_crash_of_the_executor_ends_it(self):
        operation = self.box.begin("local", self.box.sealed("local", {"command": f"sleep {self.mark}"}))
        eventually(lambda: processes("sleep\0" + self.mark), "it runs")
        self.box.crash()
        self.box.start()
        eventually(lambda: not processes("sleep\0" + self.mark), "it is ended")
        eventually(lambda: not ENGINE.containers(), "and removed")
        self.assertEqual(self.box.status(operation)["state"], "outcome_unknown")

    def test_workspace_generation_is_raised(self):
        for change in (self.box.policy, self.replace_workspace, self.other_limits):
            with self.subTest(change=change.__name__):
                sealed = self.box.sealed("local", {"command": "touch /workspace/ran"})
                change()
                operation, answer = self.box.execute("local", sealed)
                if answer.get("status") == "accepted":
                    answer = self.box.finish(operation)
                self.assertIn(answer.get("code"), ("workspace_changed",))
                self.assertEqual(os.listdir(self.box.workspace), [])

    def replace_workspace(self):
        os.rename(self.box.workspace, self.box.workspace + ".old")
        os.mkdir(self.box.workspace)
        st = os.stat(self.box.workspace + ".old")
        os.chown(self.box.workspace, st.st_uid, st.st_gid)

    def other_limits(self):
        self.box.stop()
        self.box.state.settings["local.memory_mb"] = "1024"
        self.box.state.write_config()
        self.box.start()

    def test_workspace_that_is_not_fit(self):
        for make, code in ((lambda b: os.chown(b.workspace, 0, 0), "workspace_owner"),
                           (lambda b: os.rename(b.workspace, b.workspace + "x"), "workspace_missing")):
            box = self.make()
            box.start()
            make(box)
            self.assertEqual(box.seal("local", {"command": "true"})["code"], code)
            box.stop()
        box = self.make(**{"local.workspace": "/tmp"})  # holds our state
        box.start()
        self.assertEqual(box.seal("local", {"command": "true"})["code"], "floor_bind")
        box.stop()
        box = self.make(**{"local.workspace": ""})
        box.start()
        self.assertEqual(box.seal("local", {"command": "true"})["code"], "local_not_configured")
        box.stop()

    def test_floor_holds_for_commands(self):
        self.assertEqual(self.box.seal("local", {"command": "rm -rf /"})["code"][:6], "floor_")


class InDocker(Promises, unittest.TestCase):
    group = property(lambda self: GROUP)

    @staticmethod
    def engine():
        return ENGINE

    @staticmethod
    def base():
        return {"local.image": IMAGE}

    def test_container_has_gone_afterwards(self):
        self.box.local("true")
        self.box.local("exit 3")
        self.box.local("/no/such/thing")
        self.assertEqual(ENGINE.containers(), [])

    def test_out_of_memory_is_told(self):
        box = self.make(**{"local.memory_mb": "16"})
        box.start()
        outcome = box.local("x=$(head -c 100000000 /dev/zero | tr '\\0' a); echo lives")
        self.assertEqual(outcome["result"]["returncode"], 137)
        self.assertTrue(outcome["result"]["oom_killed"])
        box.stop()

    def test_image_with_places_of_its_own(self):
        image = ENGINE.image("volumes:1", "VOLUME /data")
        box = self.make(**{"local.image": image})
        box.start()
        self.assertEqual(box.seal("local", {"command": "true"})["code"], "image_has_volumes")
        box.stop()

    def test_egress_only_when_asked(self):
        proxy = EngineProxy(self.box.dir, ENGINE.socket, GROUP)
        self.addCleanup(proxy.stop)
        box = self.make(**{"docker.socket": proxy.socket})
        box.start()
        for network, mode in (("none", "none"), ("egress", "bridge")):
            proxy.clear()
            box.local("true", network=network)
            sent = json.loads(proxy.calls("POST", "/containers/create")[0][2])
            self.assertEqual(sent["HostConfig"]["NetworkMode"], mode)
        box.stop()


class InBubblewrap(Promises, unittest.TestCase):
    group = None

    @staticmethod
    def engine():
        return None

    @staticmethod
    def base():
        return {"local.backend": "bubblewrap", "local.release": RELEASE,
                "local.image": "sha256:" + hashlib.sha256(MTREE).hexdigest()}

    def test_egress_is_refused(self):
        answer = self.box.seal("local", {"command": "true", "network": "egress"})
        self.assertEqual(answer["code"], "sandbox_no_egress")

    def test_no_further_namespaces(self):
        for raw in (False, True):
            outcome = self.box.local("mount -t tmpfs x /tmp 2>/dev/null; echo $?", net_raw=raw)
            self.assertEqual(outcome["result"]["output"].split()[-1], "1")
            outcome = self.box.local("busybox unshare -U true 2>/dev/null; echo $?", net_raw=raw)
            self.assertEqual(outcome["result"]["output"].split()[-1], "1")

    def test_the_host_cannot_be_seen(self):
        text = self.inside("ls / ; ls /proc | grep -c '^[0-9]'; cat /proc/1/cmdline | tr '\\0' ' '")
        self.assertEqual(set(text.split()[:9]), {"bin", "data", "dev", "etc", "proc", "run", "tmp", "workspace"} |
                         {text.split()[8]})
        self.assertNotIn(self.box.dir, text)
        self.assertNotIn(RELEASE, text)

    def test_net_raw_works(self):
        self.assertIn("1 packets received", self.inside("ping -c 1 127.0.0.1", net_raw=True))

    def test_cgroup_gets_the_limits(self):
        """A directory in place of a cgroup: what is written, and that it is cleared away or refused."""
        group = os.path.join(self.box.dir, "group")
        os.mkdir(group)
        os.chown(group, self.box.uid, self.box.uid)
        box = self.make(**{"local.cgroup": group})
        box.start()
        answer = box.seal("local", {"command": "true"})
        # no kernel puts the files there, so the limits can't be set and nothing is run without them
        self.assertEqual(answer["code"], "sandbox_no_cgroup", answer)
        self.assertIn("memory.max", answer["error"])
        self.assertEqual(os.listdir(group), [])
        box.stop()

    def test_release_must_be_the_pinned_one(self):
        box = self.make(**{"local.image": "sha256:" + "0" * 64})
        box.start()
        self.assertEqual(box.seal("local", {"command": "true"})["code"], "release_differs")
        box.stop()
        sealed = self.box.sealed("local", {"command": "touch /workspace/ran"})
        path = os.path.join(RELEASE, "manifest.mtree")
        try:
            with open(path, "ab") as f:
                f.write(b"x")
            outcome = self.box.finish_sealed("local", sealed)
            self.assertEqual((outcome["state"], outcome["code"]), ("failed", "release_differs"))
        finally:
            with open(path, "wb") as f:
                f.write(MTREE)
        os.chmod(RELEASE, 0o777)
        try:
            self.assertEqual(self.box.seal("local", {"command": "true"})["code"], "loose_permissions")
        finally:
            os.chmod(RELEASE, 0o755)
        self.assertEqual(os.listdir(self.box.workspace), [])

    def test_h40_kernel_denies_it(self):
        deny = os.path.join(BUILD, "tests", "tools", "deny_exec")
        for call, word in (("unshare", "CLONE_NEWUSER"), ("mount", "mounting is denied")):
            with self.subTest(call=call):
                box = self.make(wrap=[deny, call, "--"])
                box.start()
                answer = box.seal("local", {"command": "touch /workspace/ran"})
                self.assertEqual(answer["code"], "sandbox_unavailable", answer)
                self.assertIn(word, answer["error"])
                self.assertIn("not run", answer["error"])
                self.assertEqual(os.listdir(box.workspace), [])
                box.stop()

    def test_h40_denied_between_approval_and_run(self):
        sealed = self.box.sealed("local", {"command": "touch /workspace/ran"})
        self.box.stop()
        self.box.wrap = [os.path.join(BUILD, "tests", "tools", "deny_exec"), "mount", "--"]
        self.box.start()
        outcome = self.box.finish_sealed("local", sealed)
        self.assertEqual((outcome["state"], outcome["code"]), ("failed", "sandbox_unavailable"))
        self.assertEqual(os.listdir(self.box.workspace), [])

    def test_h40_helper_is_missing(self):
        empty = os.path.join(self.box.dir, "empty")
        with open(empty, "wb"):
            pass
        box = self.make(wrap=instead_of_bubblewrap(empty))
        box.start()
        answer = box.seal("local", {"command": "touch /workspace/ran"})
        self.assertEqual(answer["code"], "sandbox_helper_missing", answer)
        self.assertIn("apt-get install bubblewrap", answer["error"])
        self.assertEqual(os.listdir(box.workspace), [])

    def begin_slowly(self, command):
        """Begun with a bubblewrap that stays where its inner process does not die with it; the pid of the outer."""
        sealed = self.box.sealed("local", {"command": command})
        self.box.stop()
        self.box.wrap = instead_of_bubblewrap(os.path.join(BUILD, "tests", "tools", "slow_bwrap"))
        self.box.start()
        self.box.begin("local", sealed)
        both = eventually(lambda: len(found := processes(self.mark)) == 2 and found, "both are there")
        return next(pid for pid in both if parent(pid) not in both)

    def test_stop_while_the_sandbox_is_built(self):
        self.begin_slowly(f"sleep {self.mark}")
        self.box.stop()
        self.nothing_left()

    def test_crash_while_the_sandbox_is_built(self):
        self.begin_slowly(f"sleep {self.mark}")
        self.box.crash()
        self.nothing_left()

    def test_nothing_is_run_without_its_keeper(self):
        ran = os.path.join(self.box.workspace, "ran")
        outer = self.begin_slowly(f"touch {ran}; exec sleep {self.mark}")
        os.kill(parent(outer), signal.SIGKILL)
        self.nothing_left()
        self.assertFalse(os.path.exists(ran))

    def test_runner_that_dies_takes_the_executor_along(self):
        """Without it no command can be run; the launcher starts both anew."""
        runner = self.box.children()[0]
        os.kill(runner, signal.SIGKILL)
        self.assertEqual(self.box.process.wait(60), 71)
        self.box.process = None


if __name__ == "__main__":
    unittest.main()
