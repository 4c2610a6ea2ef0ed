#!/usr/bin/env python3
"""The launcher with every process of the build: identities, restarts, and that nothing is ever left behind."""
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))

from scratch_state import SERVERS, ScratchState  # noqa: E402

BUILD = os.environ["HB_BUILD"]
LAUNCHER = os.path.join(BUILD, "launcher", "hermes-launcher")
PROGRAMS = {"fetcher": "fetcher/hermes-fetcher", "installer": "broker/installer/hermes-installer",
            "docker": "broker/docker/hermes-docker", "ssh": "broker/ssh/hermes-ssh",
            "approver": "approver/hermes-approver", "broker": "broker/hermes-broker", "admin": "admin/hermes-admin"}
CALLS = {"broker": ["installer", "docker", "ssh", "approver", "admin"], "approver": ["broker"], "installer": ["fetcher"],
         "admin": ["broker", "fetcher", "installer", "docker", "ssh", "approver"]}
INSTALLER_RUNNER_CAPS = 0x2C01FF  # the union that the launcher keeps


def wait_for(what, probe, seconds=30):
    """The first true value of probe(): waits on a condition, with an end so that a failure is one."""
    end = time.monotonic() + seconds
    while not (value := probe()):
        if time.monotonic() > end:
            raise AssertionError(f"never happened: {what}")
        time.sleep(0.02)
    return value


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return dict(line.rstrip("\n").split(":", 1) for line in f if ":" in line)


