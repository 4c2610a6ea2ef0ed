"""The front door and the approver together, from a client's wish to the outcome, and everything that must be refused."""
import base64
import http.client
import json
import os
import shutil
import secrets
import socket
import subprocess
import tempfile
import threading
import unittest

from broker_harness import BUILD, CLIENT, LOCAL, System, UnixConnection, as_uid, wait_for

SEALED = {"command": "echo hello", "workdir": "/workspace", "timeout": 120, "network": "none", "net_raw": False,
          "resolved_image_id": "sha256:" + "ab" * 32, "workspace_generation": "g1"}


class Shared(unittest.TestCase):
    settings, users = {"broker.client_uids": str(CLIENT)}, ("0", "111")

    @classmethod
    def setUpClass(cls):
        cls.s = System(settings=cls.settings, users=cls.users)
        cls.addClassCleanup(cls.s.remove)

    def setUp(self):
        self.s.fake(execute="ok", seal="ok", forget=True, executions=[], sent=[],
                    status={"state": "succeeded", "result": {"returncode": 0, "output": "hello\n"}})

    def runs(self, op):
        return [e for e in self.s.fake()["executions"] if e["operation_id"] == op["operation_id"]]

    def sent(self, op):
        return self.s.fake()["sent"].count(op["operation_id"])

    def approved(self, **kwargs):
        op = self.s.prepared(**kwargs)
        self.assertEqual(self.s.decide(op).get("status"), "ok")
        self.s.wait_state(op, "approved")
        return op


