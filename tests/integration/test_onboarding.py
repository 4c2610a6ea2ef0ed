#!/usr/bin/env python3
"""Keys, inventory and reviews, as an operator types them and as hostile files have them: what is refused is named by field
and pattern and appears nowhere, not on the terminal and in no file below the state directory."""
import json
import os
import pty
import select
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fixtures"))
sys.path.insert(0, HERE)
from installation import CTL, Installation  # noqa: E402
from broker_harness import System, wait_for  # noqa: E402
from faulty_botapi import FaultyBotApi  # noqa: E402

KEY = "abcd-this-is-the-key-0123"
# Made up, and in two parts, so that no scanner of sources takes them for real ones.
SECRETS = {
    "token": "gh" + "p_x7Kd93mQpL2vNwR8sT5uYb1cZe4fGh",
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJ4N0tkOTMifQ.c2ln",
    "pem": "-----BEGIN OPENSSH " + "PRIVATE KEY----- x7Kd93b3BlbnNzaC1r",
    "cookie": "Cookie: session=" + "x7Kd93mQpL2vNwR8",
    "bearer": "Bearer " + "x7Kd93mQpL2v",
    "url": "https://ben:" + "x7Kd93@example.org/",
    "pair": "password=" + "x7Kd93",
    "random": "x7Kd93mQ" + "pL2vNwR8sT5uYb1c",
    "base64": "x7Kd93mQ" + "+pL2vNw/R8sT5u-Yb1cGe4",
    "encoded": "next=%2Fx%3Fpass" + "word%3Dx7Kd93",
}
MARK = "x7Kd93"
FIELDS = ("name", "service", "identity", "owner", "scopes", "query", "review_by")


def row(name, **more):
    return {"name": name, "service": "google", "identity": "ben@10xn.example", "owner": "owner",
            "scopes": ["calendar.readonly"], "query": "return 1", "review_by": "2099-12-31", **more}


def csv(rows):
    def cell(value):
        value = " ".join(value) if isinstance(value, list) else value
        return '"' + value.replace('"', '""') + '"'
    return "\n".join([",".join(FIELDS)] + [",".join(cell(r[f]) for f in FIELDS) for r in rows]) + "\n"


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.i = Installation()
        cls.addClassCleanup(cls.i.close)

    def setUp(self):
        for name in self.ctl("inventory", "show")[1].get("connections", []):
            self.ctl("inventory", "remove", name["name"])
        for key in self.ctl("runtime", "key", "list")[1]["keys"]:
            self.ctl("runtime", "key", "remove", key["name"])

    def run_ctl(self, *args, stdin=b"", text=False):
        options = [] if text else ["--json"]
        r = subprocess.run([CTL, "--state", self.i.state, *options, *args], capture_output=True, input=stdin, timeout=60,
                           check=False)
        self.assertNotIn(KEY.encode(), r.stdout + r.stderr)
        self.assertNotIn(MARK.encode(), r.stdout + r.stderr)
        return r

    def ctl(self, *args, stdin=b""):
        r = self.run_ctl(*args, stdin=stdin)
        return r.returncode, json.loads(r.stdout) if r.stdout.strip() else {}

    def refused(self, code, *args, stdin=b""):
        exit_code, answer = self.ctl(*args, stdin=stdin)
        self.assertNotEqual(exit_code, 0, answer)
        self.assertEqual(answer["code"], code, answer)
        return answer["error"]

    def add(self, name, *more):
        return self.ctl("inventory", "add", name, "--service", "google", "--identity", "ben@10xn.example", "--query",
                        "return 1", *more)

    def inventory(self):
        return self.ctl("inventory", "show")[1]["connections"]

    def everything(self):
        """Every byte below the state directory, except the keys themselves."""
        out = b""
        for directory, _, files in os.walk(self.i.state):
            if directory.endswith("/probe/keys"):
                continue
            for name in files:
                path = os.path.join(directory, name)
                if stat.S_ISREG(os.lstat(path).st_mode):
                    with open(path, "rb") as f:
                        out += f.read()
        return out

    def actions(self):
        return [(r["action"], r["status"], r["detail"].get("name"))
                for r in self.ctl("audit", "show", "--process", "onboarding", "--limit", "1000")[1]["records"]]


