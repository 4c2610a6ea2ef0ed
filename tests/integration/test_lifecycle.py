#!/usr/bin/env python3
"""The life of a release: upgrades that fail and upgrades that don't, the way back with and without data, staging, pruning,
removal, standing still for a snapshot, and being killed at every durable step of it."""
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from installer_harness import BUILD, FINAL, PATIENCE, Box, enter_namespace, eventually, payload  # noqa: E402
from supervisord import Supervisord  # noqa: E402


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


class LifecycleTest(unittest.TestCase):
    def box(self, *start, **kwargs):
        box = Box(**kwargs)
        self.addCleanup(box.__exit__)
        box.start(*(start or ("installer", "fetcher")))
        return box

    @staticmethod
    def image(box, schema, mode="ok", version=None, **more):
        """A release that makes the data say `schema`."""
        return box.image(mode, mark=f"{schema} {mode} {version}", config={
            "Env": ["PATH=/usr/bin", "EXECUTOR_DATA_DIR=/data", f"PAYLOAD_MODE={mode}", f"PAYLOAD_SCHEMA={schema}"],
            "Labels": {"org.opencontainers.image.version": version or f"{schema}.0"}}, **more)

    def succeeded(self, status):
        self.assertEqual(status["state"], "succeeded", status)
        return status["result"]

    def failed(self, status, code):
        self.assertEqual((status["state"], status.get("code")), ("failed", code), status)
        return status["error"]

    def refused(self, answer, code):
        self.assertEqual(answer.get("code"), code, answer)
        return answer["error"]

    def schema(self, box):
        return read(os.path.join(box.data, "schema"))

    def serving(self, box, release, schema):
        self.assertEqual(box.link("current"), release)
        box.until("healthy")
        self.assertTrue(box.serves())
        self.assertEqual(self.schema(box), str(schema))
        self.assertEqual(box.releases(hidden=True), [])

    def snapshots(self, box):
        """{release: [path of the copy]} of what is listed; nothing half done may lie there."""
        root = os.path.join(os.path.dirname(box.data), ".hermes-snapshots")
        found = {}
        for name in os.listdir(root) if os.path.isdir(root) else []:
            self.assertFalse(name.startswith("."), name)
            info = json.loads(read(os.path.join(root, name, "snapshot.json")))
            found.setdefault(info["release"], []).append(os.path.join(root, name, "data"))
        return found

    def installed(self, box, *schemas):
        """Install the first, upgrade to the others; their releases."""
        out = []
        for schema in schemas:
            self.succeeded(box.run("upgrade" if out else "install", image=self.image(box, schema)))
            out.append(box.link("current"))
        return out


    def on_hold(self, box):
        """Install a release that is healthy only while the file whose path is returned is there."""
        go = os.path.join(box.data, "go")
        os.makedirs(box.data, 0o700)
        os.chown(box.data, box.state.uid("runtime"), box.state.uid("runtime"))
        write(go, "")
        self.succeeded(box.run(image=self.image(box, 1, "hold")))
        return go


