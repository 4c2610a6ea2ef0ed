#!/usr/bin/env python3
"""What each process can still do once it is confined: a prober is preloaded into the real programs and tries, inside the
sandbox of every process and worker, what must fail there (tests/sandbox/inside.c). A run of the same attempts without a
sandbox shows that they could succeed."""
import json
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
from scratch_state import ScratchState  # noqa: E402

INSIDE = os.path.join(BUILD, "tests/sandbox/libinside.so")
REFUSED = {"killed", "1", "13", "38", "18"}  # EPERM, EACCES, ENOSYS, EXDEV
PROGRAMS = {"broker": ["installer", "docker", "ssh", "approver"], "approver": ["broker"], "docker": [], "ssh": [],
            "admin": ["broker", "fetcher", "installer", "docker", "ssh", "approver"], "fetcher": [], "installer": []}
PATHS = {"broker": "broker/hermes-broker", "approver": "approver/hermes-approver", "docker": "broker/docker/hermes-docker",
         "ssh": "broker/ssh/hermes-ssh", "admin": "admin/hermes-admin", "fetcher": "fetcher/hermes-fetcher",
         "installer": "broker/installer/hermes-installer"}

# Attempts that may end otherwise than by a refusal, per process. Whatever else isn't refused is an excess.
SOCKETS = {"socket_inet", "socket_inet6_udp"}
# Whose filter is a deny-list, since the programs that they start inherit it.
STARTS = SOCKETS | {"memory_file", "personality", "dumpable", "map_executable", "make_executable"}
# Who makes namespaces can have no Landlock domain, which forbids mounts.
MOUNTS = STARTS | {"connect_inet", "bind_inet", "connect_abstract", "exec_true", "do_mount", "do_umount", "new_mounts",
                   "new_users", "new_net", "clone_users", "enter_namespace", "do_chroot", "do_pivot", "list_root"}
ALLOWED = {
    "hermes-broker": {"read:broker/control-secret", "read:broker/approval-secret", "write:broker"},
    "hermes-approver": SOCKETS | {"read:approver/signing.key", "read:approver/approval-secret", "read:approver/bot-token",
                                  "write:approver"},
    "hermes-docker": {"write:docker"},
    "hermes-ssh": {"write:ssh", "read:ssh/integrity-secret", "read:ssh/profiles/inside/key", "memory_file"},
    "hermes-admin": {"write:admin", "write:policy", "read:admin/admin-key"},
    "hermes-fetcher": SOCKETS | {"connect_inet", "read:fetcher/credentials.json", "write:fetcher", "write:storage/blobs"},
    # It becomes the workers that it forks, and signals them once they are others.
    "hermes-installe": {"signal_outsider", "become_root", "become_other", "join_group", "dumpable", "write:installer",
                        "write:run", "write:storage/releases", "write:storage/blobs", "read:probe/keys/inside"},
    "hermes-unpack": set(),
    "hermes-backup": set(),
    "hermes-age": STARTS | {"exec_true"},
    "hermes-probe": SOCKETS,
    "hermes-caller": SOCKETS | {"read:probe/keys/inside"},
    "hermes-ssh-run": STARTS | {"connect_inet"},
    "hermes-bubble": MOUNTS | {"write:docker", "write:/tmp"},  # with the rights of hermes-docker's uid
}
# Root without a Landlock domain: files' modes don't bind them (nor, with CAP_SYS_PTRACE, /proc), and what they may not do
# is this.
ROOTS = {"hermes-runner", "hermes-launcher"}
NEVER = {"socket_raw", "socket_packet", "ptrace_outsider", "ptrace_peer", "read_memory", "take_descriptor", "raise_net_raw",
         "io_uring", "bpf", "perf", "keyctl", "add_key", "kexec", "module", "reboot", "by_handle", "userfault", "set_clock",
         "core_again"}