class Keys(Base):
    def test_piped_listed_removed(self):
        code, answer = self.ctl("runtime", "key", "set", "hermes-miles", "--stdin", "--purpose", "daily work", "--owner",
                                "owner", "--expires", "2099-01-01", stdin=KEY.encode() + b"\n")
        self.assertEqual((code, answer["replaced"]), (0, False))
        path = self.i.file("probe/keys/hermes-miles")
        st = os.stat(path)
        self.assertEqual((st.st_uid, stat.S_IMODE(st.st_mode)), (self.i.uid("probe"), 0o600))
        with open(path, encoding="ascii") as f:
            self.assertEqual(f.read(), KEY)
        listed = self.ctl("runtime", "key", "list")[1]["keys"]
        self.assertEqual([(k["name"], k["purpose"], k["owner"], k["last_used"], k["usable"]) for k in listed],
                         [("hermes-miles", "daily work", "owner", 0, True)])
        for part in (KEY, KEY[:8], KEY[-8:]):
            self.assertNotIn(part.encode(), self.everything())
        self.assertEqual(self.ctl("runtime", "key", "remove", "hermes-miles")[0], 0)
        self.assertFalse(os.path.exists(path))
        self.assertEqual(self.actions()[-4:], [("key_set", "intent", "hermes-miles"), ("key_set", "ok", "hermes-miles"),
                                               ("key_remove", "intent", "hermes-miles"),
                                               ("key_remove", "ok", "hermes-miles")])
        self.refused("not_found", "runtime", "key", "remove", "hermes-miles")

    def test_typed_without_echo(self):
        pid, fd = pty.fork()
        if pid == 0:
            os.execv(CTL, [CTL, "--state", self.i.state, "runtime", "key", "set", "typed"])
        shown = b""
        deadline = time.monotonic() + 30
        asked = False
        while time.monotonic() < deadline:
            if not select.select([fd], [], [], 1)[0]:
                continue
            try:
                piece = os.read(fd, 4096)
            except OSError:
                break
            if not piece:
                break
            shown += piece
            if b"not shown" in shown and not asked:
                asked = True
                os.write(fd, KEY.encode() + b"\n")
        self.assertEqual(os.waitpid(pid, 0)[1], 0, shown)
        os.close(fd)
        self.assertIn(b"stored", shown)
        self.assertNotIn(KEY.encode(), shown)
        with open(self.i.file("probe/keys/typed"), encoding="ascii") as f:
            self.assertEqual(f.read(), KEY)

    def test_only_a_terminal_or_a_pipe_that_is_named(self):
        self.assertIn("--stdin", self.refused("no_terminal", "runtime", "key", "set", "k", stdin=KEY.encode()))
        r = self.run_ctl("runtime", "key", "set", "k", "--stdin", "second-argument")
        self.assertEqual(r.returncode, 2)
        r = self.run_ctl("runtime", "key", "set", "k", "--key=" + KEY)
        self.assertEqual(r.returncode, 2)
        self.assertEqual(self.ctl("runtime", "key", "list")[1]["keys"], [])

    def test_bad_keys_and_descriptions(self):
        for text in (b"", b"short", b"with blanks in it 0123", b"two\nlines-0123", b"nul\0nul-0123", b"\xff" * 20, b"x" * 5000):
            self.refused("bad_key", "runtime", "key", "set", "k", "--stdin", stdin=text)
        for options, code in ((("--owner", "stranger"), "unknown_owner"), (("--expires", "soon"), "bad_date"),
                              (("--purpose", SECRETS["pair"]), "looks_like_credential")):
            self.refused(code, "runtime", "key", "set", "k", "--stdin", *options, stdin=KEY.encode())
        self.refused("bad_name", "runtime", "key", "set", "../k", "--stdin", stdin=KEY.encode())
        self.assertEqual(os.listdir(self.i.file("probe/keys")), [])

    def test_loose_modes_and_doctor(self):
        self.ctl("runtime", "key", "set", "loose", "--stdin", stdin=KEY.encode())
        self.ctl("runtime", "key", "set", "over", "--stdin", "--expires", "2026-01-01", "--purpose", "onboarding",
                 stdin=KEY.encode())
        os.chmod(self.i.file("probe/keys/loose"), 0o644)
        listed = {k["name"]: k for k in self.ctl("runtime", "key", "list")[1]["keys"]}
        self.assertFalse(listed["loose"]["usable"])
        self.assertIn("chmod 600", listed["loose"]["trouble"])
        found = {c["check"]: c for c in self.ctl("doctor")[1]["checks"]}
        self.assertFalse(found["runtime key loose"]["ok"])
        self.assertIn("2026-01-01: onboarding", found["runtime key over"]["found"])
        self.assertFalse(found["runtime key over"]["ok"])


