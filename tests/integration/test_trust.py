"""What makes the approver worth trusting: commands, pause, revocation, patience, witnesses, receipts, keys."""
import copy
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

from broker_harness import System, as_uid, wait_for
from faulty_botapi import FaultyBotApi, fail
from test_telegram import NO, YES, Base, new_token

REFERENCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference", "hermes_reference.py")


class Chat(Base):
    """Two approvers at their phones; the console is user 0."""
    users = ("0", "111", "222")

    def setUp(self):
        token = new_token()
        self.api = FaultyBotApi([token])
        self.addCleanup(self.api.stop)
        self.make(self.api.base, token, **{"approver.console_approvers": "0=0"})
        self.wait_bot("ok")

    def ask(self, text, user=111, **how):
        """Write to the bot and get the message that answers."""
        before = len(self.api.sent(user))
        self.api.say(user, text, **how)
        return wait_for(f"an answer to {text}", lambda: self.api.sent(user)[before:])[0]

    def message_of(self, op, user=None):
        return [m for m in self.api.sent(user) if op["operation_id"] in m["text"] and
                m["text"].startswith("Approval request")][-1]

    def taken(self, update):
        wait_for("the update taken", lambda: any(p.get("offset", 0) > update for p in self.api.calls("getUpdates")))

    def paused(self):
        return self.health()["checks"]["paused"]


class TestCommands(Chat):
    def test_each_answers(self):
        op = self.s.prepared(user="111", session="x\u202ey")
        self.assertIn("/pause", self.ask("/help")["text"])
        self.assertIn("/pause", self.ask("/help@SomeBot")["text"])
        text = self.ask("/pending", 222)["text"]
        self.assertIn(op["operation_id"], text)
        self.assertIn("0 of 1 approvals, 5 min left", text)
        self.assertIn("x\\u{202E}y", text)
        self.assertNotIn("\u202e", text)
        self.assertIn("It waits", self.ask("/receipt " + op["operation_id"])["text"])
        self.api.tap(self.message_of(op), YES, 111)
        self.assertEqual(self.s.execute(op)["status"], "executed")
        wait_for("the outcome", lambda: "succeeded, exit code 0" in self.ask("/history", 222)["text"])
        receipt = self.ask("/receipt " + op["operation_id"])["text"]
        for part in (op["digest"], "approved", "By user 111", "Witness: approver", "exit code 0", "broker "):
            self.assertIn(part, receipt)
        status = self.ask("/status")["text"]
        for part in ("Paused: no", "Bot: ok", "runtime, local", "Witness: approver"):
            self.assertIn(part, status)
        self.assertIn("Nothing waits", self.ask("/pending")["text"])
        for wrong in ("/approve " + op["operation_id"], "yes", "/pause now", "/receipt", "/receipt zzz", "/revoke x y", "/"):
            answer = self.ask(wrong)["text"]
            self.assertTrue("no command" in answer or "Which one" in answer, wrong)
        self.assertIn("no operation", self.ask("/receipt " + "0" * 32)["text"])
        self.assertIn("no command", self.ask("/pause" + "x" * 5000)["text"])
        self.assertFalse(self.paused())
        for params in self.api.calls("sendMessage"):
            self.assertNotIn("parse_mode", params)

    def test_h44_only_from_approvers_in_their_own_chat(self):
        for how in ({"user": 999}, {"user": 999, "chat": 111}, {"user": 111, "chat": -100123, "kind": "supergroup"},
                    {"user": 111, "chat": 222}, {"user": -111, "chat": -111, "kind": "group"},
                    {"user": 111, "kind": "group"}, {"user": 111, "forward_origin": {"type": "user"}},
                    {"user": 111, "via_bot": {"id": 5}}, {"user": 111, "sender_chat": {"id": 111}}):
            last = self.api.say(how.pop("user"), "/pause", **how)
        last = self.api.update({"message": {"text": "/pause", "chat": {"id": 111, "type": "private"}}})
        last = self.api.update({"message": {"text": "/pause", "from": {"id": "111"}, "chat": {"id": 111, "type": "private"}}})
        self.taken(last)
        self.assertFalse(self.paused())
        self.assertEqual(self.api.sent(), [])  # strangers get no answer at all
        self.assertFalse(os.path.exists(self.s.state.file("public/approver/control.json")))
        self.assertIn("not_an_approver", [r["detail"].get("why") for r in self.s.audit("approver")])
        self.s.policy(users=["0", "222"])
        self.taken(self.api.say(111, "/pause"))
        self.assertFalse(self.paused())
        self.assertIn("PAUSED", self.ask("/pause", 222)["text"])

    def test_answers_survive_the_weather(self):
        self.api.plan("sendMessage", fail(429, "Too Many Requests", retry_after=1), fail(502, "Bad Gateway"))
        self.assertIn("Hermes", self.ask("/status")["text"])
        self.api.plan("sendMessage", fail(403, "Forbidden: bot was blocked by the user"))
        self.api.say(111, "/pause")
        wait_for("paused all the same", self.paused)


