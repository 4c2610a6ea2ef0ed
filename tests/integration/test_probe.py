"""The probe against servers that answer in every way that was seen, and in some that must not pass."""
import http.server
import json
import os
import socketserver
import subprocess
import threading
import unittest

BUILD = os.environ["HB_BUILD"]
PROBE = os.path.join(BUILD, "tests/tools/probe_driver")
CHALLENGE = 'Bearer resource_metadata="https://elsewhere.example/.well-known/oauth"'


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """An MCP server whose manner of answering is set by the test."""
    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.health = (200, "application/json", b'{"status":"ok"}')
        self.challenge, self.challenge_status = [("www-authenticate", CHALLENGE)], 401
        self.style = "json"
        self.pages = [["resume", "execute"]]
        self.sessions, self.made, self.with_ids = set(), 0, True
        self.stale_status = 404
        self.key = "the-key"
        self.requests = []
        self.refuse_everything = None
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, kind=None, body=b"", headers=()):
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.server.requests.append(("GET", self.path, dict(self.headers)))
        status, kind, body = self.server.health
        self.reply(status, kind, body)

    def do_POST(self):
        server = self.server
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.requests.append((message["method"], self.path, dict(self.headers)))
        accept = self.headers.get("Accept", "")
        if "application/json" not in accept or "text/event-stream" not in accept:
            return self.reply(406)
        if self.headers.get("Authorization") != "Bearer " + server.key:
            return self.reply(server.challenge_status, "application/json", b"{}", server.challenge)
        if server.refuse_everything:
            return self.reply(server.refuse_everything)
        session = self.headers.get("Mcp-Session-Id")
        if message["method"] == "initialize":
            return self.initialize(message, session)
        if server.with_ids and session not in server.sessions:
            return self.reply(server.stale_status if session else 400)
        if message["method"] == "notifications/initialized":
            return self.reply(202)
        page = int(message["params"].get("cursor", "0"))
        result = {"tools": [{"name": n} for n in server.pages[page]]}
        if page + 1 < len(server.pages):
            result["nextCursor"] = str(page + 1)
        return self.rpc(message, result)

    def initialize(self, message, session):
        server, headers = self.server, []
        if session is not None:
            return self.reply(400)
        if server.with_ids:
            server.made += 1
            server.sessions.add(f"session-{server.made}")
            headers = [("mcp-session-id", f"session-{server.made}")]
        return self.rpc(message, {"protocolVersion": "2025-03-26", "capabilities": {}}, headers)

    def rpc(self, message, result, headers=()):
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        style = self.server.style
        if style == "json":
            return self.reply(200, "application/json; charset=utf-8", text.encode(), headers)
        if style == "batch":
            return self.reply(200, "application/json", f"[{text}]".encode(), headers)
        if style == "no-type":
            return self.reply(200, None, text.encode(), headers)
        if style == "pretty":
            return self.reply(200, "application/json", b"\n " + json.dumps(json.loads(text), indent=4).encode(), headers)
        return self.stream(style, text, headers)

    def stream(self, style, text, headers):
        other = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "\n{\"id\":2}"}})
        half = len(text) // 2
        events = {
            "sse": f"event: message\ndata: {text}\n\n",
            "sse-crlf": f"event: message\r\ndata: {text}\r\n\r\n",
            "sse-cr": f"data: {text}\r\r",
            "sse-several": f": hello\n\nid: 1\nevent: message\ndata: {other}\n\n: ping\n\ndata:{text}\n\ndata: {other}\n\n",
            "sse-two-lines": "data: " + text.replace(", ", ",\ndata:  ", 1) + "\n\n",
            "sse-no-type": f": x\ndata: {text}\n\n",
            "sse-pieces": f": hello\ndata: {text}\n\n",
            "sse-open": f"data: {text}\n\n",
            "sse-cut": f"data: {text}",
        }[style]
        self.send_response(200)
        if style != "sse-no-type":
            self.send_header("Content-Type", "text/event-stream")
        for name, value in headers:
            self.send_header(name, value)
        self.close_connection = True
        self.send_header("Connection", "close")
        self.end_headers()
        data = events.encode()
        if style == "sse-pieces":
            for piece in (data[:half], data[half:half + 3], data[half + 3:]):
                self.wfile.write(piece)
                self.wfile.flush()
                threading.Event().wait(0.05)
        else:
            self.wfile.write(data)
        self.wfile.flush()
        if style == "sse-open":  # the stream stays; the prober must not wait for its end
            self.server.hold.wait(30)