class Inventory(Base):
    def test_add_edit_show_remove(self):
        self.assertEqual(self.add("google-ben-10xn", "--scope", "a", "--scope", "b", "--review-by", "2099-01-01")[0], 0)
        self.refused("exists", "inventory", "add", "google-ben-10xn", "--service", "google", "--identity", "x", "--query",
                     "return 1")
        self.refused("missing_field", "inventory", "add", "x", "--service", "google")
        self.refused("unknown_owner", "inventory", "edit", "google-ben-10xn", "--owner", "stranger")
        self.assertEqual(self.ctl("inventory", "edit", "google-ben-10xn", "--no-scopes", "--owner", "admin")[0], 0)
        one = self.ctl("inventory", "show", "google-ben-10xn")[1]["connection"]
        self.assertEqual((one["scopes"], one["owner"], one["review_by"], one["result"]), ([], "admin", "2099-01-01", "never"))
        self.refused("not_found", "inventory", "show", "other")
        self.refused("not_found", "inventory", "edit", "other", "--owner", "admin")
        self.assertEqual(self.ctl("inventory", "remove", "google-ben-10xn")[0], 0)
        self.refused("not_found", "inventory", "remove", "google-ben-10xn")
        self.assertEqual([a for a in self.actions() if a[1] == "ok"][-3:],
                         [("inventory_" + w, "ok", "google-ben-10xn") for w in ("add", "edit", "remove")])

    def test_secrets_in_every_field_appear_nowhere(self):
        self.add("there")
        options = {"service": "--service", "identity": "--identity", "owner": "--owner", "scopes": "--scope", "query": "--query",
                   "review_by": "--review-by"}
        for kind, secret in SECRETS.items():
            for field in FIELDS:
                with self.subTest(kind=kind, field=field):
                    value = [secret] if field == "scopes" else secret
                    rows = json.dumps({"connections": [row("fine"), {**row("bad"), field: value}]}, indent=0)
                    self.assertNotEqual(self.ctl("inventory", "import", "--format", "json", "-", stdin=rows.encode())[0], 0)
                    rows = csv([row("fine"), {**row("bad"), field: secret}])
                    error = self.ctl("inventory", "import", "--format", "csv", "-", stdin=rows.encode())
                    self.assertNotEqual(error[0], 0)
                    self.assertIn("line 3", error[1]["error"])
                    if field == "name":
                        self.assertNotEqual(self.add(secret)[0], 0)
                    else:
                        self.assertNotEqual(self.ctl("inventory", "edit", "there", options[field], secret)[0], 0)
        # As names of fields, of columns, of options, and in what is no JSON at all.
        for text in ('{"connections":[{"%s":1}]}', '{"%s":1,"%s":2}', '{"connections":[%s]}', '%s', '["%s"'):
            text = text.replace("%s", SECRETS["token"]).encode()
            self.assertNotEqual(self.ctl("inventory", "import", "--format", "json", "-", stdin=text)[0], 0)
            self.assertNotEqual(self.ctl("inventory", "import", "--format", "csv", "-", stdin=text)[0], 0)
        self.assertEqual(self.run_ctl("inventory", "add", "x", "--bogus=" + SECRETS["token"]).returncode, 2)
        self.assertEqual([c["name"] for c in self.inventory()], ["there"])
        self.assertNotIn(MARK.encode(), self.everything())

    def test_whole_or_nothing(self):
        self.add("b")
        before = self.i.read("onboarding/inventory.json")
        text = csv([row("a"), row("b"), row("c")]).encode()
        self.assertIn("line 3", self.refused("exists", "inventory", "import", "-", stdin=text))
        text = csv([row("a"), row("x", owner="stranger")]).encode()
        self.assertIn("line 3", self.refused("unknown_owner", "inventory", "import", "-", stdin=text))
        text = json.dumps({"connections": [row("a"), row("a")]}, indent=1).encode()
        self.assertIn("line 14: the name a stands in line 3", self.refused("duplicate_name", "inventory", "import", "-",
                                                                            stdin=text))
        self.assertEqual(self.i.read("onboarding/inventory.json"), before)
        text = csv([row("a"), row("b", identity="other"), row("c")]).encode()
        self.assertEqual(self.ctl("inventory", "import", "--replace", "-", stdin=text)[1]["imported"], 3)
        self.assertEqual([(c["name"], c["identity"]) for c in self.inventory()],
                         [("a", "ben@10xn.example"), ("b", "other"), ("c", "ben@10xn.example")])
        # What a check found out is nothing that a file can say.
        text = json.dumps({"connections": [row("d", last_validated=1, result="ok")]}).encode()
        self.refused("unknown_field", "inventory", "import", "-", stdin=text)

    def test_hostile_files(self):
        self.add("there")
        before = self.i.read("onboarding/inventory.json")
        path = os.path.join(self.i.dir, "import")
        good = csv([row("a")]).encode()
        for text in (b"\xff\xfe", good + b"\0", good.replace(b"ben", b"b\xc0\xafn"), good.replace(b"ben", b"b\xe2\x80\xaen"),
                     good.replace(b"ben", b"\x1b[2J"), b"{" * 100000, b"[" * 100000, b'{"connections":' + b"[" * 5000,
                     good + b"x" * (1 << 20), b'"' * 1001, good * 2, b"," * 5000,
                     json.dumps({"connections": [row("a%d" % n) for n in range(201)]}).encode()):
            with open(path, "wb") as f:
                f.write(text)
            with self.subTest(text=text[:40]):
                self.assertNotEqual(self.ctl("inventory", "import", path)[0], 0)
                self.assertNotEqual(self.ctl("inventory", "import", "--format", "json", path)[0], 0)
        os.unlink(path)
        os.symlink(self.i.file("onboarding/inventory.json"), path)
        self.refused("unsafe_path", "inventory", "import", path)
        os.unlink(path)
        os.mkfifo(path)
        self.refused("not_regular", "inventory", "import", path)
        os.unlink(path)
        self.refused("not_regular", "inventory", "import", self.i.dir)
        self.refused("not_found", "inventory", "import", path)
        self.assertEqual(self.i.read("onboarding/inventory.json"), before)

    def test_stored_file_that_is_loose_or_damaged(self):
        self.add("there")
        path = self.i.file("onboarding/inventory.json")
        commands = (("inventory", "show"), ("inventory", "export"), ("inventory", "remove", "there"), ("review",))

        def all_refuse(code):
            for command in commands:
                self.refused(code, *command)
        os.chmod(path, 0o644)
        all_refuse("loose_permissions")
        os.chmod(path, 0o600)
        os.chown(path, 4711, 4711)
        all_refuse("loose_permissions")
        os.chown(path, 0, 0)
        os.link(path, path + ".2")
        all_refuse("loose_permissions")
        os.unlink(path)
        os.symlink("inventory.json.2", path)
        all_refuse("unsafe_path")
        os.unlink(path)
        os.rename(path + ".2", path)
        good = self.i.read("onboarding/inventory.json")
        for bad, code in ((good.replace('"never"', '"ok"'), "bad_inventory"), (good[:-5], "bad_json"),
                          (good.replace("ben@", SECRETS["url"]), "looks_like_credential"),
                          (good.replace('"version"', '"%s"' % SECRETS["token"]), "bad_inventory")):
            with open(path, "w", encoding="utf-8") as f:
                f.write(bad)
            all_refuse(code)
        with open(path, "w", encoding="utf-8") as f:
            f.write(good)
        self.assertEqual(len(self.inventory()), 1)

    def test_concurrent_edits_all_count(self):
        before = self.ctl("inventory", "export")[1]["generation"]
        results = []
        threads = [threading.Thread(target=lambda n=n: results.append(self.add("c%d" % n)[0])) for n in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(results, [0] * 8)
        self.assertEqual([c["name"] for c in self.inventory()], ["c%d" % n for n in range(8)])
        self.assertEqual(self.ctl("inventory", "export")[1]["generation"], before + 8)
        self.assertEqual(self.ctl("audit", "verify")[1]["chains"]["onboarding"]["status"], "ok")

    def test_nothing_changes_that_cannot_be_recorded(self):
        self.add("there")
        path = self.i.file("onboarding/audit.log")
        with open(path, "r+b") as f:
            f.truncate(50)
        self.refused("audit_truncated", "inventory", "remove", "there")
        self.refused("audit_truncated", "runtime", "key", "set", "k", "--stdin", stdin=KEY.encode())
        self.assertEqual([c["name"] for c in self.inventory()], ["there"])
        self.assertEqual(os.listdir(self.i.file("probe/keys")), [])
        self.assertEqual(self.ctl("audit", "acknowledge", "--process", "onboarding", "--reason", "cut by a test")[0], 0)
        self.assertEqual(self.ctl("inventory", "remove", "there")[0], 0)

    def test_reports_are_defused(self):
        text = csv([row("a", identity="=HYPERLINK(1)", query="@SUM(1) <b>|[x](y)")]).encode()
        self.assertEqual(self.ctl("inventory", "import", "-", stdin=text)[0], 0)
        out = self.run_ctl("inventory", "export", "--format", "csv", text=True).stdout.decode()
        self.assertIn('"\'=HYPERLINK(1)"', out)
        self.assertIn('"\'@SUM(1) ', out)
        out = self.run_ctl("inventory", "export", "--format", "md", text=True).stdout.decode()
        self.assertIn("\\<b\\>\\|\\[x\\]\\(y\\)", out)
        report = self.ctl("inventory", "export")[1]
        self.assertEqual(report["owners"], {"infrastructure_admin": "admin", "connections_owner": "owner"})
        self.refused("usage", "inventory", "export", "--format", "md")
        self.refused("usage", "inventory", "export", "--format", "xml")

    def test_check_needs_a_key_and_a_runtime(self):
        self.add("there")
        self.refused("usage", "inventory", "check")
        self.assertEqual(self.ctl("inventory", "check", "--key", "none")[0], 6)
        self.assertEqual(self.inventory()[0]["result"], "never")


class Reviews(Base):
    def test_due_and_told(self):
        self.add("late", "--review-by", "2026-01-01")
        self.add("later", "--review-by", "2099-01-01")
        self.ctl("runtime", "key", "set", "over", "--stdin", "--expires", "2026-01-01", stdin=KEY.encode())
        code, answer = self.ctl("review")
        self.assertEqual((code, answer["due"]), (1, 2 + sum(i["kind"] == "guardrails" and i["due"] for i in answer["items"])))
        due = {(i["kind"], i["name"]) for i in answer["items"] if i["due"]}
        self.assertLessEqual({("overdue", "late"), ("key_expired", "over")}, due)
        self.assertNotIn(("overdue", "later"), due)
        self.assertIn("live-policy", [i["name"] for i in answer["items"]])
        self.assertEqual(self.ctl("status")[1]["reviews"]["due"], answer["due"])
        for process in ("admin", "approver"):
            path = self.i.file(process + "/reviews.json")
            self.assertEqual((os.stat(path).st_uid, stat.S_IMODE(os.stat(path).st_mode)), (self.i.uid(process), 0o600))
            told = self.i.read(process + "/reviews.json")
            for word in ("ben@", "google", "return 1", KEY):
                self.assertNotIn(word, told)
            self.assertIn("late", told)
        self.ctl("inventory", "edit", "late", "--review-by", "2099-01-01")
        self.ctl("runtime", "key", "remove", "over")
        self.assertNotIn("overdue", [i["kind"] for i in self.ctl("review")[1]["items"]])


class Page(Base):
    def test_status_of_the_endpoint_has_names_alone(self):
        self.i.up()
        self.addCleanup(self.i.down)
        self.add("late", "--review-by", "2026-01-01")
        status, answer = self.i.unix("admin", "GET", "/admin/status")
        self.assertEqual(status, 200)
        told = answer["reviews"]
        self.assertIn({"kind": "overdue", "name": "late"}, told["items"])
        self.assertEqual(told["due"], len(told["items"]))
        self.assertNotIn("ben@", json.dumps(answer))
        path = self.i.file("admin/reviews.json")
        os.chmod(path, 0o644)
        told = self.i.unix("admin", "GET", "/admin/status")[1]["reviews"]
        self.assertEqual((told["due"], told["items"]), (0, []))
        self.assertIn("chmod 600", told["error"])
        # hermesctl writes it anew.
        self.ctl("inventory", "edit", "late", "--review-by", "2099-01-01")
        told = self.i.unix("admin", "GET", "/admin/status")[1]["reviews"]
        self.assertNotIn("error", told)
        self.assertNotIn("late", [i["name"] for i in told["items"] if i["kind"] == "overdue"])


class Weekly(unittest.TestCase):
    """The message to approvers: once a week, whatever is restarted."""

    def setUp(self):
        token = "4711:AAFhBOweik6ad9r_QXMENQjcrGbqCr4K-xx"
        self.api = FaultyBotApi([token])
        self.addCleanup(self.api.stop)
        self.s = System(settings={"approver.api_base": self.api.base, "approver.poll_timeout": "1",
                                  "approver.console_approvers": ""}, users=("111", "222"), start=False)
        self.addCleanup(self.s.remove)
        self.write("approver/bot-token", token + "\n")

    def write(self, name, text):
        uid = self.s.state.uid("approver")
        self.s.state.write(name, text, 0o600, uid, uid)

    def told(self):
        return [(str(m["chat"]), m["text"]) for m in self.api.sent() if "Reviews due" in m["text"]]

    def healthy(self):
        return self.s.state.call("approver", "GET", "/health")[1]["checks"]["bot_state"] == "ok"

    def age(self):
        return time.time() - self.s.state.call("approver", "GET", "/health")[1]["checks"]["started_at"]

    def test_once_a_week(self):
        items = [{"kind": "overdue", "name": "google-ben-10xn", "from": "2020-01-01"},
                 {"kind": "overdue", "name": "not-yet", "from": "2199-01-01"}]
        self.write("approver/reviews.json", json.dumps({"version": 1, "items": items}, separators=(",", ":"), sort_keys=True))
        self.s.start("approver")
        wait_for("both messages", lambda: len(self.told()) == 2)
        self.assertEqual(sorted(c for c, _ in self.told()), ["111", "222"])
        self.assertIn("overdue: google-ben-10xn", self.told()[0][1])
        self.assertNotIn("not-yet", self.told()[0][1])
        self.s.stop("approver")
        self.s.start("approver")
        wait_for("the bot, and some ticks of it", lambda: self.healthy() and self.age() >= 4)
        # Told at a time before: as if a week had passed.
        self.s.stop("approver")
        self.assertEqual(len(self.told()), 2)
        with sqlite3.connect(self.s.state.file("approver/approver.db")) as db:
            self.assertEqual(db.execute("UPDATE meta SET value = value - 8 * 86400 WHERE key = 'reviews_told_at'").rowcount, 1)
        db.close()
        self.s.start("approver")
        wait_for("a week later", lambda: len(self.told()) == 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
