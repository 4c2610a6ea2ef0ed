"""Broker and approver as they really run (own uids, sandbox on), with fake executors behind them."""
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fixtures"))

from scratch_state import ScratchState, UnixConnection  # noqa: E402

FAKE = os.path.join(HERE, "..", "fixtures", "fake_executor.py")
BUILD = os.environ["HB_BUILD"]
CLIENT = 47110  # a uid that is none of ours
LOCAL = {"command": "echo hello"}


def wait_for(what, probe, seconds=20):
    """The first true value of probe(); waits on a condition, never on the clock."""
    end = time.monotonic() + seconds
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"never happened: {what}")
        time.sleep(0.03)


class System:
    GROUPS = {"broker": ["installer", "docker", "ssh", "approver"], "approver": ["broker"], "installer": ["fetcher"],
              "docker": [], "ssh": []}
    REAL = {"installer": "broker/installer/hermes-installer", "docker": "broker/docker/hermes-docker",
            "ssh": "broker/ssh/hermes-ssh"}

    def __init__(self, settings=None, features=("local", "runtime"), users=("0",), fakes=("docker", "installer"),
                 start=True):
        # One request and one denial each, many times over: what wears people down has tests of its own.
        self.state = ScratchState(settings={"approver.denial_cooldown": "0", "broker.coalesce": "no", **(settings or {})},
                                  features=features, users=users)
        self.processes, self.fakes = {}, fakes
        try:
            for name in fakes:
                self.start_fake(name)
            if start:
                self.start("approver")
                self.start("broker")
        except BaseException:
            self.remove()
            raise

    # --- processes

    def start(self, name, expect_ready=True):
        uid = self.state.uid(name)
        read, write = os.pipe()
        with open(self.state.file(f"log/{name}.log"), "ab") as log:
            process = subprocess.Popen(
                [os.path.join(BUILD, self.REAL.get(name, f"{name}/hermes-{name}")), "--state", self.state.path, "--ready-fd", str(write)],
                pass_fds=[write], user=uid, group=uid,
                extra_groups=[self.state.callers_gid(server) for server in self.GROUPS[name] if uid],
                env={"PATH": "/usr/bin:/bin", "https_proxy": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        os.close(write)
        ready = os.read(read, 1)
        os.close(read)
        if not expect_ready:
            return ready, process.wait()
        if ready != b"1":
            process.wait()
            raise RuntimeError(f"hermes-{name} did not start:\n{self.log(name)}")
        self.processes[name] = process
        return process

    def start_fake(self, name):
        uid = self.state.uid(name)
        process = subprocess.Popen([sys.executable, FAKE, self.state.socket(name), str(uid), str(uid)],
                                   stdout=subprocess.PIPE)
        self.processes[name] = process
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError("the fake executor did not start")

    def stop(self, name, how=signal.SIGKILL):
        process = self.processes.pop(name)
        process.send_signal(how)
        code = process.wait()
        if process.stdout:
            process.stdout.close()
        return code

    def restart(self, name, how=signal.SIGKILL):
        self.stop(name, how)
        (self.start_fake if name in self.fakes else self.start)(name)

    def remove(self):
        for name in list(self.processes):
            self.stop(name)
        self.state.remove()

    def log(self, name):
        with open(self.state.file(f"log/{name}.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def audit(self, name):
        with open(self.state.file(f"{name}/audit.log"), encoding="utf-8") as f:
            return [json.loads(line) for line in f if line.strip()]

    def ctl(self, *args, check=0, stdin=""):
        """hermesctl on this state: the JSON it prints, or with check=None its exit code and all its words."""
        done = subprocess.run([os.path.join(BUILD, "admin", "hermesctl"), "--state", self.state.path, "--json", *args],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, input=stdin, check=False)
        if check is None:
            return done.returncode, done.stdout + done.stderr
        assert done.returncode == check, (args, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout) if done.stdout.strip() else {}

    # --- calls

    def post(self, path, body, secret=True, timeout=40):
        headers = {"X-Broker-Secret": self.state.secret} if secret is True else {}
        if isinstance(secret, str):
            headers = {"X-Broker-Secret": secret}
        return self.state.call("broker", "POST", path, body, headers, timeout)

    def get(self, path):
        return self.state.call("broker", "GET", path)[1]

    def raw(self, data, path="/prepare", headers=None):
        """Bytes as they are; status and text."""
        conn = UnixConnection(self.state.socket("broker"))
        try:
            conn.request("POST", path, data, {"X-Broker-Secret": self.state.secret, **(headers or {})})
            answer = conn.getresponse()
            return answer.status, answer.read().decode()
        finally:
            conn.close()

    def prepare(self, user="0", session="s1", request=None, feature="local"):
        status, answer = self.post("/prepare", {"feature": feature, "request": request or LOCAL, "user_id": user,
                                                "session": session})
        assert status == 200, answer
        return answer

    def prepared(self, **kwargs):
        answer = self.prepare(**kwargs)
        assert answer.get("status") == "prepared", answer
        answer.update({"user_id": kwargs.get("user", "0"), "session": kwargs.get("session", "s1"),
                       "feature": kwargs.get("feature", "local")})
        return answer

    def execute(self, op, timeout=40, **changes):
        body = {k: op[k] for k in ("feature", "capability", "digest", "user_id", "session")}
        body.update(changes)
        return self.post("/execute", body, timeout=timeout)[1]

    def start_execute(self, op):
        """An /execute that waits: the connection, whose status line has been read."""
        conn = UnixConnection(self.state.socket("broker"), 40)
        body = {k: op[k] for k in ("feature", "capability", "digest", "user_id", "session")}
        conn.request("POST", "/execute", json.dumps(body).encode(), {"X-Broker-Secret": self.state.secret})
        return conn, conn.getresponse()

    def pending(self):
        return self.state.call("approver", "GET", "/console/pending")[1]["pending"]

    def decide(self, op, decision="approved", digest=None):
        return self.state.call("approver", "POST", "/console/decide", {
            "operation_id": op["operation_id"], "decision": decision, "digest": digest or op["digest"]})[1]

    @contextlib.contextmanager
    def terminal(self):
        """decide(op) over one connection that is kept: as fast as the approver takes them."""
        conn = UnixConnection(self.state.socket("approver"), 40)

        def decide(op, decision="approved"):
            conn.request("POST", "/console/decide", json.dumps({
                "operation_id": op["operation_id"], "decision": decision, "digest": op["digest"]}))
            answer = json.loads(conn.getresponse().read())
            assert answer.get("status") == "ok", answer
        try:
            yield decide
        finally:
            conn.close()

    def operation(self, op):
        return self.get("/operations/" + op["operation_id"])

    def wait_state(self, op, *states, seconds=20):
        return wait_for(f"state {states}", lambda: (lambda o: o if o["state"] in states else None)(self.operation(op)),
                        seconds)

    def fake(self, name="docker", **settings):
        if settings:
            self.state.call(name, "POST", "/fake", settings)
        return self.state.call(name, "GET", "/fake")[1]

    def policy(self, **changes):
        """Write the live policy with the next generation, as admin does."""
        name = self.state.file("policy/policy.json")
        with open(name, encoding="utf-8") as f:
            policy = json.load(f)
        policy["generation"] += 1
        policy.update(changes)
        admin = self.state.uid("admin")
        self.state.write("policy/policy.json.new", json.dumps(policy), 0o644, admin, admin)
        os.rename(name + ".new", name)


def as_uid(uid, function, gid=None):
    """function() in a child with another uid; its return value (JSON)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            os.setgroups([])
            os.setgid(gid if gid is not None else uid)
            os.setuid(uid)
            try:
                value = function()
            except Exception as error:  # goes to the parent as text
                value = f"{type(error).__name__}: {error}"
            os.write(write, json.dumps(value).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as f:
        data = f.read()
    os.waitpid(pid, 0)
    return json.loads(data)


__all__ = ["System", "ScratchState", "UnixConnection", "as_uid", "wait_for", "http", "CLIENT", "LOCAL"]
