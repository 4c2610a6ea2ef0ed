#!/usr/bin/env python3
"""The executors beside the tools that they use, called directly: `docker run`, `ssh`.

    tests/bench/executors.py [--rounds 15] [--requests 640] [--operations 300]

Every process of an installation runs, with a dockerd and an sshd of this run's own. Ours is the whole way of an operation
over loopback TCP, a connection for each request: prepared, decided at the approver's socket, executed, told. Rounds
alternate. Then `ab` with 64 connections against /prepare, and PSS of the processes while operations go through
(six of ten list containers, three run a command by ssh, one runs a local command). Exit status 1 when a process has grown by more
than GROWTH_KB between the first tenth and the end.
"""
import argparse
import http.client
import json
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for place in ("../fixtures", "../integration", "."):
    sys.path.insert(0, os.path.join(HERE, place))
os.environ.setdefault("HB_BUILD", os.path.abspath(os.path.join(HERE, "..", "..", "build")))

from dockerd import Dockerd  # noqa: E402
from measure import field, table, tree  # noqa: E402
from scratch_state import ScratchState  # noqa: E402
from sshd import Sshd, free_port, private_accounts  # noqa: E402
from test_launcher import Running  # noqa: E402

GROUP = 4300 + os.getpid() % 90
GROWTH_KB = 1024  # what a cache of SQLite may still take after the first tenth
WATCHED = ("broker", "approver", "docker", "ssh")
CTL = os.path.join(os.environ["HB_BUILD"], "admin", "hermesctl")