class Upgrade(LifecycleTest):
    def test_old_serves_while_the_new_is_staged_and_its_data_is_kept(self):
        box = self.box()
        one, = self.installed(box, 1)
        write(os.path.join(box.data, "account"), "alice")
        os.makedirs(os.path.join(box.data, "deep/er"))
        os.symlink("../account", os.path.join(box.data, "deep/link"))
        pid = box.until("healthy")["process"]["pid"]
        request = box.sealed("upgrade", image=self.image(box, 2, extra=[[("late", b"z" * 5000)]]))
        # What is shown is old and new.
        sealed = request["sealed"]
        self.assertEqual(sealed["current"]["manifest_digest"], one)
        self.assertEqual(sealed["current"]["details"]["version"], "1.0")
        self.assertEqual(sealed["resolved"]["version"], "2.0")
        self.assertEqual(len(sealed["current"]["details"]["layers"]), 1)
        waiting, go = threading.Event(), threading.Event()

        def hold(_):
            waiting.set()
            go.wait(PATIENCE)
            return False

        box.registry.on(sealed["resolved"]["layers"][-1]["digest"], hold)
        operation = box.begin(request)
        self.assertTrue(waiting.wait(PATIENCE))
        self.assertTrue(box.serves())
        self.assertEqual(box.runtime()["process"]["pid"], pid)
        go.set()
        result = self.succeeded(box.finish(operation))
        two = sealed["resolved"]["manifest_digest"]
        self.assertEqual((result["manifest_digest"], result["replaced"]), (two, one))
        self.assertIn("--data restore", result["output"])
        self.serving(box, two, 2)
        self.assertEqual(box.link("previous"), one)
        copies = self.snapshots(box)
        self.assertEqual(list(copies), [one])
        copy = copies[one][0]
        self.assertEqual(read(os.path.join(copy, "schema")), "1")
        self.assertEqual(read(os.path.join(copy, "account")), "alice")
        self.assertEqual(os.readlink(os.path.join(copy, "deep/link")), "../account")
        for a, b in ((copy, box.data), (copy + "/account", box.data + "/account"),
                     (copy + "/deep/er", box.data + "/deep/er")):
            a, b = os.stat(a), os.stat(b)
            self.assertEqual((a.st_mode, a.st_uid, a.st_gid), (b.st_mode, b.st_uid, b.st_gid))
        self.assertEqual(os.stat(copy + "/account").st_mtime_ns, os.stat(box.data + "/account").st_mtime_ns)
        self.assertEqual([(s["release"], s["version"]) for s in box.runtime()["snapshots"]], [(one, "1.0")])
        # Nobody but root reaches it.
        self.assertEqual(os.stat(os.path.dirname(os.path.dirname(copy))).st_mode & 0o7777, 0o700)

    def test_plan_shows_the_upgrade_and_asks_for_nothing(self):
        # Neither broker nor approver run here: a plan can't be what somebody might approve.
        box = self.box()
        one, = self.installed(box, 1)
        image = self.image(box, 2)
        sealed = box.sealed("upgrade", image=image)
        before = box.runtime()

        def plan(*options, check=0):
            r = subprocess.run([os.path.join(BUILD, "admin/hermesctl"), "--state", box.state.path, *options, "runtime",
                                "upgrade", "--plan", "--image", image], capture_output=True, text=True,
                               stdin=subprocess.DEVNULL, timeout=PATIENCE)
            self.assertEqual(r.returncode, check, r.stdout + r.stderr)
            return r.stdout

        answer = json.loads(plan("--json"))
        self.assertEqual((answer["status"], answer["request"]), ("planned", sealed))
        two = sealed["sealed"]["resolved"]["manifest_digest"]
        text = plan()
        for part in (answer["summary"], one, two, "nothing was asked for"):
            self.assertIn(part, text)
        after = box.runtime()
        for name in ("operation", "staged", "manifest_digest", "releases"):
            self.assertEqual(after[name], before[name], name)
        self.serving(box, one, 1)
        self.succeeded(box.run("upgrade", image=image))
        self.assertEqual(json.loads(plan("--json", check=3))["code"], "already_current")

    def test_refused_when_there_is_nothing_to_upgrade(self):
        box = self.box()
        image = self.image(box, 1)
        self.refused(box.seal("upgrade", image=image), "not_installed")
        self.succeeded(box.run(image=image))
        pid = box.until("healthy")["process"]["pid"]
        self.refused(box.seal("upgrade", image=image), "already_current")
        # And when it became current after it was prepared.
        request = box.sealed("upgrade", image=self.image(box, 2))
        self.succeeded(box.finish(box.begin(request)))
        self.failed(box.finish(box.begin(request)), "release_changed")
        self.assertNotEqual(box.runtime()["process"]["pid"], pid)

    def test_shared_layers_are_fetched_once(self):
        box = self.box()
        shared = [[("shared", os.urandom(5000))]]
        self.succeeded(box.run(image=self.image(box, 1, extra=shared)))
        first = box.registry.paths("/blobs/")
        request = box.sealed("upgrade", image=self.image(box, 2, extra=shared))
        sealed = request["sealed"]
        layers = [layer["digest"] for layer in sealed["resolved"]["layers"]]
        kept = sealed["current"]["details"]["layers"]
        self.assertEqual([layer in kept for layer in layers], [False, True])
        self.succeeded(box.finish(box.begin(request)))
        new = box.registry.paths("/blobs/")[len(first):]
        self.assertTrue(any(layers[0] in path for path in new))
        self.assertFalse(any(layers[1] in path for path in new), new)

    def test_details_of_another_release_are_not_believed(self):
        # Whoever sits between installer and person can't describe the current release as another one.
        box = self.box()
        self.installed(box, 1)
        request = box.sealed("upgrade", image=self.image(box, 2))
        request["sealed"]["current"]["details"]["version"] = "9.9"
        self.failed(box.finish(box.begin(request)), "sealed_changed")

    def test_h23_h24_every_failure_brings_back_release_and_data(self):
        box = self.box()
        one, = self.installed(box, 1)
        for mode in ("die_migrated", "unhealthy", "die_later", "no_mcp", "public"):
            with self.subTest(mode=mode):
                write(os.path.join(box.data, "account"), mode)
                inode = os.stat(os.path.join(box.data, "account")).st_mtime_ns
                image = self.image(box, 2, mode)
                # Twice: a failure must not be in the way of the next try.
                for _ in range(2):
                    status = box.run("upgrade", image=image)
                    self.assertEqual(status["state"], "failed", status)
                    self.assertIn("serves as before, with its data", status["error"])
                    self.serving(box, one, 1)
                    self.assertEqual(read(os.path.join(box.data, "account")), mode)
                    self.assertEqual(os.stat(os.path.join(box.data, "account")).st_mtime_ns, inode)
                    self.assertEqual(self.snapshots(box), {})
                    self.assertIsNone(box.link("previous"))
        # The fault removed.
        self.succeeded(box.run("upgrade", image=self.image(box, 2)))
        self.assertEqual((box.link("previous"), self.schema(box)), (one, "2"))

    def test_h23_a_stopped_release_stays_stopped_after_a_failure(self):
        box = self.box()
        one, = self.installed(box, 1)
        self.succeeded(box.run("stop"))
        self.assertEqual(box.run("upgrade", image=self.image(box, 2, "die_migrated"))["state"], "failed")
        self.assertEqual((box.link("current"), self.schema(box), box.serves()), (one, "1", False))
        self.assertEqual(box.runtime()["desired"], "stopped")

    def test_h27_the_whole_old_tree_is_gone_before_the_data_is_copied(self):
        box = self.box(settings={"runtime.stop_timeout": "2"})
        self.succeeded(box.run(image=self.image(box, 1, "family")))
        one, beat = box.link("current"), os.path.join(box.data, "beat")
        eventually(lambda: os.path.exists(beat), "the grandchild writes")
        self.succeeded(box.run("upgrade", image=self.image(box, 2)))
        copy = self.snapshots(box)[one][0]
        self.assertEqual(read(beat), read(os.path.join(copy, "beat")))
        self.assertEqual(len(box.children(box.state.uid("runtime"))), 1)

    def test_only_one_operation_at_a_time(self):
        box = self.box(settings={"runtime.start_timeout": "60"})
        one, = self.installed(box, 1)
        later = box.sealed("upgrade", image=self.image(box, 3))
        running = box.begin(box.sealed("upgrade", image=self.image(box, 2, "hold")))
        eventually(lambda: box.starts()[-1] == "hold", "the new release is started")
        self.assertEqual(box.status(running)["progress"]["phase"], "start")
        waiting, answer = box.execute(later)
        self.assertEqual(answer["state"], "queued")
        self.assertEqual(box.call("POST", "/quiesce", {}, uid=0)[1]["code"], "busy")
        write(os.path.join(box.data, "go"), "")
        self.succeeded(box.finish(running))
        self.failed(box.finish(waiting), "release_changed")
        self.assertEqual(self.schema(box), "2")
        self.assertEqual(list(self.snapshots(box)), [one])

    def test_each_isolation(self):
        for isolation in ("direct", "chroot", "namespaces"):
            with self.subTest(isolation=isolation):
                box = self.box(settings={"runtime.isolation": isolation})
                one, two = self.installed(box, 1, 2)
                self.assertEqual(box.runtime()["isolation"], isolation)
                self.succeeded(box.run("rollback", data="restore"))
                self.serving(box, one, 1)
                self.assertEqual(box.link("previous"), two)
                box.__exit__()

    def test_direct_where_the_host_denies_namespaces_and_mounts(self):
        box = Box()
        self.addCleanup(box.__exit__)
        deny = os.path.join(BUILD, "tests/tools/deny_exec")
        box.start("installer", prefix=[deny, "unshare", "mount", "chroot", "pivot_root", "setns", "--"])
        box.start("fetcher")
        one, two = self.installed(box, 1, 2)
        self.assertEqual(box.runtime()["isolation"], "direct")
        self.assertEqual(box.run("upgrade", image=self.image(box, 3, "die_migrated"))["state"], "failed")
        self.serving(box, two, 2)
        self.succeeded(box.run("rollback", data="restore"))
        self.serving(box, one, 1)

    def test_data_that_cannot_be_exchanged_is_copied_back(self):
        """A data directory that is a mount point of its own."""
        box = Box()
        self.addCleanup(box.__exit__)
        os.mkdir(box.data)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", box.data], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", "-l", box.data], check=True))
        box.start("installer", "fetcher")
        one, = self.installed(box, 1)
        device = os.stat(box.data).st_dev
        write(os.path.join(box.data, "account"), "alice")
        self.assertEqual(box.run("upgrade", image=self.image(box, 2, "die_migrated"))["state"], "failed")
        self.serving(box, one, 1)
        self.succeeded(box.run("upgrade", image=self.image(box, 2)))
        write(os.path.join(box.data, "account"), "bob")
        self.succeeded(box.run("rollback", data="restore"))
        self.serving(box, one, 1)
        self.assertEqual(read(os.path.join(box.data, "account")), "alice")
        self.assertEqual(os.stat(box.data).st_dev, device)
        self.assertEqual((os.stat(box.data).st_uid, os.stat(box.data).st_mode & 0o7777),
                         (box.state.uid("runtime"), 0o700))