def start(state, name, environment):
    """(is it ready, the process)."""
    uid, (read, write) = state.uid(name), os.pipe()
    with open(state.file(f"log/{name}.log"), "ab") as log:
        process = subprocess.Popen(
            [os.path.join(BUILD, PATHS[name]), "--state", state.path, "--ready-fd", str(write)], pass_fds=[write],
            user=uid, group=uid,
            extra_groups=[state.callers_gid(s) for s in PROGRAMS[name] if uid],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    os.close(write)
    with os.fdopen(read, "rb") as f:
        return f.read(1) == b"1", process


class Report:
    """The prober's lines, as {process: {attempt: how}}."""

    def __init__(self, directory, name):
        self.path = os.path.join(directory, name)
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
        cls.report = Report(cls.dir, "report")
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
            for name in ("broker", "approver", "docker", "ssh", "admin"):
                cls.start(name)
            cls.launcher()
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
        made = subprocess.run(["age-keygen"], check=True, capture_output=True, text=True).stdout
        state.settings["runtime.age_recipients"] = made.split("public key: ")[1].split()[0]
        workspace = os.path.join(cls.dir, "workspace")
        os.mkdir(workspace)
        os.chown(workspace, state.uid("docker"), state.uid("docker"))
        state.settings.update({"local.backend": "bubblewrap", "local.workspace": workspace})
        # Nobody answers there; the prober's port is another, which must be refused.
        state.settings["approver.api_base"] = "http://127.0.0.1:%d" % installer_harness.free_port()
        cls.image = cls.box.image()
        cls.box.configure(**{"runtime.image": cls.image})

    @classmethod
    def start(cls, name):
        ready, process = start(cls.box.state, name, installer_harness.ENVIRONMENT)
        cls.others.append(process)
        if not ready:
            raise AssertionError(f"{name} did not start:\n" + cls.box.log(name))

    @classmethod
    def launcher(cls):
        """It is confined before it starts anything; here it finds nothing to start."""
        with ScratchState(base_uid=cls.box.state.base) as state:
            empty = os.path.join(cls.dir, "empty")
            os.mkdir(empty)
            process = subprocess.Popen(
                [os.path.join(BUILD, "launcher/hermes-launcher"), "--state", state.path, "--foreground", "--libexec", empty],
                env=installer_harness.ENVIRONMENT, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                eventually(lambda: "write:/usr" in cls.report.read().get("hermes-launcher", {}), "the launcher is probed")
            finally:
                process.kill()
                process.wait()

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
        self.assertEqual(set(found), set(ALLOWED) | ROOTS)
        for process, allowed in ALLOWED.items():
            with self.subTest(process=process):
                reached = {a for a, how in found[process].items() if how not in REFUSED}
                self.assertEqual(reached - allowed, set())

    def test_roots_without_a_domain_are_refused_what_no_payload_needs(self):
        found = self.report.read()
        for process in ROOTS:
            with self.subTest(process=process):
                self.assertEqual({a for a in NEVER if found[process][a] not in REFUSED}, set())

    def test_each_attempt_succeeds_without_a_sandbox(self):
        report = Report(self.dir, "control")
        subprocess.run(["/bin/true"], check=True, env={**self.environment, "HERMES_INSIDE_REPORT": report.path,
                                                       "HERMES_INSIDE_CONTROL": "1"})
        found, = report.read().values()
        # Not a refusal: no such system call in this kernel.
        self.assertEqual({a for a, how in found.items() if how in REFUSED - {"38"}}, set())
        self.assertEqual(set(found), set(self.report.read()["hermes-broker"]))

    def test_the_programs_do_their_work_with_it(self):
        self.assertEqual([o["state"] for o in (self.installed, self.backup)], ["succeeded", "succeeded"])


class TestOlderKernels(unittest.TestCase):
    """Every program with each Landlock ABI before the kernel's own: a preloaded stand-in tells the older one and refuses
    what that one doesn't know."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="hb-older-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o711)
        self.sanitizer = {"ASAN_OPTIONS": "verify_asan_link_order=0"}
        self.library = os.path.join(self.dir, "libold_landlock.so")
        shutil.copy(os.path.join(BUILD, "tests/sandbox/libold_landlock.so"), self.library)
        os.chmod(self.library, 0o755)

    def run_all(self, abi, mode):
        """{program: its /health, or None and its exit code}."""
        found = {}
        environment = {**installer_harness.ENVIRONMENT, **self.sanitizer, "LD_PRELOAD": self.library, "HERMES_LANDLOCK_ABI": str(abi)}
        with ScratchState(settings={"sandbox.mode": mode, "admin.enabled": "no"}) as state:
            uid = state.uid("ssh")
            state.write("ssh/integrity-secret", secrets.token_hex(32) + "\n", 0o600, uid, uid)
            for name in PROGRAMS:
                ready, process = start(state, name, environment)
                try:
                    found[name] = state.call(name, "GET", "/health")[1]["checks"]["sandbox"] if ready else process.wait()
                finally:
                    process.kill()
                    process.wait()
                if not ready:
                    with open(state.file(f"log/{name}.log"), encoding="utf-8") as log:
                        self.assertIn("sandbox_unavailable", log.read())
        return found

    def test_each_abi_is_enough_to_start(self):
        for abi in range(1, 7):
            for name, sandbox in self.run_all(abi, "required").items():
                with self.subTest(abi=abi, process=name):
                    self.assertEqual(sandbox["landlock_abi"], abi)
                    self.assertFalse(sandbox["degraded"])
                    self.assertTrue(sandbox["seccomp"] and sandbox["no_new_privs"])

    def test_the_main_job_with_the_oldest(self):
        before = dict(installer_harness.ENVIRONMENT)
        installer_harness.ENVIRONMENT.update({"LD_PRELOAD": self.library, "HERMES_LANDLOCK_ABI": "1"})
        try:
            with Box() as box:
                box.start("fetcher", "installer")
                for action, fields in (("install", {"image": box.image()}), ("backup", {})):
                    answer = box.run(action, **fields)
                    self.assertEqual(answer["state"], "succeeded", answer)
        finally:
            installer_harness.ENVIRONMENT.clear()
            installer_harness.ENVIRONMENT.update(before)

    def test_without_landlock_nothing_starts(self):
        self.assertEqual(set(self.run_all(0, "required").values()), {71})

    def test_without_landlock_all_start_when_that_is_accepted(self):
        for name, sandbox in self.run_all(0, "degraded").items():
            with self.subTest(process=name):
                self.assertTrue(sandbox["degraded"])
                self.assertTrue(sandbox["seccomp"] and sandbox["no_new_privs"])


IMPOSTOR = """
import os, socket, sys
own, ids = socket.socket(socket.AF_UNIX), int(sys.argv[2])
own.bind(sys.argv[1])
os.chown(sys.argv[1], ids, ids)
os.setgroups([4321])
os.setresgid(ids, ids, ids)
os.setresuid(ids, ids, ids)
own.listen()
tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
print(tcp.getsockname()[1], udp.getsockname()[1], flush=True)
sys.stdin.read()
"""


class TestAuthority(unittest.TestCase):
    """hermesctl doctor --authority, with an excess that was put there."""

    def setUp(self):
        self.state = ScratchState(settings={"admin.enabled": "no"})
        self.addCleanup(self.state.remove)

    def run_program(self, name):
        ready, process = start(self.state, name, installer_harness.ENVIRONMENT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertTrue(ready)

    def doctor(self):
        done = subprocess.run([os.path.join(BUILD, "admin/hermesctl"), "--state", self.state.path, "--json", "doctor",
                               "--authority"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)  # at the least, not everything runs
        return {c["check"]: c for c in json.loads(done.stdout)["checks"]}

    def test_as_declared(self):
        for name in ("broker", "approver", "fetcher", "installer", "docker", "admin"):
            self.run_program(name)
        found = self.doctor()
        for name in ("broker", "approver", "fetcher", "installer", "docker", "admin"):
            self.assertIn("no_new_privs 1 seccomp 2", found["hermes-" + name]["found"])
            # Nobody emptied the bounding set here, as the launcher does; the rest is as it should be.
            self.assertNotIn("not declared", found["hermes-" + name]["found"])
        self.assertEqual((found["signing key"]["ok"], found["signing key"]["found"]), (True, "hermes-approver"))

    def test_no_filter_a_group_and_sockets_of_its_own(self):
        with subprocess.Popen([sys.executable, "-c", IMPOSTOR, self.state.socket("ssh"), str(self.state.uid("ssh"))],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                tcp, udp = process.stdout.readline().split()
                check = self.doctor()["hermes-ssh"]
            finally:
                process.kill()
        self.assertFalse(check["ok"])
        self.assertIn("seccomp 0; not declared:", check["found"])
        self.assertIn("group 4321", check["found"])
        self.assertIn("listens on TCP " + tcp, check["found"])
        self.assertIn("open UDP " + udp, check["found"])

    def test_a_loosened_file(self):
        self.run_program("broker")
        self.run_program("approver")
        os.chmod(self.state.file("approver"), 0o711)
        os.chmod(self.state.file("approver/signing.key"), 0o644)
        check = self.doctor()["signing key"]
        self.assertFalse(check["ok"])
        self.assertIn("hermes-broker", check["found"])


if __name__ == "__main__":
    enter_namespace()
    unittest.main()