class ProbeCase(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.server.hold = threading.Event()
        self.start_probe(self.server.server_address[1])

    def start_probe(self, port):
        self.probe = subprocess.Popen([PROBE, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tearDown(self):
        self.server.hold.set()
        self.probe.stdin.close()
        self.assertEqual(self.probe.wait(timeout=30), 0)
        self.probe.stdout.close()
        self.server.close()

    def ask(self, **changes):
        question = {"run": 1, "health_path": "/api/health", "health_status": 200, "health_body": '"status":"ok"',
                    "mcp_path": "/mcp", "mcp_tools": ["execute", "resume"], "timeout_ms": 8000, "key": "the-key",
                    "token": ""}
        question.update(changes)
        self.probe.stdin.write(json.dumps(question).encode() + b"\n")
        self.probe.stdin.flush()
        return json.loads(self.probe.stdout.readline())

    def passes(self, **changes):
        answer = self.ask(**changes)
        self.assertEqual((answer["code"], answer["error"]), ("", ""), answer)
        return answer

    def fails(self, code, text, **changes):
        answer = self.ask(**changes)
        self.assertEqual(answer["code"], code, answer)
        self.assertIn(text, answer["error"])
        return answer


class Health(ProbeCase):
    def test_all_is_well(self):
        answer = self.passes()
        self.assertEqual(answer["checks"], {"http": "ok", "mcp_challenge": "ok", "mcp_tools": "ok"})
        self.assertEqual((answer["tools"], answer["run"]), (["execute", "resume"], 1))

    def test_blanks_in_the_body_do_not_matter(self):
        self.server.health = (200, "application/json", b'{ "version": 3, "status" : "ok" }')
        self.passes()

    def test_page_that_answers_everything_with_200_is_not_health(self):
        self.server.health = (200, "text/html", b'<html><script>{"status":"ok"}</script></html>')
        self.fails("not_ready", "but not with")

    def test_text_that_is_no_json_member_is_searched(self):
        self.server.health = (200, "text/plain", b"all is well here")
        self.passes(health_body="is well")
        self.fails("not_ready", "but not with", health_body="is bad")
        self.passes(health_body="")

    def test_other_status(self):
        self.server.health = (404, "text/plain", b"")
        self.fails("not_ready", "answers 404 instead of 200")
        self.passes(health_status=404, health_body="")

    def test_health_token_is_sent_only_there(self):
        self.passes(token="health-token")
        auth = [(r[0], r[2].get("Authorization")) for r in self.server.requests]
        self.assertEqual(auth[:2], [("GET", "Bearer health-token"), ("initialize", None)])

    def test_answer_without_end_is_cut(self):
        self.server.health = (200, "application/json", b"x" * (2 << 20))
        self.fails("not_ready", "has more than")

    def test_nobody_listens(self):
        self.server.close()
        self.fails("not_ready", "Connection refused")
        self.server = Server()
        self.server.hold = threading.Event()


class Challenge(ProbeCase):
    def test_h67_login_required_is_reachable(self):
        for header in (("www-authenticate", CHALLENGE), ("WWW-Authenticate", "bearer"),
                       ("Www-Authenticate", 'Bearer realm="executor", Basic realm="executor"'),
                       ("WWW-Authenticate", 'Basic realm="a, Basic b", Bearer realm="x"')):
            self.server.challenge = [header]
            answer = self.passes(key="")
            self.assertEqual(answer["checks"]["mcp_tools"], "not configured")
            self.assertIsNone(answer["tools"])

    def test_address_that_the_server_gives_itself(self):
        known = "/.well-known/oauth-protected-resource"
        for url, address in ((f"https://gateway.example{known}/acme/mcp", "https://gateway.example/acme/mcp"),
                             (f"http://127.0.0.1:4788{known}/mcp", "http://127.0.0.1:4788/mcp"),
                             (f"https://gateway.example{known}", "https://gateway.example"),
                             ("https://gateway.example/elsewhere", ""), (f"javascript://x{known}/mcp", ""),
                             (f"https://user:pw@gateway.example{known}/mcp", ""), (f"https://a{known}/<b>", ""),
                             (f"https://a{known}/" + "x" * 400, "")):
            self.server.challenge = [("WWW-Authenticate", f'Bearer realm="x", resource_metadata="{url}"')]
            with self.subTest(url=url):
                self.assertEqual(self.ask()["address"], address)
        self.server.challenge = [("WWW-Authenticate", 'Bearer resource_metadata="https://a' + known)]
        self.assertEqual(self.ask()["address"], "")

    def test_h67_two_challenge_fields(self):
        self.server.challenge = [("WWW-Authenticate", "Basic realm=x"), ("WWW-Authenticate", "Bearer")]
        self.passes(key="")

    def test_401_without_a_proper_challenge(self):
        for headers in ([], [("WWW-Authenticate", "Basic realm=x")], [("WWW-Authenticate", 'Basic realm=", Bearer x"')],
                        [("WWW-Authenticate", "Bearerish x=y")]):
            self.server.challenge = headers
            self.fails("mcp_failed", "without a Bearer challenge", key="")

    def test_endpoint_that_wants_no_key(self):
        self.server.challenge_status = 200
        self.fails("mcp_failed", "without a key", key="")

    def test_other_refusals(self):
        for status in (403, 404, 500):
            self.server.challenge_status = status
            self.fails("mcp_failed", f"answers {status} instead of 401", key="")


class Tools(ProbeCase):
    def test_h67_every_kind_of_reply(self):
        for style in ("json", "pretty", "batch", "no-type", "sse", "sse-crlf", "sse-cr", "sse-several", "sse-two-lines",
                      "sse-no-type", "sse-pieces", "sse-open", "sse-cut"):
            with self.subTest(style):
                self.server.style = style
                self.server.sessions.clear()  # a fresh initialize in this style, too
                self.assertEqual(self.passes()["tools"], ["execute", "resume"])

    def test_h67_both_types_are_accepted(self):
        self.passes()
        for method, _, headers in self.server.requests:
            if method != "GET":
                self.assertEqual(headers["Accept"], "application/json, text/event-stream")

    def test_dialogue(self):
        self.passes()
        posts = [(r[0], r[2].get("Mcp-Session-Id"), r[2].get("MCP-Protocol-Version")) for r in self.server.requests[1:]]
        self.assertEqual(posts, [("initialize", None, None), ("initialize", None, None),
                                 ("notifications/initialized", "session-1", "2025-03-26"),
                                 ("tools/list", "session-1", "2025-03-26")])

    def test_session_is_used_again(self):
        self.passes()
        self.passes()
        self.assertEqual(self.server.made, 1)

    def test_server_without_sessions(self):
        self.server.with_ids = False
        self.passes()
        self.passes()

    def test_h68_stale_session_is_started_fresh_once(self):
        for status in (404, 400, 401, 410, 503):
            with self.subTest(status):
                self.passes()
                self.server.stale_status = status
                self.server.sessions.clear()
                self.server.requests.clear()
                self.passes()
                methods = [r[0] for r in self.server.requests if r[0] != "GET"]
                self.assertEqual(methods, ["initialize", "tools/list", "initialize", "notifications/initialized",
                                           "tools/list"])
                self.assertIsNone(self.server.requests[3][2].get("Mcp-Session-Id"))

    def test_h68_fresh_start_is_not_repeated(self):
        self.passes()
        self.server.refuse_everything = 503
        self.server.requests.clear()
        self.fails("mcp_failed", "initialize answers 503")
        self.assertEqual([r[0] for r in self.server.requests], ["GET", "initialize", "tools/list", "initialize"])

    def test_pages(self):
        self.server.pages = [["execute"], [], ["resume"]]
        self.assertEqual(self.passes()["tools"], ["execute", "resume"])

    def test_server_that_never_ends_its_pages(self):
        self.server.pages = [["execute"]] * 1000
        self.fails("tools_differ", "missing: \"resume\"")
        self.assertLess(len(self.server.requests), 100)

    def test_differences_are_named(self):
        self.server.pages = [["execute", "skills", "evil\n\x1b[2J"]]
        answer = self.fails("tools_differ", 'missing: "resume"; not expected: "evil\\n\\u001B[2J", "skills"')
        self.assertEqual(answer["checks"]["mcp_tools"], answer["error"])
        self.assertEqual(answer["checks"]["mcp_challenge"], "ok")

    def test_wrong_key_is_never_repeated_back(self):
        answer = self.fails("mcp_failed", "refuses the key in runtime.mcp_key_file (401)", key="not-the-key")
        self.assertNotIn("not-the-key", json.dumps(answer))

    def test_session_id_that_would_end_a_header(self):
        original = Handler.initialize

        def evil(handler, message, session):
            return handler.rpc(message, {"protocolVersion": "x y"}, [("mcp-session-id", "a b")])
        Handler.initialize = evil
        self.addCleanup(setattr, Handler, "initialize", original)
        self.fails("mcp_failed", "unusable session id")


if __name__ == "__main__":
    unittest.main()
