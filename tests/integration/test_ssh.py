#!/usr/bin/env python3
"""hermes-ssh against a real sshd: seal, compare, run, every refusal, every kind of interruption."""
import glob
import hashlib
import hmac
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from ssh_harness import BUILD, PASSWORD, Box, Sshd, children, eventually, private_accounts  # noqa: E402
from sshd import fingerprint, keygen  # noqa: E402

SHOW = "import sys, json; print(json.dumps(sys.argv[1:]))"
ODD = ["a b", "", "x;touch MARK", "$(id)", "`id`", "*", "'", "a'b''c", "\"", "line\nbreak\r\n", "-n", "--", "\\", "\\n",
       "é中\u0301", "\t", " lead", "trail ", "!x", "~", "a=b", "#", "&", "|", "-oProxyCommand=touch MARK"]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def names_of(pids):
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                found.append(f.read().strip())
        except OSError:
            pass
    return found


class SshCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Sshd()
        cls.box = Box()
        cls.box.profile("web", cls.server)
        cls.box.profile("pw", cls.server, "hbpass", password=PASSWORD)

    @classmethod
    def tearDownClass(cls):
        cls.box.__exit__()
        cls.server.stop()

    def mark(self):
        """A path that nothing has made yet, writable by anybody."""
        path = f"/tmp/hermes-mark-{secrets.token_hex(8)}"
        self.addCleanup(lambda: os.path.exists(path) and os.unlink(path))
        return path

    def runs(self, path):
        """How often a command that appends a line to it ran."""
        try:
            with open(path, encoding="ascii") as f:
                return len(f.read().split())
        except FileNotFoundError:
            return 0


class OlderPolicy(SshCase):
    def test_health_tells_that_an_older_policy_was_put_back(self):
        state, admin = self.box.state, self.box.state.uid("admin")
        with open(state.file("policy/policy.json"), encoding="utf-8") as f:
            old = f.read()
        new = json.dumps({**json.loads(old), "generation": json.loads(old)["generation"] + 1})
        state.write("policy/policy.json", new, 0o644, admin, admin)
        self.addCleanup(state.write, "policy/policy.json", new, 0o644, admin, admin)
        self.assertEqual(self.box.call("GET", "/health")[1]["status"], "ok")
        state.write("policy/policy.json", old, 0o644, admin, admin)
        self.assertIn("an old policy file was put back", self.box.call("GET", "/health")[1]["error"])


