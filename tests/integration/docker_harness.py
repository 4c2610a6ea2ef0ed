"""hermes-docker as it really runs (own uid, sandbox on), the test being the broker; a real dockerd or a fake engine."""
import http.client
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "fixtures"))

from installer_harness import FINAL, PATIENCE, as_user, eventually  # noqa: E402
from scratch_state import ScratchState, UnixConnection  # noqa: E402

BUILD = os.environ["HB_BUILD"]
PROGRAM = os.path.join(BUILD, "broker", "docker", "hermes-docker")
BOUNDS_OPEN = {"privileged": "yes", "host_namespaces": "yes", "devices": "yes", "capabilities": "yes",
               "published_addresses": "yes", "security_opt": "yes", "sysctls": "yes"}


def run_request(image, command=("true",), **fields):
    return {"action": "run", "image": image, "command": list(command), **fields}


class DockerBox:
    """One state directory with hermes-docker. `engine` needs .socket; `wrap` is put before the program, as root."""

    def __init__(self, engine=None, settings=None, wrap=(), group=None):
        self.dir = tempfile.mkdtemp(prefix="hermes-docker-", dir="/tmp")
        os.chmod(self.dir, 0o755)
        self.workspace = os.path.join(self.dir, "workspace")
        self.allowed = os.path.join(self.dir, "allowed")
        os.mkdir(self.allowed)
        self.wrap, self.process, self.group = list(wrap), None, group
        self.state = ScratchState(features=("local", "docker"), settings={
            "docker.socket": engine.socket if engine else os.path.join(self.dir, "nowhere.sock"),
            "local.workspace": self.workspace, **(settings or {})})
        self.uid = self.state.uid("docker")
        os.mkdir(self.workspace)
        bubble = self.state.settings.get("local.backend") == "bubblewrap"
        os.chown(self.workspace, self.uid if bubble else 10002, self.uid if bubble else 10002)
        self.bounds()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()
        self.state.remove()
        shutil.rmtree(self.dir, ignore_errors=True)

    # --- settings

    def bounds(self, repositories=("docker.io/library/busybox",), bind_roots=None, **docker):
        roots = bind_roots if bind_roots is not None else [self.allowed]
        lines = "".join(f"{k} = {v}\n" for k, v in docker.items())
        self.state.write("conf/bounds.conf", "[users]\nallowed = 0\n\n[executors]\ndeployed = installer, docker, ssh\n\n"
                         f"[images]\nrepositories = {', '.join(repositories)}\n\n[docker]\n{lines}"
                         f"bind_roots = {', '.join(roots)}\n", 0o644)

    def policy(self, **changes):
        """The next generation of the live policy."""
        name = self.state.file("policy/policy.json")
        with open(name, encoding="utf-8") as f:
            policy = json.load(f)
        policy["generation"] += 1
        policy.update(changes)
        admin = self.state.uid("admin")
        self.state.write("policy/policy.json.new", json.dumps(policy), 0o644, admin, admin)
        os.rename(name + ".new", name)

    # --- the process

    def start(self, check=True):
        groups = [self.group] if self.group else []
        command, user = [PROGRAM], self.uid
        if self.wrap:
            command, user = [*self.wrap, "/usr/bin/setpriv", f"--reuid={self.uid}", f"--regid={self.uid}",
                             "--clear-groups", PROGRAM], 0
        read, write = os.pipe()
        with open(self.state.file("log/docker.log"), "ab") as log:
            self.process = subprocess.Popen(
                [*command, "--state", self.state.path, "--ready-fd", str(write)], pass_fds=[write],
                user=user, group=user, extra_groups=groups, env={"PATH": "/usr/bin:/bin"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        os.close(write)
        ready = os.read(read, 1)
        os.close(read)
        if check and ready != b"1":
            raise AssertionError("hermes-docker did not start:\n" + self.log())
        return self

    def stop(self, sig=signal.SIGTERM):
        code = None
        if self.process:
            self.process.send_signal(sig)
            code = self.process.wait(PATIENCE)
            self.process = None
        return code

    def crash(self):
        self.stop(signal.SIGKILL)

    def log(self):
        with open(self.state.file("log/docker.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as f:
            return [int(pid) for pid in f.read().split()]

    # --- the broker's side

    def call(self, method, path, body=None, uid=None):
        socket_path = self.state.socket("docker")

        def work():
            conn = UnixConnection(socket_path, PATIENCE)
            try:
                conn.request(method, path, None if body is None else json.dumps(body).encode())
                answer = conn.getresponse()
                return [answer.status, json.loads(answer.read())]
            except (OSError, http.client.HTTPException) as e:
                return [0, {"exception": repr(e)}]
            finally:
                conn.close()

        uid = self.state.uid("broker") if uid is None else uid
        return as_user(uid, [self.state.callers_gid("docker")], work)

    def seal(self, feature, request):
        status, answer = self.call("POST", "/seal", {"feature": feature, "request": request})
        assert status == 200, answer
        return answer

    def sealed(self, feature, request):
        answer = self.seal(feature, request)
        assert answer.get("status") == "ok", answer
        return answer["request"]

    def grant(self, feature, request, operation_id, fields=None):
        with open(self.state.file("public/host-id"), encoding="ascii") as f:
            host = f.read().strip()
        with open(self.state.file("policy/policy.json"), encoding="ascii") as f:
            generation = json.load(f)["generation"]
        asked = {"operation_id": operation_id, "audience": host, "generation": generation, "feature": feature,
                 "request": request, "set": fields or {}}
        done = subprocess.run([os.path.join(BUILD, "tests/tools/sign_grant"), "approver/signing.key"],
                              cwd=self.state.path, input=json.dumps(asked).encode(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def execute(self, feature, request, operation_id=None, envelope=None):
        operation_id = operation_id or secrets.token_hex(16)
        envelope = envelope or self.grant(feature, request, operation_id)
        return operation_id, self.call("POST", "/execute", {"operation_id": operation_id, "feature": feature,
                                                            "request": request, "envelope": envelope})[1]

    def begin(self, feature, request):
        operation_id, answer = self.execute(feature, request)
        assert answer.get("status") == "accepted", answer
        return operation_id

    def status(self, operation_id):
        return self.call("POST", "/status", {"operation_id": operation_id})[1]

    def finish(self, operation_id):
        def final():
            answer = self.status(operation_id)
            return answer if answer.get("state") in FINAL else None
        return eventually(final, f"operation {operation_id} ends")

    def finish_sealed(self, feature, sealed):
        return self.finish(self.begin(feature, sealed))

    def run(self, feature, request):
        """Seal, approve, execute, wait: the final status."""
        return self.finish_sealed(feature, self.sealed(feature, request))

    def local(self, command, **fields):
        return self.run("local", {"command": command, **fields})

    def docker(self, action, **fields):
        return self.run("docker", {"action": action, **fields})

    def health(self):
        return self.call("GET", "/health")[1]

    def audit(self):
        with open(self.state.file("docker/audit.log"), encoding="utf-8") as f:
            return [json.loads(line) for line in f]


__all__ = ["DockerBox", "eventually", "run_request", "BOUNDS_OPEN", "BUILD", "PATIENCE", "FINAL"]
