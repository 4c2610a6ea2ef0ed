#!/usr/bin/env python3
"""hermes-installer: a runtime operation from seal to a healthy payload, every refusal, every kind of interruption."""
import copy
import hashlib
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from installer_harness import FINAL, PATIENCE, Box, enter_namespace, eventually, payload, platform  # noqa: E402
from oci_layout import OCI  # noqa: E402
from registry import Registry  # noqa: E402


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


class Gate:
    """A fault of FaultyRegistry: from now on, the last layer of this request waits until open()."""

    def __init__(self, box, request):
        self.event, self.waiting = threading.Event(), threading.Event()
        box.registry.on(request["sealed"]["resolved"]["layers"][-1]["digest"], self)

    def __call__(self, request):
        self.waiting.set()
        self.event.wait(PATIENCE)
        return False

    def open(self):
        self.event.set()


class InstallerTest(unittest.TestCase):
    def box(self, *start, **kwargs):
        box = Box(**kwargs)
        self.addCleanup(box.__exit__)
        box.start(*(start or ("installer", "fetcher")))
        return box

    def succeeded(self, status):
        self.assertEqual(status["state"], "succeeded", status)
        self.assertEqual(status["result"]["returncode"], 0)
        return status["result"]

    def failed(self, status, code):
        self.assertEqual((status["state"], status.get("code")), ("failed", code), status)
        self.assertEqual(status["result"]["returncode"], 1)
        return status["error"]

    def refused(self, answer, code):
        self.assertEqual(answer.get("code"), code, answer)
        self.assertTrue(answer["error"])
        return answer["error"]

    def nothing_installed(self, box):
        self.assertIsNone(box.link("current"))
        self.assertEqual(box.releases(hidden=True), [])
        self.assertFalse(box.runtime()["installed"])
        self.assertFalse(box.serves())

    def serving(self, box, release):
        self.assertEqual(box.link("current"), release)
        self.assertTrue(box.serves())
        self.assertEqual(box.runtime()["desired"], "running")


