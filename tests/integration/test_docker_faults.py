"""hermes-docker and engines that no package offers: version windows, changes of version, strange listeners."""
import json
import os
import re
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))

from docker_harness import PATIENCE, DockerBox, eventually  # noqa: E402
from engine_proxy import FakeEngine  # noqa: E402
from installer_harness import as_user  # noqa: E402
from scratch_state import UnixConnection  # noqa: E402

GROUP = 4800 + os.getpid() % 90
IDENT = "ab" * 32


class Case(unittest.TestCase):
    def engine(self, **how):
        directory = tempfile.mkdtemp(prefix="hermes-engine-", dir="/tmp")
        os.chmod(directory, 0o755)
        fake = FakeEngine(directory, GROUP, **how)
        self.addCleanup(os.rmdir, directory)
        self.addCleanup(fake.stop)
        fake.on("GET", r"^/containers/json", lambda r: (200, []), "answer")
        fake.on("GET", f"^/containers/{IDENT}/json", lambda r: (200, {"Id": IDENT, "Name": "/thing",
                                                                      "State": {"Status": "exited"}}), "answer")
        fake.on("POST", f"^/containers/{IDENT}/stop", lambda r: (204, b""), "answer")
        return fake

    def box(self, fake):
        box = DockerBox(fake, group=GROUP)
        self.addCleanup(box.__exit__)
        box.start()
        return box


class Burst(Case):
    CLIENTS, AT_ONCE = 24, 8

    def burst(self, box, answers):
        """As many requests to seal, each on a connection of its own, all sent before the first answer is read."""
        body = json.dumps({"feature": "docker", "request": {"action": "stop", "container": IDENT}}).encode()

        def work():
            connections = [UnixConnection(box.state.socket("docker"), PATIENCE) for _ in range(self.CLIENTS)]
            for connection in connections:
                connection.request("POST", "/seal", body)
            answers = [json.loads(connection.getresponse().read()) for connection in connections]
            for connection in connections:
                connection.close()
            return answers

        answers.extend(as_user(box.state.uid("broker"), [box.state.callers_gid("docker")], work))

    def test_many_clients_at_once_wait_in_order(self):
        """They neither become as many processes at the engine, nor is anybody sent away."""
        go, lock, there, most, answers = threading.Event(), threading.Lock(), [], [0], []

        def hold(request):
            with lock:
                there.append(1)
                most[0] = max(most[0], len(there))
            go.wait(PATIENCE)
            with lock:
                there.pop()

        fake = self.engine()
        fake.on("GET", f"^/containers/{IDENT}/json", hold, "answer")
        fake.hooks.insert(0, fake.hooks.pop())
        self.addCleanup(go.set)
        box = self.box(fake)
        clients = threading.Thread(target=self.burst, args=(box, answers))
        clients.start()
        self.addCleanup(clients.join)
        eventually(lambda: len(there) == self.AT_ONCE, "as many as may are at the engine")
        eventually(lambda: box.health()["checks"]["operations"]["tasks_waiting"] >= self.CLIENTS - self.AT_ONCE,
                   "the others wait")
        go.set()
        clients.join(PATIENCE)
        self.assertEqual([a.get("status", a) for a in answers], ["ok"] * self.CLIENTS)
        self.assertEqual(most[0], self.AT_ONCE)


