#!/usr/bin/env python3
"""What each process can still do once it is confined: a prober is preloaded into the real programs and tries, inside the
sandbox of every process and worker, what must fail there (tests/sandbox/inside.c). A run of the same attempts without a
sandbox shows that they could succeed."""
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import installer_harness  # noqa: E402
from installer_harness import BUILD, Box, enter_namespace, eventually  # noqa: E402

INSIDE = os.path.join(BUILD, "tests/sandbox/libinside.so")
REFUSED = {"killed", "1", "13", "38", "18"}  # EPERM, EACCES, ENOSYS, EXDEV
PROGRAMS = {"broker": ["installer", "docker", "ssh", "approver"], "approver": ["broker"], "docker": [], "ssh": [],
            "admin": ["broker", "fetcher", "installer", "docker", "ssh", "approver"]}
PATHS = {"broker": "broker/hermes-broker", "approver": "approver/hermes-approver", "docker": "broker/docker/hermes-docker",
         "ssh": "broker/ssh/hermes-ssh", "admin": "admin/hermes-admin"}

# Attempts that may end otherwise than by a refusal, per process. Whatever else isn't refused is an excess.
SOCKETS = {"socket_inet", "socket_inet6_udp"}
SEES_OWN = {"proc_environ_peer", "proc_mem_peer"}
FILTERED = {"dumpable", "map_executable", "make_executable", "memory_file", "personality", "exec_true"} | SOCKETS
ALLOWED = {
    "hermes-broker": {"read:broker/control-secret", "read:broker/approval-secret", "write:broker"},
    "hermes-approver": SOCKETS | {"read:approver/signing.key", "read:approver/approval-secret", "read:approver/bot-token",
                                  "write:approver"},
    "hermes-docker": {"write:docker"},
    "hermes-ssh": {"write:ssh", "read:ssh/integrity-secret", "read:ssh/profiles/inside/key", "memory_file"},
    "hermes-admin": {"write:admin", "write:policy", "read:admin/admin-key"},
    "hermes-fetcher": SOCKETS | {"connect_inet", "read:fetcher/credentials.json", "write:fetcher", "write:storage/blobs"},
}


class Report:
    """The prober's lines, as {process: {attempt: how}}."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "report")
        with open(self.path, "w", encoding="ascii"):
            os.chmod(self.path, 0o666)

    def read(self):
        found = {}
        with open(self.path, encoding="ascii") as f:
            for line in f:
                process, attempt, how = line.rstrip("\n").split(" ", 2)
                found.setdefault(process, {})[attempt] = how
        return found


class TestSandbox(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="hb-inside-")
        os.chmod(cls.dir, 0o711)
        cls.report = Report(cls.dir)
        cls.library = os.path.join(cls.dir, "libinside.so")
        shutil.copy(INSIDE, cls.library)
        os.chmod(cls.library, 0o755)
        cls.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        cls.abstract = socket.socket(socket.AF_UNIX)
        cls.abstract.bind(f"\0hermes-inside-{os.getpid()}")
        cls.abstract.listen(128)
        cls.box, cls.others = Box(), []
        state = cls.box.state
        cls.environment = {
            "LD_PRELOAD": cls.library, "HERMES_INSIDE_REPORT": cls.report.path, "HERMES_INSIDE_STATE": state.path,
            "HERMES_INSIDE_PORT": str(cls.listener.getsockname()[1]), "HERMES_INSIDE_PID": str(os.getpid())}
        options = os.environ.get("ASAN_OPTIONS", "")
        cls.environment["ASAN_OPTIONS"] = (options + ":" if options else "") + "verify_asan_link_order=0"
        cls.material()
        cls.before = dict(installer_harness.ENVIRONMENT)
        installer_harness.ENVIRONMENT.update(cls.environment)
        try:
            cls.box.start("fetcher", "installer")
            for name in PROGRAMS:
                cls.start(name)
            cls.installed = cls.box.run(image=cls.image)
            cls.backup = cls.box.run("backup")
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def material(cls):
        """Secrets that this state would have after a while of use."""
        state = cls.box.state
        ssh, probe, approver, fetcher = (state.uid(n) for n in ("ssh", "probe", "approver", "fetcher"))
        state.write("ssh/integrity-secret", secrets.token_hex(32) + "\n", 0o600, ssh, ssh)
        state.directory("ssh/profiles/inside", 0o700, ssh, ssh)
        state.write("ssh/profiles/inside/key", "key\n", 0o600, ssh, ssh)
        state.write("approver/bot-token", "123456789:AAEhBOweik6ad9r_QXMENQjcrGbqCr4K-bc\n", 0o600, approver, approver)
        state.write("fetcher/credentials.json", '{"registries": {}}\n', 0o600, fetcher, fetcher)
        state.directory("probe", 0o711)
        state.directory("probe/keys", 0o700, probe, probe)
        state.write("probe/keys/inside", "key\n", 0o600, probe, probe)
        state.settings["admin.listen"] = "127.0.0.1:%d" % installer_harness.free_port()
        # Nobody answers there; the prober's port is another, which must be refused.
        state.settings["approver.api_base"] = "http://127.0.0.1:%d" % installer_harness.free_port()
        cls.image = cls.box.image()
        cls.box.configure(**{"runtime.image": cls.image})

    @classmethod
    def start(cls, name):
        state, (read, write) = cls.box.state, os.pipe()
        uid = state.uid(name)
        with open(state.file(f"log/{name}.log"), "ab") as log:
            process = subprocess.Popen(
                [os.path.join(BUILD, PATHS[name]), "--state", state.path, "--ready-fd", str(write)], pass_fds=[write],
                user=uid, group=uid, extra_groups=[state.callers_gid(s) for s in PROGRAMS[name]],
                env=installer_harness.ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        os.close(write)
        cls.others.append(process)
        ready = os.read(read, 1)
        os.close(read)
        if ready != b"1":
            raise AssertionError(f"{name} did not start:\n" + cls.box.log(name))

    @classmethod
    def tearDownClass(cls):
        for process in cls.others:
            process.kill()
            process.wait()
        cls.box.__exit__()
        installer_harness.ENVIRONMENT.clear()
        installer_harness.ENVIRONMENT.update(cls.before)
        cls.listener.close()
        cls.abstract.close()
        shutil.rmtree(cls.dir)

    def test_each_process_is_refused_all_but_its_own(self):
        found = self.report.read()
        if os.environ.get("SHOW"):
            for process, attempts in found.items():
                print(process, {a: h for a, h in attempts.items() if h not in REFUSED})
        for process, allowed in ALLOWED.items():
            with self.subTest(process=process):
                reached = {a for a, how in found[process].items() if how not in REFUSED}
                self.assertEqual(reached - allowed, set())


if __name__ == "__main__":
    enter_namespace()
    unittest.main()