class TestPause(Chat):
    def test_pause_refuses_everything_until_the_second_tap(self):
        waiting, ready = self.s.prepared(user="111"), self.s.prepared(user="222")
        self.api.tap(self.message_of(ready), YES, 222)
        self.s.wait_state(ready, "approved")
        answer = self.ask("/pause")["text"]
        self.assertIn("PAUSED", answer)
        self.assertIn("Witness: approver", answer)
        wait_for("the other one is told", lambda: any("PAUSED by user 111" in m["text"] for m in self.api.sent(222)))
        self.assertEqual(self.s.prepare(user="222")["code"], "paused")
        self.assertEqual(self.s.execute(ready)["code"], "paused")
        self.taken(self.api.tap(self.message_of(waiting), YES, 111))
        self.assertEqual(self.s.operation(waiting)["state"], "awaiting_approval")
        self.assertTrue(any("Paused" in p["text"] for p in self.api.calls("answerCallbackQuery")))
        for name in ("approver", "broker"):
            self.s.restart(name)
        self.wait_bot("ok")
        self.assertTrue(self.paused())
        self.assertEqual(self.s.prepare(user="222")["code"], "paused")
        self.assertTrue(self.s.get("/health")["checks"]["paused"])
        self.assertEqual(self.runs(ready) + self.runs(waiting), [])
        # one word doesn't resume, nor does somebody else's tap, nor an old button
        first = self.ask("/resume")
        self.assertIn("Resume", first["buttons"])
        wait_for("its number known", lambda: self.api.sent(111)[-1]["buttons"])
        second = self.ask("/resume")
        for m, user, how in ((second, 222, {}), (second, 222, {"chat": 111}), (second, 999, {}), (first, 111, {}),
                             (second, 111, {"message_id": 1}), (second, 111, {"data": "r:" + "0" * 48})):
            self.taken(self.api.tap(m, "Resume", user, **how))
            self.assertTrue(self.paused())
        self.api.tap(second, "Resume", 111)
        wait_for("resumed", lambda: not self.paused())
        wait_for("both are told", lambda: all(any("RESUMED" in m["text"] for m in self.api.sent(u)) for u in (111, 222)))
        self.assertIn("PAUSED", self.ask("/pause")["text"])
        self.taken(self.api.tap(second, "Resume", 111))  # used once
        self.assertTrue(self.paused())
        self.s.ctl("resume", "--yes")
        self.assertEqual(self.s.prepare(user="222")["status"], "prepared")
        self.api.tap(self.message_of(waiting), YES, 111)
        self.s.wait_state(waiting, "approved")

    def test_resume_button_dies_with_a_restart(self):
        self.ask("/pause")
        m = self.ask("/resume")
        self.s.restart("approver")
        self.wait_bot("ok")
        self.taken(self.api.tap(m, "Resume", 111))
        self.assertTrue(self.paused())

    def test_redelivered_commands_count_once(self):
        self.api.replay = True
        self.ask("/pause")
        sequence = self.health()["checks"]["control_sequence"]
        for how in (signal.SIGKILL, signal.SIGTERM) * 3:
            self.s.restart("approver", how)
            self.wait_bot("ok")
        self.assertEqual(self.health()["checks"]["control_sequence"], sequence)
        self.assertEqual(len([r for r in self.s.audit("approver") if r["action"] == "pause"]), 1)

    def test_lost_record_is_written_again(self):
        self.ask("/pause")
        name = self.s.state.file("public/approver/control.json")
        self.assertEqual(self.s.prepare(user="111")["code"], "paused")  # so the broker has seen it
        self.s.processes["approver"].send_signal(signal.SIGSTOP)  # it would write it again within a second
        os.unlink(name)
        self.assertEqual(self.s.prepare(user="111")["code"], "control_went_back")  # not "not paused"
        self.s.processes["approver"].send_signal(signal.SIGCONT)
        wait_for("written again", lambda: os.path.exists(name))
        self.assertEqual(self.s.prepare(user="111")["code"], "paused")
        with open(name, "r+", encoding="ascii") as f:
            text = f.read().replace('"paused":true', '"paused":false')
            f.seek(0), f.truncate(), f.write(text)
        self.assertEqual(self.s.prepare(user="111")["code"], "control_unusable")

    def test_console_pauses_and_revokes_too(self):
        op = self.s.prepared(user="0")
        self.assertEqual(self.s.ctl("pause")["paused"], True)
        self.assertEqual(self.s.ctl("resume", "--yes")["paused"], False)
        self.assertEqual(self.s.ctl("resume", "--yes", check=3)["code"], "not_paused")
        self.s.ctl("revoke", op["operation_id"])
        self.s.wait_state(op, "denied")
        op = self.s.prepared(user="0")
        self.s.ctl("approve", "--yes", op["operation_id"])
        self.s.wait_state(op, "approved")
        self.s.ctl("revoke", "all")
        self.s.wait_state(op, "revoked")
        answer = as_uid(47123, lambda: self.s.state.call("approver", "POST", "/console/control", {"action": "resume"}),
                        self.s.state.callers_gid("approver"))
        self.assertEqual(answer[0], 403)


