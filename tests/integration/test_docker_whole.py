"""Docker and sandbox operations through every process: hermesctl, broker, approver, hermes-docker, a real engine."""
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
from registry import free_port  # noqa: E402
from scratch_state import ScratchState  # noqa: E402
from test_launcher import Running  # noqa: E402

BUILD = os.environ["HB_BUILD"]
CTL = os.path.join(BUILD, "admin", "hermesctl")
GROUP = 4600 + os.getpid() % 90


class Whole(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = Dockerd(GROUP)
        cls.addClassCleanup(cls.engine.remove)
        cls.image = cls.engine.image("base:1")
        cls.workspace = tempfile.mkdtemp(prefix="hermes-workspace-", dir="/tmp")
        cls.addClassCleanup(shutil.rmtree, cls.workspace)
        os.chmod(cls.workspace, 0o755)
        os.chown(cls.workspace, 10002, 10002)
        cls.state = ScratchState(features=("local", "docker"), settings={
            "admin.listen": f"127.0.0.1:{free_port()}", "runtime.port": str(free_port()),
            "docker.socket": cls.engine.socket, "local.image": cls.image, "local.workspace": cls.workspace})
        cls.addClassCleanup(cls.state.remove)
        cls.running = Running(cls.state)
        cls.addClassCleanup(cls.running.close)

    def ctl(self, *args, code=0):
        done = subprocess.run([CTL, "--state", self.state.path, "--json", "--no-input", *args], capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, (args, done.stdout[-2000:], done.stderr[-2000:]))
        return json.loads(done.stdout)

    def broker(self, path, body):
        return self.state.call("broker", "POST", path, body, {"X-Broker-Secret": self.state.secret}, timeout=60)[1]

    def test_life_of_a_container(self):
        final = self.ctl("docker", "run", "--approve", "--name", "web", "--detach", "--env", "A=b", self.image, "--",
                         "/bin/sh", "-c", "echo up; sleep 600")
        self.assertEqual((final["feature"], final["action"], final["state"]), ("docker", "run", "succeeded"))
        listed = json.loads(self.ctl("docker", "list", "--approve")["result"]["output"])
        self.assertEqual([(c["name"], c["state"]) for c in listed], [("web", "running")])
        found = self.broker("/discover", {"kind": "docker_containers"})
        self.assertEqual([c["name"] for c in found["containers"]], ["web"])
        self.assertEqual(self.ctl("docker", "logs", "--approve", "--tail", "5", "web")["result"]["output"], "up\n")
        self.assertIn("A=<redacted>", self.ctl("docker", "inspect", "--approve", "web")["result"]["output"])
        for action in ("stop", "start", "restart"):
            self.assertEqual(self.ctl("docker", action, "--approve", "web")["state"], "succeeded")
        self.assertEqual(self.ctl("docker", "remove", "--approve", "web", code=1)["state"], "failed")
        self.assertEqual(self.ctl("docker", "remove", "--approve", "--force", "web")["state"], "succeeded")
        self.assertEqual(self.engine.names(), [])

    def test_sandbox(self):
        final = self.ctl("sandbox", "run", "--approve", "--", "echo \"$0 here\"; id -u; touch made")
        self.assertEqual(final["result"]["output"], "/bin/sh here\n10002\n")
        self.assertEqual(os.listdir(self.workspace), ["made"])
        final = self.ctl("sandbox", "run", "--approve", "--", "printf", "%s|", "two words", "it's", "$HOME")
        self.assertEqual(final["result"]["output"], "two words|it's|$HOME|")
        final = self.ctl("sandbox", "run", "--approve", "--timeout", "8", "--", "sleep", "600", code=1)
        self.assertEqual((final["code"], final["result"]["timed_out"]), ("timeout", True))
        self.assertEqual(self.engine.containers(), [])

    def test_plain_http_client(self):
        """The fixed routes, as a client that knows nothing of hermesctl uses them."""
        asked = {"feature": "docker", "request": {"action": "run", "image": self.image, "command": ["/bin/echo", "hi"]},
                 "user_id": "0", "session": "s"}
        prepared = self.broker("/prepare", asked)
        self.assertEqual(prepared["status"], "prepared", prepared)
        self.assertIn(self.image, prepared["summary"])
        decided = self.state.call("approver", "POST", "/console/decide", {
            "operation_id": prepared["operation_id"], "decision": "approved", "digest": prepared["digest"]})[1]
        self.assertEqual(decided["status"], "ok", decided)
        body = {k: prepared[k] for k in ("capability", "digest")}
        done = self.broker("/execute", {"feature": "docker", "user_id": "0", "session": "s", **body})
        self.assertEqual((done["status"], done["returncode"], done["output"], done["timed_out"], done["truncated"]),
                         ("executed", 0, "hi\n", False, False))
        self.engine.client("rm", done["result"]["container"])

    def test_refusals_reach_the_client(self):
        self.assertEqual(self.ctl("docker", "stop", "--approve", "nobody", code=3)["code"], "container_unknown")
        self.assertEqual(self.ctl("docker", "run", "--approve", "--privileged", self.image, code=3)["code"], "out_of_bounds")

    def test_authority_holds(self):
        found = self.ctl("doctor", "--authority")
        self.assertTrue(found["ok"], found)
        # the socket is reachable for one process alone: by its group, and root's own
        for name in ("broker", "fetcher", "ssh", "approver", "admin", "docker"):
            with open(f"/proc/{self.running.pid_of(name)}/status", encoding="ascii") as f:
                groups = [line.split()[1:] for line in f if line.startswith("Groups:")][0]
            self.assertEqual(str(GROUP) in groups, name == "docker", name)


if __name__ == "__main__":
    unittest.main()
