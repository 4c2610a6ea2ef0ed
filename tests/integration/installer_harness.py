"""hermes-installer and hermes-fetcher as they really run (own uids, sandboxes on), the test being the broker."""
import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures")
sys.path.insert(0, FIXTURES)

from faulty_registry import FaultyRegistry  # noqa: E402
from oci_layout import Layout  # noqa: E402
from registry import free_port  # noqa: E402
from scratch_state import ScratchState, UnixConnection  # noqa: E402

BUILD = os.environ["HB_BUILD"]
PATIENCE = 90  # seconds until a test that hangs is given up; nothing is judged by time
# Nothing of the test's environment but the settings of a sanitizer, if the programs were built with one.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", **{k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}}
FINAL = ("succeeded", "failed", "outcome_unknown")


def enter_namespace():
    """A private mount namespace: small file systems for full disks vanish with it."""
    if os.environ.get("HB_TEST_NAMESPACE") != "1":
        os.environ["HB_TEST_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--", sys.executable, *sys.argv])
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def eventually(check, what):
    """The first true value of check()."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = check()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("never happened: " + what)


_payload = None


def payload():
    """Bytes of the mini payload, compiled once."""
    global _payload
    if _payload is None:
        out = os.path.join(tempfile.gettempdir(), f"hb-mini-payload-{os.getpid()}")
        subprocess.run(["gcc", "-O1", "-static", "-s", "-o", out, os.path.join(FIXTURES, "mini_payload.c")],
                       check=True)
        with open(out, "rb") as f:
            _payload = f.read()
        os.unlink(out)
    return _payload


def platform():
    return {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[os.uname().machine]


def as_user(uid, groups, work):
    """Run work() in a child with this identity and return what it returns (as JSON)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            text = json.dumps(work())
        except Exception as e:  # the child must end here, whatever happens
            text = json.dumps({"exception": repr(e)})
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text)