class UnderSupervisord(LifecycleTest):
    def test_upgrade_and_rollback_as_a_program_of_supervisord(self):
        box = Box()
        self.addCleanup(box.__exit__)
        supervisord = Supervisord(box.state.file("supervisord"))
        self.addCleanup(supervisord.stop)
        supervisord.start()
        box.configure(**{"runtime." + k: v for k, v in supervisord.settings().items()})
        box.start("installer", "fetcher")
        one, two = self.installed(box, 1, 2)
        self.assertEqual(box.runtime()["supervisor"], "supervisord")
        self.assertEqual([p["pid"] for p in supervisord.programs().values()], [box.runtime()["process"]["pid"]])
        self.assertEqual(box.run("upgrade", image=self.image(box, 3, "die_migrated"))["state"], "failed")
        self.serving(box, two, 2)
        self.succeeded(box.run("rollback", data="restore"))
        self.serving(box, one, 1)
        self.assertEqual(box.link("previous"), two)
        # The installer's end is the payload's, killed or not, and it is started again.
        box.crash()
        box.start("installer")
        self.serving(box, one, 1)
        box.stop("installer")
        self.assertFalse(box.serves())
        self.assertEqual([p["statename"] in ("STOPPED", "EXITED") for p in supervisord.programs().values()], [True])


