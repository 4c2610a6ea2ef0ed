#!/usr/bin/env python3
"""The admin endpoint as browsers, scripts and attackers meet it: raw sockets for the rules of HTTP, every process running
behind it."""
import hashlib
import json
import os
import signal
import socket
import sys
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fixtures"))
from installation import EmptyEngine, Installation, wait_for  # noqa: E402

ORIGIN = "http://127.0.0.1:8787"
TOKEN = "123456789:AAEhBOweik6ad9r_QXMENQjcrGbqCr4K-bc"
AGENT_TOKEN = "987654321:AAFhBOweik6ad9r_QXMENQjcrGbqCr4K-xx"


class Answer:
    def __init__(self, raw):
        head, _, self.body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1]) if lines[0] else 0
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers.setdefault(name.strip().lower(), []).append(value.strip())

    def header(self, name):
        return ", ".join(self.headers.get(name.lower(), []))

    @property
    def json(self):
        return json.loads(self.body)


class Base(unittest.TestCase):
    settings = ()
    patience = 20  # seconds a socket waits

    @classmethod
    def setUpClass(cls):
        cls.agents = None
        cls.make()
        cls.i.up()
        cls.key = cls.i.secret("admin/admin-key")

    @classmethod
    def make(cls):
        cls.i = Installation(*cls.settings)

    @classmethod
    def tearDownClass(cls):
        cls.i.close()

    def connect(self, timeout=None):
        s = socket.create_connection(("127.0.0.1", self.i.port), timeout=timeout or self.patience)
        self.addCleanup(s.close)
        return s

    def raw(self, data, timeout=None):
        """Everything the server says until it closes."""
        s = self.connect(timeout)
        s.sendall(data)
        out = b""
        while True:
            try:
                piece = s.recv(65536)
            except ConnectionResetError:
                break
            if not piece:
                break
            out += piece
        s.close()
        return out

    def ask(self, method, path, body=None, key=True, host=None, headers=(), version="1.1"):
        lines = ["%s %s HTTP/%s" % (method, path, version)]
        if host is not False:
            lines.append("Host: " + (host or "127.0.0.1:%d" % self.i.port))
        if key is True:
            key = self.key
        if key:
            lines.append("X-Execution-Admin-Key: " + key)
        lines += headers
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if body is not None:
            lines += ["Content-Type: application/json", "Content-Length: %d" % len(data)]
        lines.append("Connection: close")
        return Answer(self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + data))

    def get(self, path, **kw):
        return self.ask("GET", path, **kw)

    def status(self):
        a = self.get("/admin/status")
        self.assertEqual(a.status, 200, a.body)
        return a.json


