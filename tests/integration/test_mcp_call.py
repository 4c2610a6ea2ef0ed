"""Authenticated MCP calls: what the caller worker makes of servers that answer well, badly, never, or tell the key."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))
from lying_mcp import LyingMcp, Raw, completed, failed, paused  # noqa: E402

DRIVER = os.path.join(os.environ["HB_BUILD"], "tests/tools/caller_driver")
KEY = "sk-of-this-test-0123456789"


class Caller(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="hb-caller-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.makedirs(self.dir + "/probe/keys", 0o700)
        self.write_key("hermes-miles", KEY)
        self.server = LyingMcp(KEY)
        self.addCleanup(self.server.close)
        self.driver = subprocess.Popen([DRIVER, str(self.server.port)], cwd=self.dir, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        self.addCleanup(self.end)

    def end(self):
        self.driver.stdin.close()
        self.assertEqual(self.driver.wait(timeout=30), 0)
        self.driver.stdout.close()

    def write_key(self, name, text, mode=0o600):
        path = self.dir + "/probe/keys/" + name
        with open(path, "w", encoding="ascii") as f:
            f.write(text + "\n")
        os.chmod(path, mode)

    def ask(self, tool="execute", key="hermes-miles", timeout_ms=20000, **more):
        question = {"id": 7, "key": key, "tool": tool, "arguments": {"code": "return 1"}, "timeout_ms": timeout_ms}
        question.update(more)
        self.driver.stdin.write(json.dumps(question).encode() + b"\n")
        self.driver.stdin.flush()
        line = self.driver.stdout.readline().decode()
        self.assertNotIn(KEY, line)
        answer = json.loads(line)
        self.assertEqual(answer.pop("id"), 7)
        return answer

    def says(self, result, **more):
        self.server.on_call = lambda tool, arguments: result
        return self.ask(**more)

    def code(self, result, **more):
        answer = self.says(result, **more)
        self.assertNotIn("state", answer)
        return answer["code"]

    def test_ok_failed_and_paused_are_told_apart(self):
        for stream in (False, True):
            self.server.stream = stream
            with self.subTest(stream=stream):
                answer = self.says(completed({"a": [1, 2.5]}))
                self.assertEqual((answer["state"], answer["value"]), ("ok", {"a": [1, 2.5]}))
                answer = self.says(failed("it broke"))
                self.assertEqual((answer["state"], answer["text"], answer["value"]), ("failed", "it broke", None))
                answer = self.says({"content": [{"type": "text", "text": "no such"}], "isError": True})
                self.assertEqual((answer["state"], answer["text"]), ("failed", "no such"))
                answer = self.says(paused("exec_3", "google.org.ben.gmail.send"))
                self.assertEqual((answer["state"], answer["execution"], answer["address"]),
                                 ("paused", "exec_3", "google.org.ben.gmail.send"))
        self.assertEqual(set(self.server.keys), {KEY})
        self.assertEqual(len(self.server.sessions), 1)

    def test_arguments_arrive_as_they_were_given(self):
        arguments = {"executionId": "exec_1", "action": "decline", "content": "{\"é\":\"\\n\"}"}
        self.ask(tool="resume", arguments=arguments)
        self.assertEqual(self.server.calls, [("resume", arguments)])

    def test_tools_of_the_server(self):
        self.assertEqual(self.ask(tool=""), {"tools": ["execute", "resume"]})

    def test_forgotten_session_is_replaced_and_the_call_sent_once(self):
        self.ask()
        self.server.sessions[:] = ["other"]
        self.assertEqual(self.ask()["state"], "ok")
        self.assertEqual(len(self.server.calls), 2)

    def test_call_that_may_have_run_is_not_sent_again(self):
        self.ask()
        for result in (Raw(status=500), Raw(b"not json"), Raw(b"{}"), Raw(b'{"id":1001,"error":{"code":-1}}')):
            before = len(self.server.calls)
            self.assertEqual(self.code(result), "mcp_failed")
            self.assertEqual(len(self.server.calls), before + 1)

    def test_key_that_the_runtime_tells_is_taken_out(self):
        answer = self.says(completed({"x" + KEY: ["a" + KEY + "b", {"c": KEY + KEY}]}))
        self.assertEqual(answer["value"], {"x[key]": ["a[key]b", {"c": "[key][key]"}]})
        self.assertNotIn(KEY, answer["text"])
        answer = self.says(paused("exec " + KEY, "a.b." + KEY))
        self.assertEqual((answer["execution"], answer["address"]), ("exec [key]", "a.b.[key]"))

    def test_results_that_are_none(self):
        for result in ({}, {"content": "text"}, {"content": [], "isError": "no"}, {"content": [], "structuredContent": 1},
                       completed(1) | {"structuredContent": {"status": "fine"}},
                       {"content": [], "structuredContent": {"status": "waiting_for_interaction"}},
                       {**paused("exec_1", "a"), "isError": True}):
            with self.subTest(result):
                self.assertEqual(self.code(result), "bad_reply")

    def test_reply_over_its_bound(self):
        self.assertEqual(self.code(completed("x" * 5000), reply_max=4096), "too_large")
        self.assertEqual(self.says(completed("x" * 300000), reply_max=1 << 20)["state"], "ok")
        self.assertEqual(self.code(Raw(b"data: x\n\n" * 999, endless=True), reply_max=1 << 20), "too_large")

    def test_no_answer_in_time(self):
        answer = self.says(Raw(b": ping\n\n", hold=True, length=False), timeout_ms=700)
        self.assertEqual(answer["code"], "timeout")
        # Always something to read, and never an answer: the time counts all the same.
        self.server.on_call = lambda tool, arguments: Raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 500, status=100, endless=True)
        self.assertEqual(self.ask(timeout_ms=1500)["code"], "timeout")

    def test_a_server_that_is_gone(self):
        self.server.close()
        self.assertEqual(self.ask()["code"], "unreachable")

    def test_key_that_is_refused_is_named(self):
        self.write_key("other", "wrong-key")
        answer = self.ask(key="other")
        self.assertEqual(answer["code"], "key_refused")
        self.assertIn("key other", answer["error"])
        self.assertNotIn("wrong-key", answer["error"])

    def test_keys_that_cannot_be_used(self):
        self.write_key("loose", KEY, 0o640)
        self.write_key("empty", "")
        os.symlink("hermes-miles", self.dir + "/probe/keys/link")
        for name, code in (("missing", "secret_missing"), ("loose", "secret_permissions"), ("empty", "secret_empty"),
                           ("../keys/hermes-miles", "bad_key_name"), ("", "bad_key_name"), ("A", "bad_key_name")):
            with self.subTest(name):
                self.assertEqual(self.ask(key=name)["code"], code)
        self.assertIn("code", self.ask(key="link"))
        self.assertEqual(self.server.calls, [])

    def test_new_key_under_the_same_name_begins_a_session(self):
        self.ask()
        self.server.key = "next-key"
        self.write_key("hermes-miles", "next-key")
        self.assertEqual(self.ask()["state"], "ok")
        self.assertEqual(len(self.server.sessions), 2)


if __name__ == "__main__":
    unittest.main()