class Whole(InstallerTest):
    def test_install_from_a_real_registry_and_the_other_actions(self):
        box = Box()
        self.addCleanup(box.__exit__)
        registry = Registry()
        self.addCleanup(registry.remove)
        local = box.image(extra=[[("etc/", None), ("etc/name", b"x" * 1000),
                                                 ("etc/link", "name")]])
        box.layout.tag({"mediaType": OCI + "index.v1+json", "digest": local.split("@")[1],
                        "size": len(box.layout.read(local.split("@")[1]))}, "v1")
        registry.push(box.layout, "v1", "team/app:v1")
        image = f"{registry.host}/team/app:v1@{local.split('@')[1]}"
        box.repositories.append(registry.host + "/team/app")
        box.bounds()
        box.configure(**{"fetcher.insecure_registries": registry.host, "runtime.image": image,
                         "runtime.env.EXTRA": "1"})
        box.start("fetcher", "installer")

        request = box.sealed(image=image)
        resolved = request["sealed"]["resolved"]
        self.assertEqual(request["platform"], platform())
        self.assertEqual(resolved["index_digest"], image.split("sha256:")[1])
        self.assertEqual(resolved["command"], ["payload"])
        self.assertEqual(resolved["version"], "v1")
        self.assertEqual(resolved["volumes"], ["/data"])
        self.assertIn("EXTRA", resolved["environment"])
        self.assertIn("PORT", resolved["environment"])
        self.assertEqual(len(resolved["layers"]), 2)
        self.assertEqual(request["sealed"]["current"], {"manifest_digest": "", "image": ""})
        self.nothing_installed(box)

        result = self.succeeded(box.finish(box.begin(request)))
        release = resolved["manifest_digest"]
        self.assertEqual(result["manifest_digest"], release)
        self.assertEqual(result["output_sha256"], hashlib.sha256(result["output"].encode()).hexdigest())
        self.serving(box, release)
        with open(box.release("COMPLETE"), encoding="ascii") as f:
            marker = json.load(f)
        with open(box.release("manifest.mtree"), "rb") as f:
            self.assertEqual(hashlib.sha256(f.read()).hexdigest(), marker["tree_digest"])
        with open(box.release("config.json"), "rb") as f:
            self.assertEqual(hashlib.sha256(f.read()).hexdigest(), resolved["config_digest"])
        self.assertEqual(os.readlink(box.release("rootfs/etc/link")), "name")
        unpack = box.state.uid("unpack")
        self.assertEqual(os.stat(box.release("rootfs/usr/bin/payload")).st_uid, unpack)
        self.assertEqual((os.stat(box.release()).st_uid, os.stat(box.release()).st_mode & 0o7777), (0, 0o755))
        data = os.stat(box.data)
        self.assertEqual((data.st_uid, data.st_mode & 0o7777), (box.state.uid("runtime"), 0o700))

        runtime = box.until("healthy")
        self.assertEqual(runtime["release"], release)
        self.assertEqual(runtime["tree_digest"], marker["tree_digest"])
        self.assertEqual(runtime["configured_digest"], resolved["index_digest"])
        self.assertTrue(runtime["health"]["checks"]["digest"])
        self.assertIsNone(runtime["operation"])
        self.assertEqual([r["current"] for r in box.call("GET", "/releases")[1]["releases"]], [True])
        self.assertEqual(box.health()["status"], "ok", box.health())
        pid = runtime["process"]["pid"]

        # Again: nothing changes, and it says so.
        result = self.succeeded(box.run(image=image))
        self.assertIn("already installed", result["output"])
        self.assertEqual(box.runtime()["process"]["pid"], pid)

        # verify
        self.assertEqual(box.call("POST", "/verify", {})[1], {"status": "accepted"})
        verify = eventually(lambda: (box.runtime()["verify"] or {}).get("state") == "done" and box.runtime()["verify"],
                            "verification ends")
        self.assertTrue(verify["ok"])
        self.assertEqual(verify["tree_digest"], marker["tree_digest"])

        # stop, start, restart
        self.succeeded(box.run("stop"))
        self.assertFalse(box.serves())
        self.assertEqual(box.runtime()["desired"], "stopped")
        box.restart()
        self.assertFalse(box.serves())
        self.assertIn("is stopped", self.succeeded(box.run("stop"))["output"])
        self.succeeded(box.run("start"))
        self.serving(box, release)
        pid = box.until("healthy")["process"]["pid"]
        self.assertIn("nothing was changed", self.succeeded(box.run("start"))["output"])
        self.assertEqual(box.runtime()["process"]["pid"], pid)
        self.succeeded(box.run("restart"))
        self.assertNotEqual(box.runtime()["process"]["pid"], pid)
        self.serving(box, release)

        # Audit: the intent of every effect stands before its outcome.
        seen = [(r["action"], r["detail"].get("phase")) for r in box.audit()]
        for what in ("runtime", "payload.start", "payload.stop"):
            self.assertLess(seen.index((what, "intent")), seen.index((what, "outcome")))
        self.assertLess(seen.index(("runtime.step", "activate")), seen.index(("payload.start", "intent")))

    def test_a_second_release_keeps_the_first_as_previous(self):
        box = self.box()
        one, two = box.image(mark="1"), box.image(mark="2")
        self.succeeded(box.run(image=one))
        first = box.link("current")
        self.succeeded(box.run(image=two))
        second = box.link("current")
        self.assertNotEqual(first, second)
        self.assertEqual(box.link("previous"), first)
        self.serving(box, second)
        # Going back is an install of what is on disk: verified, not fetched.
        shutil.rmtree(os.path.join(box.storage, "blobs", "sha256"))
        os.mkdir(os.path.join(box.storage, "blobs", "sha256"))
        os.chown(os.path.join(box.storage, "blobs", "sha256"), box.state.uid("fetcher"), box.state.uid("fetcher"))
        box.restart("fetcher")
        box.restart()
        result = self.succeeded(box.run(image=one))
        self.assertTrue(result["reused"])
        self.assertEqual((box.link("current"), box.link("previous")), (first, second))
        self.assertEqual(len(os.listdir(os.path.join(box.storage, "blobs", "sha256"))), 3)  # documents only

    def test_desired_state_survives_restarts_of_the_installer(self):
        box = self.box()
        self.succeeded(box.run(image=box.image()))
        release = box.link("current")
        box.restart()
        box.until("healthy")
        self.serving(box, release)
        box.crash()
        box.start("installer")
        box.until("healthy")
        self.serving(box, release)