class TestFlow(Shared):
    def test_whole_flow_by_console(self):
        op = self.s.prepared()
        self.assertEqual(self.s.operation(op)["state"], "awaiting_approval")
        conn, answer = self.s.start_execute(op)
        self.assertEqual(answer.status, 200)  # before anybody decided
        self.assertEqual(self.s.decide(op)["decision"], "approved")
        result = json.loads(answer.read())
        conn.close()
        self.assertEqual((result["status"], result["state"], result["returncode"], result["output"]),
                         ("executed", "succeeded", 0, "hello\n"))
        (run,) = self.runs(op)
        self.assertEqual(run["request"], SEALED)
        grant = run["envelope"]["grant"]
        self.assertEqual((grant["digest"], grant["capability"], grant["user_ids"], grant["session"]),
                         (op["digest"], op["capability"], ["0"], "s1"))
        row = self.s.operation(op)
        self.assertEqual((row["state"], row["decided_by"], row["channel"]), ("succeeded", ["0"], "console"))
        self.assertNotIn(op["capability"], json.dumps(row))
        self.assertIn("ok", [r["status"] for r in self.s.audit("broker") if r["action"] == "operation" and
                             r["detail"]["operation_id"] == op["operation_id"]])

    def test_h66_outcomes_have_words_of_their_own(self):
        words = {}
        self.s.fake(status={"state": "failed", "result": {"returncode": 3, "output": "no"}})
        op = self.approved()
        answer = self.s.execute(op)
        self.assertEqual((answer["status"], answer["state"], answer["returncode"]), ("executed", "failed", 3))
        words[op["operation_id"]] = "failed"
        self.s.fake(status={"state": "failed", "result": {"returncode": 1, "output": "", "timed_out": True}})
        op = self.approved()
        answer = self.s.execute(op)
        self.assertEqual((answer["returncode"], answer["timed_out"]), (124, True))
        words[op["operation_id"]] = "timeout"
        self.s.fake(status={"state": "outcome_unknown"})
        op = self.approved()
        self.assertEqual(self.s.execute(op)["code"], "outcome_unknown")
        words[op["operation_id"]] = "unknown"
        found = {r["detail"]["operation_id"]: r["status"] for r in self.s.audit("broker")
                 if r["action"] == "operation" and r["detail"]["operation_id"] in words}
        self.assertEqual(found, words)

    def test_denied(self):
        op = self.s.prepared()
        conn, answer = self.s.start_execute(op)
        self.s.decide(op, "denied")
        result = json.loads(answer.read())
        conn.close()
        self.assertEqual(result["code"], "denied")
        self.assertEqual(self.runs(op), [])
        self.assertEqual(self.s.operation(op)["decided_by"], ["0"])
        self.assertEqual(self.s.decide(op)["code"], "request_closed")  # a later yes changes nothing
        self.assertEqual(self.s.operation(op)["state"], "denied")

    def test_cancelled(self):
        op = self.s.prepared()
        self.assertEqual(self.s.post("/cancel", {"capability": op["capability"]})[1], {"status": "cancelled"})
        self.assertEqual(self.s.post("/cancel", {"capability": op["capability"]})[1], {"status": "cancelled"})
        wait_for("withdrawn", lambda: op["operation_id"] not in [p["operation_id"] for p in self.s.pending()])
        self.assertEqual(self.s.decide(op)["code"], "request_closed")
        self.assertEqual(self.s.execute(op)["code"], "cancelled")
        self.assertEqual(self.runs(op), [])

    def test_root_cancels_by_the_id(self):
        op = self.s.prepared()
        by_id = {"operation_id": op["operation_id"]}
        self.assertEqual(self.s.post("/cancel", {})[1]["code"], "missing_field")
        self.assertEqual(self.s.post("/cancel", {**by_id, "capability": op["capability"]})[1]["code"], "missing_field")
        self.assertEqual(self.s.operation(op)["state"], "awaiting_approval")
        self.assertEqual(self.s.post("/cancel", {"operation_id": "0" * 32})[1]["code"], "unknown_operation")
        self.assertEqual(self.s.post("/cancel", by_id)[1], {"status": "cancelled"})
        self.assertEqual(self.s.operation(op)["state"], "cancelled")

    def test_cancel_after_approval_and_while_running(self):
        op = self.approved()
        self.s.post("/cancel", {"capability": op["capability"]})
        self.assertEqual(self.s.execute(op)["code"], "cancelled")
        self.s.fake(status={"state": "executing"})
        op = self.approved()
        self.s.execute(op, **{"async": True})
        self.s.wait_state(op, "executing")
        self.assertEqual(self.s.post("/cancel", {"capability": op["capability"]})[1]["code"], "executing")

    def test_async_and_events(self):
        self.s.fake(status={"state": "executing", "progress": {"phase": "pull", "done": 1, "total": 4}})
        op = self.approved()
        conn = UnixConnection(self.s.state.socket("broker"), 30)
        conn.request("GET", f"/operations/{op['operation_id']}/events")
        stream = conn.getresponse()
        self.assertEqual(stream.headers["Content-Type"], "text/event-stream")
        answer = self.s.execute(op, **{"async": True})
        self.assertEqual((answer["status"], answer["operation_id"]), ("accepted", op["operation_id"]))
        wait_for("progress", lambda: (self.s.operation(op)["progress"] or {}).get("phase") == "pull")
        self.s.fake(status={"state": "succeeded", "result": {"returncode": 0, "output": ""}})
        text = stream.read().decode()  # ends by itself after the final state
        conn.close()
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        self.assertEqual([e["state"] for e in events if "state" in e], ["approved", "executing", "succeeded"])
        self.assertIn({"phase": "pull", "done": 1, "total": 4}, events)

    def test_h47_second_execute_gives_the_stored_outcome(self):
        op = self.approved()
        first = self.s.execute(op)
        self.s.fake(status={"state": "succeeded", "result": {"returncode": 9, "output": "other"}})
        self.assertEqual(self.s.execute(op), first)
        self.assertEqual(len(self.runs(op)), 1)

    def test_two_waiters_one_run(self):
        op = self.s.prepared()
        pairs = [self.s.start_execute(op) for _ in range(3)]
        self.s.decide(op)
        self.assertEqual([json.loads(a.read())["state"] for _, a in pairs], ["succeeded"] * 3)
        for conn, _ in pairs:
            conn.close()
        self.assertEqual(len(self.runs(op)), 1)

    def test_waiter_vanishes_and_nothing_changes(self):
        op = self.s.prepared()
        conn, _ = self.s.start_execute(op)
        conn.close()
        self.s.decide(op)
        row = self.s.wait_state(op, "succeeded")
        self.assertEqual(row["result"]["output"], "hello\n")
        self.assertEqual(self.s.execute(op)["output"], "hello\n")
        self.assertEqual(len(self.runs(op)), 1)

    def test_white_space_keeps_a_waiter_alive(self):
        op = self.s.prepared()
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(15)  # silence longer than this would be the fault
        sock.connect(self.s.state.socket("broker"))
        body = json.dumps({k: op[k] for k in ("feature", "capability", "digest", "user_id", "session")})
        sock.sendall(f"POST /execute HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Broker-Secret: {self.s.state.secret}"
                     f"\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        data = b""
        while data.count(b"1\r\n \r\n") < 2:
            data += sock.recv(4096)
        self.assertTrue(data.startswith(b"HTTP/1.1 200 "))
        self.s.decide(op, "denied")
        while chunk := sock.recv(4096):
            data += chunk
        sock.close()
        self.assertIn(b'"code":"denied"', data)

    def test_output_is_the_last_12000_characters(self):
        text = "é" * 5000 + "x" * 11999 + "€"
        self.s.fake(status={"state": "succeeded", "result": {"returncode": 0, "output": text}})
        answer = self.s.execute(self.approved())
        self.assertEqual((answer["output"], answer["truncated"]), (text[-12000:], True))
        self.s.fake(status={"state": "succeeded", "result": {"returncode": 0, "output": text[-12000:]}})
        answer = self.s.execute(self.approved())
        self.assertEqual((answer["output"], answer["truncated"]), (text[-12000:], False))

    def test_h35_h45_what_is_sent_is_what_was_sealed(self):
        op = self.approved()
        for name, value in (("digest", "0" * 64), ("user_id", "111"), ("session", "s2"), ("feature", "docker")):
            self.assertRegex(self.s.execute(op, **{name: value})["code"], "_mismatch$")
        self.assertEqual(self.s.execute(op, capability="0" * 64)["code"], "unknown_operation")
        self.assertEqual(self.runs(op), [])
        self.assertEqual(self.s.execute(op)["status"], "executed")

    def test_runtime_goes_to_the_installer(self):
        self.s.fake("installer", status={"state": "succeeded", "result": {"version": "1"}}, forget=True)
        op = self.approved(feature="runtime", request={"action": "start"})
        answer = self.s.execute(op)
        self.assertEqual((answer["state"], answer["returncode"], answer["result"]["version"]), ("succeeded", 0, "1"))
        self.assertEqual(self.s.post("/discover", {"kind": "runtime_releases"})[1],
                         {"status": "ok", "releases": [{"manifest_digest": "ee" * 32}]})
        self.assertEqual(self.s.get("/runtime")["enabled"], True)
        for path, body in (("/verify", {}), ("/stage", {"image": "a"}), ("/probe", {})):
            self.assertEqual(self.s.post("/runtime" + path, body)[1], {"status": "accepted"})
            self.assertEqual(self.s.fake("installer")["passed_on"], [path, body])
        self.assertEqual(self.s.post("/discover", {"kind": "ssh_profiles"})[1]["code"], "feature_disabled")

    def test_busy_burns_nothing(self):
        self.s.fake(execute="busy")
        op = self.approved()
        self.assertEqual(self.s.execute(op)["code"], "busy")
        self.assertEqual(self.s.operation(op)["state"], "approved")
        self.s.fake(execute="ok")
        self.assertEqual(self.s.execute(op)["status"], "executed")

    def test_executor_refuses(self):
        for code, state in (("grant_expired", "expired"), ("feature_disabled", "revoked")):
            self.s.fake(execute="refuse:" + code)
            op = self.approved()
            answer = self.s.execute(op)
            self.assertEqual((answer["code"], answer["reason"]), (state, code))

    def test_h48_answer_of_execute_lost(self):
        self.s.fake(execute="drop")  # it ran, and the broker never heard so
        op = self.approved()
        self.assertEqual(self.s.execute(op)["state"], "succeeded")
        self.assertEqual(self.sent(op), 1)
        self.s.fake(execute="lost")  # it never arrived
        op = self.approved()
        self.s.execute(op, **{"async": True})
        wait_for("one try", lambda: self.sent(op))
        self.s.fake(execute="ok")
        self.s.wait_state(op, "succeeded")
        self.assertEqual(len(self.runs(op)), 1)

    def test_prepare_refused_by_the_executor(self):
        self.s.fake(seal="no_such_container")
        self.assertEqual(self.s.prepare()["code"], "no_such_container")

    def test_policy_change_revokes(self):
        waiting, approved = self.s.prepared(), self.approved()
        conn, answer = self.s.start_execute(waiting)
        self.s.policy()
        self.assertEqual(json.loads(answer.read())["reason"], "policy_changed")
        conn.close()
        self.assertEqual(self.s.execute(approved)["reason"], "policy_changed")
        self.assertEqual(self.s.operation(waiting)["state"], "revoked")
        wait_for("closed at the approver",
                 lambda: waiting["operation_id"] not in [p["operation_id"] for p in self.s.pending()])
        self.assertEqual(self.s.decide(waiting)["code"], "request_closed")
        self.assertEqual(self.runs(waiting) + self.runs(approved), [])

    def test_policy_is_asked_at_every_prepare(self):
        self.s.policy(features=["runtime"])
        self.assertEqual(self.s.prepare()["code"], "feature_disabled")
        self.s.policy(features=["runtime", "local"], paused=True)
        self.assertEqual(self.s.prepare()["code"], "paused")
        self.s.policy(paused=False, users=["111"])
        self.assertEqual(self.s.prepare()["code"], "user_not_allowed")
        self.s.policy(users=["0", "111"])
        self.assertEqual(self.s.prepare()["status"], "prepared")

    def test_no_channel_for_a_user(self):
        answer = self.s.prepare(user="111")
        self.assertEqual(answer["code"], "no_channel")
        self.assertEqual(self.s.get("/operations?limit=1")["operations"][0]["state"], "cancelled")

    def test_quorum_and_veto(self):
        self.s.policy(quorum={"runtime": 1, "local": 2, "docker": 1, "ssh": 1})
        answer = self.s.prepare()  # only user 0 has a channel
        self.assertEqual(answer["code"], "no_channel")
        self.s.policy(quorum={"runtime": 1, "local": 1, "docker": 1, "ssh": 1})

    def test_console_needs_the_right_digest(self):
        op = self.s.prepared()
        self.assertEqual(self.s.decide(op, digest="0" * 64)["code"], "digest_mismatch")
        self.assertEqual(self.s.operation(op)["state"], "awaiting_approval")


class TestRefused(Shared):
    def test_wrong_secret(self):
        for secret in ("x" * 64, self.s.state.secret[:-1], self.s.state.secret + "0", "", False):
            for path, body in (("/prepare", {}), ("/execute", {}), ("/cancel", {}), ("/discover", {}),
                               ("/runtime/verify", {}), ("/runtime/stage", {}), ("/runtime/probe", {})):
                status, answer = self.s.post(path, body, secret=secret)
                self.assertEqual((status, answer["code"]), (401, "wrong_secret"), path)
        self.assertIn("refused", [r["status"] for r in self.s.audit("broker") if r["action"] == "access"])

    def test_rotated_secret_counts_at_once(self):
        old, new, uid = self.s.state.secret, secrets.token_hex(32), self.s.state.uid("broker")
        self.s.state.write("broker/control-secret.new", new + "\n", 0o600, uid, uid)
        os.rename(self.s.state.file("broker/control-secret.new"), self.s.state.file("broker/control-secret"))
        self.s.state.secret = new
        self.assertEqual(self.s.post("/discover", {"kind": "backups"}, secret=old)[0], 401)
        self.assertEqual(self.s.post("/discover", {"kind": "backups"}, secret=new)[0], 200)
        os.chmod(self.s.state.file("broker/control-secret"), 0o644)
        status, answer = self.s.post("/discover", {"kind": "backups"}, secret=new)
        self.assertEqual((status, answer["code"]), (401, "secret_permissions"))
        os.chmod(self.s.state.file("broker/control-secret"), 0o600)

    def test_wrong_uid(self):
        state, group = self.s.state, self.s.state.callers_gid("broker")
        secret = {"X-Broker-Secret": state.secret}
        ask = {"feature": "local", "request": LOCAL, "user_id": "0", "session": "s1"}

        def call(path="/prepare", server="broker", body=ask):
            return state.call(server, "POST", path, body, secret)

        self.assertEqual(as_uid(CLIENT, call, group)[1]["status"], "prepared")
        self.assertEqual(as_uid(CLIENT + 1, call, group)[1]["code"], "peer_not_allowed")
        self.assertEqual(as_uid(state.uid("docker"), call, group)[1]["code"], "peer_not_allowed")
        for uid in (0, CLIENT, state.uid("admin")):
            self.assertEqual(as_uid(uid, lambda: call("/approval-grant", body={}), group)[1]["code"],
                             "peer_not_allowed")
        approver = state.callers_gid("approver")
        for uid in (0, CLIENT, state.uid("admin")):
            for path in ("/request", "/withdraw", "/outcome"):
                self.assertEqual(as_uid(uid, lambda p=path: call(p, "approver", {}), approver)[1]["code"],
                                 "peer_not_allowed")
        self.assertEqual(as_uid(state.uid("broker"), lambda: call("/console/decide", "approver", {}), approver)[1]["code"],
                         "peer_not_allowed")
        self.assertIn("PermissionError", as_uid(CLIENT, call))  # the directory keeps others out before any byte

    def test_broken_bodies(self):
        good = json.dumps({"feature": "local", "request": LOCAL, "user_id": "0", "session": "s1"})
        for data, status in ((b"{", 400), (b"[]", 400), (good[:-1].encode() + b',"session":"s2"}', 400),
                             (good.replace("s1", "\\ud800").encode(), 400), (b"\xff" + good.encode(), 400),
                             (b"", 400), (b"{" + b" " * 262144 + b"}", 413)):
            got, text = self.s.raw(data)
            self.assertEqual(got, status, (data[:80], text))
            self.assertIn("code", json.loads(text))
        self.assertEqual(self.s.raw(good, "/nothing")[0], 404)

    def test_refused_fields(self):
        ask = {"feature": "local", "request": LOCAL, "user_id": "0", "session": "s1"}
        self.s.fake(seals=0)
        for change, code in (({"extra": 1}, "unknown_field"), ({"request": {**LOCAL, "x": 1}}, "unknown_field"),
                             ({"user_id": "01"}, "."), ({"user_id": 1}, "bad_type"), ({"user_id": "-1"}, "."),
                             ({"session": ""}, "."), ({"session": "é" * 100}, "out_of_range"),
                             ({"feature": "root"}, "unknown_feature"), ({"request": []}, "bad_type"),
                             ({"request": {"command": "rm -rf /"}}, "^floor_"),
                             ({"request": {"command": "x", "workdir": "/etc"}}, ".")):
            answer = self.s.post("/prepare", {**ask, **change})[1]
            self.assertRegex(answer["code"], code, change)
            self.assertTrue(answer["error"])
        self.assertEqual(self.s.fake()["seals"], 0)  # none of them went any further

    def grant(self, op, key=None, **fields):
        with open(self.s.state.file("public/host-id"), encoding="ascii") as f:
            audience = f.read().strip()
        given = {"operation_id": op["operation_id"], "audience": audience,
                 "generation": self.s.operation(op)["generation"], "feature": "local", "request": SEALED,
                 "set": {"capability": op["capability"], "session": "s1", "user_ids": ["0"], **fields}}
        key = key or self.s.state.file("approver/signing.key")
        run = subprocess.run([os.path.join(BUILD, "tests/tools/sign_grant"), os.path.basename(key)],
                             cwd=os.path.dirname(key), input=json.dumps(given), text=True,
                             capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def deliver(self, op, envelope):
        state = self.s.state
        return as_uid(state.uid("approver"), lambda: state.call(
            "broker", "POST", "/approval-grant", {"operation_id": op["operation_id"], "channel": "console",
                                                  "envelope": envelope}), state.callers_gid("broker"))[1]

    def test_h45_altered_grants(self):
        op, other = self.s.prepared(), self.s.prepared()
        with tempfile.TemporaryDirectory() as d:
            key = os.path.join(d, "key")
            with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
                f.write("hermes-signing-key-v1 " + base64.b64encode(secrets.token_bytes(32)).decode() + "\n")
            self.assertEqual(self.deliver(op, self.grant(op, key))["code"], "grant_unknown_key")
        good = self.grant(op)
        for name, value in (("digest", "0" * 64), ("expires_at", good["grant"]["expires_at"] + 1),
                            ("user_ids", ["111"]), ("decision", "denied"), ("generation", 99)):
            bad = {"grant": {**good["grant"], name: value}, "signature": good["signature"]}
            self.assertEqual(self.deliver(op, bad)["code"], "grant_bad_signature", name)
        signed = {"audience": "0" * 32, "digest": "0" * 64, "summary_digest": "0" * 64, "capability": "0" * 64,
                  "operation_id": other["operation_id"], "session": "s2", "user_ids": ["999"], "generation": 99,
                  "target": "ssh", "feature": "ssh", "action": "run", "requested_by": "999"}
        for name, value in signed.items():
            self.assertRegex(self.deliver(op, self.grant(op, **{name: value})).get("code", "accepted"), "^grant_", name)
        then = good["grant"]["issued_at"] - 100
        old = self.grant(op, issued_at=then, not_before=then, expires_at=then + 50)
        self.assertEqual(self.deliver(op, old)["code"], "grant_expired")
        self.assertEqual(self.s.operation(op)["state"], "awaiting_approval")
        self.assertEqual(self.deliver(op, good), {"status": "ok"})
        self.assertEqual(self.deliver(op, good), {"status": "ok"})  # again: the acknowledgement got lost
        self.assertEqual(self.deliver(op, self.grant(op))["code"], "operation_final")
        self.assertEqual(self.deliver(other, good)["code"], "grant_wrong_operation")
        self.assertEqual(self.s.execute(op)["status"], "executed")
        self.assertEqual(self.deliver(op, good), {"status": "ok"})  # a replay: answered, and nothing runs again
        self.assertEqual(len(self.runs(op)), 1)
        self.assertIn("refused", [r["status"] for r in self.s.audit("broker") if r["action"] == "grant"])

    def test_h45_approver_believes_nothing(self):
        state = self.s.state
        with open(state.file("broker/approval-secret"), encoding="ascii") as f:
            secret = f.read().strip()
        op = self.s.prepared()
        row = self.s.operation(op)

        def ask(given=secret, **changes):
            body = {"target": "docker", "feature": "local", "capability": "1" * 64, "operation_id": "2" * 32,
                    "digest": row["digest"], "request": SEALED, "summary_digest": row["summary_digest"],
                    "user_id": "0", "session": "s1", "generation": row["generation"],
                    "expires_at": row["expires_at"], **changes}
            return as_uid(state.uid("broker"), lambda: state.call(
                "approver", "POST", "/request", body, {"X-Approval-Secret": given}), state.callers_gid("approver"))[1]

        for changes, code in (({"digest": "0" * 64}, "digest_mismatch"),
                              ({"summary_digest": "0" * 64}, "summary_mismatch"),
                              ({"request": {**SEALED, "command": "echo other"}}, "digest_mismatch"),
                              ({"request": LOCAL}, "."), ({"target": "ssh"}, "wrong_target"),
                              ({"generation": 99}, "old_generation"), ({"user_id": "999"}, "user_not_allowed"),
                              ({"expires_at": 1}, "out_of_range"), ({"x": 1}, "unknown_field"),
                              ({"given": "wrong"}, "wrong_secret"),
                              ({"operation_id": op["operation_id"]}, "request_differs")):
            self.assertRegex(ask(**changes).get("code", "accepted"), code, changes)
        alarms = [r["detail"]["why"] for r in self.s.audit("approver") if r["action"] == "alarm"]
        self.assertEqual(sorted(set(alarms)), ["digest_mismatch", "request_differs", "summary_mismatch"])
        self.assertNotIn("2" * 32, [p["operation_id"] for p in self.s.pending()])
        self.assertEqual(ask(), {"status": "pending"})
        self.assertEqual(ask(), {"status": "pending"})  # the same again, the same answer
        self.assertEqual(len([p for p in self.s.pending() if p["operation_id"] == "2" * 32]), 1)

    def test_h44_console_is_only_for_listed_people(self):
        state, op = self.s.state, self.s.prepared()
        group = state.callers_gid("approver")

        def decide():
            return state.call("approver", "POST", "/console/decide", {
                "operation_id": op["operation_id"], "decision": "approved", "digest": op["digest"]})

        self.assertEqual(as_uid(CLIENT, decide, group)[1]["code"], "peer_not_allowed")
        self.s.policy(users=["111"])
        self.assertIn(decide()[1]["code"], ("user_not_allowed", "policy_changed", "request_closed"))
        self.s.policy(users=["0", "111"])
        self.assertNotEqual(self.s.operation(op)["state"], "approved")


class TestTwoApprovers(unittest.TestCase):
    def test_quorum_of_two_and_one_veto(self):
        with tempfile.TemporaryDirectory():
            s = System(settings={"approver.console_approvers": f"0=0, {CLIENT}=111"}, users=("0", "111"))
        self.addCleanup(s.remove)
        s.policy(quorum={"runtime": 1, "local": 2, "docker": 1, "ssh": 1})
        group = s.state.callers_gid("approver")

        def second(op, decision):
            return as_uid(CLIENT, lambda: s.decide(op, decision), group)

        op = s.prepared()
        self.assertEqual(s.decide(op)["status"], "ok")
        self.assertEqual(s.decide(op)["code"], "already_decided")
        self.assertEqual(s.operation(op)["state"], "awaiting_approval")
        self.assertEqual(second(op, "approved")["status"], "ok")
        self.assertEqual(s.wait_state(op, "approved")["decided_by"], ["0", "111"])
        self.assertEqual(s.execute(op)["status"], "executed")
        op = s.prepared()
        s.decide(op)
        self.assertEqual(second(op, "denied")["status"], "ok")
        self.assertEqual(s.wait_state(op, "denied")["decided_by"], ["111"])


class TestExpiry(Shared):
    settings = {"broker.pending_life": "10", "broker.grant_life": "5"}

    def test_h49_expired_pending_and_expired_grant(self):
        used = self.approved()  # approved, and then nobody comes
        op = self.s.prepared()
        self.s.wait_state(used, "expired")
        self.assertEqual(self.s.execute(used)["reason"], "grant_expired")
        conn, answer = self.s.start_execute(op)
        self.assertEqual(json.loads(answer.read())["reason"], "not_decided")
        conn.close()
        self.assertEqual(self.s.decide(op)["code"], "request_closed")
        self.assertEqual(self.runs(used) + self.runs(op), [])

    def test_h49_grant_expires_while_the_executor_is_away(self):
        op = self.approved()
        self.s.stop("docker")
        self.s.execute(op, **{"async": True})
        row = self.s.wait_state(op, "expired")
        self.assertEqual(row["code"], "executor_unreachable")
        self.s.start_fake("docker")
        self.assertEqual(self.s.fake()["executions"], [])


class TestRestart(Shared):
    """kill -9 of each in every state: nothing is lost, nothing runs twice."""

    def test_h50_awaiting_survives_both(self):
        for name in ("approver", "broker"):
            op = self.s.prepared()
            self.s.restart(name)
            self.assertEqual(self.s.operation(op)["state"], "awaiting_approval")
            self.assertEqual(self.s.decide(op)["status"], "ok")
            self.assertEqual(self.s.execute(op)["status"], "executed")
            self.assertEqual(len(self.runs(op)), 1)

    def test_h50_approver_that_forgot_is_asked_again(self):
        op = self.s.prepared()
        self.s.stop("approver")
        for suffix in ("", "-wal", "-shm"):
            name = self.s.state.file("approver/approver.db" + suffix)
            if os.path.exists(name):
                os.unlink(name)
        self.s.start("approver")  # the broker notices by itself that it has restarted
        wait_for("asked again", lambda: op["operation_id"] in [p["operation_id"] for p in self.s.pending()])
        self.s.decide(op)
        self.assertEqual(self.s.execute(op)["status"], "executed")

    def test_decided_while_the_broker_is_down(self):
        op = self.s.prepared()
        self.s.execute(op, **{"async": True})
        self.s.stop("broker")
        self.assertEqual(self.s.decide(op)["status"], "ok")
        self.s.restart("approver")  # the grant waits in its database
        self.s.start("broker")
        self.s.wait_state(op, "succeeded", seconds=40)
        self.assertEqual(len(self.runs(op)), 1)

    def test_approved_survives(self):
        op = self.approved()
        self.s.restart("broker")
        self.s.restart("approver")
        self.assertEqual(self.s.operation(op)["state"], "approved")
        self.assertEqual(self.s.execute(op)["status"], "executed")

    def test_h48_executing_survives_the_broker(self):
        self.s.fake(status={"state": "executing"})
        op = self.approved()
        self.s.execute(op, **{"async": True})
        self.s.wait_state(op, "executing")
        self.s.restart("broker")
        self.s.fake(status={"state": "succeeded", "result": {"returncode": 0, "output": "late"}})
        row = self.s.wait_state(op, "succeeded")
        self.assertEqual(row["result"]["output"], "late")
        self.assertEqual(self.sent(op), 1)

    def test_h48_executor_forgot_before_the_burn(self):
        self.s.fake(status={"state": "queued"})
        op = self.approved()
        self.s.execute(op, **{"async": True})
        self.s.wait_state(op, "executing")
        self.s.fake(forget=True, status={"state": "succeeded", "result": {"returncode": 0, "output": ""}})
        self.s.wait_state(op, "succeeded")  # sent again: no ledger row, so nothing was burnt
        self.assertEqual(len(self.runs(op)), 2)

    def test_h48_executor_died_in_the_middle(self):
        self.s.fake(status={"state": "executing"})
        op = self.approved()
        conn, answer = self.s.start_execute(op)
        self.s.wait_state(op, "executing")
        self.s.fake(status={"state": "outcome_unknown"})  # what a ledger says after a restart
        self.assertEqual(json.loads(answer.read())["code"], "outcome_unknown")
        conn.close()
        self.assertEqual(self.sent(op), 1)

    def test_final_states_survive(self):
        op = self.approved()
        first = self.s.execute(op)
        self.s.restart("broker")
        self.assertEqual(self.s.execute(op), first)
        self.assertEqual(len(self.runs(op)), 1)

    def test_approver_away_at_prepare(self):
        self.s.stop("approver")
        self.assertEqual(self.s.prepare()["code"], "approver_unreachable")
        self.s.start("approver")
        self.assertEqual(self.s.prepare()["status"], "prepared")
        self.assertNotIn("cancelled", [p.get("state") for p in self.s.pending()])

    def test_executor_away_at_prepare(self):
        self.s.stop("docker")
        self.assertEqual(self.s.prepare()["code"], "executor_unreachable")
        self.s.start_fake("docker")
        self.assertEqual(self.s.prepare()["status"], "prepared")


class TestReplacedBounds(unittest.TestCase):
    def test_bounds_that_an_editor_renames_into_place_are_read(self):
        """The sandbox's rule holds for the directory: the file may be another one tomorrow."""
        s = System()
        self.addCleanup(s.remove)
        self.assertEqual(s.prepare()["status"], "prepared")
        bounds = s.state.file("conf/bounds.conf")
        shutil.copy(bounds, bounds + ".new")
        os.rename(bounds + ".new", bounds)
        self.assertEqual(s.prepare(session="another")["status"], "prepared")
        with open(bounds + ".new", "w", encoding="ascii") as f:
            f.write("[users]\nallowed = 424242\n")
        os.chmod(bounds + ".new", 0o644)
        os.rename(bounds + ".new", bounds)
        self.assertIn("error", s.prepare(session="a third"))


class TestStart(unittest.TestCase):
    """Missing or loose security material: not started, and the message names the file."""

    def refuse(self, name, spoil, what):
        s = System(fakes=(), start=False)
        self.addCleanup(s.remove)
        spoil(s.state)
        ready, code = s.start(name, expect_ready=False)
        self.assertEqual(ready, b"")
        self.assertNotEqual(code, 0)
        self.assertIn(what, s.log(name))
        return code

    def test_material(self):
        for name, file in (("broker", "broker/control-secret"), ("broker", "broker/approval-secret"),
                           ("broker", "public/approver.pub"), ("approver", "approver/signing.key"),
                           ("approver", "approver/approval-secret")):
            self.assertEqual(self.refuse(name, lambda state, f=file: os.unlink(state.file(f)), file), 78, file)
        for name, file in (("broker", "broker/control-secret"), ("approver", "approver/signing.key")):
            self.assertEqual(self.refuse(name, lambda state, f=file: os.chmod(state.file(f), 0o640), file), 78, file)

    def test_listen_addresses(self):
        for address in ("0.0.0.0:8750", "8.8.8.8:8750", "10.0.0.1:8750", "[::]:8750", "localhost:8750", "127.0.0.1",
                        "127.0.0.1:0"):
            def spoil(state, address=address):
                state.settings["broker.listen_tcp"] = address
                state.write_config()
            self.assertEqual(self.refuse("broker", spoil, "listen_tcp"), 78, address)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class TestTcp(unittest.TestCase):
    def test_two_addresses_and_one_request_a_connection(self):
        ports = [free_port(), free_port()]
        s = System(settings={"broker.listen_tcp": ", ".join(f"127.0.0.1:{p}" for p in ports)})
        self.addCleanup(s.remove)

        def call(port, method, path, body=None, secret=s.state.secret):
            conn = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            headers = {"Connection": "close", **({"X-Broker-Secret": secret} if secret else {})}
            conn.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = conn.getresponse()
            data = json.loads(answer.read())
            conn.close()
            return answer.status, data

        ask = {"feature": "local", "request": LOCAL, "user_id": "0", "session": "s1"}
        op = call(ports[0], "POST", "/prepare", ask)[1]
        threading.Thread(target=lambda: s.decide(op)).start()
        body = {"feature": "local", "capability": op["capability"], "digest": op["digest"], "user_id": "0",
                "session": "s1"}
        self.assertEqual(call(ports[1], "POST", "/execute", body)[1]["output"], "hello\n")
        self.assertEqual(call(ports[0], "GET", "/health", secret=None)[0], 200)
        self.assertEqual(call(ports[0], "GET", "/operations", secret=None)[0], 401)
        self.assertEqual(call(ports[0], "GET", f"/operations/{op['operation_id']}/events", secret="x")[0], 401)
        self.assertEqual(call(ports[0], "POST", "/prepare", ask, secret="x" * 64)[0], 401)
        self.assertEqual(call(ports[0], "POST", "/approval-grant", {})[0], 404)
        by_id = {"operation_id": op["operation_id"]}
        self.assertEqual(call(ports[0], "POST", "/cancel", by_id)[1]["code"], "not_operator")


if __name__ == "__main__":
    unittest.main(verbosity=2)
