"""What the tests of hermes-run and the supervisor share: a state directory, a release, specs, and the driver."""
import glob
import json
import os
import queue
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BUILD = os.environ["HB_BUILD"]
SOURCE = os.environ.get("HB_SOURCE", os.path.join(os.path.dirname(__file__), "..", ".."))
CACHE = os.environ.get("HB_CACHE", os.path.join(BUILD, "cache"))
sys.path.insert(0, os.path.join(SOURCE, "tests", "fixtures"))

import payload_rootfs  # noqa: E402

HERMES_RUN = os.path.join(BUILD, "broker/installer/hermes-run")
DRIVER = os.path.join(BUILD, "tests/tools/supervise_driver")
MISBEHAVE = os.path.join(BUILD, "tests/tools/misbehave")
PATIENCE = 60  # how long to wait for what must come; nothing is judged by time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def processes_of(uid):
    """pids of this user, zombies left out."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/status", encoding="utf-8", errors="replace") as f:
                text = f.read()
        except OSError:
            continue
        if f"\nUid:\t{uid}\t" in text and "\nState:\tZ" not in text:
            found.append(int(name))
    return found


def group_of(host_id):
    """The control group of this instance, as a list of none or one."""
    return glob.glob(f"/sys/fs/cgroup/**/hermes-{host_id}-runtime", recursive=True)


def wait_until(what, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("never: " + what)
        time.sleep(0.05)


class RuntimeCase(unittest.TestCase):
    rootfs_maker = staticmethod(payload_rootfs.misbehave_rootfs(MISBEHAVE))

    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="hermes-runtime-", dir="/var/tmp")  # direct may write /tmp
        self.drivers = []
        self.base_uid = 700000 + os.getpid() % 100000 * 20
        self.uid = self.base_uid + 8
        self.host_id = secrets.token_hex(16)
        self.state = os.path.join(self.top, "state")
        self.addCleanup(self.clean_up)
        os.chmod(self.top, 0o755)
        os.mkdir(self.state)
        self.port = free_port()
        self.rootfs, self.digest = payload_rootfs.make_release(self.top, self.rootfs_maker)
        self.data = os.path.join(self.top, "data")
        os.mkdir(self.data, 0o700)
        os.chown(self.data, self.uid, self.uid)

    def clean_up(self):
        for driver in self.drivers:
            driver.close()
        for pid in processes_of(self.uid):
            os.kill(pid, signal.SIGKILL)
        # A chroot that hermes-run was started into by itself is left mounted for the next start to remove, and so is
        # the control group of a runner that was killed.
        subprocess.run(["umount", "--lazy", os.path.join(self.state, "installer/root")], check=False,
                       stderr=subprocess.DEVNULL)
        for group in group_of(self.host_id):
            wait_until("end of the control group", lambda: self.remove_group(group))
        shutil.rmtree(self.top)

    @staticmethod
    def remove_group(path):
        """False while processes in it are still ending."""
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass  # its runner was quicker
        except OSError:
            return False
        return True

    def spec(self, *arguments, isolation="auto", env=None, **changes):
        variables = {"PATH": "/usr/local/bin:/usr/bin", "PORT": str(self.port), "EXECUTOR_DATA_DIR": "/data"}
        variables.update(env or {})
        out = {"rootfs": self.rootfs, "manifest_digest": self.digest, "isolation": isolation, "data_dir": self.data,
               "data_mount": "/data", "working_dir": "/", "argv": ["misbehave", *arguments],
               "env": [f"{k}={v}" for k, v in variables.items()], "uid": self.uid, "gid": self.uid}
        out.update(changes)
        return out

    def hermes_run(self, spec, *options, prefix=()):
        """Run it to its end with the spec in a file; returns (exit code, output)."""
        path = os.path.join(self.state, "spec.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(spec, f)
        os.chmod(path, 0o600)
        done = subprocess.run([*prefix, HERMES_RUN, "--spec", path, *options], cwd=self.state, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False, timeout=PATIENCE,
                              env={"SECRET_OF_PARENT": "x"})
        return done.returncode, done.stdout.decode(errors="replace")

    def driver(self, **settings):
        out = Driver(self, settings)
        self.drivers.append(out)
        return out


class Driver:
    """supervise_driver as a child; its lines are sorted into answers, states and statuses."""

    def __init__(self, case, settings):
        base = {"identities.base_uid": case.base_uid, "runtime.port": case.port, "runtime.health_sustain": 1,
                "runtime.start_timeout": 20, "runtime.stop_timeout": 2}
        base.update({"runtime." + k: v for k, v in settings.items()})
        self.home = os.path.join(case.top, "bin")
        if not os.path.isdir(self.home):
            os.mkdir(self.home)
            for program in (DRIVER, HERMES_RUN):
                shutil.copy(program, self.home)
        self.log = open(os.path.join(case.state, "driver.log"), "ab")
        self.process = subprocess.Popen(
            [os.path.join(self.home, "supervise_driver"), case.host_id, *[f"{k}={v}" for k, v in base.items()]],
            cwd=case.state, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        self.answers, self.statuses, self.states = queue.Queue(), queue.Queue(), []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            value = json.loads(line)
            if "done" in value:
                self.answers.put(value)
            elif "status" in value:
                self.statuses.put(value["status"])
            else:
                self.states.append(value["state"])

    def send(self, cmd, **more):
        self.process.stdin.write(json.dumps({"cmd": cmd, **more}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, cmd, **more):
        self.send(cmd, **more)
        answer = self.answers.get(timeout=PATIENCE)
        assert answer["done"] == cmd, answer
        return answer

    def status(self):
        self.send("status")
        return self.statuses.get(timeout=PATIENCE)

    def wait_state(self, state):
        wait_until("state " + state, lambda: self.status()["process"]["state"] == state)
        return self.status()

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as f:
            return [int(p) for p in f.read().split()]

    def named_child(self, name):
        for pid in self.children():
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                if f.read().strip() == name:
                    return pid
        raise AssertionError("no child " + name)

    def close(self):
        if self.process.poll() is None:
            try:
                self.send("quit")
            except (BrokenPipeError, ValueError):
                pass
            try:
                self.process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.stdin.close()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.log.close()
