#!/usr/bin/env python3
"""The main job as its user does it: a real image from a real registry becomes a running, healthy, verified service, with
a person's approval in between; and what happens when things go wrong around it."""
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fixtures"))
from registry import Registry, free_port  # noqa: E402
from system import CACHE, CTL, PROCESSES, System, wait_for  # noqa: E402
from telegram_emulator import Emulator  # noqa: E402


class Quickstart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="hb-e2e-")
        os.chmod(cls.dir, 0o755)
        layout = os.path.join(cls.dir, "layout")
        made = subprocess.run([sys.executable, os.path.join(HERE, "..", "fixtures", "payload_image.py"), layout,
                               "--cache", CACHE], check=True, capture_output=True, text=True)
        cls.digests = json.loads(made.stdout)
        cls.registry = Registry(parent=cls.dir)
        cls.registry.push(layout, "app", "executor:1.5.9")
        image = "%s/executor:1.5.9@%s" % (cls.registry.host, cls.digests["index"])
        cls.system = System(cls.dir, image, cls.registry.host)

    @classmethod
    def tearDownClass(cls):
        if os.path.exists(os.path.join(cls.system.state, "conf", "hermes.conf")):
            cls.system.ctl("down")
        cls.registry.stop()
        if os.environ.get("HB_KEEP"):
            print("kept:", cls.dir)
            return
        shutil.rmtree(cls.dir)

    def test_01_a_tag_alone_is_refused(self):
        r = self.system.ctl("quickstart", "--image", "127.0.0.1:1/executor:1.5.9", "--approve", check=3)
        self.assertEqual(r["code"], "image_not_pinned")

    def test_02_without_a_person_nothing_is_installed(self):
        r = self.system.quickstart("--no-input", check=3)
        self.assertIn(r["code"], ("no_terminal", "no_approver"))
        self.assertFalse(self.system.ctl("runtime", "status")["installed"])
        self.assertEqual(os.listdir(os.path.join(self.system.dir, "storage", "releases")), [])

    def test_03_installs_and_runs(self):
        r = self.system.quickstart("--approve")
        self.assertEqual(r["operation"]["state"], "succeeded")
        status = self.system.ctl("runtime", "status", check=0)
        self.assertEqual("sha256:" + status["manifest_digest"].removeprefix("sha256:"), self.digests["manifest"])
        self.assertEqual(sorted(status["health"]["tools"]), ["execute", "resume"])
        self.assertEqual(status["isolation"], "namespaces")
        self.assertTrue(self.system.runtime_pids())

    def test_04_again_changes_nothing(self):
        before = self.system.ctl("operations", "list")["operations"]
        r = self.system.quickstart("--approve")
        self.assertFalse(r["changed"])
        self.assertEqual(self.system.ctl("operations", "list")["operations"], before)

    def test_05_the_tree_verifies_and_a_changed_byte_is_found(self):
        self.assertTrue(self.system.ctl("runtime", "verify", check=0)["ok"])
        release = os.path.realpath(os.path.join(self.system.dir, "storage", "current"))
        victim = os.path.join(release, "rootfs", "app", "release")
        with open(victim, "r+b") as f:
            old = f.read(1)
            f.seek(0)
            f.write(b"X")
        r = self.system.ctl("runtime", "verify", check=1)
        self.assertEqual({d["path"].lstrip("./") for d in r["differences"]}, {"app/release"})
        with open(victim, "r+b") as f:
            f.write(old)
        os.utime(victim, (1700000000, 1700000000))

    def test_06_stop_start_restart_take_a_grant_each(self):
        self.system.ctl("runtime", "stop", "--approve", check=0)
        self.assertEqual(self.system.runtime_pids(), [])
        self.system.ctl("runtime", "start", "--approve", check=0)
        first = self.system.runtime_pids()
        self.system.ctl("runtime", "restart", "--approve", check=0)
        self.assertTrue(self.system.runtime_pids())
        self.assertFalse(set(first) & set(self.system.runtime_pids()))

    def test_06_backup_drill_and_restore(self):
        self.assertEqual(self.system.ctl("backup", "list", check=0)["backups"], [])
        r = self.system.ctl("runtime", "backup", "--approve", check=0)
        name = r["result"]["backup"]
        listed = self.system.ctl("backup", "list", check=0)["backups"]
        self.assertEqual([(b["name"], b["sha256"]) for b in listed], [(name, r["result"]["backup_sha256"])])
        self.assertTrue(self.system.ctl("backup", "verify", name, check=0)["ok"])
        self.assertTrue(self.system.ctl("backup", "drill", name, check=0)["drill"]["ok"])
        with open(os.path.join(self.system.data, "written-since"), "w", encoding="ascii"):
            pass
        self.system.ctl("runtime", "restore", name, "--approve", check=0)
        self.assertFalse(os.path.exists(os.path.join(self.system.data, "written-since")))
        wait_for(self.system.healthy, "health with the restored data")
        r = self.system.ctl("backup", "verify", "nothing.tar.zst", check=3)
        self.assertEqual(r["code"], "backup_missing")

    def test_07_kill_9_of_each_process_is_survived(self):
        for name in PROCESSES:
            with self.subTest(process=name):
                old = self.system.pid(name)
                os.kill(old, signal.SIGKILL)
                wait_for(lambda: self.system.pid(name) != old, name + " to come back")
                wait_for(lambda: self.system.ctl("status")["ok"], "health after kill -9 of " + name)
                wait_for(self.system.healthy, "the service after kill -9 of " + name)
                self.assertEqual(len(self.system.runtime_pids()), 1)

    def test_08_kill_9_of_the_payload_is_survived(self):
        old = self.system.runtime_pids()
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.system.runtime_pids() and not set(old) & set(self.system.runtime_pids()), "a new one")
        wait_for(self.system.healthy, "health")

    def test_09_a_denied_request_does_nothing(self):
        before = self.system.runtime_pids()
        p = subprocess.Popen([CTL, "--state", self.system.state, "--json", "runtime", "stop"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, _ = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 3, out)  # nobody to ask: taken back
        self.assertEqual(self.system.runtime_pids(), before)

    def test_09_a_person_answers_in_the_terminal(self):
        """A slip of the finger is asked again, and what was typed before the question stood there answers nothing."""
        before = self.system.runtime_pids()
        pid, fd = pty.fork()
        if pid == 0:
            os.execv(CTL, [CTL, "--state", self.system.state, "runtime", "stop"])
        os.write(fd, b"yes\n")
        shown = b""
        for answer in (b"maybe\n", b"no\n"):
            while not shown.endswith(b"[yes/no] "):
                shown += os.read(fd, 4096)
            shown += b"|"
            time.sleep(0.2)
            os.write(fd, answer)
        try:
            while chunk := os.read(fd, 4096):
                shown += chunk
        except OSError:
            pass  # the end of a terminal
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 4, shown)
        self.assertEqual(shown.count(b"Approve exactly this operation?"), 2)
        self.assertEqual(self.system.runtime_pids(), before)

    def test_09_a_group_of_commands_explains_itself(self):
        r = subprocess.run([CTL, "runtime", "--help"], capture_output=True, text=True)
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertIn("runtime install", r.stdout)
        r = subprocess.run([CTL, "runtime", "instal"], capture_output=True, text=True)
        self.assertEqual((r.returncode, r.stdout), (2, ""))
        self.assertIn('no command "runtime instal"', r.stderr)

    def test_10_audit_verifies_and_a_changed_byte_is_found(self):
        self.assertTrue(self.system.ctl("audit", "verify", check=0)["ok"])
        log = os.path.join(self.system.state, "approver", "audit.log")
        with open(log, "rb") as f:
            good = f.read()
        spoiled = bytearray(good)
        spoiled[len(good) // 2] ^= 1
        with open(log, "r+b") as f:
            f.write(spoiled)
        try:
            r = self.system.ctl("audit", "verify", check=1)
            self.assertEqual(r["chains"]["approver"]["status"], "broken")
        finally:
            with open(log, "r+b") as f:
                f.write(good)

    def test_11_doctor_finds_nothing(self):
        self.assertTrue(self.system.ctl("doctor", check=0)["ok"])
        self.assertTrue(self.system.ctl("doctor", "--authority", check=0)["ok"])

    def test_12_policy_change_kills_a_pending_approval(self):
        # A second client asks; before anybody decides, the policy changes.
        with open(os.path.join(self.system.state, "broker", "control-secret"), encoding="ascii") as f:
            secret = f.read().strip()
        body = json.dumps({"feature": "runtime", "request": {"action": "restart"}, "user_id": "0", "session": "s"})
        r = subprocess.run(["curl", "-s", "--unix-socket", "run/broker/sock", "-H", "X-Broker-Secret: " + secret,
                            "-H", "Content-Type: application/json", "-d", body, "http://broker/prepare"],
                           cwd=self.system.state, capture_output=True, text=True, check=True)
        operation = json.loads(r.stdout)["operation_id"]
        self.system.ctl("policy", "set", "--features", "runtime,ssh", check=0)
        wait_for(lambda: self.system.ctl("operations", "show", operation)["state"] == "revoked", "revocation")
        self.assertNotEqual(subprocess.run([CTL, "--state", self.system.state, "approve", "--yes", operation],
                                           capture_output=True).returncode, 0)

    def test_12b_bounds_replaced_by_an_editor_are_read_at_once(self):
        bounds = os.path.join(self.system.state, "conf", "bounds.conf")
        with open(bounds, encoding="utf-8") as f:
            text = f.read()
        with open(bounds + ".new", "w", encoding="utf-8") as f:
            f.write(text.replace("allowed = 0", "allowed = 0, 555"))
        os.rename(bounds + ".new", bounds)
        self.system.ctl("policy", "set", "--add-user", "555", check=0)
        wait_for(lambda: self.system.ctl("status")["ok"], "health with the new bounds")
        self.system.ctl("runtime", "restart", "--approve", check=0)

    def test_13_down_leaves_no_process(self):
        pids = [self.system.pid(n) for n in PROCESSES]
        self.system.ctl("down", check=0)
        for pid in pids:
            self.assertFalse(os.path.exists("/proc/%d" % pid))
        self.assertEqual(self.system.runtime_pids(), [])

    def test_14_up_brings_the_service_back(self):
        self.system.ctl("up", check=0)
        wait_for(self.system.healthy, "the service")

    def telegram(self, name):
        """A second installation beside the first, with a bot and user 777 as its only approver by phone."""
        where = os.path.join(self.dir, name)
        os.makedirs(where)
        system = System(where, self.system.image, self.registry.host)
        emulator = Emulator(where, free_port(), "123456789:" + "AAtest_token_of_the_emulator_00")
        self.addCleanup(emulator.stop)
        system.ctl("setup", "--image", system.image, "--insecure-registry", system.registry, "--user", "777",
                   *system.settings(), "--set", "approver.api_base=" + emulator.base, "--set",
                   "approver.poll_timeout=1", check=0)
        self.addCleanup(system.ctl, "down")
        token = os.path.join(system.state, "approver", "bot-token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
            f.write(emulator.token + "\n")
        os.chown(token, 10116, 10116)
        return system, emulator

    def quickstart_by_phone(self, system, emulator, label):
        p = subprocess.Popen([CTL, "--state", system.state, "--json", "quickstart", "--user", "777"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: [m for m in emulator.messages() if label in m["buttons"]], "buttons in the chat")
        message = [m for m in emulator.messages() if label in m["buttons"]][-1]
        self.assertIn(self.digests["index"], message["text"])
        emulator.tap(message, label, 777)
        out, err = p.communicate(timeout=120)
        return p.returncode, json.loads(out), err

    def test_15_installed_by_a_tap_in_telegram(self):
        self.system.ctl("down", check=0)
        system, emulator = self.telegram("phone")
        code, answer, err = self.quickstart_by_phone(system, emulator, "Approve once")
        self.assertEqual(code, 0, err)
        self.assertEqual(answer["operation"]["decided_by"], ["777"])
        self.assertTrue(system.healthy())

    def test_16_denied_in_telegram_installs_nothing(self):
        system, emulator = self.telegram("denied")
        code, answer, err = self.quickstart_by_phone(system, emulator, "Deny")
        self.assertEqual(code, 4, err)
        self.assertEqual(answer["operation"]["state"], "denied")
        self.assertEqual(os.listdir(os.path.join(system.dir, "storage", "releases")), [])
        self.assertFalse(system.ctl("runtime", "status")["installed"])


if __name__ == "__main__":
    unittest.main(failfast=True, verbosity=2)