class TestExecutors(unittest.TestCase):
    """Each real executor, with its sandbox on, asks the record itself: the broker may say what it likes."""

    def refusal(self, name):
        body = {"operation_id": "ab" * 16, "feature": {"installer": "runtime", "docker": "docker", "ssh": "ssh"}[name],
                "request": {}, "envelope": {"grant": {}, "signature": "A" * 86 + "=="}}
        state = self.s.state
        return as_uid(state.uid("broker"), lambda: state.call(name, "POST", "/execute", body)[1]["code"],
                      state.callers_gid(name))

    def test_pause_reaches_every_executor(self):
        self.s = System(features=("local", "runtime", "docker", "ssh"), fakes=())
        self.addCleanup(self.s.remove)
        names = ("installer", "docker", "ssh")
        for name in names:
            self.s.start(name)
        record = self.s.state.file("public/approver/control.json")

        def all_say(code):
            self.assertEqual({name: self.refusal(name) for name in names}, dict.fromkeys(names, code))

        all_say("grant_unknown_key")
        self.s.ctl("pause")
        all_say("paused")
        self.s.stop("approver")  # nobody writes it again now
        good = open(record, "rb").read()
        self.s.state.write("public/approver/control.json", b"{}", 0o644)
        all_say("control_unusable")
        os.unlink(record)
        all_say("control_went_back")
        self.s.state.write("public/approver/control.json", good, 0o644)
        all_say("paused")
        self.s.start("approver")
        self.s.ctl("resume", "--yes")
        all_say("grant_unknown_key")
        self.s.state.write("public/approver/control.json", good, 0o644)  # an older one put back
        all_say("control_went_back")


class TestRevoke(Chat):
    def test_one_that_was_approved(self):
        op, other = self.s.prepared(user="111"), self.s.prepared(user="222")
        for o, user in ((op, 111), (other, 222)):
            self.api.tap(self.message_of(o), YES, user)
            self.s.wait_state(o, "approved")
        self.assertIn("Revoked", self.ask("/revoke " + op["operation_id"], 222)["text"])
        self.assertEqual(self.s.wait_state(op, "revoked")["code"], "grant_revoked")
        wait_for("said in its message", lambda: "Not run: revoked" in self.message_of(op)["text"])
        self.assertIn("already", self.ask("/revoke " + op["operation_id"], 222)["text"])
        self.assertEqual(self.s.execute(other)["status"], "executed")
        self.assertIn("succeeded already", wait_for("told", lambda: (
            lambda t: t if "succeeded" in t else None)(self.ask("/revoke " + other["operation_id"])["text"])))
        self.assertEqual(self.runs(op), [])

    def test_one_that_waits_and_all(self):
        op = self.s.prepared(user="111")
        self.assertIn("Revoked", self.ask("/revoke " + op["operation_id"], 222)["text"])
        self.assertEqual(self.s.wait_state(op, "denied")["decided_by"], ["222"])
        waiting, ready = self.s.prepared(user="111"), self.s.prepared(user="222")
        self.api.tap(self.message_of(ready), YES, 222)
        self.s.wait_state(ready, "approved")
        self.assertIn("Denied: 1 waiting", self.ask("/revoke all")["text"])
        self.s.wait_state(waiting, "denied"), self.s.wait_state(ready, "revoked")
        wait_for("a second later", lambda: self.s.prepare(user="111", session="later").get("status") == "prepared")


class TestPatience(Chat):
    settings = {"approver.denial_cooldown": "600", "broker.coalesce": "yes", "approver.pending_per_user": "3"}

    def test_cap_on_pending(self):
        ops = [self.s.prepared(user="111", request={"command": f"echo {i}"}) for i in range(3)]
        self.assertEqual(self.s.prepare(user="111", request={"command": "echo 3"})["code"], "too_many_pending")
        self.assertEqual(self.s.prepare(user="222")["status"], "prepared")  # it is per person
        self.api.tap(self.message_of(ops[0]), NO, 111)
        self.s.wait_state(ops[0], "denied")
        self.s.prepared(user="111", request={"command": "echo 3"})

    def test_the_same_question_is_asked_once(self):
        first = self.s.prepared(user="111")
        again = self.s.prepared(user="111")
        self.assertEqual((again["operation_id"], again["capability"]), (first["operation_id"], first["capability"]))
        self.assertEqual(len(self.api.sent("111")), 1)
        for other in (self.s.prepared(user="111", session="s2"), self.s.prepared(user="222"),
                      self.s.prepared(user="111", request={"command": "echo other"})):
            self.assertNotEqual(other["operation_id"], first["operation_id"])
        conn, answer = self.s.start_execute(first)
        self.api.tap(self.message_of(first), YES, 111)
        self.assertEqual(self.s.execute(again)["status"], "executed")
        self.assertEqual(json.loads(answer.read())["status"], "executed")
        conn.close()
        self.assertEqual(len(self.runs(first)), 1)
        self.assertNotEqual(self.s.prepared(user="111")["operation_id"], first["operation_id"])  # a new question

    def test_a_no_stands_for_a_while(self):
        op = self.s.prepared(user="111")
        self.api.tap(self.message_of(op), NO, 111)
        self.s.wait_state(op, "denied")
        self.assertEqual(self.s.prepare(user="111", session="another")["code"], "denied_recently")
        self.s.restart("approver")
        self.wait_bot("ok")
        self.assertEqual(self.s.prepare(user="111")["code"], "denied_recently")
        self.s.prepared(user="111", request={"command": "echo other"})
        self.s.prepared(user="222")
        name = self.s.state.file("approver/approver.db")
        self.s.stop("approver")
        with sqlite3.connect(name) as db:
            db.execute("UPDATE asks SET decided_at = decided_at - 601 WHERE state = 2")
        db.close()
        uid = self.s.state.uid("approver")
        for suffix in ("", "-wal", "-shm"):
            if os.path.exists(name + suffix):
                os.chown(name + suffix, uid, uid)
        self.s.start("approver")
        self.wait_bot("ok")
        self.s.prepared(user="111")


