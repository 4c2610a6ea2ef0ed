"""The supervisor with its workers: starting, health, restarts, and the end of the whole tree."""
import os
import re
import signal
import socket
import subprocess
import unittest

from runtime_harness import RuntimeCase, group_of, processes_of, wait_until

WORKER_LOST = 75
FAMILY = 3  # main process, a worker, an orphan in a session of its own


class Start(RuntimeCase):
    def fails(self, code, *arguments, settings=None, **changes):
        driver = self.driver(**(settings or {}))
        answer = driver.ask("start", spec=self.spec(*arguments, **changes))
        self.assertEqual((answer["ok"], answer["code"]), (False, code), answer)
        status = driver.status()
        self.assertEqual(status["process"]["state"], "stopped")
        self.assertEqual(status["desired"], "stopped")
        self.assertEqual(status["health"]["last_failure"]["code"], code)
        self.assertEqual(processes_of(self.uid), [])
        return answer, status

    def test_healthy_and_stopped_cleanly(self):
        driver = self.driver()
        self.assertEqual(driver.ask("start", spec=self.spec())["ok"], True)
        status = driver.status()
        self.assertEqual(status["process"]["state"], "healthy")
        self.assertEqual(status["isolation"], "namespaces")
        self.assertEqual(status["address"], f"http://127.0.0.1:{self.port}")
        self.assertEqual(status["health"]["checks"],
                         {"http": "ok", "mcp_challenge": "ok", "mcp_tools": "not configured", "listeners": "ok"})
        self.assertEqual(processes_of(self.uid), [status["process"]["pid"]])
        self.assertEqual(driver.ask("probe")["ok"], True)
        self.assertEqual(driver.ask("stop")["ok"], True)
        status = driver.status()
        self.assertEqual((status["process"]["state"], status["process"]["pid"]), ("stopped", 0))
        self.assertEqual((status["process"]["last_exit"]["status"], status["process"]["last_exit"]["clean"]), (130, True))
        self.assertIsNone(status["health"]["last_failure"])
        self.assertEqual(driver.ask("stop")["ok"], True)
        self.assertEqual(driver.ask("probe")["code"], "not_running")
        self.assertEqual(driver.states, ["starting", "starting", "running", "healthy", "stopping", "stopped"])

    def test_each_isolation(self):
        driver = self.driver()
        for mode in ("namespaces", "chroot", "direct"):
            self.assertEqual(driver.ask("start", spec=self.spec(isolation=mode))["ok"], True, mode)
            self.assertEqual(driver.status()["isolation"], mode)
        self.assertEqual(driver.ask("stop")["ok"], True)
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            self.assertNotIn(self.state, f.read())

    def test_starting_another_release_stops_the_first(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec())
        first = driver.status()["process"]["pid"]
        driver.ask("start", spec=self.spec("--wrapper"))
        self.assertFalse(os.path.exists(f"/proc/{first}"))
        self.assertEqual(len(processes_of(self.uid)), 2)

    def test_dies_at_once(self):
        answer, status = self.fails("exited", "--exit", "3")
        self.assertIn("status 3", answer["error"])
        self.assertEqual(status["process"]["last_exit"]["status"], 3)

    def test_hermes_run_refuses(self):
        os.chmod(self.data, 0o755)
        answer, _ = self.fails("data_permissions")
        self.assertIn("chmod 0700", answer["error"])

    def test_environment_that_is_too_large(self):
        answer, _ = self.fails("bad_spec", env={f"V{i}": "x" * 1000 for i in range(250)})
        self.assertIn("have more than", answer["error"])

    def test_h25_health_alone_is_not_enough(self):
        answer, status = self.fails("mcp_failed", "--no-challenge", settings={"start_timeout": 3})
        self.assertIn("without a key", answer["error"])
        self.assertEqual(status["health"]["checks"]["http"], "ok")

    def test_h25_serves_a_while_then_exits(self):
        driver = self.driver(health_sustain=4)
        answer = driver.ask("start", spec=self.spec("--life", "2500"))
        self.assertEqual((answer["ok"], answer["code"]), (False, "exited"))
        self.assertIn("running", driver.states)
        self.assertNotIn("healthy", driver.states)

    def test_wrong_body_is_not_health(self):
        self.fails("not_ready", "--health", '{"status":"starting","note":"\\"status\\":\\"ok\\""}',
                   settings={"start_timeout": 3})

    def test_never_listens(self):
        answer, _ = self.fails("not_ready", "--late", "600000", settings={"start_timeout": 2})
        self.assertIn("does not listen", answer["error"])

    def test_listens_late(self):
        self.assertEqual(self.driver().ask("start", spec=self.spec("--late", "2500"))["ok"], True)

    def test_public_listener_is_stopped(self):
        answer, status = self.fails("public_listener", "--listen", "0.0.0.0")
        self.assertIn(f"0.0.0.0:{self.port}", answer["error"])
        self.assertIn(f"0.0.0.0:{self.port}", status["health"]["checks"]["listeners"])

    def test_public_udp_socket_is_stopped(self):
        answer, _ = self.fails("public_listener", "--udp", "0.0.0.0")
        self.assertIn("udp 0.0.0.0", answer["error"])

    def test_loopback_udp_socket_is_fine(self):
        self.assertEqual(self.driver().ask("start", spec=self.spec("--udp", "127.0.0.1"))["ok"], True)

    def test_public_listener_of_a_running_payload(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec())
        with socket.socket() as s:  # the same user, from outside the tree
            s.bind(("0.0.0.0", 0))
            s.listen()
            os.fchown(s.fileno(), self.uid, self.uid)
            status = driver.wait_state("gave_up")
        self.assertEqual(status["health"]["last_failure"]["code"], "public_listener")
        self.assertEqual((status["desired"], processes_of(self.uid)), ("running", []))

    def test_port_is_taken_before(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", self.port))
            s.listen()
            answer, _ = self.fails("port_in_use")
        self.assertIn("uid 0", answer["error"])

    def test_port_is_taken_by_another_while_starting(self):
        driver = self.driver(start_timeout=60)
        driver.send("start", spec=self.spec("--late", "3000"))
        wait_until("start", lambda: driver.status()["process"]["pid"])
        with socket.socket() as s:
            s.bind(("127.0.0.1", self.port))
            s.listen()
            answer = driver.answers.get(timeout=60)
            s.setblocking(False)
            with self.assertRaises(BlockingIOError):  # nobody asked the stranger for its health
                s.accept()
        self.assertEqual(answer["code"], "port_in_use")

    def test_stop_while_starting(self):
        driver = self.driver()
        driver.send("start", spec=self.spec("--late", "600000"))
        wait_until("start", lambda: driver.status()["process"]["pid"])
        driver.send("stop")
        answers = {a["done"]: a for a in (driver.answers.get(timeout=60), driver.answers.get(timeout=60))}
        self.assertEqual((answers["start"]["code"], answers["stop"]["ok"]), ("cancelled", True))
        self.assertEqual(processes_of(self.uid), [])

    def test_stop_before_the_workers_are_up(self):
        driver = self.driver()
        driver.send("start", spec=self.spec())
        driver.send("stop")
        answers = {a["done"]: a for a in (driver.answers.get(timeout=60), driver.answers.get(timeout=60))}
        self.assertEqual((answers["start"]["code"], answers["stop"]["ok"]), ("cancelled", True))
        self.assertEqual(driver.status()["process"]["state"], "stopped")

    def test_a_second_start_takes_the_place_of_the_first(self):
        driver = self.driver()
        driver.send("start", spec=self.spec("--late", "600000"))
        wait_until("start", lambda: driver.status()["process"]["pid"])
        driver.send("start", spec=self.spec())
        answers = [driver.answers.get(timeout=60), driver.answers.get(timeout=60)]
        self.assertEqual([(a["ok"], a["code"]) for a in answers], [(False, "cancelled"), (True, "")])
        self.assertEqual(len(processes_of(self.uid)), 1)

    def test_output_goes_to_the_log(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec("--report"))
        log = os.path.join(self.state, "installer/runtime.log")
        self.assertEqual(os.stat(log).st_mode & 0o777, 0o600)
        with open(log, encoding="utf-8") as f:
            self.assertIn("REPORT {", f.read())


class Restart(RuntimeCase):
    def test_h25_crash_loop_is_given_up_and_remembered(self):
        driver = self.driver(restart_budget=2, health_sustain=0)
        self.assertEqual(driver.ask("start", spec=self.spec("--life", "1200"))["ok"], True)
        status = driver.wait_state("gave_up")
        self.assertEqual(status["process"]["restarts"], 2)
        self.assertEqual(status["process"]["last_exit"]["status"], 7)
        self.assertEqual(status["health"]["last_failure"]["code"], "exited")
        self.assertEqual(status["desired"], "running")
        self.assertEqual([s for s in driver.states if s == "backoff"], ["backoff"] * 2)
        self.assertEqual(processes_of(self.uid), [])
        # A later success doesn't wipe what happened.
        self.assertEqual(driver.ask("start", spec=self.spec())["ok"], True)
        status = driver.status()
        self.assertEqual(status["health"]["last_failure"]["code"], "exited")
        self.assertEqual((status["process"]["restarts"], status["health"]["ok"]), (0, True))

    def test_killed_payload_comes_back(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec())
        first = driver.status()["process"]["pid"]
        os.kill(first, signal.SIGKILL)
        wait_until("another process", lambda: driver.status()["process"]["pid"] not in (0, first))
        status = driver.wait_state("healthy")
        self.assertEqual(status["process"]["restarts"], 1)
        self.assertIn("KILL", status["health"]["last_failure"]["error"])

    def test_hanging_payload_comes_back(self):
        driver = self.driver(health_interval=2)
        driver.ask("start", spec=self.spec())
        first = driver.status()["process"]["pid"]
        os.kill(first, signal.SIGSTOP)
        status = driver.wait_state("unhealthy")
        self.assertEqual(status["health"]["ok"], False)
        wait_until("another process", lambda: driver.status()["process"]["pid"] not in (0, first))
        driver.wait_state("healthy")


class Tree(RuntimeCase):
    def stranger(self, **popen):
        """A process of the payload's user that is none of ours."""
        child = subprocess.Popen(["setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), "--clear-groups",
                                  "sleep", "600"], **popen)
        self.addCleanup(lambda: (child.kill(), child.wait()))
        wait_until("stranger", lambda: child.pid in processes_of(self.uid))
        return child

    def test_h27_stop_ends_deaf_grandchildren_and_nobody_else(self):
        for mode in ("namespaces", "direct"):
            driver = self.driver()
            stranger = self.stranger(env={"HERMES_INSTANCE": "another"})
            self.assertEqual(driver.ask("start", spec=self.spec("--family", isolation=mode))["ok"], True)
            wait_until("family and stranger", lambda: len(processes_of(self.uid)) == FAMILY + 1)
            self.assertEqual(driver.ask("stop")["ok"], True)
            self.assertEqual(processes_of(self.uid), [stranger.pid])
            self.assertIsNone(stranger.poll())
            self.assertGreater(driver.status()["process"]["last_exit"]["killed"], 0)
            stranger.kill()
            stranger.wait()
            self.assertEqual(driver.ask("start", spec=self.spec())["ok"], True, "the port is free")
            driver.close()

    def test_h27_wrapper_whose_worker_is_deaf(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec("--wrapper"))
        self.assertEqual(driver.ask("stop")["ok"], True)
        self.assertEqual(processes_of(self.uid), [])

    def test_h27_main_process_dies_and_its_workers_go_too(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec("--family"))
        pid = driver.status()["process"]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until("restart", lambda: driver.status()["process"]["pid"] not in (0, pid))
        driver.wait_state("healthy")
        wait_until("family of one generation", lambda: len(processes_of(self.uid)) == FAMILY)

    def test_h27_payload_deaf_to_sigterm(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec("--ignore-term"))
        self.assertEqual(driver.ask("stop")["ok"], True)
        last = driver.status()["process"]["last_exit"]
        self.assertEqual((last["how"], last["status"], last["clean"]), ("signal", 9, False))

    def test_control_group_holds_the_tree_and_goes_with_the_runner(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec("--family"))
        group = group_of(self.host_id)
        self.assertEqual(bool(group), driver.status()["isolation_detail"]["control_group"])
        for path in group:
            with open(path + "/cgroup.procs", encoding="ascii") as f:
                self.assertEqual(sorted(map(int, f.read().split())), sorted(processes_of(self.uid)))
        driver.close()
        self.assertEqual((group_of(self.host_id), processes_of(self.uid)), ([], []))


class Workers(RuntimeCase):
    def test_payload_ends_when_the_installer_is_killed(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec())
        runner = driver.named_child("hermes-runner")
        driver.process.kill()
        driver.process.wait()
        wait_until("end of the runner", lambda: not os.path.exists(f"/proc/{runner}"))
        self.assertEqual(processes_of(self.uid), [])

    def test_lost_worker_ends_the_program(self):
        for name in ("hermes-runner", "hermes-probe"):
            driver = self.driver()
            driver.ask("start", spec=self.spec())
            os.kill(driver.named_child(name), signal.SIGKILL)
            self.assertEqual(driver.process.wait(timeout=60), WORKER_LOST)
            wait_until("end of the payload", lambda: not processes_of(self.uid))
            driver.close()

    def test_leftovers_of_a_killed_runner_are_ended_first(self):
        """Everything of the first life is killed but its deaf grandchildren, found by group or by marker."""
        driver = self.driver()
        driver.ask("start", spec=self.spec("--family"))
        wait_until("family", lambda: len(processes_of(self.uid)) == FAMILY)
        os.kill(driver.named_child("hermes-runner"), signal.SIGKILL)
        driver.process.wait(timeout=60)
        wait_until("main process gone with its runner", lambda: len(processes_of(self.uid)) == FAMILY - 1)
        stranger = subprocess.Popen(["setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), "--clear-groups",
                                     "sleep", "600"], env={"HERMES_INSTANCE": "f" * 32})
        self.addCleanup(lambda: (stranger.kill(), stranger.wait()))
        again = self.driver()
        self.assertEqual(again.ask("start", spec=self.spec())["ok"], True)
        self.assertEqual(sorted(processes_of(self.uid)), sorted([stranger.pid, again.status()["process"]["pid"]]))

    def test_leftovers_are_known_by_their_environment(self):
        leftover = subprocess.Popen(["setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), "--clear-groups",
                                     "sleep", "600"], env={"HERMES_INSTANCE": self.host_id})
        other_user = subprocess.Popen(["sleep", "600"], env={"HERMES_INSTANCE": self.host_id})
        self.addCleanup(lambda: (other_user.kill(), other_user.wait()))
        driver = self.driver()
        self.assertEqual(leftover.wait(timeout=60), -signal.SIGTERM)
        self.assertEqual(driver.ask("start", spec=self.spec())["ok"], True)
        self.assertIsNone(other_user.poll())

    def test_what_the_workers_may_still_do(self):
        driver = self.driver()
        driver.ask("start", spec=self.spec())
        found = {}
        for name in ("hermes-runner", "hermes-probe"):
            with open(f"/proc/{driver.named_child(name)}/status", encoding="ascii") as f:
                found[name] = dict(re.findall(r"^(\w+):\t(.*)$", f.read(), re.M))
        probe, runner = found["hermes-probe"], found["hermes-runner"]
        self.assertEqual(probe["Uid"].split(), [str(self.base_uid + 3)] * 4)
        self.assertEqual([probe[c] for c in ("CapPrm", "CapEff", "CapBnd", "CapAmb")], ["0" * 16] * 4)
        # DAC_OVERRIDE KILL SETGID SETUID SETPCAP SYS_CHROOT SYS_ADMIN
        allowed = sum(1 << bit for bit in (1, 5, 6, 7, 8, 18, 21))
        self.assertEqual([int(runner[c], 16) & ~allowed for c in ("CapPrm", "CapEff", "CapBnd")], [0] * 3)
        for status in (probe, runner):
            self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))


if __name__ == "__main__":
    unittest.main()