class Refusals(InstallerTest):
    def test_grants(self):
        box = self.box()
        request = box.sealed(image=box.image())
        for fields, code in (
                ({"audience": "0" * 32}, "grant_wrong_audience"),
                ({"target": "docker"}, "grant_wrong_target"),
                ({"generation": 0}, "grant_old_generation"),
                ({"decision": "denied"}, "grant_denied"),
                ({"operation_id": "f" * 32}, "grant_wrong_operation"),
                ({"digest": "0" * 64}, "grant_digest_mismatch"),
                ({"summary_digest": "0" * 64}, "grant_digest_mismatch"),
                ({"not_before": int(time.time()) + 1000, "expires_at": int(time.time()) + 2000},
                 "grant_not_yet_valid"),
                ({"issued_at": 1000, "not_before": 1000, "expires_at": 2000}, "grant_expired"),
                ({"user_ids": ["77"]}, "user_not_allowed")):
            with self.subTest(code=code, fields=fields):
                operation = secrets.token_hex(16)
                _, answer = box.execute(request, operation, box.grant(request, operation, fields))
                self.refused(answer, code)
                self.assertEqual(box.status(operation)["code"], "unknown_operation")
        # A request that is not the one that was signed.
        operation = secrets.token_hex(16)
        envelope = box.grant(request, operation)
        altered = copy.deepcopy(request)
        altered["timeout"] -= 1
        self.refused(box.execute(altered, operation, envelope)[1], "grant_digest_mismatch")
        # A signature by somebody else, and one over other bytes.
        forged = copy.deepcopy(envelope)
        forged["grant"]["session"] = "other"
        self.refused(box.execute(request, operation, forged)[1], "grant_bad_signature")
        self.nothing_installed(box)
        # The right one works, once.
        self.succeeded(box.finish(box.execute(request, operation, envelope)[0]))
        starts = len(box.starts())
        self.refused(box.execute(request, operation, envelope)[1], "grant_replayed")
        box.restart()
        box.until("healthy")
        self.refused(box.execute(request, operation, envelope)[1], "grant_replayed")
        self.assertEqual(len(box.starts()), starts + 1)
        # The same operation under a new grant is another operation; what it was sealed on has changed.
        self.failed(box.finish(box.begin(request)), "release_changed")

    def test_seal(self):
        box = self.box()
        image = box.image()
        for fields, code in (
                ({"image": image.split("@")[0] + ":v1"}, "image_not_pinned"),
                ({"image": image, "colour": "red"}, "unknown_field"),
                ({"image": image, "platform": "linux/s390x"}, None),
                ({"image": image, "platform": next(p for p in ("linux/arm64", "linux/amd64") if p != platform())},
                 "platform_not_host"),
                ({"image": image, "platform_digest": "sha256:" + "1" * 64}, "platform_mismatch"),
                ({"image": box.registry.host + "/other/app@" + image.split("@")[1]}, "out_of_bounds")):
            with self.subTest(fields=fields):
                answer = box.seal(**fields)
                self.assertTrue(answer.get("code") == code if code else answer["code"], answer)
        for action, fields in (("start", {}), ("stop", {}), ("restart", {}), ("rollback", {}),
                               ("upgrade", {"image": image})):
            self.refused(box.seal(action, **fields), "not_installed")
        self.assertEqual(box.call("POST", "/seal", {"feature": "docker", "request": {"action": "list"}})[1]["code"],
                         "wrong_executor")
        self.nothing_installed(box)

    def test_disabled_and_out_of_bounds(self):
        box = self.box(settings={"runtime.enabled": "no"})
        image = box.image()
        self.refused(box.seal(image=image), "runtime_disabled")
        box.bounds(deployed="docker")
        self.assertTrue(box.seal(image=image)["error"])
        box.bounds()
        box.state._policy((), ("0",))
        self.refused(box.seal(image=image), "feature_disabled")

    def test_a_changed_configuration_is_noticed(self):
        box = self.box()
        image = box.image()
        request = box.sealed(image=image)
        box.configure(**{"runtime.env.NEW": "1"})
        self.refused(box.seal(image=image), "settings_stale")
        self.assertEqual(box.health()["status"], "error")
        box.restart()
        self.failed(box.finish(box.begin(request)), "settings_changed")
        self.nothing_installed(box)
        self.succeeded(box.run(image=image))

    def test_security_material(self):
        box = self.box()
        request = box.sealed(image=box.image())
        path = box.state.file("public/approver.pub")
        policy, bounds = box.state.file("policy/policy.json"), box.state.file("conf/bounds.conf")

        operation = secrets.token_hex(16)
        envelope = box.grant(request, operation)

        def check(name):
            answer = box.execute(request, operation, envelope)[1]
            self.assertIn("error", answer)
            self.assertIn(os.path.basename(name), answer["error"])
            health = box.health()
            self.assertEqual(health["status"], "error")
            self.assertIn(os.path.basename(name), health["error"])

        for name in (path, policy, bounds):
            mode = os.stat(name).st_mode & 0o7777
            with self.subTest(name=name):
                os.chmod(name, 0o666)
                check(name)
                os.chmod(name, mode)
                os.rename(name, name + ".away")
                check(name)
                os.rename(name + ".away", name)
        self.assertEqual(box.health()["status"], "ok")
        write(path, "hermes-public-key-v1 " + "A" * 43 + "=\n")
        self.refused(box.execute(request, operation, envelope)[1], "grant_unknown_key")
        self.nothing_installed(box)

    def test_policy_generation_kills_older_grants(self):
        box = self.box()
        request = box.sealed(image=box.image())
        operation = secrets.token_hex(16)
        envelope = box.grant(request, operation)
        policy = json.loads(read(box.state.file("policy/policy.json")))
        admin = box.state.uid("admin")
        for generation, code in ((2, "grant_old_generation"), (1, "generation_went_back")):
            policy["generation"] = generation
            box.state.write("policy/policy.json", json.dumps(policy), 0o644, admin, admin)
            self.refused(box.execute(request, operation, envelope)[1], code)
        self.nothing_installed(box)

    def test_who_may_call(self):
        box = self.box()
        admin = box.state.uid("admin")
        for uid, path in ((0, "/execute"), (0, "/status"), (admin, "/execute"), (admin, "/seal")):
            self.assertNotEqual(box.call("POST", path, {}, uid=uid)[0], 200, path)
        self.assertEqual(box.call("POST", "/seal", {}, uid=0)[1]["code"], "missing_field")  # root may look
        self.assertEqual(box.call("GET", "/health", uid=0)[0], 200)
        self.assertEqual(box.call("POST", "/execute", {"x": 1})[1]["code"], "unknown_field")

    def test_queue_waits_expires_and_is_bounded(self):
        box = self.box(settings={"broker.queue_max": "2"})
        image = box.image()
        request = box.sealed(image=image)
        gate = Gate(box, request)
        running = box.begin(request)
        self.assertTrue(gate.waiting.wait(PATIENCE))
        progress = eventually(lambda: box.status(running).get("progress"), "progress is told")
        self.assertEqual(set(progress), {"phase", "done", "total", "unit", "files_done", "files_total"})
        self.assertIn(progress["phase"], ("fetch", "unpack"))
        soon = int(time.time()) + 2
        expiring, answer = box.execute(request, expires_at=soon)
        self.assertEqual(answer["state"], "queued")
        waiting, answer = box.execute(request)
        self.assertEqual(box.status(waiting)["state"], "queued")
        over, answer = box.execute(request)
        self.refused(answer, "busy")
        self.assertEqual(box.status(over)["code"], "unknown_operation")
        eventually(lambda: time.time() > soon, "the grant expires")
        gate.open()
        self.succeeded(box.finish(running))
        self.assertEqual(box.finish(expiring)["code"], "grant_expired")
        # Its turn came, and what it was sealed on had changed.
        self.failed(box.finish(waiting), "release_changed")
        # Every refusal is in the audit log with its reason; the one that found the queue full was not burnt.
        rows = {r["detail"]["operation_id"]: r["detail"]["code"] for r in box.audit() if r["status"] == "refused"}
        self.assertEqual(rows, {expiring: "grant_expired", over: "busy"})
        self.assertEqual(box.status(over)["code"], "unknown_operation")