class Running(SshCase):
    def test_command_with_a_key(self):
        end = self.box.run("web", "id -un; echo err >&2; exit 3")
        self.assertEqual(end["state"], "failed")
        self.assertEqual(end["result"]["output"], "hbkey\nerr\n")
        self.assertEqual((end["result"]["returncode"], end["result"]["far_side"]), (3, "finished"))
        self.assertNotIn("code", end)
        self.assertEqual(self.box.run("web", "true")["state"], "succeeded")

    def test_command_with_a_password(self):
        end = self.box.run("pw", "id -un")
        self.assertEqual((end["state"], end["result"]["output"]), ("succeeded", "hbpass\n"))

    def test_nothing_of_ours_goes_over(self):
        end = self.box.run("pw", "wc -c; tty; env; ls -l /proc/self/fd/")
        lines = end["result"]["output"].split("\n")
        self.assertEqual(lines[:2], ["0", "not a tty"])
        for word in ("LEAK", "SSH_AUTH_SOCK", "SSH_TTY", "DISPLAY", "ASKPASS", "PRELOAD", PASSWORD):
            self.assertNotIn(word, end["result"]["output"])

    def test_exit_status_255_is_the_commands_own(self):
        end = self.box.run("web", "exit 255")
        self.assertEqual((end["state"], end["result"]["returncode"]), ("failed", 255))
        self.assertNotIn("code", end)

    def test_a_command_that_is_killed(self):
        end = self.box.run("web", "kill -KILL $$")
        self.assertEqual((end["state"], end["code"]), ("failed", "remote_signal"))
        self.assertEqual(end["result"]["far_side"], "finished")

    def test_output_is_counted_whole_and_kept_at_its_end(self):
        end = self.box.run("web", "i=0; while [ $i -lt 3000 ]; do printf '%099d\\n' $i; i=$((i+1)); done")
        whole = "".join(f"{i:099d}\n" for i in range(3000))
        r = end["result"]
        self.assertEqual((r["truncated"], r["output_bytes"], len(r["output"])), (True, 300000, 12000))
        self.assertEqual(r["output"], whole[-12000:])
        self.assertEqual(r["output_bytes_sha256"], hashlib.sha256(whole.encode()).hexdigest())
        self.assertEqual(r["output_sha256"], hashlib.sha256(r["output"].encode()).hexdigest())

    def test_output_that_is_not_text(self):
        end = self.box.run("web", "printf 'a\\000b\\377c'")
        self.assertEqual((end["result"]["output"], end["result"]["output_bytes"]), ("a\ufffdb\ufffdc", 5))

    def test_records(self):
        before = len(self.box.audit())
        operation = self.box.begin(self.box.sealed("web", "exit 4"))
        self.box.finish(operation)
        rows = [r for r in self.box.audit()[before:] if r["detail"].get("operation_id") == operation]
        self.assertEqual([(r["status"], r["detail"]["phase"]) for r in rows], [("intent", "intent"), ("failed", "outcome")])
        self.assertTrue(rows[0]["detail"]["grant_id"])

    def test_a_grant_runs_once(self):
        mark = self.mark()
        request = self.box.sealed("web", f"echo x >> {mark}")
        operation = secrets.token_hex(16)
        envelope = self.box.grant(request, operation)
        self.assertEqual(self.box.execute(request, operation, envelope)[1]["status"], "accepted")
        self.assertEqual(self.box.finish(operation)["state"], "succeeded")
        for other in (operation, secrets.token_hex(16)):
            self.assertIn(self.box.execute(request, other, envelope)[1]["code"], ("grant_replayed", "grant_wrong_operation"))
        self.assertEqual(self.runs(mark), 1)

    def test_what_was_not_approved_does_not_run(self):
        mark = self.mark()
        request = self.box.sealed("web", f"echo x >> {mark}")
        operation = secrets.token_hex(16)
        envelope = self.box.grant(self.box.sealed("web", "true"), operation)
        self.assertEqual(self.box.execute(request, operation, envelope)[1]["code"], "grant_digest_mismatch")
        self.assertEqual(self.runs(mark), 0)

    def test_profiles_are_listed(self):
        listed = self.box.call("GET", "/profiles")[1]
        self.assertEqual([(p["name"], p["auth"], p["user"]) for p in listed["profiles"]],
                         [("pw", "password", "hbpass"), ("web", "publickey", "hbkey")])
        checks = self.box.call("GET", "/health")[1]["checks"]
        self.assertEqual(checks["profiles"], [{"name": "pw", "auth": "password"}, {"name": "web", "auth": "publickey"}])
        self.assertEqual((checks["profile_count"], checks["profiles_broken"]), (2, []))
        self.assertNotIn(PASSWORD, json.dumps([listed, checks]))

    def test_sealed_form_tells_nothing_of_the_password(self):
        sealed = self.box.sealed("pw", "true")["sealed_profile"]
        with open(self.box.state.file("ssh/integrity-secret"), "rb") as f:
            key = f.read().strip()
        tag = hmac.new(key, b"hermes-ssh-credential-v1\0pw\0" + PASSWORD.encode(), "sha256").hexdigest()
        self.assertEqual(sealed["credential_tag"], tag)
        self.assertNotIn("identity_sha256", sealed)
        self.assertNotIn(hashlib.sha256(PASSWORD.encode()).hexdigest(), json.dumps(sealed))
        web = self.box.sealed("web", "true")["sealed_profile"]
        with open(self.server.key("hbkey"), "rb") as f:
            self.assertEqual(web["identity_sha256"], hashlib.sha256(f.read()).hexdigest())
        self.assertEqual(web["identity_fingerprint"], fingerprint(self.server.key("hbkey") + ".pub"))

    def test_password_is_in_no_command_line_and_no_environment(self):
        operation = self.box.begin(self.box.sealed("pw", "sleep 600", timeout=900))
        eventually(lambda: self.box.status(operation).get("progress", {}).get("phase") == "run", "it runs")
        pids = [self.box.process.pid, *self.box.below()]
        self.assertIn("ssh", names_of(pids))
        for pid in pids:
            for file in ("cmdline", "environ"):
                with open(f"/proc/{pid}/{file}", "rb") as f:
                    self.assertNotIn(PASSWORD.encode(), f.read())
        self.box.stop()
        self.assertNotIn(PASSWORD, self.box.log())
        self.box.start()
        self.assertEqual(self.box.status(operation)["state"], "outcome_unknown")
        self.assertEqual(self.box.status(operation)["code"], "interrupted")