class Rollback(LifecycleTest):
    def test_h29_code_alone_or_code_and_data(self):
        box = self.box()
        one, two = self.installed(box, 1, 2)
        write(os.path.join(box.data, "account"), "written by 2")
        # The older one does not understand the newer data: that is found, and everything is as it was.
        request = box.sealed("rollback")
        self.assertEqual(request["sealed"]["release"], one)
        self.assertEqual(request["sealed"]["target"]["details"]["version"], "1.0")
        self.assertNotIn("snapshot", request["sealed"])
        status = box.finish(box.begin(request))
        self.assertIn(f"release {two[:12]} serves as before", self.failed(status, "exited"))
        self.serving(box, two, 2)
        self.assertEqual(read(os.path.join(box.data, "account")), "written by 2")
        # With the data that belongs to it.
        request = box.sealed("rollback", data="restore")
        copy = request["sealed"]["snapshot"]
        self.assertEqual(set(copy), {"id", "taken_at", "files", "bytes"})
        result = self.succeeded(box.finish(box.begin(request)))
        self.assertIn("what was written since is not in it", result["output"])
        self.serving(box, one, 1)
        self.assertFalse(os.path.exists(os.path.join(box.data, "account")))
        self.assertEqual(box.link("previous"), two)
        # What was written since is kept, and belongs to the newer one.
        self.assertEqual(list(self.snapshots(box)), [two])
        self.succeeded(box.run("rollback", release=two, data="restore"))
        self.serving(box, two, 2)
        self.assertEqual(read(os.path.join(box.data, "account")), "written by 2")

    def test_h29_code_alone_when_the_data_is_understood(self):
        box = self.box()
        self.succeeded(box.run(image=self.image(box, 1, version="a")))
        one = box.link("current")
        self.succeeded(box.run("upgrade", image=self.image(box, 1, version="b")))
        write(os.path.join(box.data, "account"), "alice")
        self.assertIn("as the newer release left it", self.succeeded(box.run("rollback"))["output"])
        self.serving(box, one, 1)
        self.assertEqual(read(os.path.join(box.data, "account")), "alice")

    def test_h26_success_is_claimed_only_after_the_probes(self):
        box = self.box()
        go = self.on_hold(box)
        self.succeeded(box.run("upgrade", image=self.image(box, 1)))
        two = box.link("current")
        os.unlink(go)  # from now on the older one starts, listens, and is not healthy
        status = box.run("rollback")
        self.assertEqual((status["state"], status["code"]), ("failed", "not_ready"), status)
        self.assertEqual(status["result"]["returncode"], 1)
        self.assertIn("500", status["error"])
        self.serving(box, two, 1)
        # The fetcher is not needed on the way back, and its being gone is no reason to claim less or more.
        write(go, "")
        box.stop("fetcher")
        self.succeeded(box.run("rollback"))
        self.assertTrue(box.serves())

    def test_refusals(self):
        box = self.box()
        one, = self.installed(box, 1)
        self.refused(box.seal("rollback"), "no_previous")
        self.refused(box.seal("rollback", release=one), "already_current")
        self.refused(box.seal("rollback", release="f" * 64), "release_missing")
        self.refused(box.seal("rollback", release=one, data="restore"), "no_snapshot")
        self.succeeded(box.run("upgrade", image=self.image(box, 2)))
        two = box.link("current")
        # A tree that was changed on disk is not gone back to.
        victim = os.path.join(box.storage, "releases", one, "rootfs/mark")
        write(victim, "changed")
        self.failed(box.run("rollback", data="restore"), "tree_differs")
        self.serving(box, two, 2)

    def test_the_copy_that_was_shown_is_the_one_or_none(self):
        box = self.box()
        one, two = self.installed(box, 1, 2)
        request = box.sealed("rollback", data="restore")
        for path in self.snapshots(box)[one]:
            info = os.path.join(os.path.dirname(path), "snapshot.json")
            text = json.loads(read(info))
            text["taken_at"] += 1
            write(info, json.dumps(text))
        self.failed(box.finish(box.begin(request)), "sealed_changed")
        self.serving(box, two, 2)

    def test_h24_lost_data_is_not_started_over_and_can_be_got_back(self):
        box = self.box()
        one, two = self.installed(box, 1, 2)
        self.succeeded(box.run("rollback", data="restore"))
        self.succeeded(box.run("upgrade", image=self.image(box, 2)))
        box.stop("installer")
        aside = box.data + "-lost"
        os.rename(box.data, aside)
        box.start("installer")
        trouble = eventually(lambda: box.runtime()["trouble"], "it says why it doesn't start")
        self.assertIn("restore", trouble)
        self.assertFalse(box.serves())
        self.assertFalse(os.path.exists(os.path.join(box.data, "schema")))
        self.failed(box.run("start"), "data_missing")
        self.failed(box.run("rollback"), "data_missing")
        self.succeeded(box.run("rollback", data="restore"))
        self.serving(box, one, 1)