class Rules(Base):
    PATHS = [("GET", "/health"), ("GET", "/admin/status"), ("GET", "/nothing"), ("GET", "/"), ("GET", "/app.js"),
             ("OPTIONS", "/admin/status"), ("PUT", "/admin/users"), ("GET", "/metrics")]

    def test_h59_only_its_own_names(self):
        p = self.i.port
        bad = ["evil.test", "evil.test:%d" % p, "localhost.evil.test", "127.0.0.1.evil.test:%d" % p,
               "localhost:%d" % (p + 1), "", "[::1]:%d" % p, "0.0.0.0:%d" % p, "127.1:%d" % p, "LOCALHOST:%d" % p,
               "localhost", "127.0.0.1", " 127.0.0.1:%d.evil" % p, "127.0.0.1:%d@evil" % p, "2130706433:%d" % p]
        for method, path in self.PATHS:
            for host in bad:
                with self.subTest(path=path, host=host):
                    lines = "%s %s HTTP/1.1\r\nHost: %s\r\nX-Execution-Admin-Key: %s\r\nOrigin: %s\r\nConnection: close\r\n\r\n"
                    a = Answer(self.raw((lines % (method, path, host, self.key, ORIGIN)).encode()))
                    self.assertEqual(a.status, 421, a.body)
                    self.assertEqual(a.json["code"], "wrong_host")
                    self.assertEqual(a.header("Access-Control-Allow-Origin"), "")
            for host in ("127.0.0.1:%d" % p, "localhost:%d" % p):
                self.assertNotIn(self.ask(method, path, host=host).status, (421, 403))

    def test_h59_host_missing_or_ambiguous(self):
        own = "127.0.0.1:%d" % self.i.port
        key = "X-Execution-Admin-Key: " + self.key
        cases = [("GET /health HTTP/1.0\r\n\r\n", 421), ("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", 421),
                 ("GET /admin/status HTTP/1.1\r\nHost: %s\r\nHost: evil.test\r\n%s\r\n\r\n" % (own, key), 400),
                 ("GET /admin/status HTTP/1.1\r\nHost: %s\r\nHost: %s\r\n%s\r\n\r\n" % (own, own, key), 400),
                 ("GET http://evil.test/admin/status HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n" % (own, key), 400),
                 ("GET http://%s/admin/status HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n" % (own, own, key), 400),
                 ("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (own, own), 400)]
        for text, status in cases:
            with self.subTest(text=text):
                s = self.connect()
                s.sendall(text.encode())
                self.assertEqual(Answer(s.recv(65536)).status, status)

    def test_h60_origins_are_exact(self):
        bad = ["http://127.0.0.1.evil.test", "http://localhost.evil.test:8787", "null", "file://", "http://127.0.0.1",
               "https://127.0.0.1:8787", "http://127.0.0.1:87870", "HTTP://127.0.0.1:8787", "http://127.0.0.1:8787/",
               "*", "", "http://127.0.0.1:8787, http://evil.test", "http://evil.test"]
        for origin in bad:
            for method in ("GET", "OPTIONS"):
                with self.subTest(origin=origin, method=method):
                    a = self.ask(method, "/admin/status", headers=["Origin: " + origin])
                    self.assertEqual(a.status, 403, a.body)
                    self.assertEqual(a.header("Access-Control-Allow-Origin"), "")
                    self.assertEqual(a.header("Vary"), "Origin")
        for origin in (ORIGIN, "http://localhost:8787", "http://127.0.0.1:%d" % self.i.port,
                       "http://localhost:%d" % self.i.port):
            a = self.get("/admin/status", headers=["Origin: " + origin])
            self.assertEqual((a.status, a.header("Access-Control-Allow-Origin")), (200, origin))
            self.assertEqual(a.header("Access-Control-Allow-Credentials"), "")
        a = self.get("/admin/status", headers=["Origin: " + ORIGIN, "Origin: " + ORIGIN])
        self.assertEqual(a.status, 400)
        self.assertEqual(self.get("/admin/status").status, 200)  # no page at all: a script with the key

    def test_h62_preflight(self):
        asks = "Access-Control-Request-Private-Network: true"
        for path in ("/admin/status", "/health", "/nothing"):
            a = self.ask("OPTIONS", path, key=None, headers=["Origin: " + ORIGIN, asks])
            self.assertEqual((a.status, a.body), (204, b""))
            self.assertEqual(a.header("Access-Control-Allow-Private-Network"), "true")
            self.assertEqual(a.header("Access-Control-Allow-Headers"), "Content-Type, X-Execution-Admin-Key")
            self.assertEqual(a.header("Access-Control-Allow-Methods"), "GET, PUT, POST, OPTIONS")
            self.assertEqual(a.header("Access-Control-Allow-Origin"), ORIGIN)
            self.assertEqual(a.header("Content-Length"), "")
        a = self.ask("OPTIONS", "/admin/status", key=None, headers=["Origin: " + ORIGIN])
        self.assertEqual((a.status, a.header("Access-Control-Allow-Private-Network")), (204, ""))
        a = self.ask("OPTIONS", "/admin/status", key=None, headers=["Origin: http://evil.test", asks])
        self.assertEqual((a.status, a.header("Access-Control-Allow-Private-Network")), (403, ""))

    def test_order_host_origin_key_route_body(self):
        bad_body = b"{not json"
        steps = [(dict(host="evil.test", key="x", headers=["Origin: http://evil.test"]), 421),
                 (dict(key="x", headers=["Origin: http://evil.test"]), 403),
                 (dict(key=None), 401), (dict(), 404)]
        for kw, status in steps:
            self.assertEqual(self.ask("PUT", "/admin/nothing", body=bad_body, **kw).status, status, kw)
        self.assertEqual(self.ask("PUT", "/admin/users", body=bad_body, key=None).status, 401)
        self.assertEqual(self.ask("PUT", "/admin/users", body=bad_body).status, 400)
        a = self.ask("POST", "/admin/users", body={})
        self.assertEqual((a.status, a.header("Allow")), (405, "PUT"))
        self.assertEqual(self.ask("PUT", "/admin/users", body={"users": "0"}).status, 422)
        self.assertEqual(self.ask("PUT", "/admin/users", body=b'{"users":[],"users":["0"]}').status, 400)
        self.assertEqual(self.ask("PUT", "/admin/users", body={"users": ["0"], "more": 1}).status, 422)
        self.assertEqual(self.ask("PUT", "/admin/users", body=b"{" + b" " * 300000 + b"}").status, 413)

    def test_cors_stands_on_every_answer_to_an_allowed_origin(self):
        o = ["Origin: " + ORIGIN]
        answers = [self.get("/health", key=None, headers=o), self.get("/admin/status", key=None, headers=o),
                   self.get("/nothing", headers=o), self.ask("POST", "/admin/users", body={}, headers=o),
                   self.ask("PUT", "/admin/users", body=b"{", headers=o),
                   self.ask("PUT", "/admin/users", body={"users": ["x"]}, headers=o),
                   self.ask("PUT", "/admin/users", body=b"{" + b" " * 300000 + b"}", headers=o),
                   self.get("/admin/audit?limit=0", headers=o)]
        self.assertEqual([a.status for a in answers], [200, 401, 404, 405, 400, 422, 413, 422])
        for a in answers:
            self.assertEqual(a.header("Access-Control-Allow-Origin"), ORIGIN)
            self.assertEqual(a.header("Vary"), "Origin")
            self.assertEqual(a.headers.get("cache-control"), ["no-store"])
            if a.status != 200:
                self.assertIsInstance(a.json["error"], str)

    def test_h63_slow_clients(self):
        def rss():
            with open("/proc/%d/status" % self.i.pid("admin"), encoding="ascii") as f:
                return int(next(line for line in f if line.startswith("VmRSS")).split()[1])

        self.status()
        before = rss()
        slow = []
        words = [b"G",
                 b"PUT /admin/users HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Execution-Admin-Key: %s\r\n"
                 b"Content-Length: 4000\r\n\r\n{" % (self.i.port, self.key.encode()),
                 b"GET /health HTTP/1.1\r\nX-A: " + b"a" * 15000]
        for n in range(320):  # more than there are places for
            s = self.connect()
            s.sendall(words[n % 3])
            slow.append(s)
        fds = "/proc/%d/fd" % self.i.pid("admin")
        wait_for(lambda: len(os.listdir(fds)) > 256, "every place to be taken")
        self.patience = 5  # the slow ones are let go of after fifteen
        for _ in range(20):
            self.status()
        for n in range(40):  # never read their answers
            s = self.connect()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(b"GET /app.js HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % self.i.port * 20)
            slow.append(s)
        for _ in range(20):
            self.status()
        self.assertLess(rss() - before, 32 * 1024)
        a = Answer(self.raw(b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * (1 << 20) + b"\r\n\r\n"))
        self.assertEqual(a.status, 431)
        a = Answer(self.raw(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 10000 + b"\r\n"))
        self.assertEqual(a.status, 431)
        for s in slow:
            s.close()
        self.status()

    def test_the_page_is_served_without_a_key_and_allows_nothing_foreign(self):
        a = self.get("/", key=None)
        self.assertEqual(a.status, 200)
        csp = a.header("Content-Security-Policy")
        self.assertIn("default-src 'none'", csp)
        self.assertNotIn("unsafe", csp)
        self.assertNotIn("*", csp)
        self.assertEqual(a.header("X-Frame-Options"), "DENY")
        total = len(a.body)
        for path, kind in (("/app.js", "text/javascript"), ("/api.js", "text/javascript"), ("/dom.js", "text/javascript"),
                           ("/views.js", "text/javascript"), ("/style.css", "text/css"), ("/icon.svg", "image/svg+xml")):
            f = self.get(path, key=None)
            self.assertEqual((f.status, f.header("Content-Type").split(";")[0]), (200, kind))
            total += len(f.body)
        self.assertLess(total, 100 * 1024)
        self.assertEqual(self.get("/page.c", key=None).status, 401)
        self.assertEqual(self.get("/../admin/admin-key").status, 404)


class Keys(Base):
    def test_wrong_keys_cost_growing_time_and_are_recorded(self):
        for _ in range(5):
            self.assertEqual(self.get("/admin/status", key="wrong").status, 401)
        self.assertEqual(self.get("/admin/status").status, 200)  # a right one forgives
        for _ in range(6):
            self.assertEqual(self.get("/admin/status", key="wrong").status, 401)
        a = self.get("/admin/status", headers=["Origin: " + ORIGIN])
        self.assertEqual((a.status, a.json["code"]), (429, "locked_out"))
        self.assertGreaterEqual(int(a.header("Retry-After")), 1)
        self.assertEqual(a.header("Access-Control-Allow-Origin"), ORIGIN)
        self.assertEqual(self.get("/health", key=None).status, 200)
        wait_for(lambda: self.get("/admin/status").status == 200, "the end of the lock")
        rows = self.get("/admin/audit?limit=200&action=access&status=refused").json
        self.assertIn("wrong_key", [r["detail"]["why"] for r in rows])

    def test_missing_keys_lock_nobody_out(self):
        for _ in range(20):  # what any page can send without a preflight
            self.assertEqual(self.get("/admin/status", key=None).status, 401)
        self.assertEqual(self.get("/admin/status").status, 200)

    def test_a_new_key_counts_at_once(self):
        old = self.key
        self.i.ctl("admin", "key", "rotate", check=0)
        type(self).key = self.i.secret("admin/admin-key")
        self.assertNotEqual(old, self.key)
        self.assertEqual(self.get("/admin/status", key=old).status, 401)
        self.assertEqual(self.get("/admin/status").status, 200)

    def test_metrics_have_a_key_of_their_own(self):
        scrape = self.i.secret("admin/scrape-key")
        bearer = ["Authorization: Bearer " + scrape]
        a = wait_for(lambda: (lambda a: a if b'up{service="broker"} 1' in a.body else None)(
            self.get("/metrics", key=None, headers=bearer)), "a broker that is well")
        self.assertEqual(a.status, 200)
        text = a.body.decode()
        self.assertIn("hermes_policy_generation ", text)
        self.assertNotIn("user", text.replace("Users who may approve", ""))
        self.assertEqual(self.get("/metrics").status, 401)  # the admin key isn't it
        self.assertEqual(self.get("/admin/status", key=scrape).status, 401)
        self.assertEqual(self.get("/admin/status", key=None, headers=bearer).status, 401)
        for line in text.splitlines():
            self.assertRegex(line, r"^(# (HELP|TYPE) hermes_\w+ .+|hermes_\w+(\{\w+=\"[^\"]*\"\})? -?\d+)$")

    def test_unreadable_key_closes_everything(self):
        path = self.i.file("admin/admin-key")
        os.chmod(path, 0o644)
        try:
            a = self.get("/admin/status")
            self.assertEqual((a.status, a.json["code"]), (503, "secret_permissions"))
            self.assertIn("chmod 600", a.json["error"])
        finally:
            os.chmod(path, 0o600)


class Edits(Base):
    def test_status_has_what_pages_read(self):
        s = self.status()
        for name in ("version", "features", "users", "allowed_users", "policy_generation", "bot_token_configured",
                     "admin_key_configured", "ssh_profiles", "services", "security", "runtime"):
            self.assertIn(name, s)
        self.assertEqual(s["security"], {"signing_key_mounted": False, "docker_socket_mounted": False,
                                         "ssh_private_credentials_mounted": False, "bot_token_readback": False})
        for name in ("approver", "docker", "ssh", "broker", "installer", "fetcher"):
            self.assertTrue(s["services"][name]["reachable"], name)
            self.assertIn("status", s["services"][name])
            self.assertIn("checks", s["services"][name])

    def test_security_block_reports_what_is_found(self):
        with socket.socket(socket.AF_UNIX) as docker:
            path = os.path.join(self.i.dir, "docker.sock")
            docker.bind(path)
            docker.listen()
            os.chmod(path, 0o666)
            try:
                self.assertTrue(self.status()["security"]["docker_socket_mounted"])
            finally:
                os.unlink(path)

    def test_features_are_exactly_the_pages_three(self):
        before = self.status()
        a = self.ask("PUT", "/admin/features", {"features": ["sandbox", "ssh"]})
        self.assertEqual(a.status, 200)
        self.assertEqual(a.json["status"], "ok")
        self.assertEqual(a.json["policy_generation"], before["policy_generation"] + 1)
        after = self.status()
        self.assertEqual((after["policy_generation"], sorted(after["features"])),
                         (a.json["policy_generation"], ["local", "runtime", "ssh"]))
        row = self.get("/admin/audit?limit=1").json[0]
        self.assertEqual((row["action"], row["status"], row["detail"]["new"]), ("features", "ok", ["sandbox", "ssh"]))
        self.assertIn("old", row["detail"])
        for bad in (["runtime"], ["root"], ["docker", 1], "docker"):
            self.assertEqual(self.ask("PUT", "/admin/features", {"features": bad}).status, 422, bad)
        self.assertEqual(self.status()["policy_generation"], after["policy_generation"])
        self.assertEqual(self.ask("PUT", "/admin/runtime", {"enabled": False}).status, 200)
        self.assertNotIn("runtime", self.status()["features"])
        self.assertEqual(self.ask("PUT", "/admin/runtime", {"enabled": True}).status, 200)

    def test_users_stay_within_the_bounds(self):
        a = self.ask("PUT", "/admin/users", {"users": ["0", "111"]})
        self.assertEqual((a.status, a.json["users"]), (200, ["0", "111"]))
        for bad in (["999"], ["0", "0"], ["01"], ["-1"], ["1e3"], [""], ["1" * 21], [111], ["111 "]):
            a = self.ask("PUT", "/admin/users", {"users": bad})
            self.assertEqual(a.status, 422, bad)
        self.assertEqual(self.status()["users"], ["0", "111"])

    def test_policy_history_shows_differences_also_of_root(self):
        self.ask("PUT", "/admin/users", {"users": ["0"]})
        self.ask("PUT", "/admin/users", {"users": ["0", "222"]})
        self.i.ctl("policy", "set", "--quorum", "docker=2", check=0)
        p = wait_for(lambda: (lambda h: h if h["history"][0].get("by") == "host" else None)(
            self.get("/admin/policy").json), "root's change in the history")
        self.assertEqual(p["history"][0]["differences"][0]["field"], "quorum")
        self.assertEqual(p["history"][1]["differences"], [{"field": "users", "added": ["222"], "removed": []}])
        self.assertEqual(p["live"]["quorum"]["docker"], 2)
        self.assertIn("0", p["bounds"]["allowed_users"])
        self.i.ctl("policy", "set", "--quorum", "docker=1", check=0)

    def test_audit_is_a_bare_array_newest_first(self):
        rows = self.get("/admin/audit?limit=5").json
        self.assertIsInstance(rows, list)
        self.assertLessEqual(len(rows), 5)
        self.assertEqual(rows, sorted(rows, key=lambda r: -r["seq"]))
        for limit in ("0", "201", "-1", "x", ""):
            self.assertEqual(self.get("/admin/audit?limit=" + limit).status, 422, limit)
        chain = self.get("/admin/audit/chain").json["chains"]
        self.assertEqual(chain["admin"]["state"], "verified")
        self.assertEqual(set(chain), {"admin", "approver", "docker", "ssh", "broker", "installer", "fetcher"})
        self.assertEqual(len(chain["broker"]["hash"]), 64)

    def test_h61_no_placeholder_becomes_the_token(self):
        masks = ["********", "", "   ", "\u2022" * 12, "<unchanged>", "123456:" + "*" * 30, "token", "123:short",
                 TOKEN + " ", " " + TOKEN, TOKEN + "\n", None, 5, [TOKEN], {"token": TOKEN}]
        for text in masks:
            a = self.ask("PUT", "/admin/bot-token", {"token": text})
            self.assertEqual(a.status, 422, text)
            self.assertNotIn(TOKEN.encode(), a.body)
        self.assertFalse(os.path.exists(self.i.file("approver/bot-token")))
        self.assertEqual(self.ask("PUT", "/admin/bot-token", {}).status, 422)
        self.assertEqual(self.ask("PUT", "/admin/bot-token", {"token": TOKEN, "x": 1}).status, 422)

    def test_h61_a_token_goes_one_way(self):
        generation = self.status()["policy_generation"]
        a = self.ask("PUT", "/admin/bot-token", {"token": TOKEN})
        self.assertEqual(a.status, 200, a.body)
        self.assertIsNone(a.json["token"])
        self.assertGreater(a.json["policy_generation"], generation)
        s = self.status()
        self.assertTrue(s["bot_token_configured"])
        self.assertFalse(s["security"]["bot_token_readback"])
        st = os.stat(self.i.file("approver/bot-token"))
        self.assertEqual((st.st_uid, st.st_mode & 0o777), (self.i.uid("approver"), 0o600))
        self.assertEqual(self.i.secret("approver/bot-token"), TOKEN)
        # Two pages: the one that didn't touch it changes nothing.
        self.ask("PUT", "/admin/bot-token", {"token": "********"})
        self.assertEqual(self.i.secret("approver/bot-token"), TOKEN)
        said = b"".join(self.get(p).body for p in ("/admin/status", "/admin/audit?limit=200", "/admin/policy",
                                                   "/admin/operations", "/admin/runtime", "/health"))
        for where in [said.decode()] + [self.i.read(n) for n in self.logs()]:
            self.assertNotIn(TOKEN, where)
            self.assertNotIn(TOKEN.split(":")[1], where)
        # Clearing is a thing of its own.
        a = self.ask("POST", "/admin/bot-token/clear")
        self.assertEqual((a.status, a.json["bot_token_configured"]), (200, False))
        self.assertFalse(os.path.exists(self.i.file("approver/bot-token")))
        self.assertFalse(self.status()["bot_token_configured"])

    def logs(self):
        names = ["log/" + n for n in os.listdir(self.i.file("log"))]
        return names + [p + "/audit.log" for p in ("admin", "approver", "broker")]

    def test_an_agents_own_bot_is_refused(self):
        a = self.ask("PUT", "/admin/bot-token", {"token": AGENT_TOKEN})
        self.assertEqual((a.status, a.json["code"]), (422, "agents_own_bot"))
        self.assertFalse(os.path.exists(self.i.file("approver/bot-token")))

    def test_control_secret_rotation_reaches_broker_and_clients(self):
        generation = self.status()["policy_generation"]
        old = self.i.secret("broker/control-secret")
        copy = self.i.file("clients/%d/control-secret" % self.CLIENT)
        inode, pid = os.stat(copy).st_ino, self.i.pid("broker")
        for body in (None, {}):
            a = self.ask("POST", "/admin/rotate-control-secret", body)
            self.assertEqual(a.status, 200, a.body)
            new = self.i.secret("broker/control-secret")
            self.assertNotEqual(new, old)
            self.assertNotIn(new.encode(), a.body)
            with open(copy, encoding="ascii") as f:
                self.assertEqual(f.read().strip(), new)
            stale, old = old, new
        self.assertGreater(a.json["policy_generation"], generation)
        st = os.stat(copy)
        self.assertEqual((st.st_ino, st.st_uid, st.st_mode & 0o777), (inode, self.CLIENT, 0o620))
        self.assertEqual(self.i.pid("broker"), pid)
        asked = {"kind": "runtime_releases"}
        self.assertEqual(self.i.unix("broker", "POST", "/discover", asked, ["X-Broker-Secret: " + stale])[0], 401)
        self.assertEqual(self.i.unix("broker", "POST", "/discover", asked, ["X-Broker-Secret: " + new])[0], 200)
        for name in self.logs():
            self.assertNotIn(new, self.i.read(name))
        self.assertEqual(self.ask("POST", "/admin/rotate-control-secret", {"secret": "x"}).status, 422)

    def test_a_keeper_that_does_not_answer_is_said(self):
        pid = self.i.pid("approver")
        os.kill(pid, signal.SIGSTOP)
        try:
            a = self.ask("PUT", "/admin/bot-token", {"token": TOKEN})
            self.assertEqual(a.status, 503)
            self.assertIn("isn't known", a.json["error"])
            self.assertEqual(self.get("/admin/audit?limit=1").json[0]["status"], "failed")
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.ask("POST", "/admin/bot-token/clear").status, 200)

    CLIENT = 51234

    @classmethod
    def make(cls):
        cls.i = Installation("broker.client_uids=%d" % cls.CLIENT, "approver.agent_bot_sha256_file=public/agent-bots",
                             "approver.api_base=http://127.0.0.1:9")
        with open(cls.i.file("public/agent-bots"), "w", encoding="ascii") as f:
            f.write(hashlib.sha256(AGENT_TOKEN.encode()).hexdigest() + "\n")


class Events(Base):
    settings = ("approver.denial_cooldown=0",)

    @classmethod
    def make(cls):
        super().make()
        cls.engine = EmptyEngine(os.path.join(cls.i.dir, "docker.sock"))

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()
        super().tearDownClass()

    def setUp(self):
        self.assertEqual(self.ask("PUT", "/admin/features", {"features": ["docker"]}).status, 200)

    def stream(self, path):
        """(list that fills, thread) of one event stream."""
        s = self.connect(60)
        s.sendall(("GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Execution-Admin-Key: %s\r\nOrigin: %s\r\n\r\n" %
                   (path, self.i.port, self.key, ORIGIN)).encode())
        events, text = [], [""]

        def read():
            try:
                while piece := s.recv(65536):
                    text[0] += piece.decode()
                    events[:] = self.parse(text[0])
            except OSError:
                pass

        t = threading.Thread(target=read, daemon=True)
        t.start()

        def end():
            # A close alone tells the server nothing while the thread still waits in poll: the kernel keeps the socket.
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the server was first
            t.join(60)

        self.addCleanup(end)
        return events, t, text

    def listening(self):
        text = self.get("/metrics", key=None, headers=["Authorization: Bearer " + self.i.secret("admin/scrape-key")])
        return int([line for line in text.body.decode().splitlines()
                    if line.startswith("hermes_admin_event_streams ")][0].split()[1])

    @staticmethod
    def parse(text):
        events = []
        for block in text.split("\n\n"):
            lines = [line.strip("\r") for line in block.split("\n")]
            name = [line[7:] for line in lines if line.startswith("event: ")]
            data = [line[6:] for line in lines if line.startswith("data: ")]
            if name and data:
                events.append((name[0], json.loads(data[0])))
        return events

    def test_policy_and_operations_are_told_as_they_happen(self):
        events, _, text = self.stream("/admin/events")
        wait_for(lambda: events, "hello")
        self.assertEqual(events[0][0], "hello")
        self.assertIn("Access-Control-Allow-Origin: " + ORIGIN, text[0])
        op = self.i.prepare("docker", {"action": "list", "all": True})
        self.assertEqual(op.get("status"), "prepared", op)
        wait_for(lambda: any(e[0] == "operation" and e[1]["operation_id"] == op["operation_id"] and
                             e[1]["state"] == "awaiting_approval" for e in events), "the operation")
        one, _, one_text = self.stream("/admin/operations/%s/events" % op["operation_id"])
        wait_for(lambda: len(one) > 1, "its own stream")
        self.i.ctl("deny", op["operation_id"], check=0)
        wait_for(lambda: any(e[0] == "operation" and e[1]["state"] == "denied" for e in events), "the denial")
        wait_for(lambda: one_text[0].endswith("0\r\n\r\n"), "the end of its own stream")
        self.assertEqual(one[-1][1]["state"], "denied")
        for _, data in events + one:
            self.assertNotIn("summary", data)
            self.assertNotIn("session", data)
        a = self.ask("PUT", "/admin/users", {"users": ["0", "222"]})
        wait_for(lambda: ("policy", {"policy_generation": a.json["policy_generation"]}) in events, "the policy")

    def test_operations_are_metadata(self):
        op = self.i.prepare("docker", {"action": "list", "all": False})
        listed = self.get("/admin/operations?limit=5").json["operations"]
        mine = [o for o in listed if o["operation_id"] == op["operation_id"]][0]
        self.assertEqual((mine["feature"], mine["action"], mine["state"]), ("docker", "list", "awaiting_approval"))
        for name in ("summary", "session", "capability", "request"):
            self.assertNotIn(name, mine)
        self.assertEqual(self.get("/admin/operations/" + op["operation_id"]).json["digest"], op["digest"])
        self.assertEqual(self.get("/admin/operations/" + "0" * 32).status, 404)
        self.assertEqual(self.get("/admin/operations/x").status, 404)
        self.assertEqual(self.get("/admin/operations?limit=1000").status, 422)
        self.i.ctl("deny", op["operation_id"])

    def test_a_policy_change_ends_what_waits(self):
        op = self.i.prepare("docker", {"action": "list", "all": True}, session="revoked")
        self.ask("PUT", "/admin/features", {"features": ["docker", "ssh"]})
        wait_for(lambda: self.get("/admin/operations/" + op["operation_id"]).json["state"] == "revoked", "revocation")

    def test_too_many_streams_are_refused(self):
        wait_for(lambda: self.listening() == 0, "the end of the streams of other tests")
        open_streams = [self.stream("/admin/events") for _ in range(16)]
        wait_for(lambda: all(s[0] for s in open_streams), "sixteen streams")
        self.assertEqual(self.get("/admin/events").status, 503)
        self.assertEqual(self.get("/admin/status").status, 200)

    def test_streams_of_one_operation_have_no_more_places_while_the_broker_is_slow(self):
        op = self.i.prepare("docker", {"action": "list", "all": True}, session="many")
        self.assertEqual(op.get("status"), "prepared", op)
        wait_for(lambda: self.listening() == 0, "the end of the streams of other tests")
        pid = self.i.pid("broker")
        os.kill(pid, signal.SIGSTOP)
        try:
            streams = [self.stream("/admin/operations/%s/events" % op["operation_id"]) for _ in range(24)]
            for _ in range(3):  # accepted after them, so they have been read
                self.assertEqual(self.get("/app.js").status, 200)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_for(lambda: all(s[2][0] for s in streams), "an answer to each")
        self.assertLessEqual(sum(" 200 " in s[2][0].split("\r\n")[0] for s in streams), 16)
        wait_for(lambda: self.i.ctl("deny", op["operation_id"]).get("code") != "unreachable", "the denial")
        wait_for(lambda: self.listening() == 0, "the end of all of them")

    def test_runtime_has_history_and_backups(self):
        r = self.get("/admin/runtime").json
        self.assertFalse(r["runtime"]["installed"])
        self.assertIsInstance(r["history"], list)
        self.assertIsInstance(r["backups"], list)


class Widening(Base):
    """With admin.widening_needs_grant: more only with a person's grant, less at once."""
    settings = ("admin.widening_needs_grant=yes", "approver.denial_cooldown=0")

    def live(self):
        return json.loads(self.i.read("policy/policy.json"))

    def test_widening_waits_for_an_approver_and_narrowing_does_not(self):
        before = self.live()
        a = self.ask("PUT", "/admin/features", {"features": ["ssh"]})
        self.assertEqual((a.status, a.json["status"]), (202, "pending_approval"), a.body)
        self.assertEqual(self.live(), before)
        op = a.json["operation_id"]
        pending = [p for p in self.i.ctl("pending")["pending"] if p["operation_id"] == op][0]
        self.assertIn("ssh operations may be asked for from then on", pending["summary"])
        self.assertEqual(self.get("/admin/operations/" + op).json["state"], "awaiting_approval")
        self.i.ctl("approve", "--yes", op, check=0)
        wait_for(lambda: "ssh" in self.live()["features"], "the granted change")
        self.assertEqual(self.live()["generation"], before["generation"] + 1)
        wait_for(lambda: self.get("/admin/operations/" + op).json["state"] == "succeeded", "the outcome")
        row = self.get("/admin/audit?action=widen&status=ok&limit=1").json[0]
        self.assertEqual((row["detail"]["operation_id"], len(row["detail"]["grant_id"])), (op, 64))
        a = self.ask("PUT", "/admin/features", {"features": []})
        self.assertEqual((a.status, a.json["status"]), (200, "ok"))
        self.assertNotIn("ssh", self.live()["features"])

    def test_a_denied_or_overtaken_widening_changes_nothing(self):
        self.ask("PUT", "/admin/users", {"users": ["0"]})
        before = self.live()
        op = self.ask("PUT", "/admin/users", {"users": ["0", "111"]}).json["operation_id"]
        self.i.ctl("deny", op, check=0)
        wait_for(lambda: self.get("/admin/operations/" + op).json["state"] == "denied", "the denial")
        self.assertEqual(self.live(), before)
        op = self.ask("PUT", "/admin/users", {"users": ["0", "111"]}).json["operation_id"]
        self.i.ctl("policy", "set", "--quorum", "ssh=2", check=0)
        wait_for(lambda: self.get("/admin/operations/" + op).json["state"] == "revoked", "the end of it")
        self.i.ctl("approve", "--yes", op)
        self.assertEqual(self.live()["users"], ["0"])
        self.i.ctl("policy", "set", "--quorum", "ssh=1", check=0)

    def test_only_admin_may_ask_for_it_and_for_nothing_else(self):
        r = self.i.prepare("policy", {"action": "widen", "features": ["ssh"], "users": ["0", "222"]})
        self.assertEqual(r["code"], "unknown_feature")
        r = self.i.prepare("runtime", {"action": "stop"})
        self.assertNotEqual(r.get("code"), "unknown_feature")
        self.assertEqual(self.i.unix("admin", "POST", "/execute", {})[0], 403)
        self.assertEqual(self.i.unix("admin", "POST", "/seal", {})[0], 403)
        self.assertEqual(self.ask("POST", "/execute", {}).status, 404)

    def test_out_of_bounds_is_refused_at_once(self):
        a = self.ask("PUT", "/admin/users", {"users": ["0", "999"]})
        self.assertEqual((a.status, a.json["code"]), (422, "out_of_bounds"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