class TestSelfApproval(Chat):
    def test_whoever_asked_does_not_count(self):
        self.s.ctl("policy", "set", "--no-self-approval", "local")
        op = self.s.prepared(user="111")
        self.assertEqual([m["chat"] for m in self.api.sent() if op["operation_id"] in m["text"]], ["222"])
        mine = dict(self.message_of(op, "222"), chat="111")
        self.taken(self.api.tap(mine, YES, 111))
        self.assertEqual(self.s.operation(op)["state"], "awaiting_approval")
        own = self.s.prepared(user="0")
        self.assertEqual(self.s.decide(own)["code"], "self_approval")
        self.assertEqual(self.s.decide(own, "denied")["status"], "ok")  # taking it back is theirs
        self.api.tap(self.message_of(op, "222"), YES, 222)
        self.assertEqual(self.s.execute(op)["status"], "executed")
        self.assertEqual(self.runs(op)[0]["envelope"]["grant"]["requested_by"], "111")
        self.s.policy(no_self_approval=["local"], users=["111"])
        self.assertEqual(self.s.prepare(user="111")["code"], "no_channel")

    def test_the_bounds_can_ask_for_it(self):
        name = self.s.state.file("conf/bounds.conf")
        with open(name, "a", encoding="ascii") as f:
            f.write("\n[quorum]\nno_self_approval = local\n")
        op = self.s.prepared(user="0")
        self.assertEqual(self.s.decide(op)["code"], "self_approval")

    def test_progress_of_a_quorum_is_shown(self):
        self.s.policy(quorum={"runtime": 1, "local": 2, "docker": 1, "ssh": 1})
        op = self.s.prepared(user="111")
        self.api.tap(self.message_of(op, "111"), YES, 111)
        wait_for("progress", lambda: all("1 of 2 approvals so far: 111." in self.message_of(op, u)["text"]
                                         for u in ("111", "222")))
        self.assertEqual(sorted(self.message_of(op, "222")["buttons"]), [YES, NO])
        self.assertIn("1 of 2 approvals", self.ask("/pending")["text"])
        self.api.tap(self.message_of(op, "222"), YES, 222)
        wait_for("both", lambda: "APPROVED by 111, 222" in self.message_of(op, "111")["text"])


class TestShown(Chat):
    def test_h46_every_byte_is_seen(self):
        nasty = "".join(map(chr, (0x202E, 0x2066, 0x200B, 0xAD, 0xFEFF, 0x2028, 0x3164, 0xA0, 0xE0100, 0x1D173, 0x1BCA0)))
        op = self.s.prepared(user="111", request={"command": f"echo a{nasty}\tb   c # <b>*_[x](y)&amp;\r\nDigest: 0\nrm -rf x"})
        text = self.message_of(op)["text"]
        for c in nasty:
            self.assertNotIn(c, text)
            self.assertIn(f"\\u{{{ord(c):X}}}", text)
        for part in ("\\t", "\\x20\\x20", "\\r", "<b>*_[x](y)&amp;", "| Digest: 0", "| rm -rf x"):
            self.assertIn(part, text)
        self.assertEqual(self.runs(op), [])
        answer = self.s.prepare(user="111", request={"command": "echo " + "x" * 3900 + "; rm -rf y"})
        self.assertEqual(answer["code"], "too_long_to_show")
        self.assertEqual(len(self.api.sent("111")), 1)  # nothing that could be approved

    def test_expiry_is_local_time_and_minutes(self):
        op = self.s.prepared(user="111")
        zone = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(op["expires_at"]))
        self.assertIn(f"Decide until {zone} (5 min left)", self.message_of(op)["text"])
        self.assertNotIn("min left", op["summary"])


class TestSilence(unittest.TestCase):
    def test_nothing_begins_without_the_approver(self):
        s = System(settings={"broker.approver_silence": "2"})
        self.addCleanup(s.remove)
        op = s.prepared()
        s.decide(op)
        s.wait_state(op, "approved")
        s.processes["approver"].send_signal(signal.SIGSTOP)
        try:
            wait_for("silence noticed", lambda: s.prepare().get("code") == "approver_silent", 40)
            self.assertEqual(s.execute(op)["code"], "approver_silent")
            self.assertIn("nothing was heard", s.get("/health")["error"])
        finally:
            s.processes["approver"].send_signal(signal.SIGCONT)
        wait_for("heard again", lambda: s.prepare().get("status") == "prepared", 40)
        self.assertEqual(s.execute(op)["status"], "executed")