class Away(LifecycleTest):
    def blobs(self, box):
        return set(os.listdir(os.path.join(box.storage, "blobs", "sha256")))

    def test_prune_keeps_current_previous_and_as_many_more_as_configured(self):
        for keep, left in ((2, 2), (3, 3)):
            with self.subTest(keep=keep):
                box = self.box(settings={"runtime.keep_releases": str(keep)})
                releases = self.installed(box, 1, 2, 3, 4)
                write(os.path.join(box.storage, "blobs", "sha256", "e" * 64 + ".partial"), "x")
                before = self.blobs(box)
                pid = box.until("healthy")["process"]["pid"]
                result = self.succeeded(box.run("prune"))
                self.assertEqual(result["releases_removed"], 4 - left)
                self.assertEqual(box.releases(), sorted(releases[-left:]))
                self.assertEqual(box.runtime()["process"]["pid"], pid)
                gone = before - self.blobs(box)
                self.assertEqual(len(gone), 4 * (4 - left) + 1, gone)  # index, manifest, config, its layer; the partial
                self.assertEqual(set(self.snapshots(box)), set(releases[-left:-1]))
                self.serving(box, releases[-1], 4)
                # What is kept is whole: the way back works.
                self.succeeded(box.run("rollback", data="restore"))
                self.serving(box, releases[-2], 3)
                box.__exit__()

    def test_prune_keeps_layers_that_a_kept_release_shares(self):
        box = self.box()
        shared = [[("shared", os.urandom(5000))]]
        layers = []
        for schema in (1, 2, 3):
            request = box.sealed("upgrade" if layers else "install", image=self.image(box, schema, extra=shared))
            layers.append([layer["digest"] for layer in request["sealed"]["resolved"]["layers"]])
            self.succeeded(box.finish(box.begin(request)))
        self.succeeded(box.run("prune"))
        self.assertNotIn(layers[0][0], self.blobs(box))
        self.assertLessEqual({layers[0][1], layers[1][0], layers[2][0]}, self.blobs(box))

    def test_remove_keeps_the_data_and_nothing_else(self):
        box = self.box()
        self.installed(box, 1, 2)
        result = self.succeeded(box.run("remove"))
        self.assertIn("2 releases", result["output"])
        self.assertEqual((box.link("current"), box.link("previous")), (None, None))
        self.assertEqual((box.releases(), box.releases(hidden=True), self.blobs(box)), ([], [], set()))
        self.assertFalse(box.serves())
        self.assertEqual(self.schema(box), "2")
        runtime = box.runtime()
        self.assertEqual((runtime["installed"], runtime["desired"]), (False, "stopped"))
        box.restart()
        self.assertFalse(box.serves())
        self.succeeded(box.run(image=self.image(box, 3)))
        self.assertEqual(self.schema(box), "3")

    def test_remove_that_is_killed_is_whole_or_undone(self):
        box = self.box()
        one, two = self.installed(box, 1, 2)
        operation = box.begin(box.sealed("remove"))
        eventually(lambda: not box.serves() or box.link("current") is None, "it has begun")
        box.crash()
        box.start("installer")
        status = box.finish(operation)
        if status["state"] == "succeeded":
            self.assertEqual((box.link("current"), box.releases(), box.releases(hidden=True)), (None, [], []))
        else:
            self.assertEqual(status["state"], "outcome_unknown")
            self.serving(box, two, 2)
            self.assertEqual(box.link("previous"), one)


class Stage(LifecycleTest):
    def staged(self, box, **body):
        status, answer = box.call("POST", "/stage", body)
        self.assertEqual((status, answer), (200, {"status": "accepted"}))
        return eventually(lambda: (lambda s: s if s["state"] != "running" else None)(box.runtime()["staged"]),
                          "staging ends")

    def test_staged_ahead_of_time_without_a_grant(self):
        box = self.box()
        one, = self.installed(box, 1)
        pid = box.until("healthy")["process"]["pid"]
        image = self.image(box, 2)
        staged = self.staged(box, image=image)
        self.assertEqual((staged["state"], staged["image"], staged["reused"]), ("done", image, False), staged)
        self.assertEqual(box.runtime()["process"]["pid"], pid)
        self.serving(box, one, 1)
        self.assertIn(staged["manifest_digest"], box.releases())
        self.assertEqual(self.snapshots(box), {})
        # Again changes nothing; the upgrade then needs nothing from the registry.
        self.assertTrue(self.staged(box, image=image)["reused"])
        request = box.sealed("upgrade", image=image)
        before = len(box.registry.paths())
        self.assertTrue(self.succeeded(box.finish(box.begin(request)))["reused"])
        self.assertEqual(len(box.registry.paths()), before)
        self.serving(box, staged["manifest_digest"], 2)
        self.assertIn("runtime.stage", [r["action"] for r in box.audit()])

    def test_what_may_not_be_installed_may_not_be_staged(self):
        box = self.box()
        image = self.image(box, 1)
        for body, code in (({"image": image.split("@")[0]}, "image_not_pinned"),
                           ({"image": box.registry.host + "/other/app@" + image.split("@")[1]}, "out_of_bounds"),
                           ({"image": image, "action": "install"}, "unknown_field"),
                           ({"image": image, "platform_digest": "sha256:" + "1" * 64}, None),
                           ({}, "missing_field")):
            with self.subTest(code=code):
                answer = box.call("POST", "/stage", body)[1]
                if code:
                    self.refused(answer, code)
                else:
                    failed = eventually(lambda: box.runtime()["staged"]["state"] == "failed" and
                                        box.runtime()["staged"], "it fails")
                    self.assertEqual(failed["code"], "platform_mismatch")
        self.assertEqual(box.releases(), [])
        box.state._policy((), ("0",))
        self.refused(box.call("POST", "/stage", {"image": image})[1], "feature_disabled")
        self.assertNotEqual(box.call("POST", "/stage", {"image": image}, uid=box.state.uid("admin"))[0], 200)

    def test_nobody_fills_the_disk_by_staging(self):
        box = self.box()
        self.installed(box, 1)
        for schema in (2, 3):
            self.assertEqual(self.staged(box, image=self.image(box, schema))["state"], "done")
        self.assertEqual(self.staged(box, image=self.image(box, 4))["code"], "prune_first")
        self.assertEqual(len(box.releases()), 3)

    def test_staging_that_is_killed_leaves_nothing(self):
        box = self.box()
        one, = self.installed(box, 1)
        image = self.image(box, 2, extra=[[("late", b"z" * 5000)]])
        layer = box.sealed("upgrade", image=image)["sealed"]["resolved"]["layers"][-1]["digest"]
        waiting, go = threading.Event(), threading.Event()
        box.registry.on(layer, lambda _: (waiting.set(), go.wait(PATIENCE), False)[2])
        box.call("POST", "/stage", {"image": image})
        self.assertTrue(waiting.wait(PATIENCE))
        box.crash()
        go.set()
        box.start("installer")
        self.serving(box, one, 1)
        self.assertEqual(box.releases(), [one])


