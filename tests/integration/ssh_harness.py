"""hermes-ssh as it really runs (own uid, sandbox on) against a real sshd, the test being the broker."""
import http.client
import json
import os
import secrets
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "fixtures"))

from installer_harness import FINAL, PATIENCE, as_user, eventually  # noqa: E402
from scratch_state import ScratchState, UnixConnection  # noqa: E402
from sshd import PASSWORD, Sshd, children, private_accounts  # noqa: E402

BUILD = os.environ["HB_BUILD"]


class Box:
    """One state with its hermes-ssh."""

    def __init__(self, settings=None, start=True):
        self.state = ScratchState(settings=settings, features=("ssh",))
        self.uid = self.state.uid("ssh")
        self.state.write("ssh/integrity-secret", secrets.token_hex(32) + "\n", 0o600, self.uid, self.uid)
        self.process = None
        if start:
            self.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()
        self.state.remove()

    # --- profiles ---

    def profile(self, name, server, account="hbkey", kind="ed25519", password=None, **changes):
        """Write a profile by hand, as `hermesctl ssh profile add` leaves it."""
        fields = {"version": 2, "host": "127.0.0.1", "port": server.port, "user": account, "authority": "user",
                  "fingerprint": server.fingerprint(kind), "auth": "password" if password else "publickey",
                  "credential_revision": secrets.token_hex(32), **changes}
        self.state.directory(f"ssh/profiles/{name}", 0o700, self.uid, self.uid)
        self.put(name, "profile.json", json.dumps(fields))
        self.put(name, "known_hosts", server.known_hosts(kind))
        if password:
            self.put(name, "password", password + "\n")
        else:
            with open(server.key(account), "rb") as f:
                self.put(name, "identity", f.read())
        return name

    def put(self, name, file, text, mode=0o600):
        self.state.write(f"ssh/profiles/{name}/{file}", text, mode, self.uid, self.uid)

    def file(self, name, file):
        return self.state.file(f"ssh/profiles/{name}/{file}")

    # --- the process ---

    def start(self):
        read, write = os.pipe()
        with open(self.state.file("log/ssh.log"), "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(BUILD, "broker/ssh/hermes-ssh"), "--state", self.state.path, "--ready-fd", str(write)],
                pass_fds=[write], user=self.uid, group=self.uid, extra_groups=[],
                env={"PATH": "/usr/bin:/bin", "LEAK": "secret", "SSH_AUTH_SOCK": "/nonexistent"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        os.close(write)
        ready = os.read(read, 1)
        os.close(read)
        assert ready == b"1", "hermes-ssh did not start:\n" + self.log()

    def stop(self, how=signal.SIGTERM):
        if self.process:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.process = None

    def below(self):
        return children(self.process.pid) if self.process else []

    def log(self):
        with open(self.state.file("log/ssh.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def audit(self):
        with open(self.state.file("ssh/audit.log"), encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    # --- the broker's side ---

    def raw(self, method, path, data=None):
        socket_path = self.state.socket("ssh")

        def work():
            conn = UnixConnection(socket_path, PATIENCE)
            try:
                conn.request(method, path, data)
                answer = conn.getresponse()
                return [answer.status, json.loads(answer.read())]
            except (OSError, http.client.HTTPException) as e:
                return [0, {"exception": repr(e)}]
            finally:
                conn.close()

        return as_user(self.state.uid("broker"), [self.state.callers_gid("ssh")], work)

    def call(self, method, path, body=None):
        return self.raw(method, path, None if body is None else json.dumps(body).encode())

    def seal(self, profile, command=None, **fields):
        request = {"profile": profile, **({"command": command} if command is not None else {}), **fields}
        return self.call("POST", "/seal", {"feature": "ssh", "request": request})[1]

    def sealed(self, profile, command=None, **fields):
        answer = self.seal(profile, command, **fields)
        assert answer.get("status") == "ok", answer
        return answer["request"]

    def grant(self, request, operation_id, **fields):
        with open(self.state.file("public/host-id"), encoding="ascii") as f:
            host = f.read().strip()
        with open(self.state.file("policy/policy.json"), encoding="ascii") as f:
            generation = json.load(f)["generation"]
        asked = {"operation_id": operation_id, "audience": host, "generation": generation, "feature": "ssh",
                 "request": request, "set": fields}
        done = subprocess.run([os.path.join(BUILD, "tests/tools/sign_grant"), "approver/signing.key"],
                              cwd=self.state.path, input=json.dumps(asked).encode(), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def execute(self, request, operation_id=None, envelope=None, **fields):
        operation_id = operation_id or secrets.token_hex(16)
        envelope = envelope or self.grant(request, operation_id, **fields)
        return operation_id, self.call("POST", "/execute", {"operation_id": operation_id, "feature": "ssh",
                                                            "request": request, "envelope": envelope})[1]

    def begin(self, request):
        operation_id, answer = self.execute(request)
        assert answer.get("status") == "accepted", answer
        return operation_id

    def status(self, operation_id):
        return self.call("POST", "/status", {"operation_id": operation_id})[1]

    def finish(self, operation_id):
        def final():
            answer = self.status(operation_id)
            return answer if answer.get("state") in FINAL else None
        return eventually(final, f"operation {operation_id} ends")

    def run(self, profile, command=None, **fields):
        """Seal, approve, execute, wait; the final status."""
        return self.finish(self.begin(self.sealed(profile, command, **fields)))


__all__ = ["Box", "Sshd", "PASSWORD", "children", "eventually", "private_accounts", "BUILD"]
