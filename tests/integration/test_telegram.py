"""The Telegram channel: with telegram-test-api as it should be, with faulty_botapi.py as the weather has it."""
import json
import os
import secrets
import signal
import socket
import sqlite3
import ssl
import subprocess
import tempfile
import threading
import unittest

from broker_harness import System, wait_for
from faulty_botapi import (CONFLICT_POLLER, CONFLICT_WEBHOOK, FaultyBotApi, altered, fail, garbage, hang, lost, redirect,
                           slow_bytes)
from telegram_emulator import Emulator

YES, NO = "Approve once", "Deny"


def new_token(bot="4711"):
    return f"{bot}:{secrets.token_urlsafe(26)}"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Base(unittest.TestCase):
    users = ("111", "222")
    settings = {}

    def make(self, base, token, start=True, **settings):
        self.token = token
        s = System(settings={"approver.api_base": base, "approver.poll_timeout": "1",
                             "approver.console_approvers": "", **self.settings, **settings},
                   users=self.users, start=False)
        self.addCleanup(s.remove)
        self.s = s
        self.set_token(token)
        if start:
            s.start("approver")
            s.start("broker")

    def set_token(self, token):
        uid = self.s.state.uid("approver")
        self.s.state.write("approver/bot-token.new", token + "\n", 0o600, uid, uid)
        os.rename(self.s.state.file("approver/bot-token.new"), self.s.state.file("approver/bot-token"))

    def health(self):
        return self.s.state.call("approver", "GET", "/health")[1]

    def wait_bot(self, word):
        return wait_for(f"bot state {word}",
                        lambda: (lambda h: h if h["checks"]["bot_state"] == word else None)(self.health()))

    def start_prepare(self, **kwargs):
        box = {}
        thread = threading.Thread(target=lambda: box.update(self.s.prepare(**kwargs)))
        thread.start()
        return thread, box

    def runs(self, op):
        return [e for e in self.s.fake()["executions"] if e["operation_id"] == op["operation_id"]]

    def message_of(self, op, user=None):
        return [m for m in self.api.sent(user) if op["operation_id"] in m["text"]][-1]


class TestEmulator(Base):
    @classmethod
    def setUpClass(cls):
        cls.cache = os.path.join("/tmp", f"hb-npm-{os.getpid()}")
        cls.addClassCleanup(lambda: __import__("shutil").rmtree(cls.cache, ignore_errors=True))

    def setUp(self):
        port, token = free_port(), new_token()
        self.api = Emulator(self.cache, port, token)
        self.addCleanup(self.api.stop)
        self.make(self.api.base, token)

    def message(self, op):
        return [m for m in self.api.messages() if op["operation_id"] in m["text"]][-1]

    def test_approving_and_denying_user(self):
        yes, no = self.s.prepared(user="111"), self.s.prepared(user="222")
        first, second = self.message(yes), self.message(no)
        self.assertEqual((first["chat"], second["chat"]), ("111", "222"))
        self.assertIn(yes["summary"].rstrip("\n"), first["text"])
        self.assertIn(yes["digest"], first["text"])
        self.assertEqual(sorted(first["buttons"]), [YES, NO])
        self.assertTrue(all(len(data) <= 64 for data in first["buttons"].values()))
        conn, answer = self.s.start_execute(yes)
        other, denied = self.s.start_execute(no)
        self.api.tap(first, YES, 111)
        self.api.tap(second, NO, 222)
        self.assertEqual(json.loads(answer.read())["output"], "hello\n")
        self.assertEqual(json.loads(denied.read())["code"], "denied")
        conn.close(), other.close()
        row = self.s.operation(yes)
        self.assertEqual((row["channel"], row["decided_by"]), ("telegram", ["111"]))
        wait_for("outcome in the message", lambda: "exit code 0" in self.message(yes)["text"])
        self.assertIn(row["result"]["output_sha256"], self.message(yes)["text"])
        wait_for("denial in the message", lambda: "DENIED by 222" in self.message(no)["text"])
        self.assertEqual((len(self.runs(yes)), len(self.runs(no))), (1, 0))