class StandingStill(LifecycleTest):
    def quiesce(self, box, **body):
        status, answer = box.call("POST", "/quiesce", body, uid=0)
        self.assertEqual((status, answer.get("status")), (200, "accepted"), answer)
        eventually(lambda: (box.runtime()["quiesced"] or {}).get("synced"), "stopped and synced")

    def test_stopped_until_resumed(self):
        box = self.box()
        one, = self.installed(box, 1)
        self.quiesce(box)
        self.assertFalse(box.serves())
        runtime = box.runtime()
        self.assertEqual((runtime["process"]["state"], runtime["desired"]), ("stopped", "running"))
        self.assertTrue(runtime["process"]["last_exit"]["clean"])
        # Nothing is begun meanwhile, and no grant is used up.
        request = box.sealed("restart")
        operation, answer = box.execute(request)
        self.refused(answer, "quiesced")
        self.assertEqual(box.status(operation)["code"], "unknown_operation")
        self.refused(box.call("POST", "/verify", {})[1], "quiesced")
        self.refused(box.call("POST", "/stage", {"image": self.image(box, 2)})[1], "quiesced")
        self.refused(box.call("POST", "/quiesce", {}, uid=0)[1], "quiesced")
        # Nor over a restart.
        box.restart()
        self.assertFalse(box.serves())
        self.assertEqual(box.runtime()["process"]["state"], "stopped")
        box.crash()
        box.start("installer")
        self.assertEqual(box.call("POST", "/resume", {}, uid=0)[1], {"status": "ok"})
        self.serving(box, one, 1)
        self.assertIsNone(box.runtime()["quiesced"])
        self.refused(box.call("POST", "/resume", {}, uid=0)[1], "not_quiesced")
        self.succeeded(box.finish(box.execute(request, operation)[0]))

    def test_starts_again_by_itself(self):
        box = self.box()
        one, = self.installed(box, 1)
        self.quiesce(box, seconds=1)
        self.serving(box, one, 1)
        self.assertIsNone(box.runtime()["quiesced"])
        self.quiesce(box, seconds=2)
        box.crash()
        eventually(lambda: json.loads(read(box.state.file("installer/quiesced.json")))["until"] < time.time(), "its end")
        box.start("installer")
        self.serving(box, one, 1)

    def test_a_clock_that_was_set_back_makes_it_no_longer(self):
        box = self.box()
        one, = self.installed(box, 1)
        self.quiesce(box, seconds=3600)
        box.stop("installer")
        now = int(time.time())
        write(box.state.file("installer/quiesced.json"), json.dumps({"since": now + 10**6, "until": now + 10**6 + 1}))
        box.start("installer")
        self.serving(box, one, 1)

    def test_what_was_stopped_stays_stopped(self):
        box = self.box()
        self.installed(box, 1)
        self.succeeded(box.run("stop"))
        self.quiesce(box)
        box.call("POST", "/resume", {}, uid=0)
        self.assertEqual((box.runtime()["desired"], box.serves()), ("stopped", False))

    def test_only_root_may(self):
        box = self.box()
        for uid in (box.state.uid("broker"), box.state.uid("admin"), box.state.uid("runtime")):
            for path in ("/quiesce", "/resume"):
                self.assertNotEqual(box.call("POST", path, {}, uid=uid)[0], 200)
        self.refused(box.call("POST", "/quiesce", {"seconds": 0}, uid=0)[1], "out_of_range")