class Versions(Case):
    def spoken(self, fake):
        """Versions of requests that the engine took."""
        seen = set()
        fake.on("GET", "^/containers/json", lambda r: seen.add(r.version), "answer")
        fake.hooks.insert(0, fake.hooks.pop())
        return seen

    def test_h36_windows_that_overlap(self):
        for least, api, expected in (("1.24", "1.43", "1.43"), ("1.44", "1.52", "1.52"), ("1.44", "1.70", "1.52"),
                                     ("1.12", "1.40", "1.40")):
            with self.subTest(api=api):
                fake = self.engine(api=api, least=least)
                seen = self.spoken(fake)
                box = self.box(fake)
                self.assertEqual(box.docker("list")["state"], "succeeded")
                self.assertEqual(seen, {expected})
                self.assertEqual(box.health()["checks"]["engine"]["api"], expected)
                box.stop()

    def test_h36_outside_is_a_clear_refusal_and_no_restart(self):
        fake = self.engine(api="1.70", least="1.60")
        box = self.box(fake)
        pid = box.process.pid
        for _ in range(3):
            answer = box.seal("docker", {"action": "stop", "container": "thing"})
            self.assertEqual(answer["code"], "engine_version")
            self.assertIn("1.60 to 1.70", answer["error"])
            self.assertIn("1.40 to 1.52", answer["error"])
        self.assertIn("1.60 to 1.70", box.health()["error"])
        self.assertEqual((box.process.poll(), box.process.pid), (None, pid))
        self.assertEqual(fake.calls("POST", ""), [])
        # the engine is put right: no restart of ours is needed
        fake.api, fake.least = "1.52", "1.44"
        self.assertEqual(box.docker("list")["state"], "succeeded")
        eventually(lambda: box.health()["status"] == "ok", "health is well again")

    def test_h36_engine_is_upgraded_while_we_run(self):
        fake = self.engine(api="1.43", least="1.24")
        box = self.box(fake)
        self.assertEqual(box.docker("list")["state"], "succeeded")
        sealed = box.sealed("docker", {"action": "stop", "container": IDENT})
        fake.api, fake.least = "1.52", "1.44"
        outcome = box.finish_sealed("docker", sealed)
        self.assertEqual(outcome["state"], "succeeded", outcome)
        self.assertEqual(len([c for c in fake.calls("POST", "/stop")]), 1)
        eventually(lambda: box.health()["checks"]["engine"]["api"] == "1.52", "the new version is remembered")
        fake.api, fake.least = "1.41", "1.12"
        self.assertEqual(box.docker("list")["state"], "succeeded")

    def test_h36_upgrade_out_of_our_window_between_approval_and_run(self):
        fake = self.engine(api="1.43", least="1.24")
        box = self.box(fake)
        sealed = box.sealed("docker", {"action": "stop", "container": IDENT})
        fake.api, fake.least = "1.70", "1.60"
        outcome = box.finish_sealed("docker", sealed)
        self.assertEqual((outcome["state"], outcome["code"]), ("failed", "engine_version"))
        self.assertEqual(fake.calls("POST", "/stop"), [])


class Listeners(Case):
    def test_socket_that_is_not_roots(self):
        fake = self.engine(uid=47111)
        box = self.box(fake)
        answer = box.seal("docker", {"action": "stop", "container": "thing"})
        self.assertEqual(answer["code"], "wrong_peer")
        self.assertEqual(fake.seen, [])

    def test_no_engine_at_all(self):
        box = DockerBox(None)
        self.addCleanup(box.__exit__)
        box.start()
        self.assertEqual(box.seal("docker", {"action": "stop", "container": "thing"})["code"], "engine_unreachable")
        health = box.health()
        self.assertEqual((health["status"], health["checks"]["docker_socket"]["reachable"]), ("error", False))
        box.policy(features=["runtime"])
        self.assertEqual(box.health()["status"], "ok")

    def test_answers_that_are_none(self):
        for answer in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", b"\x00\x01\x02\x03 garbage\r\n\r\n",
                       b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                       b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnope",
                       b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"Id":1,"Id":"2"}'):
            with self.subTest(answer=answer):
                fake = self.engine()
                fake.hooks.insert(0, ("GET", re.compile("^/containers/thing/json"), lambda r, a=answer: a, "answer"))
                box = self.box(fake)
                self.assertEqual(box.seal("docker", {"action": "stop", "container": "thing"})["code"], "engine_bad_reply")
                box.stop()

    def test_h37_logs_cut_and_strange(self):
        def frames(data):
            return b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n" + data
        for data, code, output in (
                (b"\x01\x00\x00\x00\x00\x00\x00\x03abc\x01\x00\x00", "log_incomplete", "abc"),
                (b"\x01\x00\x00\x00\xff\xff\xff\xffabc", "log_incomplete", "abc"),
                (b"\x03\x00\x00\x00\x00\x00\x00\x02no", "engine_error", ""),
                (b"\x09\x00\x00\x00\x00\x00\x00\x02no", "bad_frame", "")):
            with self.subTest(data=data):
                fake = self.engine()
                fake.on("GET", "/logs", lambda r, d=data: frames(d), "answer")
                box = self.box(fake)
                outcome = box.docker("logs", container=IDENT)
                self.assertEqual((outcome["state"], outcome["code"], outcome["result"]["output"]), ("failed", code, output))
                self.assertTrue(outcome["result"]["output_incomplete"])
                box.stop()


if __name__ == "__main__":
    unittest.main()
