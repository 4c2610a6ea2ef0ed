"""The payload as a program of a real supervisord: the same promises as when we run it ourselves."""
import os
import re
import signal
import subprocess
import unittest

from runtime_harness import RuntimeCase, processes_of, wait_until
from supervisord import Supervisord

FAMILY = 3  # main process, a worker, an orphan in a session of its own


class SupervisordCase(RuntimeCase):
    def setUp(self):
        super().setUp()
        self.supervisord = Supervisord(os.path.join(self.top, "supervisord"))
        self.addCleanup(self.supervisord.stop)
        self.supervisord.start()
        self.name = "hermes-runtime-" + self.host_id[:8]

    def driver(self, **settings):
        return super().driver(**{**self.supervisord.settings(), **settings})

    def program_state(self):
        return self.supervisord.programs()[self.name]["statename"]


class Life(SupervisordCase):
    def test_started_and_stopped_through_its_socket(self):
        driver = self.driver()
        self.assertEqual(self.supervisord.programs(), {})
        self.assertEqual(driver.ask("start", spec=self.spec())["ok"], True)
        status = driver.status()
        self.assertEqual((status["process"]["state"], status["supervisor"]), ("healthy", "supervisord"))
        program = self.supervisord.programs()[self.name]
        self.assertEqual((program["statename"], program["pid"]), ("RUNNING", status["process"]["pid"]))
        self.assertEqual(processes_of(self.uid), [program["pid"]])
        with open(f"/proc/{program['pid']}/status", encoding="ascii") as f:
            self.assertIn(f"\nPPid:\t{self.supervisord.process.pid}\n", f.read())
        with open(f"/proc/{program['pid']}/environ", "rb") as f:
            self.assertNotIn(b"SUPERVISOR", f.read().upper())
        with open(self.supervisord.entry, encoding="ascii") as f:
            entry = f.read()
        for line in ("autostart=false", "autorestart=false", "stopsignal=TERM", "stopwaitsecs=2", "killasgroup=true"):
            self.assertIn(line + "\n", entry)
        self.assertNotIn("EXECUTOR", entry)
        spec = os.path.join(self.state, "installer/run-spec.json")
        self.assertEqual(os.stat(spec).st_mode & 0o777, 0o600)
        self.assertEqual(driver.ask("probe")["ok"], True)
        self.assertEqual(driver.ask("stop")["ok"], True)
        status = driver.status()
        self.assertEqual((status["process"]["state"], status["process"]["pid"]), ("stopped", 0))
        self.assertEqual((status["process"]["last_exit"]["status"], status["process"]["last_exit"]["clean"]), (130, True))
        self.assertIn(self.program_state(), ("STOPPED", "EXITED"))
        self.assertEqual(processes_of(self.uid), [])
        self.assertEqual(driver.ask("stop")["ok"], True)

    def test_each_isolation_and_one_release_after_another(self):
        driver = self.driver()
        for mode in ("namespaces", "chroot", "direct"):
            self.assertEqual(driver.ask("start", spec=self.spec(isolation=mode))["ok"], True, mode)
            self.assertEqual(driver.status()["isolation"], mode)
            self.assertEqual(len(processes_of(self.uid)), 1)
        self.assertEqual(driver.ask("stop")["ok"], True)
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            self.assertNotIn(self.state, f.read())

    def test_the_reason_of_an_exit_is_told(self):
        driver = self.driver()
        answer = driver.ask("start", spec=self.spec("--exit", "3"))
        self.assertEqual((answer["ok"], answer["code"]), (False, "exited"))
        self.assertIn("status 3", answer["error"])
        self.assertEqual(driver.ask("start", spec=self.spec())["ok"], True)
        first = driver.status()["process"]["pid"]
        os.kill(first, signal.SIGKILL)
        wait_until("another process", lambda: driver.status()["process"]["pid"] not in (0, first))
        status = driver.wait_state("healthy")
        self.assertIn("signal 9 (KILL)", status["health"]["last_failure"]["error"])
        self.assertEqual(status["process"]["restarts"], 1)

    def test_what_hermes_run_refuses_is_told(self):
        os.chmod(self.data, 0o755)
        answer = self.driver().ask("start", spec=self.spec())
        self.assertEqual(answer["code"], "data_permissions")
        self.assertIn("chmod 0700", answer["error"])

    def test_h25_crash_loop_is_given_up(self):
        driver = self.driver(restart_budget=2, health_sustain=0)
        self.assertEqual(driver.ask("start", spec=self.spec("--life", "1200"))["ok"], True)
        status = driver.wait_state("gave_up")
        self.assertEqual((status["process"]["restarts"], status["process"]["last_exit"]["status"]), (2, 7))
        self.assertEqual(processes_of(self.uid), [])

    def test_public_listener_is_stopped(self):
        answer = self.driver().ask("start", spec=self.spec("--listen", "0.0.0.0"))
        self.assertEqual((answer["ok"], answer["code"]), (False, "public_listener"))
        self.assertEqual(processes_of(self.uid), [])


