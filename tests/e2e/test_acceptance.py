#!/usr/bin/env python3
"""`hermesctl acceptance` on a whole installation with the real payload, accounts in it, and Chromium: what holds passes,
what doesn't is named, and what was not tried is never said to have passed."""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fixtures"))
from accounts_service import Accounts  # noqa: E402
from registry import Registry  # noqa: E402
from runtime_sources import Sources  # noqa: E402
from system import CACHE, CTL, System, wait_for  # noqa: E402

LOOKING = ["health", "bearer challenge", "tools", "pages", "pinned manifest", "installed tree", "no public listener",
           "no credential", "clean source tree"]
ALL = LOOKING + ["survives restart", "survives restore"]


FAKE_BROWSER = """
import json, os
text = b""
while True:
    chunk = os.read(3, 65536)
    if not chunk:
        break
    *messages, text = (text + chunk).split(b"\\0")
    for message in map(json.loads, messages):
        out = [{"id": message["id"], "result": {"targetId": "t", "sessionId": "s"}}]
        if message["method"] == "Page.navigate":
            out += [{"method": m, "params": p, "sessionId": "s"} for m, p in EVENTS]
        os.write(4, b"".join(json.dumps(o).encode() + b"\\0" for o in out))
        if message["method"] == "Page.navigate" and not any(m == "Page.loadEventFired" for m, _ in EVENTS):
            raise SystemExit
"""


