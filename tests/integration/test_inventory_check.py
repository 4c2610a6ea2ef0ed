#!/usr/bin/env python3
"""`hermesctl inventory check` on the real payload (npm package `executor`): what passes is recorded as passed, and nothing
else, whatever a query does there."""
import json
import os
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from installer_harness import Box, enter_namespace  # noqa: E402
from accounts_service import Accounts  # noqa: E402
from runtime_sources import Sources  # noqa: E402
import test_guardrails  # noqa: E402

CTL, KEY = test_guardrails.CTL, test_guardrails.KEY
TOOLS = "tools.google.org.googleBen10xn."
LIST = "return await " + TOOLS + "calendar.events.list({ calendarId: 'primary' })"
QUERIES = {
    "works": (LIST, "ok", ""),
    "number": ("return 1 + 1", "ok", ""),
    "nothing": ("const x = 1", "failed", "no_result"),
    "throws": ("throw new Error('no')", "failed", "query_failed"),
    "no-tool": ("return await tools.google.org.nobody.calendar.events.list({})", "failed", "query_failed"),
    "broken": ("return ((", "failed", "query_failed"),
    "says-no": ("return { ok: false, error: 'no' }", "failed", "query_failed"),
    "waits": ("return await " + TOOLS + "drive.files.list({})", "paused", "waits_for_approval"),
}


class Held(list):
    """Of requests; each waits before it is answered."""

    def __init__(self):
        super().__init__()
        self.arrived, self.go = threading.Event(), threading.Event()

    def append(self, call):
        super().append(call)
        self.arrived.set()
        self.go.wait(60)


class Checks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.box = Box(settings={
            "runtime.health_path": "/", "runtime.health_body": "", "runtime.start_timeout": "40",
            "runtime.health_token_file": "installer/payload-token", "runtime.mcp_key": "hermes-miles",
            "runtime.stop_timeout": "20", "runtime.env.EXECUTOR_HOST": "127.0.0.1"})
        cls.addClassCleanup(cls.box.__exit__)
        cls.box.state.write("installer/payload-token", KEY + "\n", 0o600)
        cls.ctl("runtime", "key", "set", "hermes-miles", "--stdin", stdin=KEY, check=0)
        cls.ctl("runtime", "key", "set", "wrong", "--stdin", stdin="not-the-key-of-anybody", check=0)
        cls.box.start("installer", "fetcher")
        installed = cls.box.run(image=test_guardrails.Guardrails.image(cls.box))
        assert installed["state"] == "succeeded", installed
        cls.box.until("healthy")
        cls.accounts = Accounts()
        cls.addClassCleanup(cls.accounts.close)
        sources = Sources(cls.box.port, KEY)
        sources.add_accounts(cls.accounts)
        sources.policy("google.org.googleBen10xn.drive.*.*", "require_approval")
        for name, (query, _, _) in QUERIES.items():
            cls.ctl("inventory", "add", name, "--service", "google", "--identity", "ben@10xn.example", "--query", query, check=0)

    @classmethod
    def ctl(cls, *args, check=None, stdin=""):
        r = subprocess.run([CTL, "--state", cls.box.state.path, "--json", *args], capture_output=True, text=True, input=stdin,
                           timeout=300, check=False)
        assert KEY not in r.stdout + r.stderr
        if check is not None and r.returncode != check:
            raise AssertionError(f"hermesctl {args}: exit {r.returncode}\n{r.stdout}\n{r.stderr}")
        return json.loads(r.stdout)

    def inventory(self):
        return {c["name"]: c for c in self.ctl("inventory", "show", check=0)["connections"]}

    def test_1_only_what_passed_is_recorded_as_passed(self):
        report = self.ctl("inventory", "check", "--key", "hermes-miles", check=1)
        self.assertFalse(report["ok"])
        self.assertEqual({c["name"]: (c["result"], c["reason"]) for c in report["connections"]},
                         {name: (result, reason) for name, (_, result, reason) in QUERIES.items()})
        stored = self.inventory()
        for name, (_, result, reason) in QUERIES.items():
            c = stored[name]
            self.assertEqual((c["result"], c["reason"], c["last_validated"] > 0), (result, reason, result == "ok"), name)
            self.assertGreater(c["checked_at"], 0)
        # The call that waited was declined: it never arrived.
        self.assertIn("GET /calendars/primary/events", self.accounts.calls)
        self.assertNotIn("GET /files", self.accounts.calls)
        self.assertEqual(self.ctl("inventory", "check", "--key", "hermes-miles", "works", "number", check=0)["ok"], True)
        due = {(i["kind"], i["name"]) for i in self.ctl("review")["items"] if i["due"]}
        self.assertIn(("check", "waits"), due)
        self.assertNotIn(("check", "works"), due)

    def test_2_keys_are_seen_to_be_used_and_the_address_is_noted(self):
        used = {k["name"]: k["last_used"] for k in self.ctl("runtime", "key", "list", check=0)["keys"]}
        self.assertGreater(used["hermes-miles"], 0)
        shown = self.ctl("inventory", "show", check=0)["gateway"]
        self.assertEqual(shown["address"], f"http://127.0.0.1:{self.box.port}/mcp")
        self.assertGreater(shown["seen"], 0)

    def held(self, name):
        """A query whose request the service answers only when told to; the check of it runs meanwhile."""
        self.accounts.calls = Held()
        self.addCleanup(lambda: setattr(self.accounts, "calls", []))
        self.ctl("inventory", "add", name, "--service", "google", "--identity", "x", "--query", LIST, check=0)
        return self.accounts.calls

    def test_3_too_slow_is_failed(self):
        held = self.held("slow")
        report = self.ctl("inventory", "check", "--key", "hermes-miles", "--timeout", "2", "slow", check=1)
        held.go.set()
        self.assertTrue(held.arrived.is_set())
        self.assertEqual([(c["result"], c["reason"]) for c in report["connections"]], [("failed", "timeout")])
        self.assertEqual(self.inventory()["slow"]["last_validated"], 0)

    def test_4_changed_meanwhile_is_not_recorded(self):
        held, box = self.held("moving"), {}
        thread = threading.Thread(target=lambda: box.update(self.ctl("inventory", "check", "--key", "hermes-miles", "moving")))
        thread.start()
        self.assertTrue(held.arrived.wait(60))
        self.ctl("inventory", "edit", "moving", "--query", "return 2", check=0)
        held.go.set()
        thread.join()
        self.assertEqual([(c["result"], c["reason"], c["recorded"]) for c in box["connections"]],
                         [("ok", "changed_meanwhile", False)])
        self.assertFalse(box["ok"])
        after = self.inventory()["moving"]
        self.assertEqual((after["query"], after["result"], after["last_validated"]), ("return 2", "never", 0))

    def test_5_nothing_is_recorded_when_nothing_could_be_asked(self):
        before = self.inventory()
        for key, code in (("wrong", "key_refused"), ("none", "secret_missing")):
            self.assertEqual(self.ctl("inventory", "check", "--key", key)["code"], code)
        self.assertEqual(self.ctl("inventory", "check", "--key", "hermes-miles", "nobody", check=8)["code"], "not_found")
        self.assertEqual(self.inventory(), before)


if __name__ == "__main__":
    enter_namespace()
    unittest.main(verbosity=2)