class Fields(SshCase):
    HOSTILE = ["-oProxyCommand=touch MARK", "[-oProxyCommand=touch MARK]", "-F/tmp/cfg", "a b", "a\nb", "a;touch MARK",
               "`touch MARK`", "$(touch MARK)", "%h", "", "a@b", "ssh://h", "h:22", "-"]

    def test_h41_host_or_user_beginning_with_a_dash(self):
        mark = self.mark()
        for field in ("host", "user"):
            for value in self.HOSTILE:
                self.box.profile("evil", self.server, **{field: value.replace("MARK", mark)})
                before = len(self.box.audit())
                answer = self.box.seal("evil", "true")
                self.assertEqual(answer["code"], "profile_invalid", (field, value))
                rows = self.box.audit()[before:]
                self.assertEqual([(r["status"], r["detail"]["code"]) for r in rows], [("refused", "profile_invalid")])
        shutil.rmtree(self.box.state.file("ssh/profiles/evil"))
        # A command that looks like an option is a command.
        for value in self.HOSTILE[:3]:
            self.box.run("web", value.replace("MARK", mark))
        self.box.run("web", argv=["true", f"-oProxyCommand=touch {mark}"])
        self.assertFalse(os.path.exists(mark))

    def test_h42_argument_boundaries(self):
        mark = self.mark()
        odd = [text.replace("MARK", mark) for text in ODD]
        for profile in ("web", "pw"):
            end = self.box.run(profile, argv=["python3", "-c", SHOW, *odd])
            self.assertEqual(json.loads(end["result"]["output"]), odd)
        self.assertFalse(os.path.exists(mark))

    def test_h42_a_program_and_not_a_builtin(self):
        end = self.box.run("web", argv=["echo", "a\\nb"])
        self.assertEqual(end["result"]["output"], "a\\nb\n")

    def test_h42_what_cannot_be_quoted(self):
        for argv in (["-x"], ["--", "a"]):
            self.assertEqual(self.box.seal("web", argv=argv)["code"], "argv_unsafe")
        for argv in (["a", "b\0c"], ["a", "\x07"], ["a", "\x1b[2J"]):
            self.assertNotEqual(self.box.seal("web", argv=argv).get("status"), "ok")
        for argv in ([], [""]):
            self.assertNotEqual(self.box.seal("web", argv=argv).get("status"), "ok")
        body = b'{"feature":"ssh","request":{"profile":"web","argv":["printf","\xff\xfe"]}}'
        self.assertEqual(self.box.raw("POST", "/seal", body)[1]["code"], "bad_json")
        self.assertEqual(self.box.seal("web", "true", argv=["true"])["code"], "command_or_argv")

    def test_h42_the_approver_sees_the_list(self):
        request = {"profile": "web", "argv": ["printf", "%s", "a b", "x\ny"]}
        shown = subprocess.run([os.path.join(BUILD, "admin/hermesctl"), "explain"], capture_output=True, text=True,
                               input=json.dumps({"feature": "ssh", "request": request}), check=True)
        self.assertIn('argv: ["printf","%s","a b","x\\ny"]', json.loads(shown.stdout)["summary"])

    def test_other_features(self):
        answer = self.box.call("POST", "/seal", {"feature": "local", "request": {"command": "id"}})[1]
        self.assertEqual(answer["code"], "wrong_executor")

    def test_unknown_profile(self):
        self.assertEqual(self.box.seal("nowhere", "true")["code"], "profile_unknown")
        self.assertNotEqual(self.box.seal("../ssh", "true").get("status"), "ok")