class TestAudit(Chat):
    def run_one(self, user="111"):
        op = self.s.prepared(user=user)
        self.api.tap(self.message_of(op), YES, user)
        self.assertEqual(self.s.execute(op)["status"], "executed")
        wait_for("the outcome told", lambda: "Output SHA-256" in self.message_of(op)["text"])
        return op

    def verify(self, *witness):
        code, words = self.s.ctl("audit", "verify", *witness, check=None)
        try:
            return code, json.loads(words)
        except ValueError:
            return code, {"words": words}

    def quiet(self):
        """Fakes have no chains; what counts here are those of broker and approver."""
        for name in ("fetcher", "installer", "docker", "ssh", "admin"):
            where = self.s.state.file(name)
            for suffix in ("", ".head"):
                shutil.copy(self.s.state.file("broker/audit.log" + suffix), os.path.join(where, "audit.log" + suffix))

    def covered(self):
        """The newest checkpoint names the newest record of the approver's own chain."""
        name = self.s.state.file("public/approver/checkpoint.json")
        if not os.path.exists(name):
            return False
        with open(name, encoding="ascii") as f:
            return json.load(f)["record"]["heads"]["approver"]["seq"] == self.s.audit("approver")[-1]["seq"]

    def records(self, name, keep):
        """Cut a chain and its head file, as somebody with that process's rights could."""
        path, uid = self.s.state.file(f"{name}/audit.log"), self.s.state.uid(name)
        with open(path, "rb") as f:
            lines = f.read().split(b"\n")[:-1]
        lines = lines[:keep] if keep >= 0 else lines[:len(lines) + keep]
        data = b"".join(line + b"\n" for line in lines)
        last = hashlib.sha256(lines[-1]).hexdigest() if lines else "0" * 64
        self.s.state.write(f"{name}/audit.log", data, 0o600, uid, uid)
        self.s.state.write(f"{name}/audit.log.head", f"hermes-audit-head-v1 {len(lines):020d} {last} {len(data):020d}\n",
                           0o600, uid, uid)

    def test_witness_lines_in_both_messages(self):
        op = self.s.prepared(user="111")
        self.api.tap(self.message_of(op), YES, 111)
        wait_for("decided", lambda: "APPROVED by 111" in self.message_of(op)["text"])
        decided = self.message_of(op)["text"]
        self.assertEqual(decided.count("Witness: approver "), 1)
        self.s.execute(op)
        wait_for("told", lambda: self.message_of(op)["text"].count("Witness: approver ") == 2)
        text = self.message_of(op)["text"]
        self.assertTrue(text.startswith(decided))  # what the phone kept stays
        self.assertIn(", broker ", text.splitlines()[-1])
        self.quiet()
        for what in (text, text.splitlines()[-1], decided):
            code, answer = self.verify("--witness", what)
            self.assertEqual((code, answer["ok"]), (0, True), answer)
        self.assertEqual(self.s.ctl("audit", "verify", "--witness", "-", stdin=text)["ok"], True)
        bad = text.splitlines()[-1]
        bad = bad[:-1] + ("0" if bad[-1] != "0" else "1")
        self.assertEqual(self.verify("--witness", bad)[0], 1)
        self.assertEqual(self.s.ctl("audit", "verify", "--witness", "nothing of the kind", check=2)["code"], "usage")

    def test_h64_cut_with_its_head_is_noticed_and_stays_so(self):
        self.run_one()
        old = {n: open(self.s.state.file(n), "rb").read() for n in ("approver/audit.log", "approver/audit.log.head")}
        op = self.run_one()
        wait_for("a checkpoint of it all", self.covered, 40)
        witness = self.message_of(op)["text"]
        self.quiet()
        self.assertEqual(self.verify("--witness", witness)[0], 0)
        for name in ("approver", "broker"):
            self.s.stop(name)
        for how in (lambda: self.records("approver", -1), lambda: self.records("approver", -3),
                    lambda: self.records("approver", 0),
                    lambda: [self.s.state.write(n, data, 0o600, self.s.state.uid("approver"), self.s.state.uid("approver"))
                             for n, data in old.items()]):
            how()
            code, answer = self.verify("--witness", witness)
            self.assertEqual((code, answer["ok"]), (1, False))
            self.assertEqual(answer["chains"]["approver"]["status"], "ok")  # by itself it looks whole
            self.assertIn("cut", [k["status"] for k in answer["kept"]])
        self.s.start("approver"), self.s.start("broker")
        self.wait_bot("ok")
        for _ in range(6):
            self.run_one()
        code, answer = self.verify("--witness", witness)
        self.assertEqual(code, 1)
        self.assertIn("replaced", [k["status"] for k in answer["kept"]])

    def test_h64_another_chain_cut_is_an_alarm(self):
        self.run_one()
        wait_for("a checkpoint with the broker", lambda: "broker" in open(
            self.s.state.file("public/approver/checkpoint.json"), encoding="ascii").read()
            if os.path.exists(self.s.state.file("public/approver/checkpoint.json")) else False)
        self.s.stop("broker")
        self.records("broker", 0)
        code, answer = self.verify()
        self.assertEqual(code, 1)
        self.assertIn(("broker", "cut"), [(k["process"], k["status"]) for k in answer["kept"]])
        self.s.start("broker")
        wait_for("the approver says so", lambda: "audit chain of broker" in self.health().get("error", ""), 40)
        self.s.restart("approver")
        self.wait_bot("ok")
        self.assertIn("audit chain of broker", self.health()["error"])
        self.assertIn("audit_alarm", [r["action"] for r in self.s.audit("approver")])
        self.quiet()
        self.s.ctl("audit", "checkpoint")
        self.assertIn("audit chain of broker", self.health()["error"])  # not explained yet
        self.s.ctl("audit", "checkpoint", "--accept")
        self.assertNotIn("audit chain", self.health().get("error", ""))
        self.assertEqual(self.verify()[0], 0)

    def test_h64_a_cut_log_is_not_appended_to_until_acknowledged(self):
        self.run_one()
        for name in ("approver", "broker"):
            self.s.stop(name)
        path = self.s.state.file("broker/audit.log")
        with open(path, "rb") as f:
            lines = f.read().split(b"\n")[:-1]
        uid = self.s.state.uid("broker")
        self.s.state.write("broker/audit.log", b"".join(line + b"\n" for line in lines[:-1]), 0o600, uid, uid)
        for _ in range(2):
            ready, code = self.s.start("broker", expect_ready=False)
            self.assertEqual((ready, code), (b"", 78))
        self.assertIn("audit_truncated", self.s.log("broker"))
        self.assertEqual(self.s.ctl("audit", "acknowledge", "--process", "approver", "--reason", "x", check=3)["code"],
                         "audit_intact")
        self.s.ctl("audit", "acknowledge", "--process", "broker", "--reason", "a test did it")
        self.s.start("approver"), self.s.start("broker")
        self.wait_bot("ok")
        first = self.s.audit("broker")[0]
        self.assertEqual((first["action"], first["detail"]["reason"]), ("audit_acknowledged", "a test did it"))
        with open(self.s.state.file(first["detail"]["kept_as"]), "rb") as f:
            self.assertEqual(f.read().split(b"\n")[:-1], lines[:-1])  # the evidence is whole
        self.run_one()

    def test_h65_torn_tail_and_second_writer(self):
        self.run_one()
        path = self.s.state.file("approver/audit.log")
        for tail in (b"{", b'{"action":"x"}', b"\x00" * 40):
            self.s.stop("approver")
            before = open(path, "rb").read()
            with open(path, "ab") as f:
                f.write(tail)
            self.s.start("approver")
            now = open(path, "rb").read()
            self.assertTrue(now.startswith(before))
            record = json.loads(now[len(before):].split(b"\n")[0])
            self.assertEqual((record["action"], record["status"], record["detail"]["bytes"]),
                             ("audit_torn_tail", "crashed", len(tail)))
            with open(path + ".torn", "rb") as f:
                self.assertTrue(f.read().endswith(tail))
        ready, code = self.s.start("approver", expect_ready=False)  # a second one beside it
        self.assertEqual((ready, code), (b"", 78))
        self.assertIn("audit_locked", self.s.log("approver"))
        self.wait_bot("ok")
        self.run_one()

    def test_h66_each_outcome_has_its_own_word(self):
        words = {}

        def last(op):
            return [r["status"] for r in self.s.audit("broker") if r["detail"].get("operation_id") == op["operation_id"]][-1]

        for word, status in (("ok", {"state": "succeeded", "result": {"returncode": 0, "output": "fine"}}),
                             ("failed", {"state": "failed", "result": {"returncode": 0, "output": "ok ok ok"}}),
                             ("timeout", {"state": "failed", "result": {"returncode": 124, "timed_out": True}}),
                             ("unknown", {"state": "outcome_unknown", "result": {}})):
            self.s.fake(status=status)
            op = self.s.prepared(user="111")
            self.api.tap(self.message_of(op), YES, 111)
            self.s.execute(op)
            words[word] = wait_for(word, lambda o=op: last(o) if self.s.operation(o)["finished_at"] else None)
            told = wait_for("told", lambda o=op: [r for r in self.s.audit("approver") if r["action"] == "outcome" and
                                                 r["detail"]["operation_id"] == o["operation_id"]])
            self.assertEqual(told[0]["status"], {"timeout": "failed"}.get(word, word))
        op = self.s.prepared(user="111")
        self.api.tap(self.message_of(op), NO, 111)
        self.s.wait_state(op, "denied")
        words["denied"] = last(op)
        op = self.s.prepared(user="111")
        self.api.tap(self.message_of(op), YES, 111)
        self.s.wait_state(op, "approved")
        self.s.post("/cancel", {"capability": op["capability"]})
        words["cancelled"] = last(op)
        self.s.fake(execute="refuse:grant_expired_or_so")
        op = self.s.prepared(user="111")
        self.api.tap(self.message_of(op), YES, 111)
        self.s.execute(op)
        self.s.wait_state(op, "revoked")
        words["refused"] = last(op)
        self.assertEqual(words, {w: w for w in words})


