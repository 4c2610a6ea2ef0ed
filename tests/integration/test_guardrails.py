#!/usr/bin/env python3
"""Guardrails on the real payload (npm package `executor`) with sources, a second MCP server and policies of its own: they
are proven, and each one that is taken away there is found by name. What must not be called does not arrive."""
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from installer_harness import BUILD, Box, enter_namespace, platform  # noqa: E402
from accounts_service import Accounts, description  # noqa: E402
from runtime_sources import Sources  # noqa: E402
import payload_rootfs  # noqa: E402

CACHE = os.environ.get("HB_CACHE") or os.path.join(BUILD, "cache")
SOURCE = os.environ.get("HB_SOURCE", os.path.join(os.path.dirname(__file__), "..", ".."))
CTL = os.path.join(BUILD, "admin", "hermesctl")
KEY = "token-of-this-test-0123456789"
FILES = ["calendar", "chat-bot", "documents", "drive", "mail", "notes", "runtime", "sheets", "tables"]
READS = ["GET /calendars/primary/events", "GET /files", "GET /gmail/me/messages", "GET /meta/bases"]


class Guardrails(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.box = Box(settings={
            "runtime.health_path": "/", "runtime.health_body": "", "runtime.start_timeout": "40",
            "runtime.health_token_file": "installer/payload-token", "runtime.mcp_key": "hermes-miles",
            "runtime.stop_timeout": "20", "runtime.env.EXECUTOR_HOST": "127.0.0.1"})
        cls.addClassCleanup(cls.box.__exit__)
        state = cls.box.state
        state.write("installer/payload-token", KEY + "\n", 0o600)
        probe = state.uid("probe")
        for name in ("probe", "probe/keys"):
            state.directory(name, 0o700, uid=probe)
        cls.write_key("hermes-miles", KEY)
        state.directory("onboarding", 0o700)
        state.directory("conf/guardrails", 0o755)
        for name in FILES:
            shutil.copy(os.path.join(SOURCE, "policy/guardrails", name + ".ini"), state.file("conf/guardrails"))
        cls.box.start("installer", "fetcher")
        installed = cls.box.run(image=cls.image(cls.box))
        assert installed["state"] == "succeeded", installed
        cls.box.until("healthy")
        cls.accounts = Accounts()
        cls.addClassCleanup(cls.accounts.close)
        cls.sources = Sources(cls.box.port, KEY)
        cls.sources.add_accounts(cls.accounts)
        cls.policies = {}
        for name in ("mail", "chat-bot", "tables", "notes", "runtime"):
            cls.policies[name] = cls.sources.put_in_force(cls.ctl("guardrails", "show", "--policies", name,
                                                                  check=0)["policies"])

    @classmethod
    def write_key(cls, name, text):
        path = cls.box.state.file("probe/keys/" + name)
        with open(path, "w", encoding="ascii") as f:
            f.write(text + "\n")
        os.chmod(path, 0o600)
        os.chown(path, cls.box.state.uid("probe"), cls.box.state.uid("probe"))

    @staticmethod
    def image(box):
        root = box.state.file("rootfs")
        os.mkdir(root)
        payload_rootfs.executor_rootfs(CACHE)(root)
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as t:
            for name in sorted(os.listdir(root)):
                t.add(os.path.join(root, name), name)
        shutil.rmtree(root)
        command = f"exec executor web --hostname 127.0.0.1 --port $PORT --auth-token {KEY}"
        config = {"Cmd": ["/bin/sh", "-c", command], "WorkingDir": "/", "Volumes": {"/data": {}},
                  "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "EXECUTOR_DATA_DIR=/data", "HOME=/data"]}
        layer = box.layout.layer(raw.getvalue())
        box.images += 1
        return box.reference(box.layout.index([box.layout.image([layer], platform=platform(), config=config)]))

    @classmethod
    def ctl(cls, *args, check=None):
        r = subprocess.run([CTL, "--state", cls.box.state.path, "--json", *args], capture_output=True, text=True,
                           stdin=subprocess.DEVNULL, timeout=300, check=False)
        assert KEY not in r.stdout + r.stderr
        if check is not None and r.returncode != check:
            raise AssertionError(f"hermesctl {args}: exit {r.returncode}\n{r.stdout}\n{r.stderr}")
        return json.loads(r.stdout)

    def setUp(self):
        self.accounts.calls.clear()
        self.accounts.tools.clear()

    def check(self, code=0, *options):
        return self.ctl("guardrails", "check", *options, check=code)

    def record(self):
        with open(self.box.state.file("onboarding/guardrails.json"), encoding="utf-8") as f:
            return json.load(f)

    def failures(self, report):
        return {(f["tool"], f["check"]) for f in report["findings"] if f["result"] == "fail"}

    def only_reads_arrived(self):
        self.assertEqual(sorted(set(self.accounts.calls)), READS)
        self.assertEqual(set(self.accounts.tools), {"notion-search"})

    def without(self, group, pattern):
        """Takes a policy away in the runtime until the test is over."""
        self.sources.remove_policy(self.policies[group].pop(pattern))

    def again(self, group, pattern, action):
        self.policies[group][pattern] = self.sources.policy(pattern, action)

    def test_01_they_hold(self):
        report = self.check()
        self.assertTrue(report["ok"])
        self.assertEqual((report["failed"], report["unmatched_tools"], report["idle_files"], report["problems"]),
                         (0, [], [], []))
        passed = {(f["tool"], f["check"]) for f in report["findings"] if f["result"] == "pass"}
        google = "google.org.googleBen10xn."
        for tool, check in ((google + "gmail.users.messages.list", "sample"),
                            (google + "gmail.users.messages.send", "hidden"),
                            (google + "gmail.users.messages.send", "refused"),
                            (google + "drive.permissions.create", "refused"),
                            ("notion.org.notion10xnOps.notion_search", "sample"),
                            ("notion.org.notion10xnOps.notion_create_pages", "pauses"),
                            ("notion.org.notion10xnOps.notion_create_pages", "declined"),
                            ("discord.org.discordBot.channels.createMessage", "declined"),
                            ("discord.org.discordBot.guilds.banUserFromGuild", "refused"),
                            ("airtable.org.airtableOps.bases.listBases", "at-most"),
                            ("executor.coreTools.policies.create", "refused")):
            self.assertIn((tool, check), passed)
        # It needs no argument, so that nobody tries.
        self.assertEqual([(f["tool"], f["check"]) for f in report["findings"] if f["result"] == "not run"],
                         [(google + "drive.files.create", "refused")])
        self.only_reads_arrived()
        record = self.record()
        self.assertEqual((record["result"], record["key"], record["failed"]), ("passed", "hermes-miles", 0))
        self.assertEqual(os.stat(self.box.state.file("onboarding/guardrails.json")).st_mode & 0o777, 0o600)
        self.assertTrue(self.ctl("guardrails", "diff", check=0)["same"])
        last = self.ctl("guardrails", "list", check=0)["last_check"]
        self.assertEqual((last["result"], last["same_rules"]), ("passed", True))

    def test_02_a_guardrail_that_is_taken_away_is_named(self):
        everything = "google.*.*.*"
        self.without("mail", everything)
        google = "google.org.googleBen10xn."
        self.assertEqual(self.failures(self.check(1)), {
            (google + tool, "hidden") for tool in
            ("gmail.users.messages.send", "gmail.users.messages.delete", "gmail.users.settings.updateVacation",
             "calendar.events.insert", "drive.files.create", "drive.files.delete", "drive.permissions.create",
             "docs.documents.batchUpdate", "sheets.spreadsheets.values.update")})
        self.only_reads_arrived()
        # Made again it stands before those that open something: then nothing works.
        self.again("mail", everything, "block")
        report = self.check(1)
        self.assertIn((google + "gmail.users.messages.list", "listed"), self.failures(report))
        for pattern in list(self.policies["mail"]):
            self.without("mail", pattern)
        type(self).policies["mail"] = self.sources.put_in_force(
            self.ctl("guardrails", "show", "--policies", "mail", check=0)["policies"])
        self.assertTrue(self.check()["ok"])
        # One tool that somebody lets through.
        pattern = google + "gmail.users.messages.send"
        self.again("mail", pattern, "approve")
        report = self.check(1)
        tool = pattern
        self.assertEqual(self.failures(report), {(tool, "hidden")})
        finding = [f for f in report["findings"] if f["result"] == "fail"][0]
        self.assertEqual((finding["connection"], finding["expected"], finding["found"], finding["file"], finding["rule"]),
                         ("google.org.googleBen10xn", "not listed", "listed", "mail", "gmail.users.messages.send"))
        self.only_reads_arrived()
        self.assertEqual(self.record()["result"], "failed")
        diff = self.ctl("guardrails", "diff", check=0)
        self.assertTrue(diff["same"])
        self.without("mail", pattern)
        diff = self.ctl("guardrails", "diff", check=1)
        self.assertEqual(diff["tools_removed"], [tool])
        self.check()

    def test_03_approval_that_is_no_longer_asked_for(self):
        pattern = "notion.*.*.notion_update_page"
        self.without("notes", pattern)
        self.again("notes", pattern, "approve")
        report = self.check(1)
        self.assertEqual(self.failures(report), {("notion.org.notion10xnOps.notion_update_page", "pauses")})
        finding = [f for f in report["findings"] if f["result"] == "fail"][0]
        self.assertEqual(finding["found"], "it ran")
        self.without("notes", pattern)
        self.again("notes", pattern, "block")
        self.assertEqual(self.failures(self.check(1)), {("notion.org.notion10xnOps.notion_update_page", "listed")})
        self.without("notes", pattern)
        self.again("notes", pattern, "require_approval")
        self.check()

    def test_04_allowed_read_that_is_blocked_or_must_be_approved(self):
        pattern = "airtable.*.*.bases.listBases"
        tool = "airtable.org.airtableOps.bases.listBases"
        self.without("tables", pattern)
        self.again("tables", pattern, "require_approval")
        self.assertEqual(self.failures(self.check(1)), {(tool, "sample")})
        self.without("tables", pattern)
        self.again("tables", pattern, "approve")
        self.accounts.bases = 2
        self.addCleanup(setattr, self.accounts, "bases", 1)
        self.assertEqual(self.failures(self.check(1)), {(tool, "at-most")})

    def test_05_the_runtimes_own_policies_in_reach_of_an_agent(self):
        pattern = "executor.coreTools.policies.create"
        self.again("runtime", pattern, "approve")
        self.assertEqual(self.failures(self.check(1)), {(pattern, "hidden")})
        self.without("runtime", pattern)

    def test_06_connection_and_tools_that_nobody_has_written_about(self):
        text = description("discord", self.accounts.url)
        slug = self.sources.add_openapi("ticketing", "desk", text, self.accounts.url)
        self.addCleanup(self.sources.ask, "DELETE", "/openapi/integrations/" + slug)
        self.addCleanup(self.sources.ask, "DELETE", "/connections/org/ticketing/desk")
        report = self.check(1)
        finding = [f for f in report["findings"] if f["result"] == "fail"]
        self.assertEqual([(f["connection"], f["tool"], f["check"]) for f in finding],
                         [("ticketing.org.desk", "*", "guardrail")])
        self.assertEqual(len(report["unmatched_tools"]), 5)

    def test_07_a_call_that_is_let_run_because_the_file_says_so(self):
        path = self.box.state.file("conf/guardrails/notes.ini")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        self.addCleanup(self.box.state.write, "conf/guardrails/notes.ini", text, 0o644)
        self.box.state.write("conf/guardrails/notes.ini",
                             text + '\n[resume]\ncall = notion_update_page {"data":"of the test"}\n', 0o644)
        report = self.check()
        self.assertIn(("notion.org.notion10xnOps.notion_update_page", "resumed"),
                      {(f["tool"], f["check"]) for f in report["findings"] if f["result"] == "pass"})
        self.assertEqual(self.accounts.tools.count("notion-update-page"), 1)

    def test_08_key_that_the_runtime_does_not_take(self):
        self.write_key("other", "not-the-key")
        r = self.ctl("guardrails", "check", "--key", "other", check=3)
        self.assertEqual(r["code"], "key_refused")
        self.assertIn("key other", r["error"])
        record = self.record()
        self.assertEqual((record["result"], record["code"]), ("error", "key_refused"))
        self.assertIn("catalogue", record)
        self.assertEqual(self.ctl("guardrails", "check", "--key", "none", check=3)["code"], "secret_missing")

    def test_09_workers_hold_no_key_in_arguments_or_environment(self):
        probe = self.box.state.uid("probe")
        names = set()
        for pid in self.box.children(probe):
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                names.add(f.read().strip())
            for what in ("environ", "cmdline"):
                with open(f"/proc/{pid}/{what}", "rb") as f:
                    self.assertNotIn(KEY.encode(), f.read())
        self.assertIn("hermes-caller", names)
        self.assertNotIn(KEY, self.box.log("installer"))

    def test_10_only_the_operator_asks(self):
        body = {"key": "hermes-miles", "tool": "", "arguments": {}}
        self.assertEqual(self.box.call("POST", "/mcp", body)[0], 403)
        self.assertEqual(self.box.call("POST", "/mcp", body, uid=0)[1]["tools"], ["execute", "resume"])
        for wrong in ({**body, "tool": "delete"}, {**body, "key": "../x"}, {**body, "timeout_ms": 1}, {"key": "x"}):
            self.assertIn("code", self.box.call("POST", "/mcp", wrong, uid=0)[1])

    def test_11_nothing_runs(self):
        self.assertEqual(self.box.run("stop")["state"], "succeeded")
        r = self.ctl("guardrails", "check", check=6)
        self.assertEqual(r["code"], "not_running")
        self.assertEqual(self.record()["result"], "error")


if __name__ == "__main__":
    enter_namespace()
    unittest.main(verbosity=2)