class Images(InstallerTest):
    def test_digest_mismatch_in_the_registry(self):
        box = self.box()
        image = box.image()
        request = box.sealed(image=image)

        def lie(r):
            data = box.registry.content(r.path)
            return r.answer(200, bytes([data[0] ^ 1]) + data[1:], {"Content-Type": "application/octet-stream"})

        box.registry.on("/blobs/" + "sha256:" + request["sealed"]["resolved"]["layers"][0]["digest"], lie)
        self.failed(box.finish(box.begin(request)), "digest_mismatch")
        self.nothing_installed(box)

    def test_wrong_diff_id_is_found_by_the_installer_itself(self):
        box = self.box()

        def tweak(layers):
            layers[0]["diff_id"] = "sha256:" + "2" * 64

        self.failed(box.run(image=box.image(tweak=tweak)), "diff_id_mismatch")
        self.nothing_installed(box)

    def test_blob_store_is_not_believed(self):
        # The fetcher (or whoever has taken it over) changes a document after it was resolved.
        box = self.box()
        image = box.image()
        request = box.sealed(image=image)
        manifest = request["sealed"]["resolved"]["manifest_digest"]
        path = os.path.join(box.storage, "blobs", "sha256", manifest)
        with open(path, "r+b") as f:
            f.seek(-2, os.SEEK_END)
            f.write(b"#")
        self.failed(box.finish(box.begin(request)), "digest_mismatch")
        self.nothing_installed(box)

    def test_platform_missing(self):
        box = self.box()
        layout = box.layout
        other = next(p for p in ("linux/arm64", "linux/amd64") if p != platform())
        image = layout.image([layout.layer([("x", b"y")])], platform=other)
        index = layout.index([layout.attestation(image), image])
        answer = box.seal(image=box.reference(index))
        self.assertEqual(answer["code"], "platform_absent")
        self.assertIn(other, answer["error"])

    def test_configured_pin_mismatch(self):
        box = Box()
        self.addCleanup(box.__exit__)
        image = box.image()
        box.configure(**{"runtime.image": image, "runtime.platform_digest": f"{platform()}=sha256:" + "3" * 64})
        box.start("fetcher", "installer")
        self.assertEqual(box.seal(image=image)["code"], "platform_mismatch")

    def test_h28_tree_changed_after_unpacking_is_not_activated(self):
        box = self.box()
        image = box.image(mark="as made", extra=[[("late", b"z" * 5000)]])
        request = box.sealed(image=image)
        gate = Gate(box, request)
        operation = box.begin(request)
        staging = os.path.join(box.storage, "releases", ".staging-" + operation, "rootfs", "mark")
        eventually(lambda: os.path.exists(staging) and read(staging), "the first layer is unpacked")
        write(staging, "changed")
        gate.open()
        self.failed(box.finish(operation), "tree_differs")
        self.nothing_installed(box)

    def test_h28_damaged_release_on_disk_is_fetched_again(self):
        box = self.box()
        image = box.image()
        self.succeeded(box.run(image=image))
        for harm in (lambda p: write(p, "changed"), os.unlink,
                     lambda p: os.chmod(p, 0o600)):
            harm(box.release("rootfs/mark"))
            box.call("POST", "/verify", {})
            verify = eventually(lambda: (box.runtime()["verify"] or {}).get("state") == "done" and
                                box.runtime()["verify"], "verification ends")
            self.assertFalse(verify["ok"])
            self.assertTrue([d for d in verify["differences"] if d["path"].endswith("mark")], verify)
            result = self.succeeded(box.run(image=image))
            self.assertFalse(result["reused"])
            self.assertEqual(read(box.release("rootfs/mark")), "")
            self.assertEqual(box.releases(hidden=True), [])
            self.serving(box, box.link("current"))