class TestWeather(Base):
    def setUp(self):
        token = new_token()
        self.api = FaultyBotApi([token])
        self.addCleanup(self.api.stop)
        self.make(self.api.base, token)

    def works(self, user="111"):
        """The whole way still goes."""
        op = self.s.prepared(user=user)
        self.api.tap(self.message_of(op), YES, user)
        self.assertEqual(self.s.execute(op)["status"], "executed")
        return op

    def test_h44_only_the_person_it_was_sent_to(self):
        op = self.s.prepared(user="111")
        m = self.message_of(op)
        for how in ({"user": 222}, {"user": 999}, {"user": 999, "chat": 111}, {"user": 111, "chat": -100123},
                    {"user": 111, "kind": "group"}, {"user": 111, "kind": "supergroup"}, {"user": -111, "chat": -111},
                    {"user": 111, "message_id": 77}, {"user": 111, "data": "a:" + "0" * 48},
                    {"user": 111, "data": "approve"}, {"user": 111, "data": m["buttons"][YES] + "0"}):
            user = how.pop("user")
            self.api.tap(m, YES, user, **how)
        nobody = self.api.callback(m, YES, 111)
        del nobody["callback_query"]["from"]
        self.api.update(nobody)
        named = self.api.callback(m, YES, 999, chat=111)
        named["callback_query"]["from"]["username"] = "111"
        self.api.update(named)
        text = self.api.callback(m, YES, 111)
        text["callback_query"]["from"]["id"] = "111"
        last = self.api.update(text)
        wait_for("all taken", lambda: any(p.get("offset", 0) > last for p in self.api.calls("getUpdates")))
        self.assertEqual(self.s.operation(op)["state"], "awaiting_approval")
        answers = [p["text"] for p in self.api.calls("answerCallbackQuery")]
        self.assertTrue(answers and all("Nothing was run" in a for a in answers))
        self.assertIn("tap", [r["action"] for r in self.s.audit("approver") if r["status"] == "refused"])
        self.s.policy(users=["222"])  # and not when the policy no longer knows them
        self.api.tap(m, YES, 111)
        self.assertEqual(self.s.wait_state(op, "revoked")["state"], "revoked")
        self.assertEqual(self.runs(op), [])

    def test_h44_empty_list_is_nobody(self):
        self.s.policy(users=[])
        self.assertEqual(self.s.prepare(user="111")["code"], "user_not_allowed")
        self.assertEqual(self.health()["status"], "error")
        self.assertIn("list", self.health()["error"])

    def test_h47_old_buttons_open_nothing_new(self):
        old = self.s.prepared(user="111")
        first = self.message_of(old)
        self.s.post("/cancel", {"capability": old["capability"]})
        wait_for("withdrawn", lambda: not self.s.pending())
        self.s.restart("approver")
        new = self.s.prepared(user="111")
        self.api.tap(first, YES, 111)
        wait_for("answered", lambda: any("Nothing was run" in p["text"] for p in self.api.calls("answerCallbackQuery")))
        self.assertEqual(self.s.operation(new)["state"], "awaiting_approval")
        self.assertNotEqual(first["buttons"], self.message_of(new)["buttons"])
        wait_for("message closed", lambda: "WITHDRAWN" in self.message_of(old)["text"])
        self.assertEqual(self.message_of(old)["buttons"], {})

    def test_h47_approved_too_late_says_so(self):
        """The withdrawal hasn't reached the approver when the button is pressed: the broker won't take the grant."""
        op = self.s.prepared(user="111")
        m = self.message_of(op)
        self.s.stop("approver")
        self.s.post("/cancel", {"capability": op["capability"]})
        self.api.tap(m, YES, 111)
        self.s.start("approver")
        wait_for("said so", lambda: "Nothing was run" in self.message_of(op)["text"])
        self.assertEqual(self.s.operation(op)["state"], "cancelled")
        self.assertEqual(self.runs(op), [])

    def test_h50_pending_survives_and_closes_visibly(self):
        op = self.s.prepared(user="111")
        self.s.restart("approver")
        self.s.restart("broker")
        self.api.tap(self.message_of(op), YES, 111)
        self.assertEqual(self.s.execute(op)["status"], "executed")
        self.assertEqual(len(self.api.sent("111")), 1)  # no second message for it
        op = self.s.prepared(user="111")
        self.s.policy()
        wait_for("closed visibly", lambda: "CLOSED" in self.message_of(op)["text"])
        self.assertEqual(self.message_of(op)["buttons"], {})

    def test_h51_two_conflicts_are_two_states(self):
        for text, word, advice in ((CONFLICT_POLLER, "conflict_other_poller", "SECURITY"),
                                   (CONFLICT_WEBHOOK, "conflict_webhook", "webhook")):
            self.api.always("getUpdates", fail(409, text))
            health = self.wait_bot(word)
            self.assertEqual(health["status"], "error")
            self.assertIn(advice, health["error"])
            answer = self.s.prepare(user="111")
            self.assertEqual(answer["code"], "approver_unreachable")
            self.assertIn(advice, answer["error"])
            self.api.clear("getUpdates")
            self.wait_bot("ok")
        self.assertEqual(self.api.calls("deleteWebhook"), [])
        self.assertEqual([r["detail"]["why"] for r in self.s.audit("approver") if r["action"] == "telegram"],
                         ["another_program_uses_the_token"])
        self.works()

    def test_h52_dead_polls_are_noticed(self):
        for fault in (hang(), slow_bytes(), garbage()):
            self.wait_bot("ok")
            before = len(self.api.calls("getUpdates"))
            self.api.plan("getUpdates", fault)
            wait_for("the bad poll", lambda: len(self.api.calls("getUpdates")) > before)
            self.wait_bot("unreachable")
            self.wait_bot("ok")
        self.works()

    def test_h53_replayed_and_out_of_order(self):
        op = self.s.prepared(user="111")
        m = self.message_of(op)
        self.api.replay = True
        first = self.api.tap(m, YES, 111)
        self.s.wait_state(op, "approved")
        self.api.update(self.api.callback(m, NO, 111), update_id=first)      # the same number, another content
        self.api.update(self.api.callback(m, NO, 111), update_id=first - 5)  # late
        self.assertEqual(self.s.execute(op)["status"], "executed")
        for how in (signal.SIGKILL, signal.SIGTERM) * 5:
            self.s.restart("approver", how)
        self.wait_bot("ok")
        self.assertEqual(self.s.operation(op)["decided_by"], ["111"])
        self.assertEqual((len(self.runs(op)), len(self.api.sent())), (1, 1))
        decisions = [r for r in self.s.audit("approver") if r["action"] == "decision" and r["status"] in ("ok", "denied")]
        self.assertEqual(len(decisions), 1)

    def test_h53_killed_around_the_decision(self):
        for _ in range(5):
            op = self.s.prepared(user="111")
            self.api.tap(self.message_of(op), YES, 111)
            self.s.restart("approver")
            self.assertEqual(self.s.execute(op)["status"], "executed")
            self.assertEqual(len(self.runs(op)), 1)

    def test_h53_updates_sorted_by_number(self):
        op = self.s.prepared(user="111")
        m = self.message_of(op)
        with self.api.lock:  # one answer, wrong way round: the denial was first
            self.api.updates += [{"update_id": 9002, **self.api.callback(m, YES, 111)},
                                 {"update_id": 9001, **self.api.callback(m, NO, 111)}]
            self.api.lock.notify_all()
        self.s.wait_state(op, "denied")

    def test_h54_rejected_token_and_a_new_one(self):
        op = self.s.prepared(user="111")
        old = self.message_of(op)
        self.api.tokens.clear()
        health = self.wait_bot("token_rejected")
        self.assertEqual(health["status"], "error")
        self.assertEqual(self.s.prepare(user="111")["code"], "approver_unreachable")
        polls = len(self.api.calls("getUpdates"))
        self.s.stop("broker"), self.s.start("broker")
        self.assertLess(len(self.api.calls("getUpdates")) - polls, 3)  # not fast any more
        fresh = new_token()
        self.api.plan("getUpdates", fail(401, "Unauthorized"))  # first replies alternate
        self.api.tokens.add(fresh)
        self.set_token(fresh)
        self.wait_bot("ok")
        wait_for("shown again", lambda: len(self.api.sent("111")) == 2 and self.message_of(op)["buttons"])
        self.api.tap(old, YES, 111)  # a button of the old token
        wait_for("answered", lambda: self.api.calls("answerCallbackQuery"))
        self.assertEqual(self.s.operation(op)["state"], "awaiting_approval")
        self.api.tap(self.message_of(op), YES, 111)
        self.assertEqual(self.s.execute(op)["status"], "executed")

    def test_token_taken_away_and_malformed(self):
        os.unlink(self.s.state.file("approver/bot-token"))
        self.wait_bot("off")
        self.assertEqual(self.s.prepare(user="111")["code"], "no_channel")
        self.set_token("********")
        wait_for("said so", lambda: "bot token" in self.health().get("error", ""))
        self.set_token(self.token)
        self.wait_bot("ok")
        os.chmod(self.s.state.file("approver/bot-token"), 0o644)
        wait_for("said so", lambda: "chmod" in self.health().get("error", ""))

    def test_h55_rate_limits(self):
        self.api.plan("sendMessage", fail(429, "Too Many Requests: retry after 56", retry_after=56))
        answer = self.s.prepare(user="111")
        self.assertEqual(answer["code"], "rate_limited")
        polls = len(self.api.calls("getUpdates"))
        self.assertEqual(self.s.prepare(user="222")["code"], "rate_limited")  # without asking again
        self.assertEqual(len(self.api.calls("sendMessage")), 1)
        wait_for("polling goes on", lambda: len(self.api.calls("getUpdates")) > polls)
        self.assertEqual(self.health()["checks"]["bot_state"], "ok")

    def test_h55_polling_waits_as_told(self):
        self.api.plan("getUpdates", fail(429, "Too Many Requests", retry_after=3))
        self.wait_bot("rate_limited")
        polls = len(self.api.calls("getUpdates"))
        op = self.s.prepared(user="111")  # other methods are not concerned
        self.assertEqual(len(self.api.calls("getUpdates")), polls)
        self.wait_bot("ok")
        self.api.tap(self.message_of(op), YES, 111)
        self.s.wait_state(op, "approved")

    def test_h55_short_waits_are_kept(self):
        self.api.plan("sendMessage", fail(429, "Too Many Requests", retry_after=1))
        self.api.plan("editMessageReplyMarkup", fail(429, "Too Many Requests", retry_after=1))
        self.api.plan("editMessageText", fail(429, "Too Many Requests", retry_after=1))
        op = self.works()
        self.assertEqual(len(self.api.sent()), 1)
        wait_for("edited all the same", lambda: "exit code 0" in self.message_of(op)["text"])

    def test_h56_acknowledging_fails(self):
        self.api.always("answerCallbackQuery", fail(400, "Bad Request: query is too old and response timeout expired or "
                                                    "query ID is invalid"))
        self.works()
        self.works("222")

    def test_h57_altered_or_rejected_text(self):
        notices, rejected = 0, [fail(400, "Bad Request: can't parse entities"), fail(400, "Bad Request: message is too long")]
        for fault, code in ((altered(lambda t: t + " "), "not_shown_faithfully"),
                            (altered(lambda t: t.replace("echo", "ech0")), "not_shown_faithfully"),
                            (altered(lambda t: t[:50]), "not_shown_faithfully"),
                            *((fault, "not_shown_faithfully") for fault in rejected),
                            (fail(403, "Forbidden: bot was blocked by the user"), "approver_unreachable"),
                            (fail(400, "Bad Request: chat not found"), "approver_unreachable")):
            self.api.plan("sendMessage", fault)
            answer = self.s.prepare(user="111")
            self.assertEqual(answer["code"], code)
            self.assertEqual(self.s.get("/operations?limit=1")["operations"][0]["state"], "cancelled")
            notices += fault in rejected
            wait_for("short notices", lambda: notices == sum("could not be shown" in p["text"]
                                                             for p in self.api.calls("sendMessage")))
        self.assertEqual(self.api.calls("editMessageReplyMarkup"), [])  # none of them ever had a button
        self.assertEqual(notices, 2)
        self.assertTrue(all("parse_mode" not in p for p in self.api.calls("sendMessage")))
        self.works()

    def test_h57_lengths(self):
        for command, ok in (("\U0001F600" * 100, True), ("&<_*`[" * 100, True), ("&" * 3000, True),
                            ("\U0001F600" * 1700, False), ("x" * 4000, False)):
            answer = self.s.prepare(user="111", request={"command": command})
            self.assertEqual(answer.get("status", answer.get("code")), "prepared" if ok else "too_long_to_show")
        for m in self.api.sent():
            self.assertLessEqual(len(m["text"].encode("utf-16-le")) // 2, 4096)

    def test_unanswered_message_is_superseded(self):
        self.api.plan("sendMessage", lost)
        op = self.s.prepared(user="111")
        ghost, real = self.api.sent("111")
        self.assertEqual(ghost["buttons"], {})
        with sqlite3.connect(f"file:{self.s.state.file('approver/approver.db')}?mode=ro", uri=True) as db:
            (token,), _ = db.execute("SELECT token FROM messages WHERE id = ? ORDER BY n", (op["operation_id"],))
        self.assertNotIn(token, str(real["buttons"]))
        self.api.tap(ghost, YES, 111, data="a:" + token)
        wait_for("told", lambda: any("Superseded" in p["text"] for p in self.api.calls("answerCallbackQuery")))
        self.assertEqual(self.s.operation(op)["state"], "awaiting_approval")
        self.api.tap(real, YES, 111)
        self.assertEqual(self.s.execute(op)["status"], "executed")

    def test_server_errors(self):
        self.api.plan("sendMessage", fail(502, "Bad Gateway"))
        self.api.plan("editMessageReplyMarkup", fail(500, "Internal Server Error"))
        self.works()
        self.api.plan("sendMessage", fail(502, "Bad Gateway"), fail(502, "Bad Gateway"))
        self.assertEqual(self.s.prepare(user="111")["code"], "approver_unreachable")

    def test_redirects_are_not_followed(self):
        other = FaultyBotApi([self.token])
        self.addCleanup(other.stop)
        for method in ("getUpdates", "sendMessage"):
            self.api.always(method, redirect(f"{other.base}/bot{self.token}/{method}"))
        self.wait_bot("unreachable")
        self.assertNotEqual(self.s.prepare(user="111").get("status"), "prepared")
        self.assertEqual(other.log, [])

    def test_quorum_of_two_by_telegram(self):
        self.s.policy(quorum={"runtime": 1, "local": 2, "docker": 1, "ssh": 1})
        op = self.s.prepared(user="111")
        self.api.tap(self.message_of(op, "111"), YES, 111)
        wait_for("half way", lambda: "1 of 2" in self.message_of(op, "222")["text"])
        self.assertEqual(self.s.operation(op)["state"], "awaiting_approval")
        self.api.tap(self.message_of(op, "222"), YES, 222)
        self.assertEqual(self.s.wait_state(op, "approved")["decided_by"], ["111", "222"])
        op = self.s.prepared(user="111")
        self.api.tap(self.message_of(op, "111"), YES, 111)
        self.api.tap(self.message_of(op, "222"), NO, 222)
        self.s.wait_state(op, "denied")

    def test_restart_in_the_middle_of_showing(self):
        self.api.plan("sendMessage", hang())
        thread, box = self.start_prepare(user="111")
        wait_for("on its way", lambda: self.api.calls("sendMessage"))
        self.s.restart("approver")
        thread.join()
        self.assertEqual(box["code"], "approver_unreachable")
        self.works()


class TestSecret(Base):
    """H58: the token is in its file, and nowhere else."""

    def scan(self, *more):
        secret = self.token.split(":")[1]
        texts = [json.dumps(m) for m in more] + [json.dumps(self.health()), json.dumps(self.s.get("/health"))]
        for folder, _, names in os.walk(self.s.state.path):
            for name in names:
                path = os.path.join(folder, name)
                if name != "bot-token" and os.path.isfile(path):
                    with open(path, "rb") as f:
                        texts.append(f.read().decode("latin-1"))
        with open(f"/proc/{self.s.processes['approver'].pid}/cmdline", encoding="latin-1") as f:
            texts.append(f.read())
        with open(f"/proc/{self.s.processes['approver'].pid}/environ", encoding="latin-1") as f:
            texts.append(f.read())
        for text in texts:
            self.assertNotIn(secret, text)
            self.assertNotIn(secret.replace("-", "%2D").replace("_", "%5F"), text)

    def test_h58_nothing_listens(self):
        self.make(f"http://127.0.0.1:{free_port()}", new_token(), **{"log.level": "debug"})
        self.wait_bot("unreachable")
        self.scan(self.s.prepare(user="111"))

    def test_h58_name_and_tls_failures(self):
        api = FaultyBotApi([])
        self.addCleanup(api.stop)
        for base in ("https://no-such-host.invalid", api.base.replace("http:", "https:")):
            self.make(base, new_token(), **{"log.level": "debug"})
            self.wait_bot("unreachable")
            self.scan(self.s.prepare(user="111"))

    def test_h58_echoed_by_the_server(self):
        token = new_token()
        api = FaultyBotApi([token])
        self.addCleanup(api.stop)
        encoded = "".join(f"%{ord(c):02X}" for c in token)
        self.make(api.base, token, **{"log.level": "debug"})
        for fault in (fail(404, f"Not Found: /bot{token}/x"), fail(400, f"no {token} {encoded}"), garbage(),
                      redirect(f"https://elsewhere.invalid/bot{token}/x")):
            api.plan("sendMessage", fault)
            api.plan("getUpdates", fault)
            self.scan(self.s.prepare(user="111"))

    def test_certificates_are_verified(self):
        with tempfile.TemporaryDirectory() as d:
            key, cert = os.path.join(d, "key.pem"), os.path.join(d, "cert.pem")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                            "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                            "-keyout", key, "-out", cert], check=True, capture_output=True)
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(cert, key)
            with open(cert, encoding="ascii") as f:
                pem = f.read()
        token = new_token()
        api = FaultyBotApi([token], tls)
        self.addCleanup(api.stop)
        good, other_name = f"https://localhost:{api.server.server_port}", f"https://127.0.0.1:{api.server.server_port}"
        for base, trusted, state in ((good, True, "ok"), (good, False, "unreachable"), (other_name, True, "unreachable")):
            self.make(base, token, start=False)
            if trusted:
                self.s.state.write("public/ca.pem", pem, 0o644)
                self.s.state.settings["approver.ca_file"] = self.s.state.file("public/ca.pem")
                self.s.state.write_config()
            self.s.start("approver")
            self.wait_bot(state)
            self.assertEqual(bool(api.log), state == "ok")  # without trust the token isn't even sent
            self.s.stop("approver")
            api.log.clear()

    def test_plain_http_only_to_loopback(self):
        for base in ("http://api.telegram.org", "ftp://127.0.0.1/", "http://127.0.0.1.evil.test", "https://u:p@127.0.0.1",
                     "nonsense"):
            s = System(settings={"approver.api_base": base}, fakes=(), start=False)
            self.addCleanup(s.remove)
            self.assertEqual(s.start("approver", expect_ready=False), (b"", 78), base)
            self.assertIn("api_base", s.log("approver"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