class Checks(LifecycleTest):
    def test_checks_on_demand_and_at_an_interval(self):
        box = self.box(settings={"runtime.health_interval": "1"})
        self.refused(box.call("POST", "/probe", {})[1], "not_running")
        go = self.on_hold(box)
        self.assertEqual(box.call("POST", "/probe", {})[1], {"status": "ok"})
        os.unlink(go)
        self.assertEqual(box.call("POST", "/probe", {})[1]["code"], "not_ready")
        write(go, "")
        box.until("healthy")
        os.unlink(go)
        box.until("unhealthy")

    def test_release_and_digest_are_looked_at_by_themselves(self):
        box = self.box(settings={"runtime.health_interval": "1"})
        one, = self.installed(box, 1)

        def found(check):
            return [(r["status"], r["detail"]["error"]) for r in box.audit()
                    if r["action"] == "runtime.check" and r["detail"]["check"] == check]

        # It is not the image that hermes.conf names, which is said once.
        eventually(lambda: found("digest"), "the other digest is noticed")
        self.assertEqual(box.runtime()["health"]["checks"]["digest"], False)
        self.assertEqual(box.runtime()["health"]["checks"]["release"], "ok")
        marker = os.path.join(box.storage, "releases", one, "COMPLETE")
        text = read(marker)
        write(marker, text.replace(json.loads(text)["tree_digest"], "0" * 64))
        eventually(lambda: found("release"), "the changed marker is noticed")
        self.assertIn("another tree digest", box.runtime()["health"]["checks"]["release"])
        write(marker, text)
        eventually(lambda: len(found("release")) == 2, "the end of it is noticed")
        self.assertEqual([status for status, _ in found("release")], ["failed", "ok"])
        box.configure(**{"runtime.image": box.runtime()["installed_image"]})
        box.restart()
        box.until("healthy")
        self.assertTrue(box.runtime()["health"]["checks"]["digest"])
        self.assertEqual(len(found("digest")), 1)

    def test_status_on_a_full_and_on_a_read_only_disk(self):
        top = f"/tmp/hb-small-{os.getpid()}-{secrets.token_hex(4)}"
        os.mkdir(top)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=90m,mode=755", "tmpfs", top], check=True)
        self.addCleanup(lambda: (subprocess.run(["umount", "-l", top], check=True), os.rmdir(top)))
        box = self.box(storage=os.path.join(top, "storage"))
        one, = self.installed(box, 1)
        requests = [box.sealed("upgrade", image=self.image(box, schema)) for schema in (2, 3)]
        with open(os.path.join(top, "filler"), "wb", buffering=0) as f:
            try:
                while f.write(b"\0" * 65536):
                    pass
            except OSError:
                pass
        self.assertEqual(box.runtime()["release"], one)
        message = self.failed(box.finish(box.begin(requests[0])), "not_enough_space")
        self.assertRegex(message, r"free \d+ MiB more")
        self.serving(box, one, 1)
        subprocess.run(["mount", "-o", "remount,ro", top], check=True)
        self.assertEqual(box.runtime()["release"], one)
        self.assertEqual(box.call("GET", "/releases")[1]["releases"][0]["manifest_digest"], one)
        self.assertEqual(box.finish(box.begin(requests[1]))["state"], "failed")
        self.serving(box, one, 1)


class FullDisk(LifecycleTest):
    def small(self, size, box):
        """The data directory's surroundings become a small file system."""
        top = os.path.dirname(box.data)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", top], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", "-l", top], check=True))
        box.start("installer", "fetcher")
        return top

    def test_h22d_no_room_for_the_copy_is_refused_with_numbers(self):
        box = Box()
        self.addCleanup(box.__exit__)
        top = self.small("40m", box)
        self.installed(box, 1)
        image = self.image(box, 2)
        request = box.sealed("upgrade", image=image)
        with open(os.path.join(box.data, "big"), "wb") as f:
            f.write(os.urandom(24 << 20))
        pid = box.until("healthy")["process"]["pid"]
        # Before anybody is asked, and again when the room is gone since.
        for message in (self.refused(box.seal("upgrade", image=image), "not_enough_space"),
                        self.failed(box.finish(box.begin(request)), "not_enough_space")):
            self.assertIn(top, message)
            self.assertRegex(message, r"free \d+ MiB more. Nothing was changed")
        self.assertEqual(box.runtime()["process"]["pid"], pid)
        os.unlink(os.path.join(box.data, "big"))
        self.succeeded(box.run("upgrade", image=self.image(box, 2)))

    def test_h22d_disk_full_while_copying(self):
        box = Box()
        self.addCleanup(box.__exit__)
        self.small("20m", box)
        self.succeeded(box.run(image=self.image(box, 1, "grow")))
        one = box.link("current")
        with open(os.path.join(box.data, "big"), "wb") as f:
            f.write(os.urandom(5 << 20))
        # There is room when it is looked; the payload itself then writes when it is stopped.
        message = self.failed(box.run("upgrade", image=self.image(box, 2)), "disk_full")
        self.assertIn("serves as before", message)
        self.serving(box, one, 1)
        self.assertEqual(self.snapshots(box), {})