class Executors:
    def __init__(self):
        self.undo = []
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def close(self):
        while self.undo:
            self.undo.pop()()

    def start(self):
        self.engine = Dockerd(GROUP)
        self.undo.append(self.engine.remove)
        self.image = self.engine.image("base:1")
        self.server = Sshd()
        self.undo.append(self.server.stop)
        self.dir = tempfile.mkdtemp(prefix="hb-executors-", dir="/tmp")
        self.undo.append(lambda: shutil.rmtree(self.dir, ignore_errors=True))
        os.chmod(self.dir, 0o755)
        workspace = os.path.join(self.dir, "workspace")
        os.mkdir(workspace)
        os.chown(workspace, 10002, 10002)
        self.port = free_port()
        self.state = ScratchState(features=("local", "docker", "ssh"), settings={
            "admin.listen": "127.0.0.1:%d" % free_port(), "runtime.port": str(free_port()),
            "broker.listen_tcp": "127.0.0.1:%d" % self.port, "broker.coalesce": "no", "approver.pending_per_user": "65536",
            "docker.socket": self.engine.socket, "local.image": self.image, "local.workspace": workspace})
        self.undo.append(self.state.remove)
        uid = self.state.uid("ssh")
        self.state.write("ssh/integrity-secret", os.urandom(32).hex() + "\n", 0o600, uid, uid)
        self.profile(uid)
        self.running = Running(self.state)
        self.undo.append(self.running.close)
        self.kinds = {
            "docker": ("docker", {"action": "run", "image": self.image, "command": ["/bin/true"], "auto_remove": True}),
            "local": ("local", {"command": "true"}),
            "ssh": ("ssh", {"profile": "bench", "command": "true"}),
            "list": ("docker", {"action": "list", "all": True}),
        }

    def profile(self, uid):
        """As `hermesctl ssh profile add` leaves it."""
        self.state.directory("ssh/profiles/bench", 0o700, uid, uid)
        fields = {"version": 2, "host": "127.0.0.1", "port": self.server.port, "user": "hbkey", "authority": "user",
                  "fingerprint": self.server.fingerprint(), "auth": "publickey", "credential_revision": "0" * 64}
        with open(self.server.key("hbkey"), "rb") as f:
            identity = f.read()
        for name, text in (("profile.json", json.dumps(fields)), ("known_hosts", self.server.known_hosts()),
                           ("identity", identity)):
            self.state.write("ssh/profiles/bench/" + name, text, 0o600, uid, uid)

    # --- one operation

    def post(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=330)
        try:
            connection.request("POST", path, json.dumps(body).encode(), {
                "X-Broker-Secret": self.state.secret, "Content-Type": "application/json", "Connection": "close"})
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def ours(self, kind):
        feature, request = self.kinds[kind]
        asked = self.post("/prepare", {"feature": feature, "request": request, "user_id": "0", "session": "bench"})
        decided = self.state.call("approver", "POST", "/console/decide", {
            "operation_id": asked["operation_id"], "decision": "approved", "digest": asked["digest"]}, timeout=60)[1]
        done = self.post("/execute", {"feature": feature, "capability": asked["capability"], "digest": asked["digest"],
                                      "user_id": "0", "session": "bench"})
        if done.get("returncode") != 0:
            raise AssertionError((kind, decided, done))

    # --- the tools themselves

    def docker_run(self):
        subprocess.run(["docker", "-H", "unix://" + self.engine.socket, "run", "--rm", "--network", "none", "--read-only",
                        "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--memory", "512m", "--cpus", "1",
                        "--pids-limit", "256", self.image, "/bin/true"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "DOCKER_CONFIG": self.engine.config})

    def ssh(self):
        hosts = os.path.join(self.dir, "known_hosts")
        with open(hosts, "w", encoding="ascii") as f:
            f.write(self.server.known_hosts())
        subprocess.run(["ssh", "-F", "none", "-T", "-o", "BatchMode=yes", "-o", "UserKnownHostsFile=" + hosts,
                        "-o", "GlobalKnownHostsFile=none", "-o", "IdentitiesOnly=yes", "-i", self.server.key("hbkey"),
                        "-p", str(self.server.port), "--", "hbkey@127.0.0.1", "true"], check=True, stdin=subprocess.DEVNULL)

    # --- what is measured

    def overhead(self, rounds):
        ways = (("docker run", self.docker_run), ("our docker run", lambda: self.ours("docker")),
                ("our local command", lambda: self.ours("local")), ("ssh", self.ssh),
                ("our ssh command", lambda: self.ours("ssh")))
        times = {name: [] for name, _ in ways}
        for turn in range(rounds + 1):  # the first only warms up
            for name, way in ways:
                began = time.monotonic()
                way()
                if turn:
                    times[name].append(1000 * (time.monotonic() - began))
        middle = {name: statistics.median(taken) for name, taken in times.items()}
        peer = {name: middle["ssh" if "ssh" in name else "docker run"] for name in middle}
        table("executors, %d rounds" % rounds, ["way", "median ms", "of the tool alone", "ms more"],
              [[name, "%.0f" % ms, "%.2fx" % (ms / peer[name]), "%+.0f" % (ms - peer[name])] for name, ms in middle.items()])

    def prepares(self, requests):
        rows = []
        for kind in ("docker", "local", "ssh"):
            feature, request = self.kinds[kind]
            body = os.path.join(self.dir, kind + ".json")
            with open(body, "w", encoding="ascii") as f:
                json.dump({"feature": feature, "request": request, "user_id": "0", "session": "bench"}, f)
            before = self.stored()
            out = subprocess.run(["ab", "-q", "-l", "-n", str(requests), "-c", "64", "-p", body, "-T", "application/json",
                                  "-H", "X-Broker-Secret: " + self.state.secret,
                                  "http://127.0.0.1:%d/prepare" % self.port], check=True, capture_output=True,
                                 text=True).stdout
            prepared = self.stored() - before
            taken = float(re.search(r"Time taken for tests:\s+([\d.]+)", out).group(1))
            rows.append([kind, "%.0f" % (prepared / taken), int(re.search(r"^\s+50%\s+(\d+)", out, re.M).group(1)),
                         int(re.search(r"^\s+99%\s+(\d+)", out, re.M).group(1)), requests - prepared])
        table("/prepare, 64 connections, one request each", ["operation", "prepared/s", "p50 ms", "p99 ms", "refused"], rows)

    def stored(self):
        db = sqlite3.connect("file:%s?mode=ro" % self.state.file("broker/operations.db"), uri=True)
        try:
            return db.execute("SELECT count(*) FROM operations").fetchone()[0]
        finally:
            db.close()

    def pss(self):
        """KB of each process and of what stays with it (the starter of ssh), nothing being under way."""
        return {name: sum(field(pid, "Pss") for pid in tree(self.running.pid_of(name))) for name in WATCHED}

    def memory(self, operations):
        mix = ["list"] * 6 + ["ssh"] * 3 + ["local"]
        marks = sorted({max(1, operations * tenths // 10) for tenths in (1, 2, 4, 6, 8, 10)})
        rows, seen = [], []
        for number in range(1, operations + 1):
            self.ours(mix[number % len(mix)])
            if number in marks:
                seen.append(self.pss())
                rows.append([number, *("%.2f" % (seen[-1][name] / 1000) for name in WATCHED)])
        table("memory (PSS MB) while operations go through", ["operations", *WATCHED], rows)
        grown = {name: seen[-1][name] - seen[0][name] for name in WATCHED}
        return {name: kb for name, kb in grown.items() if kb > GROWTH_KB}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rounds", type=int, default=15, help="0: no comparison with the tools")
    ap.add_argument("--requests", type=int, default=640, help="0: /prepare is not loaded")
    ap.add_argument("--operations", type=int, default=300)
    args = ap.parse_args()
    private_accounts()
    bench = Executors()
    try:
        if args.rounds:
            bench.overhead(args.rounds)
        grown = bench.memory(args.operations)
        if args.requests:
            bench.prepares(args.requests)
    finally:
        bench.close()
    if grown:
        sys.exit("grown by more than %d KB: %r" % (GROWTH_KB, grown))


if __name__ == "__main__":
    main()