class Acceptance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="hb-e2e-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        os.chmod(cls.dir, 0o755)
        cls.registry = Registry(parent=cls.dir)
        cls.addClassCleanup(cls.registry.stop)
        layout = os.path.join(cls.dir, "layout")
        made = subprocess.run([sys.executable, os.path.join(HERE, "..", "fixtures", "payload_image.py"), layout,
                               "--cache", CACHE], check=True, capture_output=True, text=True)
        cls.registry.push(layout, "app", "executor:one")
        shutil.rmtree(layout)
        image = "%s/executor:one@%s" % (cls.registry.host, json.loads(made.stdout)["index"])
        cls.system = System(cls.dir, image, cls.registry.host)
        cls.addClassCleanup(cls.system.ctl, "down")
        cls.system.quickstart("--approve")
        with open(os.path.join(cls.system.data, "auth-token"), encoding="ascii") as f:
            cls.token = f.read()
        cls.write_key("hermes-miles", cls.token)
        cls.accounts = Accounts()
        cls.addClassCleanup(cls.accounts.close)
        cls.sources = Sources(cls.system.port, cls.token)
        cls.sources.add_accounts(cls.accounts)

    @classmethod
    def file(cls, name):
        return os.path.join(cls.system.state, name)

    @classmethod
    def write_key(cls, name, text):
        owner = os.stat(cls.file("probe/keys"))
        with open(cls.file("probe/keys/" + name), "w", encoding="ascii") as f:
            f.write(text + "\n")
        os.chmod(cls.file("probe/keys/" + name), 0o600)
        os.chown(cls.file("probe/keys/" + name), owner.st_uid, owner.st_gid)

    def run_it(self, *options, code):
        """{name: (result, evidence)} of the report, in its order."""
        report = self.system.ctl("acceptance", "run", *options, check=code)
        self.assertNotIn(self.token, json.dumps(report))
        lines = {line["name"]: (line["result"], line["evidence"]) for line in report["lines"]}
        self.assertEqual(list(lines), ALL)
        for result, member in (("pass", "passed"), ("fail", "failed"), ("not run", "not_run")):
            self.assertEqual(sum(r == result for r, _ in lines.values()), report[member])
        return lines

    def results(self, lines, names):
        return {name: lines[name][0] for name in names}

    def test_00_beside_it_without_a_backup(self):
        """Nothing to copy: the key of the real one opens nothing there, and that is said."""
        report = self.system.ctl("acceptance", "run", "--disposable", check=1)
        lines = {line["name"]: (line["result"], line["evidence"]) for line in report["lines"]}
        self.assertEqual([name for name, (result, _) in lines.items() if result != "pass"],
                         ["tools", "survives restart", "survives restore"])
        self.assertIn("refuses the key", lines["tools"][1])

    def test_01_everything_with_consent(self):
        before = self.system.ctl("runtime", "status", check=0)["manifest_digest"]
        lines = self.run_it("--approve", "--repull", code=0)
        self.assertEqual({result for result, _ in lines.values()}, {"pass"}, lines)
        self.assertIn("4 connections", lines["survives restore"][1])
        self.assertIn("installed again", lines["survives restore"][1])
        self.assertEqual(self.system.ctl("runtime", "status", check=0)["manifest_digest"], before)
        actions = [o["action"] for o in self.system.ctl("operations", "list", "--limit", "5")["operations"]]
        self.assertEqual(actions, ["restore", "install", "remove", "backup", "restart"])
        shown = self.system.ctl("acceptance", "show", check=0)
        self.assertEqual([line["name"] for line in shown["lines"]], ALL)

    def test_02_looking_changes_nothing(self):
        before = self.system.ctl("operations", "list")["operations"]
        pids = self.system.runtime_pids()
        lines = self.run_it("--look", code=7)
        self.assertEqual(self.results(lines, ALL[-2:]), {"survives restart": "not run", "survives restore": "not run"})
        self.assertEqual(self.system.ctl("operations", "list")["operations"], before)
        self.assertEqual(self.system.runtime_pids(), pids)

    def test_03_operations_wait_for_an_approval(self):
        lines = self.run_it("--repull", code=7)
        for name in ALL[-2:]:
            self.assertEqual(lines[name][0], "not run", lines[name])
            self.assertIn("was not begun", lines[name][1])

    def test_04_key_that_does_not_count(self):
        self.write_key("old", "not-the-key")
        self.addCleanup(os.unlink, self.file("probe/keys/old"))
        lines = self.run_it("--approve", "--key", "old", "--browser", "/bin/false", code=1)
        self.assertEqual(lines["pages"][0], "not run")
        self.assertEqual(self.results(lines, ["tools", "survives restart"]),
                         {"tools": "fail", "survives restart": "fail"})

    def browser(self, *events):
        """A browser that answers everything and then tells of these events."""
        path = os.path.join(self.dir, "browser")
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"#!/usr/bin/python3\nEVENTS = {events!r}\n" + FAKE_BROWSER)
        os.chmod(path, 0o755)
        return path

    def test_09_errors_on_the_console(self):
        page = ("Network.responseReceived", {"type": "Document", "response": {"status": 200}})
        error = ("Runtime.exceptionThrown", {"exceptionDetails": {"exception": {"description": "boom \u202e at x"}}})
        other = ("Log.entryAdded", {"entry": {"level": "error", "source": "network", "url": "http://other/x", "text": "x"}})
        lines = self.run_it("--look", "--browser", self.browser(page, other, error, ("Page.loadEventFired", {})), code=1)
        self.assertEqual(lines["pages"][0], "fail")
        self.assertIn("1 errors on the console, the first: boom ??? at x", lines["pages"][1])
        lines = self.run_it("--look", "--browser", self.browser(page), code=7)
        self.assertEqual(lines["pages"][0], "not run")
        self.assertIn("ended while", lines["pages"][1])

    def test_05_what_lies_where_it_should_not(self):
        with open(self.file("conf/notes"), "w", encoding="ascii") as f:
            f.write("\npassword = " + "hunter2hunter2hunter2" + "\n")
        self.addCleanup(os.unlink, self.file("conf/notes"))
        app = os.path.join(self.dir, "storage/current/rootfs/app")
        before = os.stat(app)
        self.addCleanup(os.utime, app, ns=(before.st_atime_ns, before.st_mtime_ns))
        with open(os.path.join(app, "added"), "w", encoding="ascii") as f:
            f.write("x")
        self.addCleanup(os.unlink, os.path.join(app, "added"))
        subprocess.run(["git", "init", "-q", self.dir], check=True)
        self.addCleanup(shutil.rmtree, os.path.join(self.dir, ".git"))
        lines = self.run_it("--look", code=1)
        failed = [name for name, (result, _) in lines.items() if result == "fail"]
        self.assertEqual(failed, ["installed tree", "no credential", "clean source tree"])
        self.assertIn("conf/notes, line 2", lines["no credential"][1])
        self.assertNotIn("hunter2", json.dumps(lines))

    @staticmethod
    def instances():
        return set(glob.glob("/var/tmp/hermes-acceptance-*"))

    def test_06_beside_the_real_one(self):
        before = self.instances()
        pids = self.system.runtime_pids()
        report = self.system.ctl("acceptance", "run", "--disposable", check=0)
        lines = {line["name"]: (line["result"], line["evidence"]) for line in report["lines"]}
        self.assertEqual({result for result, _ in lines.values()}, {"pass"}, lines)
        self.assertIn("4 connections", lines["survives restore"][1])
        self.assertEqual(self.system.runtime_pids(), pids)
        self.assertEqual(self.instances(), before)

    def test_10_ended_in_between(self):
        """What was made is cleared away all the same."""
        before = self.instances()
        p = subprocess.Popen([CTL, "--state", self.system.state, "acceptance", "run", "--disposable"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: [i for i in self.instances() - before if os.path.exists(i + "/state/run/launcher.pid")],
                 "the other instance")
        p.terminate()
        self.assertNotEqual(p.wait(120), 0)
        self.assertEqual(self.instances(), before)

    def test_07_in_a_terminal(self):
        """And in a checkout that ignores the state."""
        subprocess.run(["git", "init", "-q", self.dir], check=True)
        self.addCleanup(shutil.rmtree, os.path.join(self.dir, ".git"))
        with open(os.path.join(self.dir, ".gitignore"), "w", encoding="ascii") as f:
            f.write("*\n")
        self.addCleanup(os.unlink, os.path.join(self.dir, ".gitignore"))
        r = subprocess.run([CTL, "--state", self.system.state, "acceptance", "run", "--look"], capture_output=True,
                           text=True, stdin=subprocess.DEVNULL, timeout=240, check=False)
        self.assertEqual(r.returncode, 7, r.stdout)
        lines = r.stdout.splitlines()
        self.assertEqual(len(lines), len(ALL) + 1)
        self.assertRegex(lines[0], r"^pass +health +")
        self.assertRegex(lines[-1], r"^NOT EVERYTHING WAS TRIED: 9 passed, 0 failed, 2 not run\.$")

    def test_08_nothing_runs(self):
        self.system.ctl("runtime", "stop", "--approve", check=0)
        self.addCleanup(self.system.ctl, "runtime", "start", "--approve")
        lines = self.run_it("--look", code=1)
        self.assertEqual(self.results(lines, ["health", "bearer challenge", "tools", "pages"]),
                         {"health": "fail", "bearer challenge": "not run", "tools": "fail", "pages": "not run"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
