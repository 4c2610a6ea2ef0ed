#!/usr/bin/env python3
"""manage.sh as a person uses it: in a terminal, from a script, and with half of it missing."""
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.abspath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(HERE, "..", "fixtures"))
from installation import BUILD, EmptyEngine, Installation  # noqa: E402

MANAGE = os.path.join(SOURCE, "manage.sh")
TOKEN = "123456789:AAEhBOweik6ad9r_QXMENQjcrGbqCr4K-bc"


class Terminal:
    """A program with a terminal of its own, answered when it asks."""

    def __init__(self, args, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(args[0], args, env)
        self.text = ""

    def read_until(self, pattern, seconds=30):
        end = time.monotonic() + seconds
        while not (pattern and re.search(pattern, self.text)):
            if time.monotonic() > end:
                raise AssertionError("the terminal never showed %r:\n%s" % (pattern, self.text))
            if not select.select([self.fd], [], [], 0.2)[0]:
                continue
            try:
                piece = os.read(self.fd, 4096)
            except OSError:  # EIO: nobody holds the other side any more
                piece = b""
            if not piece:
                break
            self.text += piece.decode(errors="replace")

    def send(self, line):
        os.write(self.fd, line.encode() + b"\n")

    def end(self):
        self.read_until(None)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return code


class Verbs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.i = Installation("approver.api_base=http://127.0.0.1:9", users=("111",))
        cls.engine = EmptyEngine(os.path.join(cls.i.dir, "docker.sock"))
        cls.i.up()
        cls.env = dict(os.environ, BUILD=BUILD)

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()
        cls.i.close()

    def manage(self, *args, code=0, text=False):
        r = subprocess.run([MANAGE, *args, "--state", self.i.state] + ([] if text else ["--json"]), env=self.env,
                           capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
        self.assertEqual(r.returncode, code, "%s\n%s\n%s" % (args, r.stdout, r.stderr))
        return r.stdout + r.stderr if text else json.loads(r.stdout) if r.stdout.strip() else None

    def terminal(self, *args, answers=()):
        t = Terminal([MANAGE, *args, "--state", self.i.state], self.env)
        for pattern, line in answers:
            t.read_until(pattern)
            t.send(line)
        code = t.end()
        return code, t.text

    def live(self):
        return json.loads(self.i.read("policy/policy.json"))

    def test_help_names_every_verb(self):
        text = self.manage("help", text=True)
        for verb in ("quickstart up down status execution execution-status set-execution-approval-bot-token "
                     "set-execution-users add-execution-user remove-execution-user enable-execution disable-execution "
                     "enable-execution-admin disable-execution-admin execution-admin-status "
                     "configure-execution-admin-browser show-execution-admin-key rotate-execution-admin-key "
                     "rotate-execution-broker-secret add-ssh-profile verify-ssh-profile set-ssh-profile-password "
                     "remove-ssh-profile purge-execution health doctor backup backup-list restore update rollback "
                     "lock-images verify-images").split():
            self.assertIn(verb, text)
        self.manage("no-such-verb", code=2, text=True)

    def test_help_of_quickstart_when_built(self):
        self.assertIn("--registry-mirror URL", self.manage("quickstart", "--help", text=True))

    def test_users(self):
        r = self.manage("set-execution-users", "0,111")
        self.assertEqual(r["users"], ["0", "111"])
        g = r["policy_generation"]
        r = self.manage("add-execution-user", "333")  # not in the bounds yet: root puts it there
        self.assertEqual((r["users"], r["policy_generation"]), (["0", "111", "333"], g + 1))
        self.assertIn("333", self.i.read("conf/bounds.conf"))
        self.assertEqual(self.manage("add-execution-user", "333")["policy_generation"], g + 1)  # safe to repeat
        self.assertEqual(self.manage("remove-execution-user", "333")["users"], ["0", "111"])
        self.assertEqual(self.manage("remove-execution-user", "333", code=8)["code"], "not_found")
        self.manage("add-execution-user", "abc", code=2)
        self.manage("add-execution-user", code=2, text=True)
        self.assertEqual(self.i.ctl("audit", "show", "--process", "admin", "--limit", "1")["records"][0]["action"], "users")

    def test_features(self):
        self.manage("enable-execution", "all")
        self.assertEqual(self.live()["features"], ["runtime", "local", "docker", "ssh"])
        self.manage("disable-execution", "docker")
        self.assertEqual(self.live()["features"], ["runtime", "local", "ssh"])
        self.manage("disable-execution", "all")
        self.assertEqual(self.live()["features"], ["runtime"])
        self.manage("enable-execution", "root", code=2)

    def test_policy_can_be_changed_while_admin_is_down(self):
        self.i.down()
        try:
            self.manage("enable-execution", "ssh")
            self.assertIn("ssh", self.live()["features"])
        finally:
            self.i.up()
        self.manage("disable-execution", "ssh")

    def test_a_bot_token_is_typed_in_a_terminal_and_not_shown(self):
        self.manage("set-execution-approval-bot-token", TOKEN, code=2, text=True)
        self.assertFalse(os.path.exists(self.i.file("approver/bot-token")))
        self.assertEqual(self.manage("set-execution-approval-bot-token", code=3)["code"], "no_terminal")
        code, text = self.terminal("set-execution-approval-bot-token", answers=[("not shown", "********")])
        self.assertEqual(code, 3)
        self.assertFalse(os.path.exists(self.i.file("approver/bot-token")))
        code, text = self.terminal("set-execution-approval-bot-token", answers=[("not shown", TOKEN)])
        self.assertEqual(code, 0, text)
        self.assertNotIn(TOKEN, text)
        self.assertEqual(self.i.secret("approver/bot-token"), TOKEN)
        self.manage("clear-execution-approval-bot-token")
        self.assertFalse(os.path.exists(self.i.file("approver/bot-token")))

    def test_the_admin_key_is_shown_to_a_person_only(self):
        key = self.i.secret("admin/admin-key")
        r = subprocess.run([MANAGE, "show-execution-admin-key", "--state", self.i.state], env=self.env,
                           capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertNotEqual(r.returncode, 0)
        self.assertNotIn(key, r.stdout + r.stderr)
        code, text = self.terminal("show-execution-admin-key")
        self.assertEqual((code, key in text), (0, True))
        self.manage("rotate-execution-admin-key")
        self.assertNotEqual(self.i.secret("admin/admin-key"), key)

    def test_control_secret(self):
        old = self.i.secret("broker/control-secret")
        self.manage("rotate-execution-broker-secret")
        self.assertNotEqual(self.i.secret("broker/control-secret"), old)
        self.i.ctl("operations", "list", check=0)

    def test_browser_origins_and_addresses(self):
        bad = [("*",), ("http://*.example",), ("null",), ("http://a.example/",), ("ftp://a.example",), ("http://A.example",),
               ("http://a.example", "0.0.0.0"), ("http://a.example", "8.8.8.8"), ("http://a.example", "224.0.0.1"),
               ("http://a.example", "::"), ("http://a.example", "2001:db8::1"), ("http://a.example", "ff02::1"),
               ("http://a.example", "127.0.0.1"), ("http://a.example", "localhost"), ("http://a.example", "169.254.1.1")]
        before = self.i.read("conf/hermes.conf")
        for args in bad:
            with self.subTest(args=args):
                r = subprocess.run([MANAGE, "configure-execution-admin-browser", *args, "--state", self.i.state],
                                   env=self.env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
                self.assertIn(r.returncode, (2, 3), r.stderr)
        self.assertEqual(self.i.read("conf/hermes.conf"), before)
        self.manage("configure-execution-admin-browser", "http://127.0.0.1:9797")
        self.manage("configure-execution-admin-browser", "http://127.0.0.1:9797")
        status = self.manage("execution-admin-status")
        self.assertEqual(status["allowed_origins"].count("http://127.0.0.1:9797"), 1)
        self.assertIn("http://127.0.0.1:8787", status["allowed_origins"])
        r = subprocess.run(["curl", "-s", "-i", "-H", "Origin: http://127.0.0.1:9797",
                            "http://127.0.0.1:%d/health" % self.i.port], capture_output=True, text=True)
        self.assertIn("Access-Control-Allow-Origin: http://127.0.0.1:9797", r.stdout)

    def test_endpoint_off_and_on(self):
        url = "http://127.0.0.1:%d/health" % self.i.port
        self.manage("disable-execution-admin")
        self.assertEqual(subprocess.run(["curl", "-s", url]).returncode, 7)
        self.assertFalse(self.manage("execution-admin-status")["enabled"])
        self.manage("add-execution-user", "111")  # the command line still works
        self.manage("enable-execution-admin")
        self.assertEqual(subprocess.run(["curl", "-s", "-o", "/dev/null", url]).returncode, 0)

    def test_health_and_status(self):
        self.assertTrue(self.manage("health", "--wait", "20")["ok"])
        self.assertIn("services", self.manage("execution-status"))
        self.manage("health", "--wait", "x", code=2, text=True)
        self.assertIn("Processes", self.manage("status", text=True))

    def test_the_menu(self):
        code, text = self.terminal("execution", answers=[
            ("Choice:", "5"), ("all:", "ssh"), ("Policy generation[^$]*Choice:", "6"), ("disable a feature[^$]*all:[^$]*all:", "ssh"),
            ("Policy generation[^$]*Policy generation[^$]*Choice:", "q")])
        self.assertEqual(code, 0, text)
        self.assertNotIn("ssh", self.live()["features"])
        self.manage("execution", code=2, text=True)

    def test_images(self):
        self.assertEqual(self.manage("lock-images", code=3)["code"], "not_installed")
        self.assertEqual(self.manage("verify-images", code=8)["code"], "not_found")


class Purge(unittest.TestCase):
    def test_purge_wants_the_word_and_keeps_the_data(self):
        i = Installation(users=())
        try:
            i.up()
            env = dict(os.environ, BUILD=BUILD)
            data = os.path.join(i.dir, "storage")
            t = Terminal([MANAGE, "purge-execution", "--state", i.state], env)
            t.read_until("Type purge-execution")
            t.send("yes")
            self.assertEqual(t.end(), 3)
            self.assertTrue(os.path.exists(i.file("conf/hermes.conf")))
            r = subprocess.run([MANAGE, "purge-execution", "--state", i.state], env=env, stdin=subprocess.DEVNULL,
                               capture_output=True)
            self.assertEqual(r.returncode, 3)
            pids = [i.pid(p) for p in ("broker", "approver", "admin")]
            t = Terminal([MANAGE, "purge-execution", "--state", i.state], env)
            t.read_until("Type purge-execution")
            t.send("purge-execution")
            self.assertEqual(t.end(), 0, t.text)
            self.assertFalse(os.path.exists(i.state))
            self.assertTrue(os.path.isdir(data))
            for pid in pids:
                self.assertFalse(os.path.exists("/proc/%d" % pid))
        finally:
            shutil.rmtree(i.dir, ignore_errors=True)


class HalfAScript(unittest.TestCase):
    """A copy in a directory of its own, where every program it could start is one that leaves a mark."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="hb-half-")
        cls.bin = os.path.join(cls.dir, "bin")
        cls.marks = os.path.join(cls.dir, "marks")
        os.makedirs(cls.bin)
        os.makedirs(cls.marks)
        for name in ("apt-get sudo meson ninja dpkg-query env id dirname grep rm hermesctl cat sleep command_not_found "
                     "m ma mai e ex exi").split():
            path = os.path.join(cls.bin, name)
            with open(path, "w", encoding="ascii") as f:
                f.write("#!/bin/sh\n: >'%s/%s'\n" % (cls.marks, name))
            os.chmod(path, 0o755)
        with open(MANAGE, "rb") as f:
            cls.script = f.read()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def run_cut(self, size, verb="quickstart", piped=False):
        path = os.path.join(self.dir, "manage.sh")
        with open(path, "wb") as f:
            f.write(self.script[:size])
        args = ["/bin/bash", "-s", verb] if piped else ["/bin/bash", path, verb]
        with open(path, "rb") as f:
            return subprocess.run(args, stdin=f if piped else subprocess.DEVNULL, capture_output=True, cwd=self.dir,
                                  env={"PATH": self.bin}, timeout=20)

    def test_h69_nothing_happens_unless_the_whole_script_was_read(self):
        end = len(self.script.rstrip())
        # Every byte of the head and of the tail, where something could begin to run; the body in steps.
        sizes = sorted(set(range(0, 400)) | set(range(400, end, 37)) | set(range(end - 400, end)))
        for size in sizes:
            for piped in (False, True):
                if piped and size % 5:
                    continue
                r = self.run_cut(size, piped=piped)
                self.assertEqual(r.stdout, b"", size)
                self.assertEqual(os.listdir(self.marks), [], "cut at byte %d of %d" % (size, end))
        self.run_cut(end)
        self.assertNotEqual(os.listdir(self.marks), [])  # the whole one does start something
        for name in os.listdir(self.marks):
            os.unlink(os.path.join(self.marks, name))

    def test_help_installs_and_builds_nothing(self):
        with open(os.path.join(self.dir, "manage.sh"), "wb") as f:
            f.write(self.script)
        for verb in ("quickstart", "build"):
            for option in (["--help"], ["-h"], ["--no-input", "--help"]):
                r = subprocess.run(["/bin/bash", os.path.join(self.dir, "manage.sh"), verb, *option], cwd=self.dir,
                                   stdin=subprocess.DEVNULL, capture_output=True, env={"PATH": self.bin}, timeout=20)
                started = set(os.listdir(self.marks))
                for name in started:
                    os.unlink(os.path.join(self.marks, name))
                self.assertEqual(r.returncode, 0, r.stderr)
                self.assertIn("cat", started)  # what prints it
                self.assertLessEqual(started, {"cat", "dirname"})

    def test_h69_a_failure_in_a_pipe_is_not_hidden(self):
        with open(os.path.join(self.dir, "manage.sh"), "wb") as f:
            f.write(self.script)
        # Without deploy/packages.debian the list of packages can't be made: that is an error, not an empty list.
        r = subprocess.run(["/bin/bash", os.path.join(self.dir, "manage.sh"), "build"], stdin=subprocess.DEVNULL,
                           capture_output=True, cwd=self.dir, timeout=20)
        self.assertNotEqual(r.returncode, 0)
        self.assertFalse(os.path.exists(os.path.join(self.dir, "build")))


class Lint(unittest.TestCase):
    def test_shellcheck_finds_nothing(self):
        r = subprocess.run(["shellcheck", MANAGE], capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