class TestReceipts(TestAudit):
    """One file, checked by hermesctl and by a second implementation."""

    def setUp(self):
        super().setUp()
        self.dir = tempfile.mkdtemp(prefix="hb-receipt-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.key = self.s.state.file("public/approver.pub")

    def reference(self, path, *more):
        return subprocess.run([sys.executable, REFERENCE, "receipt", self.key, path, *more], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False).returncode

    def export(self, op, name="r.json"):
        path = os.path.join(self.dir, name)
        self.s.ctl("receipt", "export", "--out", path, op["operation_id"])
        return path

    def test_export_show_verify(self):
        op = self.run_one()
        path = self.export(op)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path, encoding="utf-8") as f:
            receipt = json.load(f)
        self.assertEqual(receipt["summary"], op["summary"])
        answer = self.s.ctl("receipt", "verify", path)
        self.assertEqual((answer["in_chain"], answer["same_summary"]), (True, True))
        self.assertEqual(self.s.ctl("receipt", "verify", op["operation_id"])["state"], "succeeded")
        self.assertEqual(self.s.ctl("receipt", "verify", "--key", self.key, path)["in_chain"], False)
        self.assertEqual(self.s.ctl("receipt", "show", path)["summary"], op["summary"])
        self.assertEqual(self.reference(path), 0)
        self.assertEqual(self.reference(path, self.s.state.file("approver/audit.log")), 0)
        self.assertNotEqual(self.s.ctl("receipt", "export", "--out", path, op["operation_id"], check=None)[0], 0)
        self.bend(receipt)
        # a chain without the record it names
        self.s.stop("approver")
        self.records("approver", 1)
        code, words = self.s.ctl("receipt", "verify", path, check=None)
        self.assertEqual(code, 1)
        self.assertIn("receipt_not_in_chain", words)
        self.assertEqual(self.reference(path, self.s.state.file("approver/audit.log")), 1)

    def bend(self, good):
        """Whatever is changed in it is noticed, by both."""
        def at(*keys, to):
            bad = copy.deepcopy(good)
            place = bad
            for key in keys[:-1]:
                place = place[key]
            place[keys[-1]] = to
            return bad

        bad = [at("summary", to=good["summary"] + " "), at("request", "command", to="echo hello; reboot"),
               at("state", to="failed"), at("result", "output", to="nothing happened\n"),
               at("result", "returncode", to=1), at("result", "output_sha256", to="0" * 64), at("feature", to="docker"),
               at("operation_id", to="0" * 32), at("target", to="ssh"), at("kind", to="other"), at("v", to=2),
               at("envelope", "grant", "user_ids", to=["222"]), at("envelope", "grant", "decision", to="denied"),
               at("attestation", "record", "outcome", "state", to="failed"),
               at("attestation", "record", "decision_record", "seq", to=7777),
               at("attestation", "signature", to="A" * 86 + "=="), at("more", to=1)]
        for i, receipt in enumerate(bad):
            path = os.path.join(self.dir, "bad.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(receipt, f)
            self.assertEqual(self.s.ctl("receipt", "verify", path, check=None)[0], 1, i)
            self.assertEqual(self.reference(path), 1, i)

    def test_denied_and_undecided(self):
        op = self.s.prepared(user="111")
        self.assertEqual(self.s.ctl("receipt", "export", op["operation_id"], check=3)["code"], "not_final")
        self.api.tap(self.message_of(op), NO, 111)
        self.s.wait_state(op, "denied")
        path = self.export(op)
        self.assertEqual(self.s.ctl("receipt", "verify", path)["state"], "denied")
        self.assertEqual(self.reference(path), 0)
        op = self.s.prepared(user="111")
        self.s.post("/cancel", {"capability": op["capability"]})
        self.assertEqual(self.s.ctl("receipt", "export", op["operation_id"], check=3)["code"], "not_decided")
        self.assertEqual(self.s.ctl("receipt", "export", "0" * 32, check=8)["code"], "unknown_operation")

    def test_another_outcome_later_is_an_alarm(self):
        op = self.run_one()
        with open(self.s.state.file("broker/approval-secret"), encoding="ascii") as f:
            secret = f.read().strip()
        body = {"operation_id": op["operation_id"], "state": "failed", "returncode": 1, "duration": 0,
                "output_sha256": "0" * 64}
        state = self.s.state
        answer = as_uid(state.uid("broker"), lambda: state.call("approver", "POST", "/outcome", body,
                                                                {"X-Approval-Secret": secret})[1],
                        state.callers_gid("approver"))
        self.assertEqual(answer["code"], "outcome_differs")
        self.assertIn("exit code 0", self.message_of(op)["text"])
        self.assertIn("alarm", [r["action"] for r in self.s.audit("approver")])

    # inherited, and not run twice
    test_witness_lines_in_both_messages = test_h64_cut_with_its_head_is_noticed_and_stays_so = None
    test_h64_another_chain_cut_is_an_alarm = test_h64_a_cut_log_is_not_appended_to_until_acknowledged = None
    test_h65_torn_tail_and_second_writer = test_h66_each_outcome_has_its_own_word = None


class TestKeys(TestReceipts):
    def test_honoured_rotation(self):
        before = self.run_one()
        op = self.s.prepared(user="111")
        self.api.tap(self.message_of(op), YES, 111)
        self.s.wait_state(op, "approved")
        old = self.s.ctl("keys", "show")["key_id"]
        answer = self.s.ctl("keys", "rotate", "--honour")
        self.assertEqual(answer["previous"], old)
        self.assertEqual(self.health()["checks"]["key_id"], answer["key_id"])
        shown = self.s.ctl("keys", "show")
        self.assertEqual((shown["key_id"], shown["previous"], shown["approver_signs_with"]),
                         (answer["key_id"], old, answer["key_id"]))
        self.assertEqual(self.s.execute(op)["status"], "executed")  # signed by the old one
        after = self.run_one()
        self.assertEqual(self.runs(after)[0]["envelope"]["grant"]["key_id"], answer["key_id"])
        for o in (before, op, after):  # receipts of either stay good
            self.assertEqual(self.s.ctl("receipt", "verify", o["operation_id"])["status"], "ok")
        self.assertEqual(self.health()["status"], "ok")
        st = os.stat(self.s.state.file("approver/signing.key"))
        self.assertEqual((st.st_mode & 0o777, st.st_uid), (0o600, self.s.state.uid("approver")))

    def test_revoking_rotation(self):
        self.s.ctl("pause"), self.s.ctl("resume", "--yes")  # there is a control record to be signed anew
        pending = self.s.prepared(user="111")
        with open(self.s.state.file("public/approver.pub"), encoding="ascii") as f:
            old = f.read()
        self.s.processes["broker"].send_signal(signal.SIGSTOP)  # the grant is signed and can't be delivered yet
        self.api.tap(self.message_of(pending), YES, 111)
        wait_for("signed", lambda: [r for r in self.s.audit("approver") if r["action"] == "decision"])
        answer = self.s.ctl("keys", "rotate", "--revoke")
        self.s.processes["broker"].send_signal(signal.SIGCONT)
        wait_for("told", lambda: "did not take the decision" in self.message_of(pending)["text"])
        self.assertEqual(self.runs(pending), [])
        self.assertEqual(self.s.ctl("keys", "show")["previous"], "")
        with open(self.s.state.file(f"public/retired/{answer['previous']}.pub"), encoding="ascii") as f:
            self.assertEqual(f.read(), old)
        wait_for("the control record signed anew", lambda: answer["key_id"] in open(
            self.s.state.file("public/approver/control.json"), encoding="ascii").read())
        self.run_one()

    def test_told_nothing_does_nothing(self):
        before = self.s.ctl("keys", "show")
        for args in ((), ("--honour", "--revoke")):
            self.assertEqual(self.s.ctl("keys", "rotate", *args, check=None)[0], 2)
        self.assertEqual(self.s.ctl("keys", "init", check=3)["code"], "key_exists")
        self.assertEqual(self.s.ctl("keys", "show"), before)

    def test_nothing_is_approved_with_a_key_that_others_may_have_read(self):
        op = self.s.prepared(user="111")
        os.chmod(self.s.state.file("approver/signing.key"), 0o640)
        self.api.tap(self.message_of(op), YES, 111)
        wait_for("the tap", lambda: "APPROVED by" in self.message_of(op)["text"])
        wait_for("said so", lambda: "chmod" in self.health().get("error", ""))
        self.assertEqual([r for r in self.s.audit("approver") if r["action"] == "decision"], [])
        denied = self.s.prepared(user="111")  # saying no needs no trust
        self.api.tap(self.message_of(denied), NO, 111)
        self.s.wait_state(denied, "denied")
        self.assertEqual(self.s.operation(op)["state"], "awaiting_approval")
        os.chmod(self.s.state.file("approver/signing.key"), 0o600)
        self.s.wait_state(op, "approved")

    def test_loose_key_files(self):
        os.chmod(self.s.state.file("approver/signing.key"), 0o640)
        wait_for("said so", lambda: "chmod" in self.health().get("error", ""))
        self.s.stop("approver")
        self.assertEqual(self.s.start("approver", expect_ready=False)[1], 78)
        os.chmod(self.s.state.file("approver/signing.key"), 0o600)
        self.s.start("approver")
        with open(self.s.state.file("public/approver.pub"), "r+", encoding="ascii") as f:
            text = f.read()
            f.seek(0), f.write("hermes-public-key-v1 " + "A" * 43 + "=\n"), f.truncate()
        self.assertIn("not the key", self.health()["error"])
        with open(self.s.state.file("public/approver.pub"), "w", encoding="ascii") as f:
            f.write(text)

    test_export_show_verify = test_denied_and_undecided = test_another_outcome_later_is_an_alarm = None


if __name__ == "__main__":
    unittest.main(verbosity=2)