class Killed(LifecycleTest):
    """After kill -9 at any step exactly the old or the new release is there, with the data that belongs to it."""

    def settled(self, box, operation, before):
        status = box.status(operation)
        current = box.link("current")
        if status.get("code") == "unknown_operation":  # killed before the burn: it may be asked for again
            self.assertEqual(current, before["current"])
            state = "not begun"
        else:
            state = box.finish(operation)["state"]
            if state == "succeeded":
                self.assertEqual(current, before["other"])
            else:  # "failed": a child of the worker was killed, and the worker cleaned up
                self.assertIn(state, ("outcome_unknown", "failed"))
                self.assertEqual(current, before["current"])
        self.serving(box, current, before["schemas"][current])
        self.assertEqual(read(os.path.join(box.data, "account")), before["accounts"][current])
        activation = json.loads(read(box.state.file("installer/activation.json")))
        self.assertEqual(activation["manifest_digest"], current)
        self.assertEqual(len(box.children(box.state.uid("runtime"))), 1)
        copies = self.snapshots(box)
        self.assertLessEqual(sum(len(c) for c in copies.values()), 2, copies)
        return state

    def back_and_forth(self, box, one, two):
        """From one release to the other and back with its data, for ever: (request, what must be before and after)."""
        schemas = {one: "1", two: "2"}
        while True:
            current = box.link("current")
            other = one if current == two else two
            write(os.path.join(box.data, "account"), current)
            self.assertIn(other, self.snapshots(box))
            request = box.sealed("rollback", release=other, data="restore")
            yield request, {"current": current, "other": other, "schemas": schemas,
                            "accounts": {current: current, other: other}}

    def killed_at(self, box, operations, call, threads):
        seen = []
        for number in range(1, 200):
            request, before = next(operations)
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
            seen.append(self.settled(box, operation, before))
            if seen[-1] == "succeeded" and box.status(operation)["result"].get("duration_ms"):
                return seen
        self.fail(f"no end: {seen}")

    def two_releases(self):
        box = self.box()
        one, = self.installed(box, 1)
        write(os.path.join(box.data, "account"), one)
        self.succeeded(box.run("upgrade", image=self.image(box, 2)))
        return box, one, box.link("current")

    def test_h21_h24_rollback_killed_at_every_durable_step(self):
        box, one, two = self.two_releases()
        seen = self.killed_at(box, self.back_and_forth(box, one, two), "fdatasync", [])
        self.assertGreater(seen.count("outcome_unknown"), 5, seen)
        print("rollback, fdatasync:", len(seen), file=sys.stderr)

    def test_h21_h24_rollback_workers_killed_at_every_step_that_changes_names(self):
        box, one, two = self.two_releases()
        for call in ("renameat2", "renameat", "syncfs", "mkdirat", "unlinkat", "symlinkat"):
            with self.subTest(call=call):
                seen = self.killed_at(box, self.back_and_forth(box, one, two), call, ["-f"])
                self.assertGreater(len(seen), 1, seen)
                print(f"rollback, {call}:", len(seen), file=sys.stderr)

    def upgrades(self, box, current):
        """Always from the release of schema 1 to one of schema 2, never seen before."""
        while True:
            number = box.images
            if box.link("current") != current:
                self.succeeded(box.run("rollback", data="restore"))
                self.succeeded(box.run("prune"))
            write(os.path.join(box.data, "account"), "alice")
            request = box.sealed("upgrade", image=self.image(box, 2, version=f"2.{number}"))
            other = request["sealed"]["resolved"]["manifest_digest"]
            yield request, {"current": current, "other": other, "schemas": {current: "1", other: "2"},
                            "accounts": {current: "alice", other: "alice"}}

    def test_h21_h24_upgrade_killed_at_every_durable_step(self):
        box = self.box()
        one, = self.installed(box, 1)
        seen = self.killed_at(box, self.upgrades(box, one), "fdatasync", [])
        self.assertGreater(seen.count("outcome_unknown"), 5, seen)
        print("upgrade, fdatasync:", len(seen), file=sys.stderr)

    def test_h21_h24_upgrade_workers_killed_at_every_step_that_changes_names(self):
        box = self.box()
        one, = self.installed(box, 1)
        for call in ("renameat2", "renameat", "syncfs"):
            with self.subTest(call=call):
                seen = self.killed_at(box, self.upgrades(box, one), call, ["-f"])
                self.assertGreater(len(seen), 1, seen)
                print(f"upgrade, {call}:", len(seen), file=sys.stderr)

    def test_h24_installer_killed_while_the_new_release_runs_on_the_data(self):
        box = self.box(settings={"runtime.start_timeout": "60"})
        one, = self.installed(box, 1)
        write(os.path.join(box.data, "account"), "alice")
        operation = box.begin(box.sealed("upgrade", image=self.image(box, 2, "hold")))
        eventually(lambda: self.schema(box) == "2", "the new release has changed the data")
        write(os.path.join(box.data, "account"), "mallory")
        box.crash()
        box.start("installer")
        self.assertEqual(box.finish(operation)["state"], "outcome_unknown")
        self.serving(box, one, 1)
        self.assertEqual(read(os.path.join(box.data, "account")), "alice")
        self.assertEqual(self.snapshots(box), {})

    def test_h24_recovery_itself_is_killed(self):
        box = self.box(settings={"runtime.start_timeout": "60"})
        one, = self.installed(box, 1)
        write(os.path.join(box.data, "account"), "alice")
        operation = box.begin(box.sealed("upgrade", image=self.image(box, 2, "hold")))
        eventually(lambda: self.schema(box) == "2", "the new release has changed the data")
        box.crash()
        for call, number in (("renameat2", 1), ("renameat", 1), ("renameat", 2), ("fdatasync", 1), ("fdatasync", 2),
                             ("fdatasync", 3)):
            box.start("installer", check=False, prefix=[
                "strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                f"inject={call}:signal=KILL:when={number}"])
            p = box.processes.pop("installer")
            try:
                self.assertEqual(p.wait(PATIENCE), -signal.SIGKILL, (call, number))
            finally:
                p.kill()
        box.start("installer")
        self.assertEqual(box.finish(operation)["state"], "outcome_unknown")
        self.serving(box, one, 1)
        self.assertEqual(read(os.path.join(box.data, "account")), "alice")


if __name__ == "__main__":
    enter_namespace()
    payload()
    unittest.main(verbosity=2)
