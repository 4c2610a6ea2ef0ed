#!/usr/bin/env python3
"""Clients that exist: curl over loopback TCP, one request a connection, completes an operation of each executor."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))

from dockerd import Dockerd  # noqa: E402
from scratch_state import ScratchState  # noqa: E402
from ssh_harness import Sshd, eventually, private_accounts  # noqa: E402
from test_launcher import Running, free_port  # noqa: E402

BUILD = os.environ["HB_BUILD"]
CTL = os.path.join(BUILD, "admin", "hermesctl")
GROUP = 4400 + os.getpid() % 90
SILENCE = 330  # seconds after which such a client gives up on /execute


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = Dockerd(GROUP)
        cls.addClassCleanup(cls.engine.remove)
        cls.image = cls.engine.image("base:1")
        cls.server = Sshd()
        cls.addClassCleanup(cls.server.stop)
        cls.dir = tempfile.mkdtemp(prefix="hermes-client-", dir="/tmp")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        os.chmod(cls.dir, 0o755)
        cls.workspace = os.path.join(cls.dir, "workspace")
        os.mkdir(cls.workspace)
        os.chown(cls.workspace, 10002, 10002)
        cls.ports = (free_port(), free_port())
        cls.state = ScratchState(features=("local", "docker", "ssh"), settings={
            "admin.listen": f"127.0.0.1:{free_port()}", "runtime.port": str(free_port()),
            "broker.listen_tcp": ", ".join(f"127.0.0.1:{port}" for port in cls.ports),
            "docker.socket": cls.engine.socket, "local.image": cls.image, "local.workspace": cls.workspace})
        cls.addClassCleanup(cls.state.remove)
        uid = cls.state.uid("ssh")
        cls.state.write("ssh/integrity-secret", os.urandom(32).hex() + "\n", 0o600, uid, uid)
        # As such clients send it, and nowhere among arguments.
        cls.header = os.path.join(cls.dir, "header")
        with open(os.open(cls.header, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
            f.write(f"X-Broker-Secret: {cls.state.secret}\nConnection: close\nContent-Type: application/json\n")
        cls.running = Running(cls.state)
        cls.addClassCleanup(cls.running.close)
        cls.ctl("ssh", "profile", "add", "--host", "127.0.0.1", "--port", str(cls.server.port), "--user", "hbkey",
                "--fingerprint", cls.server.fingerprint(), "web")
        # `add` made a key for this profile: its public half goes to the server, as its person would put it there.
        made = subprocess.run(["ssh-keygen", "-y", "-f", cls.state.file("ssh/profiles/web/identity")], capture_output=True,
                              check=True).stdout
        with open(cls.server.path("authorized_hbkey"), "ab") as f:
            f.write(made)

    @classmethod
    def ctl(cls, *args):
        done = subprocess.run([CTL, "--state", cls.state.path, "--json", "--no-input", *args], capture_output=True,
                              text=True, timeout=SILENCE, check=False)
        if done.returncode:
            raise AssertionError((args, done.returncode, done.stdout[-2000:], done.stderr[-2000:]))
        return json.loads(done.stdout) if done.stdout else {}

    def curl(self, path, body=None, port=0, header=None):
        """A curl that is under way."""
        command = ["curl", "--silent", "--show-error", "--http1.1", "--fail-with-body", "--max-time", str(SILENCE),
                   f"http://127.0.0.1:{self.ports[port]}{path}"]
        if path != "/health":
            command += ["--header", "@" + (header or self.header)]
        if body is not None:
            command += ["--data-binary", "@-"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(json.dumps(body).encode("ascii") if body is not None else b"")
        process.stdin.close()
        process.stdin = None
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def answer(self, process):
        out, error = process.communicate(timeout=SILENCE)
        self.assertEqual(process.returncode, 0, (out, error))
        return json.loads(out.decode("utf-8"))

    def ask(self, path, body=None, **how):
        return self.answer(self.curl(path, body, **how))

    def prepare(self, feature, request, port=0):
        prepared = self.ask("/prepare", {"feature": feature, "request": request, "user_id": "0", "session": "chat-1"},
                            port=port)
        self.assertEqual(prepared.get("status"), "prepared", prepared)
        return prepared

    def execute(self, feature, prepared, port=0):
        return self.curl("/execute", {"feature": feature, "capability": prepared["capability"],
                                      "digest": prepared["digest"], "user_id": "0", "session": "chat-1"}, port=port)

    def complete(self, feature, request, port):
        """Prepare, wait in /execute, a person approves what the approver shows, the result comes."""
        prepared = self.prepare(feature, request, port)
        waiting = self.execute(feature, prepared, port)
        self.assertIsNone(waiting.poll())
        self.assertEqual(self.ask("/operations/" + prepared["operation_id"], port=port)["state"], "awaiting_approval")
        self.ctl("approve", "--yes", prepared["operation_id"])
        done = self.answer(waiting)
        self.assertEqual((done.get("status"), done.get("returncode")), ("executed", 0), done)
        self.assertFalse(done["truncated"] or done["timed_out"])
        self.assertIsInstance(done["duration"], (int, float))
        again = self.ask("/operations/" + prepared["operation_id"], port=port)
        self.assertEqual((again["state"], again["digest"]), ("succeeded", prepared["digest"]))
        return prepared, done

    def test_docker(self):
        prepared, done = self.complete("docker", {"action": "run", "image": self.image, "name": "hello",
                                                  "command": ["/bin/echo", "gr\u00fc\u00dfe"], "auto_remove": True}, 0)
        self.assertIn(self.image, prepared["summary"])
        self.assertEqual(done["output"], "gr\u00fc\u00dfe\n")
        self.assertEqual(self.engine.names(), [])

    def test_local(self):
        prepared, done = self.complete("local", {"command": "id -u; echo kept > made"}, 0)
        self.assertIn("id -u; echo kept > made", prepared["summary"])
        self.assertEqual(done["output"], "10002\n")
        with open(os.path.join(self.workspace, "made"), encoding="ascii") as f:
            self.assertEqual(f.read(), "kept\n")

    def test_ssh(self):
        prepared, done = self.complete("ssh", {"profile": "web", "command": "id -un; echo $0"}, 1)
        self.assertIn("hbkey", prepared["summary"])
        self.assertEqual(done["output"].splitlines()[0], "hbkey")

    def test_denied_runs_nothing(self):
        prepared = self.prepare("local", {"command": "touch never"})
        waiting = self.execute("local", prepared)
        self.ctl("deny", "--yes", prepared["operation_id"])
        refused = self.answer(waiting)
        self.assertEqual(refused.get("code"), "denied", refused)
        self.assertFalse(os.path.exists(os.path.join(self.workspace, "never")))

    def test_cancel_ends_the_waiting(self):
        prepared = self.prepare("ssh", {"profile": "web", "command": "touch never"}, 1)
        waiting = self.execute("ssh", prepared, 1)
        self.assertEqual(self.ask("/cancel", {"capability": prepared["capability"]}, port=1)["status"], "cancelled")
        self.assertEqual(self.answer(waiting).get("code"), "cancelled")
        self.assertFalse(os.path.exists(self.server.path("hbkey/never")))

    def test_client_that_gave_up_finds_the_result(self):
        prepared = self.prepare("local", {"command": "echo later"})
        self.end(self.execute("local", prepared))
        self.ctl("approve", "--yes", prepared["operation_id"])
        asked = {"feature": "local", "capability": prepared["capability"], "digest": prepared["digest"], "user_id": "0",
                 "session": "chat-1"}
        done = self.ask("/execute", asked)  # whether or not the first one had arrived
        self.assertEqual((done.get("status"), done.get("output")), ("executed", "later\n"), done)
        self.assertEqual(self.ask("/execute", asked).get("output"), "later\n")
        found = self.ask("/operations/" + prepared["operation_id"])
        self.assertEqual((found["state"], found["result"]["output"]), ("succeeded", "later\n"))

    def test_discover_and_health(self):
        found = self.ask("/discover", {"kind": "ssh_profiles"}, port=1)
        self.assertEqual([p["name"] for p in found["profiles"]], ["web"])
        self.assertEqual(self.ask("/discover", {"kind": "docker_containers"})["status"], "ok")
        health = self.ask("/health")
        self.assertEqual((health["status"], sorted(health["checks"]["features"])), ("ok", ["docker", "local", "ssh"]))

    def published(self, name):
        """As a uid reads it that is nobody's."""
        return subprocess.run(["cat", self.state.file("policy/" + name)], user=65534, group=65534, extra_groups=[],
                              capture_output=True, text=True, check=True).stdout

    def test_what_such_clients_read_as_text(self):
        self.addCleanup(self.ctl, "policy", "set", "--features", "local,docker,ssh")
        generations = []
        for features in (["local", "ssh"], ["docker", "local", "ssh"]):
            self.ctl("policy", "set", "--features", ",".join(features))
            text = self.published("features")
            self.assertEqual((sorted(text.strip().split(",")), text.count("\n")), (features, 1))
            self.assertEqual(self.published("users"), "0\n")
            generations.append(int(self.published("policy-generation")))
        self.assertGreater(generations[1], generations[0])

    def test_wrong_secret(self):
        wrong = os.path.join(self.dir, "wrong")
        with open(wrong, "w", encoding="ascii") as f:
            f.write("X-Broker-Secret: " + "0" * 64 + "\n")
        process = self.curl("/prepare", {"feature": "local", "request": {"command": "true"}, "user_id": "0", "session": "s"},
                            header=wrong)
        out, _ = process.communicate(timeout=SILENCE)
        self.assertEqual(process.returncode, 22)  # what curl says of a status that is not 2xx
        self.assertNotIn(b"capability", out)

    def test_authority_is_where_it_belongs(self):
        found = self.ctl("doctor", "--authority")
        self.assertTrue(found["ok"], found)
        eventually(lambda: self.running.pid_of("ssh"), "hermes-ssh is there")
        for name in ("broker", "fetcher", "ssh", "approver", "admin", "docker"):
            root = f"/proc/{self.running.pid_of(name)}/status"
            with open(root, encoding="ascii") as f:
                lines = dict(line.rstrip("\n").split(":", 1) for line in f if ":" in line)
            self.assertEqual(str(GROUP) in lines["Groups"].split(), name == "docker", name)
            self.assertEqual(int(lines["Uid"].split()[1]) == os.stat(self.state.file("ssh/profiles")).st_uid,
                             name == "ssh", name)


if __name__ == "__main__":
    private_accounts()
    unittest.main()