class Loader(SshCase):
    def refused(self, code, change):
        self.box.profile("bad", self.server)
        where = self.box.state.file("ssh/profiles/bad")
        try:
            change(where)
            answer = self.box.seal("bad", "true")
            self.assertEqual(answer.get("code"), code, answer)
            broken = self.box.call("GET", "/health")[1]["checks"]["profiles_broken"]
            self.assertEqual([(b["name"], b["code"]) for b in broken], [("bad", code)])
            return answer["error"]
        finally:
            if os.path.islink(where):
                os.unlink(where)
            else:
                shutil.rmtree(where)

    def test_modes_and_owners(self):
        for file in ("profile.json", "known_hosts", "identity"):
            for mode in (0o640, 0o604, 0o660, 0o700, 0o400):
                said = self.refused("profile_permissions", lambda d: os.chmod(f"{d}/{file}", mode))
                self.assertIn(f"chmod 0600 ssh/profiles/bad/{file}", said)
            self.refused("profile_permissions", lambda d: os.chown(f"{d}/{file}", 0, 0))
        self.refused("profile_permissions", lambda d: os.chmod(d, 0o750))

    def test_links(self):
        def link(d):
            os.rename(f"{d}/identity", f"{d}/../moved")
            os.symlink("../moved", f"{d}/identity")
            self.addCleanup(lambda: os.path.exists(f"{d}/../moved") and os.unlink(f"{d}/../moved"))

        def hard(d):
            os.link(f"{d}/identity", self.box.state.file("ssh/other-name"))
            self.addCleanup(os.unlink, self.box.state.file("ssh/other-name"))

        def directory(d):
            os.rename(d, self.box.state.file("ssh/elsewhere"))
            os.symlink("../elsewhere", d)
            self.addCleanup(shutil.rmtree, self.box.state.file("ssh/elsewhere"))

        def fifo(d):
            os.unlink(f"{d}/identity")
            os.mkfifo(f"{d}/identity", 0o600)
            os.chown(f"{d}/identity", self.box.uid, self.box.uid)

        self.refused("profile_permissions", hard)
        self.refused("profile_permissions", directory)
        self.refused("profile_permissions", fifo)
        moved = self.box.state.file("ssh/profiles/moved")
        try:
            self.box.profile("bad", self.server)
            link(self.box.state.file("ssh/profiles/bad"))
            self.assertEqual(self.box.seal("bad", "true")["code"], "profile_permissions")
        finally:
            shutil.rmtree(self.box.state.file("ssh/profiles/bad"))
            os.path.exists(moved) and os.unlink(moved)

    def test_files(self):
        put = self.box.put
        rsa = self.server.known_hosts("rsa")
        self.refused("profile_invalid", lambda d: put("bad", "password", "x\n"))
        self.refused("profile_invalid", lambda d: put("bad", "config", "ProxyCommand id\n"))
        self.refused("profile_invalid", lambda d: put("bad", "identity", ""))
        self.refused("profile_invalid", lambda d: os.unlink(f"{d}/identity"))
        self.refused("profile_invalid", lambda d: os.unlink(f"{d}/known_hosts"))
        self.refused("known_hosts_invalid", lambda d: put("bad", "known_hosts", self.server.known_hosts() + rsa))
        self.refused("known_hosts_invalid", lambda d: put("bad", "known_hosts", "@cert-authority " + rsa))
        self.refused("known_hosts_invalid", lambda d: put("bad", "known_hosts", "h ssh-rsa AAAA\n"))
        self.refused("known_hosts_invalid", lambda d: put("bad", "known_hosts", "h ssh-dss " + rsa.split()[2]))
        self.refused("fingerprint_mismatch", lambda d: put("bad", "known_hosts", rsa))
        self.refused("identity_format", lambda d: put("bad", "identity", "not a key\n"))

    def test_identities(self):
        where = self.server.path("odd")

        def make(*more):
            def change(d):
                for path in glob.glob(where + "*"):
                    os.unlink(path)
                subprocess.run(["ssh-keygen", "-q", "-f", where, *more], check=True)
                with open(where, "rb") as f:
                    self.box.put("bad", "identity", f.read())
            return change

        said = self.refused("identity_encrypted", make("-t", "ed25519", "-N", "secret"))
        self.assertIn("passphrase", said)
        self.refused("identity_format", make("-t", "rsa", "-b", "2048", "-N", "", "-m", "PEM"))

    def test_profile_json(self):
        def json_with(**changes):
            def change(d):
                with open(f"{d}/profile.json", encoding="utf-8") as f:
                    fields = json.load(f)
                fields.update(changes)
                self.box.put("bad", "profile.json",
                             json.dumps({k: v for k, v in fields.items() if v is not None}))
            return change

        for changes in ({"version": 1}, {"version": "2"}, {"extra": 1}, {"port": 0}, {"port": 65536}, {"port": "22"},
                        {"auth": "agent"}, {"authority": "admin"}, {"authority": None}, {"fingerprint": "MD5:00"},
                        {"credential_revision": "AB" * 32}, {"user": "root"}, {"host": None}):
            self.refused("profile_invalid", json_with(**changes))
        self.refused("profile_invalid", lambda d: self.box.put("bad", "profile.json", "{\"version\":2,\"version\":2}"))
        self.refused("profile_invalid", lambda d: self.box.put("bad", "profile.json", "[]"))

    def test_integrity_secret(self):
        path = self.box.state.file("ssh/integrity-secret")
        os.chmod(path, 0o640)
        try:
            self.assertEqual(self.box.seal("pw", "true")["code"], "secret_permissions")
            self.assertEqual(self.box.seal("web", "true")["status"], "ok")
        finally:
            os.chmod(path, 0o600)