class Box:
    """One host: state directory, registry, fetcher, installer. `settings` are whole keys."""

    def __init__(self, storage=None, settings=None, **scratch):
        self.port = free_port()
        self.images, self.processes = 0, {}
        self.state = ScratchState(settings={
            "runtime.port": str(self.port), "runtime.image": "oci:/nowhere@sha256:" + "0" * 64,
            "runtime.platform_digest": "", "runtime.health_sustain": "0", "runtime.health_interval": "1",
            "runtime.start_timeout": "5", "runtime.stop_timeout": "5", "fetcher.retries": "1",
            "fetcher.stall_timeout": "60", "runtime.restart_budget": "2", **(settings or {})}, **scratch)
        self.state.settings["runtime.data"] = self.state.file("payload/data")
        self.storage = storage or self.state.file("storage")
        self.state.settings["runtime.storage"] = self.storage
        self.data = self.state.settings["runtime.data"]
        self.state.directory("payload", 0o755)
        self.layout = Layout(self.state.file("images"))
        self.registry = FaultyRegistry(self.layout)
        self.repositories = [self.registry.host + "/team/app"]
        self.bounds()
        self.configure(**{"fetcher.insecure_registries": self.registry.host})

    def configure(self, **settings):
        self.state.settings.update(settings)
        self.state.write_config()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for name in list(self.processes):
            self.stop(name)
        self.registry.stop()
        self.state.remove()

    def bounds(self, deployed="installer, docker, ssh"):
        self.state.write("conf/bounds.conf", "[users]\nallowed = 0\n\n[executors]\ndeployed = " + deployed +
                         "\n\n[images]\nrepositories = " + ", ".join(self.repositories) + "\n", 0o644)

    def image(self, mode="ok", extra=(), config=None, mark="", tweak=None):
        """An image of the mini payload in this host's registry; returns its reference. `extra`: further layers'
        entries."""
        layout = self.layout
        layers = [layout.layer([("usr/", None), ("usr/bin/", None),
                                ("usr/bin/payload", payload(), {"mode": 0o755}), ("mark", mark.encode())])]
        layers += [layout.layer(entries) for entries in extra]
        if tweak:
            tweak(layers)
        wishes = {"Cmd": ["payload"], "WorkingDir": "/", "Volumes": {"/data": {}},
                  "Env": ["PATH=/usr/bin", "EXECUTOR_DATA_DIR=/data", f"PAYLOAD_MODE={mode}"], **(config or {})}
        self.images += 1
        return self.reference(layout.index([layout.image(layers, platform=platform(), config=wishes)]))

    def reference(self, index):
        return f"{self.registry.host}/team/app:v{self.images}@{index['digest']}"

    # --- processes ---

    def start(self, *names, check=True, prefix=()):
        for name in names:
            uid = self.state.uid(name)
            program = {"fetcher": "fetcher/hermes-fetcher",
                       "installer": "broker/installer/hermes-installer"}[name]
            read, write = os.pipe()
            log = open(self.state.file(f"log/{name}.log"), "ab")
            command = [*prefix, os.path.join(BUILD, program), "--state", self.state.path, "--ready-fd", str(write)]
            p = subprocess.Popen(command, pass_fds=[write], user=uid, group=uid, extra_groups=[],
                                 env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            log.close()
            os.close(write)
            ready = os.read(read, 1)
            os.close(read)
            self.processes[name] = p
            if check and ready != b"1":
                raise AssertionError(f"{name} did not start:\n" + self.log(name))
        return self

    def stop(self, name, sig=signal.SIGTERM):
        p = self.processes.pop(name, None)
        if p:
            p.send_signal(sig)
            try:
                p.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
                raise

    def crash(self, name="installer"):
        self.stop(name, signal.SIGKILL)

    def restart(self, name="installer"):
        self.stop(name)
        self.start(name)

    def log(self, name="installer"):
        with open(self.state.file(f"log/{name}.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def children(self, uid=None):
        """Processes below the installer, as {pid: uid}."""
        found, level = {}, [self.processes["installer"].pid]
        while level:
            pid = level.pop()
            try:
                with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                    for child in map(int, f.read().split()):
                        found[child] = os.stat(f"/proc/{child}").st_uid
                        level.append(child)
                        with open(f"/proc/{child}/status", encoding="ascii") as status:
                            found[child] = int(status.read().split("\nUid:\t")[1].split()[0])
            except (FileNotFoundError, ProcessLookupError):
                pass
        return {p: u for p, u in found.items() if uid is None or u == uid}

    # --- the broker's side ---

    def call(self, method, path, body=None, uid=None):
        socket_path = self.state.socket("installer")

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

        broker = self.state.uid("broker")
        uid = broker if uid is None else uid
        groups = [self.state.callers_gid("installer")] if uid == broker else []
        return as_user(uid, groups, work)

    def seal(self, action="install", **fields):
        status, answer = self.call("POST", "/seal", {"feature": "runtime", "request": {"action": action, **fields}})
        assert status == 200, answer
        return answer

    def sealed(self, action="install", **fields):
        answer = self.seal(action, **fields)
        assert answer.get("status") == "ok", answer
        return answer["request"]

    def host_id(self):
        with open(self.state.file("public/host-id"), encoding="ascii") as f:
            return f.read().strip()

    def generation(self):
        with open(self.state.file("policy/policy.json"), encoding="ascii") as f:
            return json.load(f)["generation"]

    def grant(self, request, operation_id, fields=None):
        """The envelope that an approver would sign for it; `fields` replace what it says."""
        asked = {"operation_id": operation_id, "audience": self.host_id(), "generation": self.generation(),
                 "feature": "runtime", "request": request, "set": fields or {}}
        done = subprocess.run([os.path.join(BUILD, "tests/tools/sign_grant"), "approver/signing.key"],
                              cwd=self.state.path, input=json.dumps(asked).encode(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def execute(self, request, operation_id=None, envelope=None, **fields):
        operation_id = operation_id or secrets.token_hex(16)
        envelope = envelope or self.grant(request, operation_id, fields)
        status, answer = self.call("POST", "/execute", {"operation_id": operation_id, "feature": "runtime",
                                                        "request": request, "envelope": envelope})
        assert status in (0, 200), answer
        return operation_id, answer

    def begin(self, request, **fields):
        operation_id, answer = self.execute(request, **fields)
        assert answer.get("status") == "accepted", answer
        return operation_id

    def status(self, operation_id):
        return self.call("POST", "/status", {"operation_id": operation_id})[1]

    def finish(self, operation_id):
        def final():
            answer = self.status(operation_id)
            return answer if answer.get("state") in FINAL else None
        return eventually(final, f"operation {operation_id} ends")

    def run(self, action="install", **fields):
        """Seal, approve, execute, wait; the final status."""
        return self.finish(self.begin(self.sealed(action, **fields)))

    def phase(self, operation_id, *phases):
        """Wait until the operation is in one of these phases (or over)."""
        def reached():
            answer = self.status(operation_id)
            return answer.get("state") in FINAL or answer.get("progress", {}).get("phase") in phases
        eventually(reached, f"operation reaches {phases}")

    def runtime(self):
        return self.call("GET", "/runtime")[1]

    def health(self):
        return self.call("GET", "/health")[1]

    def until(self, state):
        return eventually(lambda: (lambda r: r if r.get("process", {}).get("state") == state else None)(
            self.runtime()), f"payload is {state}")

    # --- looking at the disk ---

    def link(self, name):
        try:
            return os.readlink(os.path.join(self.storage, name)).split("/")[-1]
        except FileNotFoundError:
            return None

    def releases(self, hidden=False):
        return sorted(n for n in os.listdir(os.path.join(self.storage, "releases")) if n.startswith(".") == hidden)

    def release(self, *parts):
        return os.path.join(self.storage, "releases", self.link("current"), *parts)

    def starts(self):
        with open(os.path.join(self.data, "starts"), encoding="ascii") as f:
            return f.read().split()

    def audit(self):
        with open(self.state.file("installer/audit.log"), encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def serves(self):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            conn.request("GET", "/api/health")
            return conn.getresponse().status == 200
        except OSError:
            return False
        finally:
            conn.close()
