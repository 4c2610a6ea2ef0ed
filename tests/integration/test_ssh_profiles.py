#!/usr/bin/env python3
"""hermesctl ssh: profiles made, verified, changed and removed; commands run through broker, approver and executor."""
import json
import os
import pty
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))

from scratch_state import ScratchState  # noqa: E402
from ssh_harness import BUILD, PASSWORD, Box, Sshd, eventually, private_accounts  # noqa: E402
from test_launcher import Running, free_port  # noqa: E402

CTL = os.path.join(BUILD, "admin/hermesctl")


class Whole(Box):
    """The ssh executor with broker and approver in front of it."""

    GROUPS = {"broker": ["installer", "docker", "ssh", "approver"], "approver": ["broker"]}

    def __init__(self):
        self.others = []
        super().__init__()
        for name in ("approver", "broker"):
            self.start_other(name)

    def start_other(self, name):
        uid = self.state.uid(name)
        read, write = os.pipe()
        with open(self.state.file(f"log/{name}.log"), "ab") as log:
            process = subprocess.Popen(
                [os.path.join(BUILD, name, f"hermes-{name}"), "--state", self.state.path, "--ready-fd", str(write)],
                pass_fds=[write], user=uid, group=uid,
                extra_groups=[self.state.callers_gid(server) for server in self.GROUPS[name]],
                env={"PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        os.close(write)
        self.others.append(process)
        assert os.read(read, 1) == b"1", name
        os.close(read)

    def __exit__(self, *exc):
        for process in self.others:
            process.kill()
            process.wait()
        super().__exit__()

    def ctl(self, *args, code=0):
        done = subprocess.run([CTL, "--state", self.state.path, "--json", "--no-input", *args], capture_output=True,
                              text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)
        assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def typed(self, *args, answers):
        """In a terminal: each answer is typed when its question stands there. Returns exit code and what was shown."""
        pid, fd = pty.fork()
        if pid == 0:
            os.execv(CTL, [CTL, "--state", self.state.path, *args])
        shown = ""
        for question, answer in answers:
            while question not in shown.split("\0")[-1]:
                try:
                    shown += os.read(fd, 4096).decode()
                except OSError as error:
                    raise AssertionError(f"never asked {question!r}:\n{shown}") from error
            shown += "\0"
            time.sleep(0.05)
            os.write(fd, (answer + "\n").encode())
        while True:
            try:
                data = os.read(fd, 4096)
            except OSError:
                break
            if not data:
                break
            shown += data.decode()
        os.close(fd)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown

    def profiles(self):
        return sorted(os.listdir(self.state.file("ssh/profiles")))

    def post(self, path, body):
        return self.state.call("broker", "POST", path, body, {"X-Broker-Secret": self.state.secret}, 60)[1]


class ProfilesCase(unittest.TestCase):
    def setUp(self):
        self.server = Sshd(("ed25519", "rsa"))
        self.addCleanup(self.server.stop)
        self.box = Whole()
        self.addCleanup(self.box.__exit__)

    def add(self, name, *more, account="hbkey", code=0, fingerprint=None):
        return self.box.ctl("ssh", "profile", "add", "--host", "127.0.0.1", "--port", str(self.server.port), "--user", account,
                            "--fingerprint", fingerprint or self.server.fingerprint(), *more, name, code=code)


class Profiles(ProfilesCase):
    def test_new_key_from_add_to_run(self):
        made = self.add("web")
        self.assertTrue(made["public_key"].startswith("ssh-ed25519 "))
        self.assertEqual(sorted(os.listdir(self.box.state.file("ssh/profiles/web"))),
                         ["identity", "known_hosts", "profile.json"])
        self.assertEqual(self.box.call("GET", "/health")[1]["checks"]["profiles"], [{"name": "web", "auth": "publickey"}])
        ran = self.box.ctl("ssh", "run", "--approve", "web", "--", "id", "-un", code=1)
        self.assertEqual(ran["code"], "auth_failed")
        with open(self.server.path("authorized_hbkey"), "a", encoding="ascii") as f:
            f.write(made["public_key"])
        ran = self.box.ctl("ssh", "run", "--approve", "web", "--", "printf", "%s|", "a b", "", "$HOME")
        self.assertEqual((ran["state"], ran["result"]["output"]), ("succeeded", "a b||$HOME|"))
        ran = self.box.ctl("ssh", "run", "--approve", "--shell", "web", "--", "echo $((1+1)); exit 7", code=1)
        self.assertEqual((ran["state"], ran["result"]["output"], ran["result"]["returncode"]), ("failed", "2\n", 7))
        listed = self.box.ctl("ssh", "profile", "list")["profiles"]
        self.assertEqual([(p["name"], p["user"], p["authority"]) for p in listed], [("web", "hbkey", "user")])
        self.add("web", code=3)

    def test_given_identity(self):
        self.add("web", "--identity", self.server.key("hbkey"), "--authority", "sudo-nopasswd")
        self.assertEqual(self.box.ctl("ssh", "run", "--approve", "web", "--", "id", "-un")["result"]["output"], "hbkey\n")
        self.assertIn("remote_sudo", json.dumps(self.explain("web")))

    def explain(self, name):
        sealed = self.box.sealed(name, "true")
        done = subprocess.run([CTL, "explain"], capture_output=True, text=True, check=True,
                              input=json.dumps({"feature": "ssh", "request": sealed}))
        return json.loads(done.stdout)["warnings"]

    def test_what_add_refuses_leaves_nothing(self):
        other = self.server.fingerprint("ecdsa")
        self.assertEqual(self.add("web", fingerprint=other, code=3)["code"], "fingerprint_mismatch")
        self.assertEqual(self.add("web", fingerprint="SHA256:x", code=3)["code"], "bad_fingerprint")
        for more in (["--user", "-oProxyCommand=id"], ["--authority", "god"], ["--identity", "/etc/passwd"],
                     ["--auth", "agent"], ["--auth", "password", "--identity", self.server.key("hbkey")]):
            args = ["ssh", "profile", "add", "--host", "127.0.0.1", "--port", str(self.server.port), "--fingerprint",
                    self.server.fingerprint(), *(["--user", "hbkey"] if more[0] != "--user" else []), *more, "web"]
            done = subprocess.run([CTL, "--state", self.box.state.path, "--json", *args], capture_output=True,
                                  stdin=subprocess.DEVNULL, check=False)
            self.assertNotEqual(done.returncode, 0, more)
            self.assertEqual(self.box.profiles(), [], more)
        done = subprocess.run([CTL, "--state", self.box.state.path, "--json", "ssh", "profile", "add", "--host",
                               "-oProxyCommand=id", "--user", "x", "web"], capture_output=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        # A password is not taken from anywhere but a terminal.
        self.assertEqual(self.add("web", "--auth", "password", code=3)["code"], "no_terminal")
        self.assertEqual(self.box.profiles(), [])

    def test_typed_fingerprint_and_password(self):
        arguments = ["ssh", "profile", "add", "--host", "127.0.0.1", "--port", str(self.server.port), "--user", "hbpass",
                     "--auth", "password", "pw"]
        code, shown = self.box.typed(*arguments, answers=[
            ("somewhere else", self.server.fingerprint("rsa")), ("Password", PASSWORD), ("Again", PASSWORD)])
        self.assertEqual(code, 0, shown)
        self.assertNotIn(PASSWORD, shown)
        self.assertNotIn(self.server.fingerprint(), shown)
        self.assertEqual(self.box.ctl("ssh", "run", "--approve", "pw", "--", "id", "-un")["result"]["output"], "hbpass\n")
        before = self.box.sealed("pw", "true")["sealed_profile"]
        code, shown = self.box.typed("ssh", "profile", "set-password", "pw", answers=[("Password", "wrong"),
                                                                                     ("Again", "wrong")])
        self.assertEqual(code, 0, shown)
        after = self.box.sealed("pw", "true")["sealed_profile"]
        self.assertEqual({k for k in before if before[k] != after[k]}, {"credential_revision", "credential_tag"})
        self.assertEqual(self.box.ctl("ssh", "run", "--approve", "pw", "--", "id", code=1)["code"], "auth_failed")
        code, shown = self.box.typed("ssh", "profile", "set-password", "pw", answers=[("Password", "one"), ("Again", "two")])
        self.assertNotEqual(code, 0)
        self.assertEqual(self.box.sealed("pw", "true")["sealed_profile"], after)

    def test_nothing_is_typed_that_is_not_shown_to_be_right(self):
        code, _ = self.box.typed("ssh", "profile", "add", "--host", "127.0.0.1", "--port", str(self.server.port), "--user",
                                 "hbkey", "web", answers=[("somewhere else", self.server.fingerprint("ecdsa"))])
        self.assertNotEqual(code, 0)
        self.assertEqual(self.box.profiles(), [])

    def test_verify(self):
        self.add("web", "--identity", self.server.key("hbkey"))
        self.assertEqual(self.box.ctl("ssh", "profile", "verify", "web")["changed"], False)
        old = self.box.sealed("web", "id -un")
        self.server.replace_host_key("ed25519")
        self.server.restart()
        self.assertEqual(self.box.ctl("ssh", "run", "--approve", "web", "--", "id", code=1)["code"], "host_key_changed")
        self.assertEqual(self.box.ctl("ssh", "profile", "verify", "web", code=3)["code"], "host_key_changed")
        self.assertEqual(self.box.sealed("web", "id -un"), old)
        self.box.ctl("ssh", "profile", "verify", "--fingerprint", self.server.fingerprint("ecdsa"), "web", code=3)
        self.assertEqual(self.box.sealed("web", "id -un"), old)
        done = self.box.ctl("ssh", "profile", "verify", "--fingerprint", self.server.fingerprint(), "web")
        self.assertEqual(done["changed"], True)
        self.assertEqual(self.box.ctl("ssh", "run", "--approve", "web", "--", "id", "-un")["result"]["output"], "hbkey\n")
        self.server.halt()
        self.assertEqual(self.box.ctl("ssh", "profile", "verify", "web", code=6)["code"], "unreachable")

    def test_remove(self):
        self.add("web", "--identity", self.server.key("hbkey"))
        self.assertEqual(self.box.ctl("ssh", "profile", "remove", "web", code=3)["code"], "no_terminal")
        code, _ = self.box.typed("ssh", "profile", "remove", "web", answers=[("[yes/no]", "no")])
        self.assertEqual((code, self.box.profiles()), (3, ["web"]))
        code, _ = self.box.typed("ssh", "profile", "remove", "web", answers=[("[yes/no]", "yes")])
        self.assertEqual((code, self.box.profiles()), (0, []))
        self.box.ctl("ssh", "profile", "remove", "--yes", "web", code=8)
        self.assertEqual(self.box.ctl("ssh", "run", "--approve", "web", "--", "id", code=3)["code"], "profile_unknown")


class FixedRoutes(ProfilesCase):
    def test_a_plain_client(self):
        self.add("web", "--identity", self.server.key("hbkey"))
        found = self.box.post("/discover", {"kind": "ssh_profiles"})
        self.assertEqual((found["status"], [p["name"] for p in found["profiles"]]), ("ok", ["web"]))
        body = {"feature": "ssh", "request": {"profile": "web", "command": "echo hello; echo oops >&2; exit 5"},
                "user_id": "0", "session": "s"}
        op = self.box.post("/prepare", body)
        self.assertEqual(op["status"], "prepared", op)
        self.assertIn("| echo hello; echo oops >&2; exit 5\n", op["summary"])
        self.assertIn(f"fingerprint: {self.server.fingerprint()}\n", op["summary"])
        decided = self.box.state.call("approver", "POST", "/console/decide", {
            "operation_id": op["operation_id"], "decision": "approved", "digest": op["digest"]})[1]
        self.assertEqual(decided["status"], "ok")
        ran = self.box.post("/execute", {"feature": "ssh", "capability": op["capability"], "digest": op["digest"],
                                         "user_id": "0", "session": "s"})
        self.assertEqual((ran["status"], ran["returncode"], ran["output"], ran["truncated"], ran["timed_out"]),
                         ("executed", 5, "hello\noops\n", False, False))
        self.assertNotIn("error", ran)

    def test_h45_profile_edited_before_the_press(self):
        self.add("web", "--identity", self.server.key("hbkey"))
        body = {"feature": "ssh", "request": {"profile": "web", "command": "id"}, "user_id": "0", "session": "s"}
        op = self.box.post("/prepare", body)
        name = self.box.file("web", "profile.json")
        with open(name, encoding="utf-8") as f:
            fields = json.load(f)
        self.box.put("web", "profile.json", json.dumps({**fields, "user": "hbpass"}))
        self.box.state.call("approver", "POST", "/console/decide", {
            "operation_id": op["operation_id"], "decision": "approved", "digest": op["digest"]})
        ran = self.box.post("/execute", {"feature": "ssh", "capability": op["capability"], "digest": op["digest"],
                                         "user_id": "0", "session": "s"})
        self.assertEqual((ran["state"], ran["code"]), ("failed", "profile_changed"))
        eventually(lambda: "Accepted" not in self.server.text(), "nobody logged in")


class Authority(unittest.TestCase):
    def test_doctor_shows_profiles_in_the_ssh_executor_only(self):
        state = ScratchState(settings={"admin.listen": f"127.0.0.1:{free_port()}", "runtime.port": str(free_port()),
                                       "docker.socket": "/nonexistent/docker.sock"}, features=("ssh",))
        self.addCleanup(state.remove)
        state.write("ssh/integrity-secret", "ab" * 32 + "\n", 0o600, state.uid("ssh"), state.uid("ssh"))
        running = Running(state)
        self.addCleanup(running.close)

        def doctor():
            done = subprocess.run([CTL, "--state", state.path, "--json", "doctor", "--authority"], capture_output=True,
                                  text=True, timeout=60, check=False)
            return done.returncode, {c["check"]: c for c in json.loads(done.stdout)["checks"]}

        code, checks = doctor()
        self.assertEqual(code, 0, checks)
        self.assertEqual(checks["SSH profiles"]["found"], "hermes-ssh")
        self.assertEqual(checks["SSH integrity secret"]["found"], "hermes-ssh")
        self.assertIn("caps 0 bounding 0 no_new_privs 1 seccomp 2", checks["hermes-ssh"]["found"])
        os.chmod(state.file("ssh"), 0o755)
        os.chmod(state.file("ssh/profiles"), 0o755)
        code, checks = doctor()
        self.assertEqual((code, checks["SSH profiles"]["ok"], checks["SSH integrity secret"]["ok"]), (1, False, True))
        self.assertIn("hermes-broker", checks["SSH profiles"]["found"])


if __name__ == "__main__":
    private_accounts()
    unittest.main()
