"""The screens in docs/TELEGRAM.md are what the program sends: made here and compared. HB_WRITE_SCREENS=1 writes them."""
import os
import re
import sqlite3
import unittest

from broker_harness import wait_for
from faulty_botapi import altered
from test_telegram import NO, YES
from test_trust import Chat

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "TELEGRAM.md")
BLOCK = re.compile(r"(<!-- screen: ([a-z-]+) -->\n```\n)(.*?)(```\n)", re.S)


def settled(text):
    """What differs each time, fixed."""
    text = re.sub(r"\b[0-9a-f]{64}\b", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "5d41402abc4b2a76b9719d911017c592", text)
    text = re.sub(r"\b(approver|broker) \d+ [0-9a-f]{12}\b", r"\1 42 3f79bb7b435b", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z0-9+-]+", "2026-03-01 14:05:10 CET", text)
    text = re.sub(r", \d+ s\n", ", 2 s\n", text)
    return re.sub(r"(Key: )[0-9a-f]{16}", r"\g<1>a591a6d40bf42040", text)


class TestScreens(Chat):
    settings = {"broker.pending_life": "300"}

    def now(self, op, user="111"):
        return self.message_of(op, user)["text"]

    def request(self, **kwargs):
        request = {"command": "cd /workspace\nmake test", "workdir": "/workspace", "timeout": 120}
        return self.s.prepared(user="111", session="agent-7", request=request, **kwargs)

    def decided(self, screens):
        op = self.request()
        screens["request"] = self.now(op)
        self.api.tap(self.message_of(op), YES, 111)
        screens["approved"] = wait_for("approved", lambda: self.now(op) if "APPROVED" in self.now(op) else None)
        self.s.execute(op)
        screens["ran"] = wait_for("ran", lambda: self.now(op) if self.now(op).count("Witness") == 2 else None)
        screens["receipt"] = self.ask("/receipt " + op["operation_id"])["text"]
        no = self.request()
        self.api.tap(self.message_of(no), NO, 111)
        screens["denied"] = wait_for("denied", lambda: self.now(no) if "DENIED" in self.now(no) and
                                     "Witness" in self.now(no) else None)

    def stopped(self, screens):
        op = self.request()
        self.api.tap(self.message_of(op), YES, 111)
        self.s.wait_state(op, "approved")
        screens["revoke"] = self.ask("/revoke " + op["operation_id"])["text"]
        screens["revoked"] = wait_for("revoked", lambda: self.now(op) if "Not run" in self.now(op) else None)
        screens["history"] = self.ask("/history")["text"]
        screens["pause"] = self.ask("/pause")["text"]
        screens["pause-told"] = wait_for("told", lambda: [m["text"] for m in self.api.sent(222) if "PAUSED" in m["text"]])[0]
        m = self.ask("/resume")
        screens["resume"] = m["text"] + "\n[Resume]"
        wait_for("tapped", lambda: self.api.tap(m, "Resume", 111) and not self.paused())
        screens["resumed"] = wait_for("told", lambda: [t["text"] for t in self.api.sent(222) if "RESUMED" in t["text"]])[0]
        screens["help"] = self.ask("/help")["text"]
        screens["unknown"] = self.ask("yes, do it")["text"]

    def shown_otherwise(self, screens):
        self.api.plan("sendMessage", altered(lambda text: text + "!"))
        self.assertEqual(self.s.prepare(user="222")["code"], "not_shown_faithfully")
        self.api.plan("sendMessage", lambda handler, params: handler.answer(
            400, {"ok": False, "error_code": 400, "description": "Bad Request: message is too long"}))
        self.assertEqual(self.s.prepare(user="222")["code"], "not_shown_faithfully")
        screens["notice"] = wait_for("a notice", lambda: [m["text"] for m in self.api.sent(222) if m["text"].startswith("A request could not")])[0]

    def waiting(self, screens):
        op = self.request()
        screens["pending"] = self.ask("/pending")["text"]
        screens["status"] = self.ask("/status")["text"]
        self.s.stop("broker"), self.s.stop("approver")
        with sqlite3.connect(self.s.state.file("approver/approver.db")) as db:
            db.execute("UPDATE asks SET expires_at = 1 WHERE state = 0")
        db.close()
        uid = self.s.state.uid("approver")
        for suffix in ("", "-wal", "-shm"):
            if os.path.exists(self.s.state.file("approver/approver.db" + suffix)):
                os.chown(self.s.state.file("approver/approver.db" + suffix), uid, uid)
        self.s.start("approver")
        screens["expired"] = wait_for("expired", lambda: self.now(op) if "EXPIRED" in self.now(op) else None)
        screens["expired"] = re.sub("1970-01-01 0[01]:00:01 [A-Z]+", "2026-03-01 14:05:10 CET", screens["expired"])
        self.s.start("broker")
        self.wait_bot("ok")

    def several(self, screens):
        self.s.policy(quorum={"runtime": 1, "local": 2, "docker": 1, "ssh": 1})
        op = self.request()
        self.api.tap(self.message_of(op, "222"), YES, 222)
        screens["quorum"] = wait_for("progress", lambda: self.now(op) if "so far: 222" in self.now(op) else None)

    def test_screens(self):
        screens = {}
        self.decided(screens)
        self.waiting(screens)
        self.stopped(screens)
        self.shown_otherwise(screens)
        self.several(screens)
        buttons = "\n\n[Approve once]  [Deny]\n"
        for name in ("request", "quorum"):
            screens[name] += buttons
        with open(DOCS, encoding="utf-8") as f:
            text = f.read()
        made = {name: settled(words).rstrip("\n") + "\n" for name, words in screens.items()}
        self.assertEqual(sorted(made), sorted(m.group(2) for m in BLOCK.finditer(text)))
        if os.environ.get("HB_WRITE_SCREENS"):
            with open(DOCS, "w", encoding="utf-8") as f:
                f.write(BLOCK.sub(lambda m: m.group(1) + made[m.group(2)] + m.group(4), text))
            return
        self.maxDiff = None
        for m in BLOCK.finditer(text):
            self.assertEqual(m.group(3), made[m.group(2)], m.group(2))


if __name__ == "__main__":
    unittest.main(verbosity=2)