class Activation(InstallerTest):
    def test_h23_new_release_that_fails_gives_way_to_the_old_one(self):
        box = self.box()
        good = box.image(mark="good")
        self.succeeded(box.run(image=good))
        old = box.link("current")
        for mode in ("die", "unhealthy", "die_later", "no_mcp", "public"):
            with self.subTest(mode=mode):
                status = box.run(image=box.image(mode))
                self.assertEqual(status["state"], "failed", status)
                self.assertIn("serves as before", status["error"])
                self.serving(box, old)
                self.assertIsNone(box.link("previous"))
                # The next attempt starts clean.
                self.assertIn("already installed", self.succeeded(box.run(image=good))["output"])
        self.succeeded(box.run(image=box.image(mark="next")))
        self.assertEqual(box.link("previous"), old)

    def test_h23_first_install_that_fails_leaves_nothing_current(self):
        box = self.box()
        status = box.run(image=box.image("die"))
        self.assertEqual(status["state"], "failed")
        self.assertIn("nothing is current", status["error"])
        self.nothing_installed(box)
        self.assertEqual(box.runtime()["desired"], "stopped")
        self.assertEqual(len(box.releases()), 1)
        self.succeeded(box.run(image=box.image()))

    def test_h23_first_install_that_fails_leaves_no_data_in_the_way(self):
        box = self.box()
        data = box.state.settings["runtime.data"]
        self.assertEqual(box.run(image=box.image("unhealthy"))["state"], "failed")
        self.assertFalse(os.path.exists(data) and os.listdir(data))
        aside = [n for n in os.listdir(os.path.dirname(data)) if n.startswith(os.path.basename(data) + ".failed-")]
        self.assertEqual(len(aside), 1)  # nothing is thrown away
        self.assertIn("starts", os.listdir(os.path.join(os.path.dirname(data), aside[0])))
        self.succeeded(box.run(image=box.image()))

    def test_port_taken_by_somebody_else(self):
        import socket
        box = self.box()
        with socket.socket() as s:
            s.bind(("127.0.0.1", box.port))
            s.listen()
            status = box.run(image=box.image())
            self.assertEqual(status["state"], "failed", status)
        self.nothing_installed(box)

    def test_old_release_that_was_stopped_stays_stopped(self):
        box = self.box()
        self.succeeded(box.run(image=box.image()))
        old = box.link("current")
        self.succeeded(box.run("stop"))
        status = box.run(image=box.image("die"))
        self.assertIn("stopped as before", status["error"])
        self.assertEqual(box.link("current"), old)
        self.assertEqual(box.runtime()["desired"], "stopped")
        self.assertFalse(box.serves())

    def test_h24_empty_data_directory_of_a_known_installation(self):
        box = self.box()
        image = box.image()
        self.succeeded(box.run(image=image))
        release = box.link("current")
        self.succeeded(box.run("stop"))
        for lose in (lambda: os.rename(box.data, box.data + ".away"), lambda: os.mkdir(box.data)):
            lose()
            for action, fields in (("start", {}), ("restart", {}), ("install", {"image": image})):
                self.failed(box.run(action, **fields), "data_missing")
                self.assertFalse(box.serves())
            self.assertEqual(box.link("current"), release)
        os.rmdir(box.data)
        os.rename(box.data + ".away", box.data)
        self.succeeded(box.run("start"))
        # The same at start-up: not started, and said so.
        box.stop("installer")
        os.rename(box.data, box.data + ".away")
        box.start("installer")
        self.assertIn("missing or empty", eventually(lambda: box.runtime()["trouble"], "trouble is told"))
        self.assertFalse(os.path.exists(box.data))
        os.rename(box.data + ".away", box.data)
        box.until("healthy")

    def test_timeout_ends_the_operation_and_undoes_it(self):
        box = self.box(settings={"runtime.start_timeout": "120"})
        self.succeeded(box.run(image=box.image()))
        old = box.link("current")
        status = box.run(image=box.image("hold"), timeout=2)
        self.failed(status, "timeout")
        self.assertTrue(status["result"]["timed_out"])
        box.until("healthy")
        self.serving(box, old)

    def test_h21_files_are_durable_before_they_are_believed(self):
        box = self.box()
        self.succeeded(box.run(image=box.image(mark="1")))
        trace = box.state.file("log/trace")
        tracer = subprocess.Popen(["strace", "-f", "-qq", "-y", "-o", trace, "-e",
                                   "trace=syncfs,fsync,fdatasync,rename,renameat,renameat2,symlinkat,unlinkat", "-p",
                                   str(box.processes["installer"].pid)], stderr=subprocess.PIPE)
        try:
            eventually(lambda: "TracerPid:\t0\n" not in read(f"/proc/{box.processes['installer'].pid}/status"),
                       "strace attaches")
            self.succeeded(box.run(image=box.image(mark="2")))
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate()
        release = box.link("current")
        lines = [line for line in read(trace).splitlines(True) if "= 0" in line]

        def at(start, *words):
            for i in range(start, len(lines)):
                if all(w in lines[i] for w in words):
                    return i
            self.fail(f"no {words} after line {start} of\n" + "".join(lines[start:]))

        synced = at(at(0, "rename", '"config.json"'), "syncfs(")
        complete = at(synced, "rename", '"COMPLETE"')
        self.assertIn("fsync", lines[complete - 1])
        placed = at(complete, "rename", f'"{release}"')
        durable = at(placed, "fsync(", "/releases>")
        journal = at(durable, "fdatasync(", "journal.ndjson")
        switched = at(journal, "rename", '"current"')
        directory = at(switched, "fsync(", box.storage + ">")
        at(directory, "fdatasync(", "journal.ndjson")


