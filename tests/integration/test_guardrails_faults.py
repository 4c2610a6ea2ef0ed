#!/usr/bin/env python3
"""hermesctl guardrails against runtimes that lie, wait, or change while they are looked at: a clear error, and nothing on
record as passed that did not pass. The installer's place is taken by a pipe to the caller's code."""
import http.server
import json
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))
from lying_mcp import LyingMcp, Raw, completed, failed, paused  # noqa: E402

BUILD = os.environ["HB_BUILD"]
CTL = os.path.join(BUILD, "admin", "hermesctl")
DRIVER = os.path.join(BUILD, "tests/tools/caller_driver")
KEY = "sk-of-this-test-0123456789"
RULES = """[guardrail]
title = Mail
connection = google.*.*
[allow]
tool = mail.read
[approval]
tool = mail.draft
[never]
tool = mail.send
[call]
call = mail.read {}
"""
BEN = "google.org.ben."


class Pipe(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """POST /mcp, passed on as the installer does."""
    daemon_threads = True

    def __init__(self, path, state, port):
        self.driver = subprocess.Popen([DRIVER, str(port)], cwd=state, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock = threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def address_string(self):
                return "unix"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with self.server.lock:
                    self.server.driver.stdin.write(json.dumps({"id": 1, **body}).encode() + b"\n")
                    self.server.driver.stdin.flush()
                    answer = self.server.driver.stdout.readline()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        super().__init__(path, Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()
        self.driver.stdin.close()
        self.driver.wait(timeout=30)
        self.driver.stdout.close()


class Runtime:
    """What a well-behaved runtime with these policies answers; tests replace parts of it."""

    def __init__(self):
        self.tools = [BEN + "mail.draft", BEN + "mail.read"]
        self.connections = ["google.org.ben"]
        self.catalogue = lambda n: completed({"connections": self.connections, "tools": self.tools, "cut": False})
        self.does = {BEN + "mail.read": completed({"did": "ran", "items": []}),
                     BEN + "mail.draft": paused("exec_1", BEN + "mail.draft"),
                     BEN + "mail.send": completed({"did": "refused", "why": "tool_blocked"})}
        self.resumed = failed("declined")
        self.asked, self.called, self.resumes = 0, [], []

    def __call__(self, tool, arguments):
        if tool == "resume":
            self.resumes.append((arguments["executionId"], arguments["action"]))
            return self.resumed
        question = json.loads(arguments["code"].split("\n", 1)[0].removeprefix("const q = ").removesuffix(";"))
        if question["ask"] == "catalogue":
            self.asked += 1
            return self.catalogue(self.asked)
        if question["ask"] == "describe":
            return completed({p: "needs" for p in question["paths"]})
        self.called.append((question["tool"], question["arguments"]))
        return self.does[question["tool"]]


class Faults(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="hb-guardrails-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)
        self.state = self.dir + "/state"
        for name, mode in (("conf/guardrails", 0o755), ("run/installer", 0o755), ("probe/keys", 0o700),
                           ("onboarding", 0o700)):
            os.makedirs(os.path.join(self.state, name))
            os.chmod(os.path.join(self.state, name), mode)
        self.write("conf/hermes.conf", f"[identities]\nbase_uid = {50000 + os.getpid() % 1000 * 10}\n")
        self.write("conf/guardrails/mail.ini", RULES)
        self.write("probe/keys/hermes-miles", KEY + "\n", 0o600)
        self.runtime = Runtime()
        self.server = LyingMcp(KEY)
        self.addCleanup(self.server.close)
        self.server.on_call = self.runtime
        self.pipe = Pipe(os.path.join(self.state, "run/installer/sock"), self.state, self.server.port)
        self.addCleanup(self.pipe.close)

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.state, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)

    def ctl(self, *args, code=0, text=False):
        r = subprocess.run([CTL, "--state", self.state, *([] if text else ["--json"]), "guardrails", *args],
                           capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, check=False)
        self.assertNotIn(KEY, r.stdout + r.stderr)
        self.assertEqual(r.returncode, code, r.stdout + r.stderr)
        return r.stdout if text else json.loads(r.stdout)

    def check(self, code=0, **more):
        return self.ctl("check", "--key", "hermes-miles", code=code, **more)

    def record(self):
        with open(self.state + "/onboarding/guardrails.json", encoding="utf-8") as f:
            text = f.read()
        self.assertNotIn(KEY, text)
        return json.loads(text)

    def breaks(self, wanted, code=3):
        """No check; the error is on record, and what was seen before it still is."""
        before = self.record()["catalogue"]
        r = self.check(code)
        self.assertEqual(r["code"], wanted, r)
        record = self.record()
        self.assertEqual((record["result"], record["code"], record["catalogue"]), ("error", wanted, before))

    def test_well_behaved(self):
        self.assertTrue(self.check()["ok"])
        self.assertEqual(self.runtime.called, [(BEN + "mail.draft", {}), (BEN + "mail.read", {}), (BEN + "mail.send", {})])
        self.assertEqual(self.runtime.resumes, [("exec_1", "decline")])
        self.assertEqual(self.record()["result"], "passed")
        self.assertIn("The guardrails hold", self.check(text=True))

    def test_errors_leave_no_success_behind(self):
        self.check()
        good = self.runtime.catalogue
        for answer, code in ((completed(None), "bad_reply"), (completed({"connections": [], "tools": "x", "cut": False}),
                                                              "bad_reply"),
                             (completed({"connections": [], "tools": ["a" * 400], "cut": False}), "bad_reply"),
                             (completed({"connections": [], "tools": [], "cut": True}), "bad_reply"),
                             (failed("the list is out of " + KEY), "runtime_failed"), (Raw(b"<html>"), "mcp_failed"),
                             ({"content": [], "structuredContent": {"status": "odd"}}, "bad_reply"),
                             (completed("x" * (5 << 20)), "too_large")):
            self.runtime.catalogue = lambda n, answer=answer: answer
            self.breaks(code, 6 if code == "bad_reply" else 3)
        self.runtime.catalogue = good
        self.assertTrue(self.check()["ok"])

    def test_timeout(self):
        self.check()
        self.runtime.does[BEN + "mail.draft"] = Raw(b": ping\n\n", hold=True, length=False)
        before = self.record()["catalogue"]
        r = self.ctl("check", "--key", "hermes-miles", "--timeout", "2", code=6)
        self.assertEqual(r["code"], "timeout")
        self.assertIn("mail.draft", r["error"])
        self.assertEqual((self.record()["result"], self.record()["catalogue"]), ("error", before))

    def test_catalogue_that_changes_meanwhile(self):
        self.check()
        self.runtime.asked = 0
        self.runtime.catalogue = lambda n: completed({"connections": ["google.org.ben"], "tools": self.runtime.tools if n == 1
                                                      else self.runtime.tools + [BEN + "mail.send"], "cut": False})
        self.breaks("catalogue_changed")

    def test_catalogue_that_changed_since(self):
        self.check()
        self.runtime.tools.append(BEN + "mail.purge")
        diff = self.ctl("diff", code=1)
        self.assertEqual((diff["tools_added"], diff["tools_removed"], diff["same"]), ([BEN + "mail.purge"], [], False))
        self.assertIn("+ " + BEN + "mail.purge", self.ctl("diff", code=1, text=True))
        report = self.check(1)
        self.assertEqual(report["unmatched_tools"], [BEN + "mail.purge"])
        self.assertIn("FAIL     " + BEN + "mail.purge", self.check(1, text=True))
        # Seen once, it is asked for again after it has gone from the list.
        self.runtime.tools.pop()
        self.runtime.does[BEN + "mail.purge"] = completed({"did": "ran", "items": []})
        report = self.check(1)
        self.assertEqual([(f["tool"], f["found"]) for f in report["findings"] if f["result"] == "fail"],
                         [(BEN + "mail.purge", "it ran")])

    def test_runtime_that_hides_a_tool_and_runs_it(self):
        self.runtime.does[BEN + "mail.send"] = completed({"did": "ran", "items": []})
        report = self.check(1)
        finding = [f for f in report["findings"] if f["result"] == "fail"]
        self.assertEqual([(f["connection"], f["tool"], f["expected"], f["found"]) for f in finding],
                         [("google.org.ben", BEN + "mail.send", "refused when it is called", "it ran")])
        self.assertEqual(self.record()["findings"], finding)

    def test_runtime_that_runs_what_was_declined(self):
        self.runtime.resumed = completed({"did": "ran", "items": []})
        report = self.check(1)
        self.assertEqual([f["check"] for f in report["findings"] if f["result"] == "fail"], ["declined"])

    def test_what_it_says_cannot_write_on_the_terminal(self):
        self.runtime.does[BEN + "mail.read"] = completed({"did": "threw", "why": "\x1b[2J\u202e" + "x" * 5000})
        out = self.check(1, text=True)
        self.assertNotIn("\x1b", out)
        self.assertNotIn("\u202e", out)
        self.assertLess(len(out), 2000)

    def test_files_that_cannot_be_used(self):
        self.check()
        for text, code in ((RULES + "[never]\ntool = mail.read\n", "bad_guardrail"), ("nonsense\n", "ini_malformed"),
                           (RULES.replace("mail.send", "mail.se*"), "bad_guardrail")):
            self.write("conf/guardrails/mail.ini", text)
            r = self.check(3)
            self.assertEqual(r["code"], code)
            self.assertIn("mail.ini:", r["error"])
        os.chmod(self.state + "/conf/guardrails/mail.ini", 0o666)
        self.assertEqual(self.check(3)["code"], "loose_permissions")
        self.assertEqual(self.record()["result"], "passed")

    def test_rules_changed_since_are_told_in_the_list(self):
        self.check()
        self.assertTrue(self.ctl("list")["last_check"]["same_rules"])
        self.write("conf/guardrails/mail.ini", RULES + "# a word more\n")
        self.assertFalse(self.ctl("list")["last_check"]["same_rules"])

    def test_nothing_known_yet(self):
        self.assertEqual(self.ctl("diff", code=8)["code"], "not_found")
        self.assertIsNone(self.ctl("list")["last_check"])
        self.assertEqual(self.ctl("show", "none", code=8)["code"], "not_found")
        self.assertEqual(self.ctl("check", "--timeout", "0", code=2)["code"], "usage")
        self.assertEqual(self.ctl("show", "mail")["never"], 1)


if __name__ == "__main__":
    unittest.main()