class Changed(SshCase):
    """H45: the profile is edited between approval and run."""

    def edited(self, change, auth="publickey", code="profile_changed"):
        mark = self.mark()
        if auth == "publickey":
            self.box.profile("live", self.server)
        else:
            self.box.profile("live", self.server, "hbpass", password=PASSWORD)
        where = self.box.state.file("ssh/profiles/live")
        try:
            request = self.box.sealed("live", f"echo x >> {mark}")
            change(where)
            end = self.box.finish(self.box.begin(request))
            self.assertEqual((end["state"], end["code"]), ("failed", code), end)
            self.assertIn("nothing was started" if "(different" in end["error"] else "any more", end["error"])
            self.assertEqual(self.runs(mark), 0)
            return end["error"]
        finally:
            shutil.rmtree(where, ignore_errors=True)

    def fields(self, **changes):
        def change(d):
            with open(f"{d}/profile.json", encoding="utf-8") as f:
                fields = json.load(f)
            fields.update(changes)
            self.box.put("live", "profile.json", json.dumps(fields))
        return change

    def test_h45_fields(self):
        for field, value in (("host", "localhost"), ("port", self.server.port + 1), ("user", "hbpass"),
                             ("authority", "sudo-nopasswd"), ("credential_revision", "0" * 64)):
            self.assertIn(f"(different: {field})", self.edited(self.fields(**{field: value})))

    def test_h45_host_key(self):
        def change(d):
            self.box.put("live", "known_hosts", self.server.known_hosts("rsa"))
            self.fields(fingerprint=self.server.fingerprint("rsa"))(d)
        self.assertIn("known_hosts_sha256", self.edited(change))

    def test_h45_same_key_other_bytes(self):
        text = self.server.known_hosts().replace("[127.0.0.1]", "[127.0.0.9]")
        self.assertIn("(different: known_hosts_sha256)",
                      self.edited(lambda d: self.box.put("live", "known_hosts", text)))

    def test_h45_identity(self):
        with open(self.server.key("hbpass"), "rb") as f:
            other = f.read()
        said = self.edited(lambda d: self.box.put("live", "identity", other))
        self.assertIn("identity_fingerprint, identity_sha256", said)
        with open(self.server.key("hbkey"), "rb") as f:
            same_key = f.read() + b"\n"
        self.assertIn("(different: identity_sha256)",
                      self.edited(lambda d: self.box.put("live", "identity", same_key)))

    def test_h45_password(self):
        said = self.edited(lambda d: self.box.put("live", "password", "another\n"), "password")
        self.assertIn("(different: credential_tag)", said)
        self.assertNotIn("another", said)

    def test_h45_another_profile_under_the_name(self):
        def change(d):
            self.box.profile("twin", self.server, "hbpass")
            os.rename(d, d + ".old")
            os.rename(self.box.state.file("ssh/profiles/twin"), d)
            shutil.rmtree(d + ".old")
        self.assertIn("user", self.edited(change))

    def test_h45_gone_or_loose(self):
        self.edited(shutil.rmtree)
        self.edited(lambda d: os.chmod(f"{d}/identity", 0o644))

    def test_h45_an_edit_during_the_run_changes_nothing(self):
        gate = self.server.path("hbkey/gate")
        os.mkfifo(gate)
        os.chmod(gate, 0o644)
        self.addCleanup(os.unlink, gate)
        self.box.profile("live", self.server)
        operation = self.box.begin(self.box.sealed("live", "read x < gate; echo $x"))
        eventually(lambda: self.box.status(operation).get("progress", {}).get("phase") == "run", "it runs")
        shutil.rmtree(self.box.state.file("ssh/profiles/live"))
        with open(gate, "w", encoding="ascii") as f:
            f.write("done\n")
        self.assertEqual(self.box.finish(operation)["result"]["output"], "done\n")

    def test_h45_policy_generation(self):
        mark = self.mark()
        request = self.box.sealed("web", f"echo x >> {mark}")
        operation = secrets.token_hex(16)
        envelope = self.box.grant(request, operation)
        name = self.box.state.file("policy/policy.json")
        with open(name, encoding="utf-8") as f:
            policy = json.load(f)
        policy["generation"] += 1
        admin = self.box.state.uid("admin")
        self.box.state.write("policy/new", json.dumps(policy), 0o644, admin, admin)
        os.rename(self.box.state.file("policy/new"), name)
        self.assertNotEqual(self.box.execute(request, operation, envelope)[1].get("status"), "accepted")
        self.assertEqual(self.runs(mark), 0)


class HostKeys(unittest.TestCase):
    def setUp(self):
        self.box = Box()
        self.addCleanup(self.box.__exit__)

    def server(self, *kinds):
        server = Sshd(kinds)
        self.addCleanup(server.stop)
        return server

    def test_h43_pinned_type_is_the_one_negotiated(self):
        server = self.server("rsa", "ed25519", "ecdsa")
        for kind in ("rsa", "ed25519", "ecdsa"):
            self.box.profile(kind, server, kind=kind)
            self.assertEqual(self.box.run(kind, "echo ok")["result"]["output"], "ok\n", kind)
        # A server that gains a type does not matter; neither does another order.
        server.restart(kinds=("ecdsa", "ed25519", "rsa"))
        self.assertEqual(self.box.run("rsa", "echo ok")["result"]["output"], "ok\n")

    def test_h43_replaced_key_is_a_hard_stop(self):
        for kind in ("rsa", "ed25519"):
            server = self.server("rsa", "ed25519")
            self.box.profile("p", server, kind=kind)
            self.assertEqual(self.box.run("p", "echo ok")["state"], "succeeded")
            server.replace_host_key(kind)
            server.restart()
            end = self.box.run("p", "echo ok")
            self.assertEqual((end["state"], end["code"]), ("failed", "host_key_changed"), end)
            self.assertEqual(end["result"]["far_side"], "not_started")
            self.assertNotIn("Accepted", server.text().split("\nServer listening")[-1])

    def test_h43_other_types_only(self):
        server = self.server("rsa")
        self.box.profile("p", server, kind="ed25519")
        end = self.box.run("p", "echo ok")
        self.assertEqual((end["state"], end["code"]), ("failed", "pin_missing"), end)
        self.assertIn("ssh-ed25519", end["error"])
        self.assertIn("rsa-sha2-512", end["error"])
        server.restart(kinds=("ed25519",))
        self.box.profile("q", server, kind="rsa")
        self.assertEqual(self.box.run("q", "echo ok")["code"], "pin_missing")
        # Nothing was learned from the server meanwhile.
        self.assertEqual(self.box.run("p", "echo ok")["state"], "succeeded")

    def test_h43_no_other_source_of_pins(self):
        server = self.server("ed25519")
        self.box.profile("p", server, kind="rsa")
        with open("/etc/ssh/ssh_known_hosts", "w", encoding="ascii") as f:
            f.write(server.known_hosts("ed25519"))
        with open("/etc/ssh/ssh_config.d/test.conf", "w", encoding="ascii") as f:
            f.write("Host *\n  HostKeyAlgorithms ssh-ed25519\n  StrictHostKeyChecking no\n  ProxyCommand touch /tmp/never\n")
        self.addCleanup(os.unlink, "/etc/ssh/ssh_known_hosts")
        self.addCleanup(os.unlink, "/etc/ssh/ssh_config.d/test.conf")
        self.assertEqual(self.box.run("p", "echo ok")["code"], "pin_missing")
        self.box.profile("p", server)
        self.assertEqual(self.box.run("p", "echo ok")["state"], "succeeded")
        self.assertFalse(os.path.exists("/tmp/never"))
        # Nor under the name that pins are looked up by.
        server.replace_host_key("ed25519")
        server.restart()
        with open("/etc/ssh/ssh_known_hosts", "w", encoding="ascii") as f:
            f.write("pinned " + server.known_hosts("ed25519").split(" ", 1)[1])
        self.assertEqual(self.box.run("p", "echo ok")["code"], "host_key_changed")