class Ending(SupervisordCase):
    def test_stop_has_a_deadline(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec("--ignore-term"))
        self.assertEqual(driver.ask("stop")["ok"], True)
        last = driver.status()["process"]["last_exit"]
        self.assertEqual((last["how"], last["status"], last["clean"]), ("signal", 9, False))

    def test_h27_stop_ends_deaf_grandchildren_and_nobody_else(self):
        driver = self.driver()
        stranger = subprocess.Popen(["setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), "--clear-groups",
                                     "sleep", "600"], env={"HERMES_INSTANCE": "another"})
        self.addCleanup(lambda: (stranger.kill(), stranger.wait()))
        self.assertEqual(driver.ask("start", spec=self.spec("--family"))["ok"], True)
        wait_until("family and stranger", lambda: len(processes_of(self.uid)) == FAMILY + 1)
        self.assertEqual(driver.ask("stop")["ok"], True)
        self.assertEqual(processes_of(self.uid), [stranger.pid])
        self.assertEqual(driver.ask("start", spec=self.spec())["ok"], True, "the port is free")

    def test_payload_ends_when_the_installer_is_killed(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec("--family"))
        driver.process.kill()
        driver.process.wait()
        wait_until("end of the payload", lambda: not processes_of(self.uid))

    def test_what_a_killed_runner_left_is_stopped_first(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec("--family"))
        first = driver.status()["process"]["pid"]
        os.kill(driver.named_child("hermes-runner"), signal.SIGKILL)
        driver.process.wait(timeout=60)
        self.assertEqual(self.program_state(), "RUNNING")
        again = self.driver()
        self.assertEqual(again.ask("start", spec=self.spec())["ok"], True)
        self.assertNotEqual(again.status()["process"]["pid"], first)
        self.assertEqual(processes_of(self.uid), [again.status()["process"]["pid"]])


class Absent(SupervisordCase):
    def test_supervisord_that_is_not_there(self):
        self.supervisord.stop()
        driver = self.driver()
        answer = driver.ask("start", spec=self.spec())
        self.assertEqual((answer["ok"], answer["code"]), (False, "supervisord_unreachable"))
        self.assertIn(self.supervisord.socket, answer["error"])
        self.supervisord.start()
        self.assertEqual(driver.ask("start", spec=self.spec())["ok"], True)

    def test_supervisord_that_does_not_read_our_entry(self):
        self.supervisord.stop()
        self.supervisord = Supervisord(os.path.join(self.top, "other"), include=False).start()
        self.addCleanup(self.supervisord.stop)
        answer = self.driver().ask("start", spec=self.spec())
        self.assertEqual(answer["code"], "supervisord_failed")
        self.assertIn("[include]", answer["error"])

    def test_supervisord_that_dies_takes_the_payload_along_and_both_come_back(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec())
        first = driver.status()["process"]["pid"]
        self.supervisord.stop(kill=True)
        wait_until("end of the payload", lambda: not processes_of(self.uid))
        self.supervisord.start()
        wait_until("another process", lambda: driver.status()["process"]["pid"] not in (0, first))
        driver.wait_state("healthy")

    def test_what_the_runner_may_still_do(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec())
        with open(f"/proc/{driver.named_child('hermes-runner')}/status", encoding="ascii") as f:
            found = dict(re.findall(r"^(\w+):\t(.*)$", f.read(), re.M))
        allowed = sum(1 << bit for bit in (1, 5, 19, 21))  # DAC_OVERRIDE KILL SYS_PTRACE SYS_ADMIN
        self.assertEqual([int(found[c], 16) & ~allowed for c in ("CapPrm", "CapEff", "CapBnd")], [0] * 3)
        self.assertEqual((found["NoNewPrivs"], found["Seccomp"]), ("1", "2"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