class Interruptions(InstallerTest):
    def settled(self, box, operation, old):
        """After a restart: final state, nothing left over, exactly the old or the new release, and it serves."""
        status = box.finish(operation)
        self.assertIn(status["state"], FINAL)
        self.assertEqual(box.releases(hidden=True), [])
        current = box.link("current")
        if status["state"] == "outcome_unknown":
            self.assertEqual(current, old)
        elif status["state"] == "succeeded":
            self.assertNotEqual(current, old)
        if current:
            box.until("healthy")
            self.serving(box, current)
            activation = json.loads(read(box.state.file("installer/activation.json")))
            self.assertEqual(activation["manifest_digest"], current)
            self.assertTrue(os.path.exists(box.release("COMPLETE")))
        else:
            self.nothing_installed(box)
        return status

    def test_installer_killed_while_fetching(self):
        box = self.box()
        image = box.image(extra=[[("late", b"z" * 5000)]])
        request = box.sealed(image=image)
        gate = Gate(box, request)
        operation = box.begin(request)
        self.assertTrue(gate.waiting.wait(PATIENCE))
        eventually(lambda: os.path.exists(os.path.join(box.storage, "releases", ".staging-" + operation, "rootfs",
                                                       "mark")), "the first layer is unpacked")
        workers = box.children()
        box.crash()
        eventually(lambda: not any(os.path.exists(f"/proc/{p}") for p in workers), "all workers end")
        gate.open()
        box.start("installer")
        status = self.settled(box, operation, None)
        self.assertEqual((status["state"], status["code"]), ("outcome_unknown", "interrupted"))
        self.assertIn("before anything live was changed", status["error"])
        self.succeeded(box.run(image=image))

    def test_installer_killed_while_the_new_release_starts(self):
        box = self.box(settings={"runtime.start_timeout": "120"})
        self.succeeded(box.run(image=box.image()))
        old = box.link("current")
        operation = box.begin(box.sealed(image=box.image("hold")))
        eventually(lambda: box.starts()[-1] == "hold", "the new release is started")
        self.assertNotEqual(box.link("current"), old)
        box.crash()
        box.start("installer")
        status = self.settled(box, operation, old)
        self.assertEqual(status["state"], "outcome_unknown")
        self.assertIn("put back", status["error"])
        self.assertEqual(box.starts()[-1], "ok")

    def test_job_worker_killed_while_the_new_release_starts(self):
        box = self.box(settings={"runtime.start_timeout": "120"})
        self.succeeded(box.run(image=box.image()))
        old = box.link("current")
        before = set(box.children(0))
        operation = box.begin(box.sealed(image=box.image("hold")))
        eventually(lambda: box.starts()[-1] == "hold", "the new release is started")
        job = [p for p in set(box.children(0)) - before if os.path.exists(f"/proc/{p}/exe") and
               os.readlink(f"/proc/{p}/exe").endswith("hermes-installer")]
        self.assertEqual(len(job), 1)
        os.kill(job[0], signal.SIGKILL)
        status = self.settled(box, operation, old)
        self.assertEqual((status["state"], status["code"]), ("outcome_unknown", "worker_died"))

    def test_unpack_worker_and_fetcher_killed(self):
        box = self.box()
        image = box.image(extra=[[("late", b"z" * 5000)]])
        request = box.sealed(image=image)
        gate = Gate(box, request)
        operation = box.begin(request)
        self.assertTrue(gate.waiting.wait(PATIENCE))
        worker = eventually(lambda: list(box.children(box.state.uid("unpack"))), "the unpack worker is there")
        os.kill(worker[0], signal.SIGKILL)
        gate.open()
        self.failed(box.finish(operation), "worker_died")
        self.nothing_installed(box)
        shutil.rmtree(os.path.join(box.storage, "blobs", "sha256"))
        box.stop("fetcher")
        box.restart()
        box.start("fetcher")
        request = box.sealed(image=image)
        gate = Gate(box, request)
        operation = box.begin(request)
        self.assertTrue(gate.waiting.wait(PATIENCE))
        box.crash("fetcher")
        status = box.finish(operation)
        self.assertEqual(status["state"], "failed")
        self.nothing_installed(box)
        gate.open()
        box.start("fetcher")
        self.succeeded(box.run(image=image))

    def killed_at(self, box, images, call, threads):
        """An install that is killed at its first, second, third ... use of a system call, until one isn't reached."""
        seen = []
        for number in range(1, 200):
            old = box.link("current")
            image = images[1] if box.runtime()["installed_image"] == images[0] else images[0]
            for name in box.releases():
                if name != old:
                    shutil.rmtree(os.path.join(box.storage, "releases", name))
            request = box.sealed(image=image)
            pid = box.processes["installer"].pid
            tracer = subprocess.Popen(["strace", *threads, "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                                       f"inject={call}:signal=KILL:when={number}", "-p", str(pid)])
            try:
                eventually(lambda: "TracerPid:\t0\n" not in read(f"/proc/{pid}/status"), "strace attaches")
                operation, _ = box.execute(request)
                eventually(lambda: box.processes["installer"].poll() is not None or
                           box.status(operation).get("state") in FINAL, "it ends")
            finally:
                tracer.terminate()
                tracer.wait()
            if box.processes["installer"].poll() is not None:
                box.start("installer")
            status = box.status(operation)
            if status.get("code") == "unknown_operation":  # killed before the burn: it may be asked for again
                self.assertEqual(box.link("current"), old)
                seen.append("not begun")
                continue
            seen.append(self.settled(box, operation, old)["state"])
            if seen[-1] == "succeeded" and status["result"].get("duration_ms"):
                return seen
        self.fail(f"no end: {seen}")

    def test_h21_installer_killed_at_every_durable_step(self):
        # Journal, ledger and audit log are all made durable by fdatasync.
        box = self.box()
        images = [box.image(mark=str(i)) for i in range(2)]
        self.succeeded(box.run(image=images[0]))
        seen = self.killed_at(box, images, "fdatasync", [])
        self.assertGreater(seen.count("outcome_unknown"), 5, seen)
        # Killed after the commit: the journal proves it, and the outcome says so.
        self.assertGreater(seen.count("succeeded"), 1, seen)

    def test_h21_workers_killed_at_every_step_that_changes_names(self):
        box = self.box()
        images = [box.image(mark=str(i)) for i in range(2)]
        self.succeeded(box.run(image=images[0]))
        for call in ("syncfs", "mkdirat", "renameat", "renameat2"):
            with self.subTest(call=call):
                self.assertGreater(len(self.killed_at(box, images, call, ["-f"])), 1)

    def test_h21_recovery_itself_is_killed(self):
        box = self.box(settings={"runtime.start_timeout": "120"})
        self.succeeded(box.run(image=box.image()))
        old = box.link("current")
        operation = box.begin(box.sealed(image=box.image("hold")))
        eventually(lambda: box.starts()[-1] == "hold", "the new release is started")
        box.crash()
        # Each run comes one step further than the one before.
        for call, number in (("renameat", 1), ("renameat", 2), ("renameat", 2), ("fdatasync", 1), ("fdatasync", 2),
                             ("fdatasync", 3)):
            box.start("installer", check=False, prefix=[
                "strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                f"inject={call}:signal=KILL:when={number}"])
            self.assertEqual(box.processes.pop("installer").wait(PATIENCE), -signal.SIGKILL, (call, number))
        box.start("installer")
        status = self.settled(box, operation, old)
        self.assertEqual(status["state"], "outcome_unknown")

    def test_killed_at_many_moments(self):
        box = self.box(settings={"runtime.health_interval": "1"})
        images = [box.image(mark=str(i), extra=[[(f"f{n}", b"x" * 2000) for n in range(200)]]) for i in range(2)]
        self.succeeded(box.run(image=images[0]))
        seed = int(os.environ.get("HB_SEED", random.randrange(1 << 30)))
        print("HB_SEED", seed, file=sys.stderr)
        rng, seen = random.Random(seed), set()
        for attempt in range(16):
            current = box.link("current")
            image = images[1] if box.runtime()["installed_image"] == images[0] else images[0]
            if attempt % 3 == 0:  # unpack it again
                for name in box.releases():
                    if name != current:
                        shutil.rmtree(os.path.join(box.storage, "releases", name))
            operation = box.begin(box.sealed(image=image))
            time.sleep(rng.random() * 0.5)
            box.crash()
            box.start("installer")
            seen.add(self.settled(box, operation, current)["state"])
        self.assertIn("outcome_unknown", seen)


class FullDisk(InstallerTest):
    """H22, each phase on a file system that is really small."""

    def small(self, size):
        path = f"/tmp/hb-small-{os.getpid()}-{secrets.token_hex(4)}"
        os.mkdir(path)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", path], check=True)
        self.addCleanup(lambda: (subprocess.run(["umount", "-l", path], check=True), os.rmdir(path)))
        return path

    @staticmethod
    def fill(path):
        with open(os.path.join(path, "filler"), "wb", buffering=0) as f:
            try:
                while f.write(b"\0" * 65536):
                    pass
            except OSError:
                pass

    def test_h22_too_little_space_is_refused_with_numbers(self):
        storage = self.small("90m")
        box = self.box(storage=storage)
        request = box.sealed(image=box.image())
        self.fill(storage)
        # Before anybody is asked, and again when the room is gone since.
        for message in (self.refused(box.seal(image=box.image()), "not_enough_space"),
                        self.failed(box.finish(box.begin(request)), "not_enough_space")):
            self.assertIn(storage, message)
            self.assertRegex(message, r"has \d+ MiB free and about \d+ MiB are needed.*free \d+ MiB more")
        self.nothing_installed(box)
        os.unlink(os.path.join(storage, "filler"))
        self.succeeded(box.run(image=box.image()))

    def test_h22_disk_full_while_unpacking(self):
        storage = self.small("90m")
        box = self.box(storage=storage)
        self.succeeded(box.run(image=box.image()))
        old = box.link("current")
        big = box.image(extra=[[("zeros", bytes(200 << 20))]])
        message = self.failed(box.run(image=big), "disk_full")
        self.assertIn(storage, message)
        self.assertEqual(box.releases(hidden=True), [])
        self.assertEqual(box.releases(), [old])
        self.serving(box, old)
        self.succeeded(box.run(image=box.image(mark="2")))

    def test_h22_disk_full_while_downloading(self):
        storage = self.small("90m")
        box = self.box(storage=storage)
        image = box.image(extra=[[("noise", os.urandom(1 << 20))]])
        request = box.sealed(image=image)
        gate = Gate(box, request)
        operation = box.begin(request)
        self.assertTrue(gate.waiting.wait(PATIENCE))
        self.fill(storage)
        gate.open()
        status = box.finish(operation)
        self.assertIn((status["state"], status["code"]), (("failed", "disk_full"), ("failed", "not_enough_space")))
        self.nothing_installed(box)
        os.unlink(os.path.join(storage, "filler"))
        self.succeeded(box.run(image=image))

    def test_h22_disk_full_when_the_release_is_recorded(self):
        box = self.box()
        image = box.image()
        box.stop("installer")
        own = box.state.file("installer")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", own], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", "-l", own], check=True))
        box.start("installer")
        request = box.sealed(image=image)
        gate = Gate(box, request)
        operation = box.begin(request)
        self.assertTrue(gate.waiting.wait(PATIENCE))
        self.fill(own)
        gate.open()
        # Not even the outcome can be recorded: the process ends, and says so when it starts with room again.
        box.processes["installer"].wait(90)
        os.unlink(os.path.join(own, "filler"))
        box.start("installer")
        self.assertEqual(box.status(operation)["state"], "outcome_unknown")
        self.nothing_installed(box)
        self.succeeded(box.run(image=image))


if __name__ == "__main__":
    enter_namespace()
    payload()
    unittest.main(verbosity=2)