class Failing(SshCase):
    def test_wrong_password_and_wrong_key(self):
        self.box.profile("wrong", self.server, "hbpass", password="not it")
        end = self.box.run("wrong", "true")
        self.assertEqual((end["state"], end["code"], end["result"]["far_side"]), ("failed", "auth_failed", "not_started"))
        self.box.profile("wrong2", self.server, "hbpass")
        with open(self.server.key("hbkey"), "rb") as f:
            self.box.put("wrong2", "identity", f.read())
        self.assertEqual(self.box.run("wrong2", "true")["code"], "auth_failed")
        shutil.rmtree(self.box.state.file("ssh/profiles/wrong"))
        shutil.rmtree(self.box.state.file("ssh/profiles/wrong2"))

    def test_unreachable(self):
        self.box.profile("far", self.server, port=1)
        end = self.box.run("far", "true")
        self.assertEqual((end["state"], end["code"]), ("failed", "unreachable"))
        self.assertIn("Connection refused", end["error"])
        self.box.profile("far", self.server, host="no-such-host.invalid")
        self.assertEqual(self.box.run("far", "true")["code"], "unreachable")
        shutil.rmtree(self.box.state.file("ssh/profiles/far"))

    def test_a_port_that_is_no_ssh_server(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            self.box.profile("mute", self.server, port=s.getsockname()[1])
            end = self.box.run("mute", "true", timeout=2)
        self.assertEqual((end["state"], end["result"]["far_side"]), ("failed", "not_started"), end)
        self.assertTrue(end["code"] == "unreachable" or (end["code"] == "timeout" and end["result"]["returncode"] == 124))
        self.assertIn("nothing was started", end["error"])
        self.assertNotIn("may still", end["error"])
        shutil.rmtree(self.box.state.file("ssh/profiles/mute"))

    def test_timeout_ends_the_whole_tree_here_and_says_what_it_cannot(self):
        pid_file = self.mark()
        end = self.box.run("web", f"echo before; trap '' HUP TERM; echo $$ > {pid_file}; sleep 600", timeout=8)
        self.assertEqual((end["state"], end["code"]), ("failed", "timeout"))
        r = end["result"]
        self.assertEqual((r["returncode"], r["timed_out"], r["output"], r["far_side"]), (124, True, "before\n", "may_run"))
        self.assertIn("may still be running on the far side", end["error"])
        eventually(lambda: names_of(self.box.below()) == ["hermes-ssh-run"], "only the starter is left here")
        with open(pid_file, encoding="ascii") as f:
            far = int(f.read())
        self.assertTrue(alive(far), "what was said is true")
        for pid in [far, *children(far)]:
            os.kill(pid, signal.SIGKILL)

    def test_connection_lost(self):
        mark = self.mark()
        operation = self.box.begin(self.box.sealed("web", f"echo x >> {mark}; sleep 600"))
        eventually(lambda: self.runs(mark) == 1, "the command runs")
        self.server.restart()
        end = self.box.finish(operation)
        self.assertEqual((end["state"], end["code"]), ("outcome_unknown", "connection_lost"), end)
        self.assertIn("may still be running", end["error"])

    def test_four_at_once_and_a_bounded_queue(self):
        gate = self.server.path("hbkey/gate")
        os.mkfifo(gate)
        os.chmod(gate, 0o644)
        self.addCleanup(os.unlink, gate)
        request = self.box.sealed("web", "read x < gate; echo $x")
        operations = [self.box.begin(request) for _ in range(6)]
        states = [self.box.status(o)["state"] for o in operations]
        self.assertEqual(states, ["executing"] * 4 + ["queued"] * 2)
        counts = self.box.call("GET", "/health")[1]["checks"]["operations"]
        self.assertEqual((counts["active"], counts["queued"]), (4, 2))
        for _ in range(14):
            self.box.begin(request)
        operation, answer = self.box.execute(request)
        self.assertEqual(answer["code"], "busy")
        self.assertEqual(self.box.status(operation)["code"], "unknown_operation")
        for operation in operations[:4]:
            eventually(lambda: self.box.status(operation).get("progress", {}).get("phase") == "run", "four run")
        # Stopped in the middle: the queue was never burnt, what ran is not repeated.
        self.box.stop()
        self.box.start()
        self.assertEqual([self.box.status(o).get("state") for o in operations], ["outcome_unknown"] * 4 + [None] * 2)


class Killed(unittest.TestCase):
    """The executor, its worker, its starter, killed at each step."""

    @classmethod
    def setUpClass(cls):
        cls.server = Sshd()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def setUp(self):
        self.box = Box(start=False)
        self.addCleanup(self.box.__exit__)
        self.box.profile("web", self.server)
        self.mark = f"/tmp/hermes-mark-{secrets.token_hex(8)}"
        self.addCleanup(lambda: os.path.exists(self.mark) and os.unlink(self.mark))

    def runs(self):
        try:
            with open(self.mark, encoding="ascii") as f:
                return len(f.read().split())
        except FileNotFoundError:
            return 0

    def begin(self, command):
        request = self.box.sealed("web", command)
        operation = secrets.token_hex(16)
        envelope = self.box.grant(request, operation)
        self.box.execute(request, operation, envelope)
        return request, operation, envelope

    def test_while_it_runs(self):
        self.box.start()
        request, operation, envelope = self.begin(f"echo x >> {self.mark}; sleep 600")
        eventually(lambda: self.runs() == 1, "the command runs")
        below = self.box.below()
        self.assertIn("ssh", names_of(below))
        self.box.stop(signal.SIGKILL)
        eventually(lambda: not any(alive(pid) for pid in below), "everything below it has ended")
        self.box.start()
        self.assertEqual(self.box.status(operation)["state"], "outcome_unknown")
        self.assertEqual(self.box.execute(request, operation, envelope)[1]["code"], "grant_replayed")
        self.assertEqual(self.runs(), 1)

    def test_its_worker(self):
        self.box.start()
        _, operation, _ = self.begin(f"echo x >> {self.mark}; sleep 600")
        eventually(lambda: self.runs() == 1, "the command runs")
        worker = [p for p in self.box.below() if names_of([p]) == ["hermes-ssh"]]
        self.assertEqual(len(worker), 1)
        os.kill(worker[0], signal.SIGKILL)
        end = self.box.finish(operation)
        self.assertEqual((end["state"], end["code"]), ("outcome_unknown", "worker_died"))
        eventually(lambda: names_of(self.box.below()) == ["hermes-ssh-run"], "ssh was ended")
        self.assertEqual(self.box.call("GET", "/health")[1]["status"], "ok")

    def test_its_session(self):
        self.box.start()
        _, operation, _ = self.begin(f"echo x >> {self.mark}; sleep 600")
        eventually(lambda: self.runs() == 1, "the command runs")
        starter = [p for p in self.box.below() if names_of([p]) == ["hermes-ssh-run"]][0]
        session = [p for p in children(starter) if names_of([p]) == ["hermes-ssh-run"]][0]
        os.kill(session, signal.SIGKILL)
        end = self.box.finish(operation)
        self.assertEqual((end["state"], end["code"]), ("outcome_unknown", "session_died"))
        eventually(lambda: names_of(self.box.below()) == ["hermes-ssh-run"], "ssh was ended")

    def test_its_starter(self):
        self.box.start()
        starter = [p for p in self.box.below() if names_of([p]) == ["hermes-ssh-run"]][0]
        os.kill(starter, signal.SIGKILL)
        self.assertEqual(self.box.process.wait(60), 75)
        self.assertIn("event=starter_gone", self.box.log())
        self.box.process = None
        self.box.start()
        self.assertEqual(self.box.run("web", "true")["state"], "succeeded")

    def test_at_each_durable_step(self):
        """SIGKILL at the N-th fsync or fdatasync after the start, for every N up to the outcome."""
        seen = set()
        for n in range(1, 40):
            self.box.start()
            tracer = subprocess.Popen(["strace", "-q", "-o", "/dev/null", "-p", str(self.box.process.pid), "-e",
                                       "trace=fsync,fdatasync", "-e", f"inject=fsync,fdatasync:signal=KILL:when={n}"],
                                      stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            eventually(lambda: f"TracerPid:\t{tracer.pid}" in open(f"/proc/{self.box.process.pid}/status").read(), "traced")
            before = self.runs()
            request = self.box.sealed("web", f"echo x >> {self.mark}")
            operation = secrets.token_hex(16)
            envelope = self.box.grant(request, operation)
            self.box.execute(request, operation, envelope)
            eventually(lambda: self.box.process.poll() is not None or
                       self.box.status(operation).get("state") == "succeeded", "it was killed or has ended")
            died = self.box.process.poll() is not None
            if not died:
                tracer.send_signal(signal.SIGTERM)
            tracer.wait()
            self.box.stop(signal.SIGKILL)
            self.box.start()
            answer = self.box.status(operation)
            state = answer.get("state", answer.get("code"))
            seen.add(state)
            self.assertIn(state, ("unknown_operation", "outcome_unknown", "succeeded"))
            again = self.box.execute(request, operation, envelope)[1]
            if state == "unknown_operation":
                self.assertEqual(self.runs() - before, 0)
                self.assertEqual(again["status"], "accepted")
                self.assertEqual(self.box.finish(operation)["state"], "succeeded")
                self.assertEqual(self.runs() - before, 1)
            else:
                self.assertEqual(again["code"], "grant_replayed")
                self.assertLessEqual(self.runs() - before, 1)
            self.box.stop()
            if not died:
                break
        else:
            self.fail("it was killed every time")
        self.assertEqual(seen, {"unknown_operation", "outcome_unknown", "succeeded"})


class Confined(SshCase):
    def test_identities_and_filters(self):
        operation = self.box.begin(self.box.sealed("web", "sleep 600"))
        eventually(lambda: self.box.status(operation).get("progress", {}).get("phase") == "run", "it runs")
        for pid in [self.box.process.pid, *self.box.below()]:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
            self.assertEqual(status["Uid"].split(), [str(self.box.uid)] * 4)
            self.assertEqual((status["NoNewPrivs"], status["Seccomp"], int(status["CapPrm"], 16)), ("1", "2", 0))
        self.box.stop()
        self.box.start()
        self.assertEqual(self.box.status(operation)["state"], "outcome_unknown")

    def test_profiles_are_open_in_no_process_that_execs(self):
        self.box.begin(self.box.sealed("web", "sleep 600"))
        eventually(lambda: "ssh" in names_of(self.box.below()), "ssh runs")
        state = self.box.state.path
        for pid in self.box.below():
            if names_of([pid]) == ["hermes-ssh"]:
                continue # the worker
            held = [os.readlink(p) for p in glob.glob(f"/proc/{pid}/fd/*")]
            self.assertEqual([p for p in held if p.startswith(state + "/ssh")], [])
        self.box.stop()
        self.box.start()


class Certificates(unittest.TestCase):
    def setUp(self):
        self.box = Box()
        self.addCleanup(self.box.__exit__)
        self.server = Sshd(accounts=("hbcert",))
        self.addCleanup(self.server.stop)
        self.ca = keygen(self.server.path("user_ca"))
        os.unlink(self.server.path("authorized_hbcert"))
        self.server.restart(options=[f"TrustedUserCAKeys {self.ca}.pub"])
        self.box.profile("cert", self.server, "hbcert")
        self.put(self.ca)

    def put(self, path):
        with open(path, "rb") as f:
            self.box.put("cert", "ca", f.read())

    def test_one_run_one_certificate(self):
        request = self.box.sealed("cert", "id -un; echo $SSH_ORIGINAL_COMMAND")
        self.assertEqual(request["sealed_profile"]["ca_fingerprint"], fingerprint(self.ca + ".pub"))
        end = self.box.finish(self.box.begin(request))
        self.assertEqual((end["state"], end["result"]["output"]),
                         ("succeeded", "hbcert\nid -un; echo $SSH_ORIGINAL_COMMAND\n"), self.server.text())
        self.assertIn("Accepted publickey for hbcert", self.server.text())
        self.assertIn("ED25519-CERT", self.server.text())
        self.assertIn("ID hermes-broker ", self.server.text())
        odd = list(ODD)
        end = self.box.run("cert", argv=["python3", "-c", SHOW, *odd])
        self.assertEqual(json.loads(end["result"]["output"]), odd)

    def test_another_authority_is_not_accepted(self):
        self.put(keygen(self.server.path("other_ca")))
        self.assertEqual(self.box.run("cert", "true")["code"], "auth_failed")
        os.unlink(self.box.file("cert", "ca"))
        self.assertEqual(self.box.run("cert", "true")["code"], "auth_failed")

    def test_h45_another_authority(self):
        request = self.box.sealed("cert", "true")
        self.put(keygen(self.server.path("other_ca")))
        end = self.box.finish(self.box.begin(request))
        self.assertEqual(end["code"], "profile_changed")
        self.assertIn("ca_fingerprint", end["error"])


if __name__ == "__main__":
    private_accounts()
    unittest.main()