def processes_in(state):
    """pid -> program of every live process whose working directory is the state."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == state.path and status_of(pid)["State"].strip()[0] != "Z":
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    found[int(pid)] = os.path.basename(f.read().split(b"\0")[0].decode())
        except (OSError, KeyError):
            continue
    return found


class Running:
    """A launcher in the foreground; its standard error is kept."""

    def __init__(self, state, *extra, ready=True):
        self.state = state
        self.log = tempfile.TemporaryFile()
        read, write = os.pipe()
        self.process = subprocess.Popen(
            [LAUNCHER, "--state", state.path, "--foreground", "--ready-fd", str(write), *extra],
            pass_fds=[write], stderr=self.log, stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/bin", "LEAK": "secret", "LD_BIND_NOW": "1"})
        os.close(write)
        self.ready_fd = read
        if ready and not self.wait_ready():
            text = self.text()
            self.close()
            raise AssertionError(f"not ready:\n{text}")

    def wait_ready(self):
        return bool(select.select([self.ready_fd], [], [], 60)[0]) and os.read(self.ready_fd, 1) == b"1"

    def text(self):
        self.log.seek(0)
        return self.log.read().decode()

    def pid_of(self, name):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as f:
            for pid in map(int, f.read().split()):
                if processes_in(self.state).get(pid) == f"hermes-{name}":
                    return pid
        return None

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in processes_in(self.state):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.close(self.ready_fd)
        self.log.close()


class LauncherCase(unittest.TestCase):
    def make(self, **settings):
        plain = {"admin.listen": f"127.0.0.1:{free_port()}", "runtime.port": str(free_port()),
                 "launcher.restart_delay_max": "1"}
        plain.update({key.replace("__", "."): value for key, value in settings.items()})
        state = ScratchState(settings=plain)
        self.addCleanup(state.remove)
        return state

    def run_launcher(self, state, *extra, ready=True):
        running = Running(state, *extra, ready=ready)
        self.addCleanup(running.close)
        return running

    def healthy(self, state, name):
        try:
            return state.call(name, "GET", "/health")[0] == 200
        except OSError:
            return False


class Identities(LauncherCase):
    def setUp(self):
        self.state = self.make()
        self.running = self.run_launcher(self.state)

    def test_every_process_answers_when_ready_is_said(self):
        for name in SERVERS:
            status, answer = self.state.call(name, "GET", "/health")
            self.assertEqual(status, 200, name)
            self.assertEqual(answer["checks"]["process"], f"hermes-{name}")
            self.assertEqual(answer["checks"]["uid"], self.state.uid(name))
            self.assertFalse(answer["checks"]["sandbox"]["degraded"])

    def test_identity_as_the_kernel_sees_it(self):
        for name in SERVERS:
            status = status_of(self.running.pid_of(name))
            uid = str(self.state.uid(name))
            groups = sorted(self.state.callers_gid(server) for server in CALLS.get(name, []))
            self.assertEqual(status["Uid"].split(), [uid] * 4, name)
            self.assertEqual(status["Gid"].split(), [uid] * 4, name)
            self.assertEqual(sorted(map(int, status["Groups"].split())), groups, name)
            self.assertEqual(status["NoNewPrivs"].strip(), "1", name)
            self.assertEqual(status["Seccomp"].strip(), "2", name)
            if name != "installer":
                for kind in ("CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb"):
                    self.assertEqual(int(status[kind], 16), 0, f"{name} {kind}")
            else:
                self.assertEqual(int(status["CapBnd"], 16) & ~INSTALLER_RUNNER_CAPS, 0)
        own = status_of(self.running.process.pid)
        self.assertEqual(int(own["CapPrm"], 16) & ~INSTALLER_RUNNER_CAPS, 0)
        self.assertEqual(own["NoNewPrivs"].strip(), "1")

    def test_clean_environment_session_and_descriptors(self):
        for name in SERVERS:
            pid = self.running.pid_of(name)
            with open(f"/proc/{pid}/environ", "rb") as f:
                names = {line.split(b"=")[0] for line in f.read().split(b"\0") if line}
            self.assertEqual(names, {b"PATH", b"LANG", b"HOME"}, name)
            self.assertEqual(os.getsid(pid), pid, name)
            self.assertEqual(os.readlink(f"/proc/{pid}/fd/0"), "/dev/null", name)
            for fd in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                self.assertFalse(target.endswith(".pid") or "hermes-launcher" in target, f"{name}: {target}")

    def test_a_second_launcher_on_the_same_state_refuses(self):
        again = subprocess.run([LAUNCHER, "--state", self.state.path, "--foreground"], capture_output=True, timeout=30)
        self.assertEqual(again.returncode, 71)
        self.assertIn(b"already_running", again.stderr)
        self.assertTrue(self.healthy(self.state, "broker"))


class Restarts(LauncherCase):
    def test_each_killed_process_comes_back(self):
        state = self.make()
        running = self.run_launcher(state)
        count = len(processes_in(state))
        for name in SERVERS:
            before = running.pid_of(name)
            os.kill(before, signal.SIGKILL)
            wait_for(f"{name} again", lambda n=name, b=before: running.pid_of(n) not in (None, b))
            wait_for(f"{name} healthy", lambda n=name: self.healthy(state, n))
        # Workers of a killed process are not left to pile up beside those of its successor.
        wait_for("as many processes as before", lambda: len(processes_in(state)) == count)
        self.assertEqual(running.stop(), 0)
        self.assertEqual(processes_in(state), {})

    def test_delay_doubles_up_to_the_limit(self):
        state = self.make()
        running = self.run_launcher(state)
        for _ in range(6):
            before = wait_for("docker runs", lambda: running.pid_of("docker"))
            os.kill(before, signal.SIGKILL)
            wait_for("docker again", lambda b=before: running.pid_of("docker") not in (None, b))
        delays = re.findall(r"service=hermes-docker delay_ms=(\d+)", running.text())
        self.assertEqual(delays, ["100", "200", "400", "800", "1000", "1000"])

    def test_killing_the_launcher_ends_everything(self):
        state = self.make()
        running = self.run_launcher(state)
        self.assertGreaterEqual(len(processes_in(state)), len(SERVERS) + 1)
        running.process.kill()
        running.process.wait()
        wait_for("all gone", lambda: processes_in(state) == {})
        # ... and the next one starts from what is left.
        again = self.run_launcher(state)
        self.assertTrue(self.healthy(state, "broker"))
        self.assertEqual(again.stop(), 0)

    def test_a_process_that_cannot_start_is_named_and_tried_again(self):
        state = self.make()
        key = state.file("approver/signing.key")
        os.chmod(key, 0o644)
        running = self.run_launcher(state, ready=False)
        wait_for("said why", lambda: "hermes-approver event=cannot_start" in running.text())
        wait_for("the others serve", lambda: all(self.healthy(state, n) for n in SERVERS if n != "approver"))
        self.assertIn("signing.key", running.text())
        self.assertNotIn("all_ready", running.text())
        os.chmod(key, 0o600)
        self.assertTrue(running.wait_ready())
        self.assertTrue(self.healthy(state, "approver"))

    def test_stops_the_installer_first_and_leaves_nothing(self):
        state = self.make()
        running = self.run_launcher(state)
        self.assertEqual(running.stop(), 0)
        ends = re.findall(r"event=ended service=(\S+) by=\"status 0\"", running.text())
        self.assertEqual(ends[0], "hermes-installer")
        self.assertEqual(sorted(ends), sorted(f"hermes-{name}" for name in SERVERS))
        self.assertEqual(processes_in(state), {})

    def test_a_process_that_does_not_end_is_killed(self):
        state = self.make(runtime__stop_timeout="1")
        running = self.run_launcher(state)
        os.kill(running.pid_of("ssh"), signal.SIGSTOP)
        self.assertEqual(running.stop(), 0)
        self.assertIn("service=hermes-ssh by=\"signal KILL\"", running.text())
        self.assertEqual(processes_in(state), {})


class Choices(LauncherCase):
    def test_admin_only_when_enabled(self):
        state = self.make(admin__enabled="no")
        running = self.run_launcher(state)
        self.assertTrue(self.healthy(state, "admin"))  # its work for other processes goes on
        with open(f"/proc/{running.pid_of('admin')}/net/tcp", encoding="ascii") as f:
            listening = {int(line.split()[1].split(":")[1], 16) for line in f if line.split()[3] == "0A"}
        self.assertNotIn(int(state.settings["admin.listen"].split(":")[1]), listening)

    def test_background_with_logs_and_pid_file(self):
        state = self.make()
        done = subprocess.run([LAUNCHER, "--state", state.path], capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        with open(state.file("run/launcher.pid"), encoding="ascii") as f:
            pid = int(f.read())
        try:
            self.assertTrue(self.healthy(state, "broker"))
            self.assertEqual(os.getsid(pid), pid)
            for name in SERVERS:
                with open(state.file(f"log/{name}.log"), encoding="utf-8") as f:
                    wait_for(f"{name} in its log", lambda f=f: "event=ready" in f.read())
        finally:
            os.kill(pid, signal.SIGTERM)
        wait_for("all gone", lambda: processes_in(state) == {})
        with open(state.file("log/launcher.log"), encoding="utf-8") as f:
            self.assertIn("event=stopped", f.read())

    def test_group_of_the_docker_socket(self):
        where = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, where)
        os.chmod(where, 0o755)
        path = os.path.join(where, "docker.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(64)  # nobody accepts here; the executor may look more than once
            os.chown(path, 0, 54321)
            os.chmod(path, 0o660)
            state = self.make(docker__socket=path)
            running = self.run_launcher(state)
            self.assertEqual(status_of(running.pid_of("docker"))["Groups"].split(), ["54321"])
            found = state.call("docker", "GET", "/health")[1]["checks"]["docker_socket"]
            self.assertEqual(found, {"path": path, "reachable": True})
            os.chmod(path, 0o600)
            found = state.call("docker", "GET", "/health")[1]["checks"]["docker_socket"]
            self.assertEqual(found["reachable"], False)
            self.assertEqual(found["error"], "Permission denied")


class Programs(LauncherCase):
    def copies(self, mode):
        where = tempfile.mkdtemp(prefix="hermes-libexec-")  # 0700: no other uid can enter
        self.addCleanup(shutil.rmtree, where)
        for path in [*PROGRAMS.values(), "broker/installer/hermes-run"]:
            copy = os.path.join(where, os.path.basename(path))
            shutil.copy(os.path.join(BUILD, path), copy)
            os.chmod(copy, mode)
        return where

    def test_programs_in_a_directory_that_others_cannot_enter(self):
        state = self.make()
        running = self.run_launcher(state, "--libexec", self.copies(0o755))
        self.assertTrue(self.healthy(state, "broker"))
        self.assertEqual(running.stop(), 0)

    def test_programs_that_others_may_write_are_refused(self):
        state = self.make()
        running = self.run_launcher(state, "--libexec", self.copies(0o775), ready=False)
        wait_for("refused", lambda: running.text().count("code=program_permissions") >= len(SERVERS))
        self.assertEqual(set(processes_in(state).values()), {"hermes-launcher"})


    def test_what_a_process_leaves_behind_is_ended_too(self):
        state = self.make()
        where = self.copies(0o755)
        shutil.copy(os.path.join(BUILD, "tests", "sandbox", "stray"), os.path.join(where, "hermes-ssh"))
        running = self.run_launcher(state, "--libexec", where)
        self.assertEqual(list(processes_in(state).values()).count("hermes-ssh"), 2)
        self.assertEqual(running.stop(), 0)
        self.assertEqual(processes_in(state), {})


class Refusals(LauncherCase):
    def refused(self, state, code, word, **how):
        done = subprocess.run([LAUNCHER, "--state", state.path, "--foreground"], capture_output=True, timeout=30, **how)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(word.encode(), done.stderr)
        self.assertEqual(processes_in(state), {})

    def test_not_root(self):
        self.refused(self.make(), 77, "must run as root", user=65534, group=65534, extra_groups=[])

    def test_state_that_others_may_change(self):
        state = self.make()
        os.chmod(state.path, 0o775)
        self.refused(state, 77, "state_permissions")
        os.chmod(state.path, 0o700)  # the processes could not enter it
        self.refused(state, 77, "state_permissions")

    def test_configuration_that_others_may_change(self):
        state = self.make()
        os.chmod(state.file("conf/hermes.conf"), 0o666)
        self.refused(state, 77, "loose_permissions")

    def test_configuration_with_an_unknown_key(self):
        state = self.make(runtime__no_such_key="1")
        self.refused(state, 78, "no_such_key")

    def test_client_uid_that_is_one_of_ours(self):
        state = self.make()
        state.settings["broker.client_uids"] = str(state.uid("fetcher"))
        state.write_config()
        self.refused(state, 78, "belongs to one of the processes")

    def test_usage(self):
        for arguments in ([], ["--state"], ["--what"], ["--state", "/", "more"], ["--state", "/", "--ready-fd", "x"]):
            done = subprocess.run([LAUNCHER, *arguments], capture_output=True, timeout=30)
            self.assertEqual(done.returncode, 64, arguments)


class OneProcess(LauncherCase):
    """The common start of a process (common/process.c), by the one that has least of its own."""

    def refused(self, state, code, word, uid=None, gid=None, groups=()):
        uid = state.uid("docker") if uid is None else uid
        done = subprocess.run([os.path.join(BUILD, PROGRAMS["docker"]), "--state", state.path], capture_output=True,
                              timeout=30, user=uid, group=uid if gid is None else gid, extra_groups=list(groups))
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(word.encode(), done.stderr)
        self.assertEqual(done.stderr.count(b"\n"), 1, "the reason is one line")

    def test_wrong_identity(self):
        state = self.make()
        self.refused(state, 77, "wrong_identity", uid=0)
        self.refused(state, 77, "wrong_identity", uid=state.uid("ssh"))
        self.refused(state, 77, "wrong_identity", gid=0)
        self.refused(state, 77, "must not be in group 0", groups=[0])
        self.refused(state, 77, "must not be in group", groups=[state.callers_gid("broker")])

    def test_state_not_set_up(self):
        state = self.make()
        shutil.rmtree(state.file("run/docker"))
        self.refused(state, 77, "run hermesctl setup")
        state.directory("run/docker", 0o777, state.uid("docker"), state.callers_gid("docker"))
        self.refused(state, 77, "state_permissions")
        state.directory("run/docker", 0o750, state.uid("docker"), state.callers_gid("docker"))
        state.directory("docker", 0o755, state.uid("docker"))
        self.refused(state, 77, "chmod 700 docker")
        state.directory("docker", 0o700, state.uid("ssh"))
        self.refused(state, 77, "state_permissions")

    def test_missing_loose_or_malformed_host_id(self):
        state = self.make()
        os.chmod(state.file("public/host-id"), 0o666)
        self.refused(state, 78, "chmod go-w public/host-id")
        state.write("public/host-id", "no\n", 0o644)
        self.refused(state, 78, "public/host-id")
        os.unlink(state.file("public/host-id"))
        self.refused(state, 78, "public/host-id")


if __name__ == "__main__":
    unittest.main(verbosity=2)
