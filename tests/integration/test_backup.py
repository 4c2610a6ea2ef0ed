#!/usr/bin/env python3
"""Backups: made, verified, restored, drilled, kept and removed; killed at every step; on full disks."""
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from installer_harness import BUILD, FINAL, PATIENCE, Box, enter_namespace, eventually, payload  # noqa: E402
import backup_archive  # noqa: E402

ROWS = 250


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def write(path, data, mode=0o600):
    with open(path, "wb", opener=lambda p, f: os.open(p, f, 0o600)) as f:
        f.write(data)
    os.chmod(path, mode)


def wal_database(path, rows=ROWS):
    """As the real payload leaves it: everything that was committed is in the -wal file, data.db itself is empty."""
    script = ("import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
              "c.execute('PRAGMA journal_mode=WAL'); c.execute('PRAGMA wal_autocheckpoint=0');"
              "c.execute('CREATE TABLE t (n INTEGER PRIMARY KEY, x TEXT)');"
              "[c.execute('INSERT INTO t (x) VALUES (?)', ('row %d' % i,)) for i in range(int(sys.argv[2]))];"
              "os._exit(0)")
    subprocess.run([sys.executable, "-c", script, path, str(rows)], check=True)
    assert os.path.getsize(path + "-wal") > 0


def tree(path):
    """What of a data directory must come back: everything but what the payload itself writes at each start."""
    out = {}
    for directory, names, files in os.walk(os.fsencode(path)):
        for name in names + files:
            full = os.path.join(directory, name)
            rel = os.path.relpath(full, os.fsencode(path))
            if rel == b"starts":
                continue
            st = os.lstat(full)
            content = os.readlink(full) if os.path.islink(full) else b""
            if os.path.isfile(full) and not os.path.islink(full):
                with open(full, "rb") as f:
                    content = hashlib.sha256(f.read()).digest()
            times = () if os.path.isdir(full) else (int(st.st_mtime),)
            out[rel] = (st.st_mode, st.st_uid, content, *times)
    return out


class BackupTest(unittest.TestCase):
    def box(self, install=True, **kwargs):
        box = Box(**kwargs)
        self.addCleanup(box.__exit__)
        box.start("installer", "fetcher")
        if install:
            self.succeeded(box.run(image=box.image()))
            box.until("healthy")
        self.backups = box.state.file("installer/backups")
        return box

    def succeeded(self, status):
        self.assertEqual(status["state"], "succeeded", status)
        return status["result"]

    def failed(self, status, code):
        self.assertEqual((status["state"], status.get("code")), ("failed", code), status)
        return status["error"]

    def refused(self, answer, code):
        self.assertEqual(answer.get("code"), code, answer)
        return answer["error"]

    def fill(self, box, content=b"content"):
        """Data of every kind, owned by the runtime as its own would be."""
        data = box.data
        os.makedirs(data + "/d/deep/empty")
        write(data + "/secret.key", b"key")
        write(data + "/readable", content, 0o644)
        write(data + "/script", b"#!/bin/sh\n", 0o755)
        write(data + "/read-only", b"x", 0o400)
        write(data + "/d/large", os.urandom(700000))
        write(data + "/d/zeros", bytes(100000))
        write(data + "/d/nothing", b"")
        write(os.fsencode(data) + b"/d/n\xff\xfe \n=", b"odd name")
        os.chmod(data + "/d", 0o750)
        os.symlink("d/large", data + "/link")
        os.symlink("../../secret.key", data + "/d/deep/up")
        os.symlink("/data/d", data + "/mounted")
        os.symlink("nowhere", data + "/dangling")
        wal_database(data + "/data.db")
        owner = box.state.uid("runtime")
        for directory, names, files in os.walk(os.fsencode(data)):
            for name in names + files:
                full = os.path.join(directory, name)
                os.lchown(full, owner, owner)
                os.utime(full, (1700000000, 1700000001), follow_symlinks=False)

    def archives(self):
        return sorted(n for n in os.listdir(self.backups) if n.endswith((".tar.zst", ".age")))

    def leftovers(self, box):
        beside = [n for n in os.listdir(os.path.dirname(box.data)) if ".restore-" in n]
        return beside + [n for n in os.listdir(self.backups) if n.startswith(".")]

    def back_up(self, box):
        return self.succeeded(box.run("backup"))["backup"]

    def listed(self, box):
        return box.call("GET", "/backups")[1]["backups"]

    def check(self, box, name, kind="verify"):
        answer = box.call("POST", f"/backups/{kind}", {"backup": name})[1]
        self.assertEqual(answer, {"status": "accepted"})
        return eventually(lambda: (lambda c: c if c["state"] != "running" else None)(
            box.call("GET", "/backups")[1]["check"]), f"{kind} ends")

    def rows(self, box):
        """Opened where it was restored to, as the payload would."""
        copy = box.state.file("copy")
        shutil.rmtree(copy, ignore_errors=True)
        os.mkdir(copy)
        for name in ("data.db", "data.db-wal"):
            if os.path.exists(os.path.join(box.data, name)):
                shutil.copy(os.path.join(box.data, name), copy)
        with sqlite3.connect(copy + "/data.db") as c:
            return c.execute("SELECT count(*) FROM t").fetchone()[0]


class Whole(BackupTest):
    def test_backup_and_restore_bring_back_everything(self):
        box = self.box()
        self.fill(box)
        before, pid = tree(box.data), box.runtime()["process"]["pid"]
        result = self.succeeded(box.run("backup"))
        name = result["backup"]
        self.assertRegex(name, r"^runtime-\d{8}T\d{6}Z-[0-9a-f]{8}\.tar\.zst$")
        self.assertNotEqual(box.until("healthy")["process"]["pid"], pid)
        with open(os.path.join(self.backups, name), "rb") as f:
            data = f.read()
        self.assertEqual(result["backup_sha256"], hashlib.sha256(data).hexdigest())
        self.assertIn(f"{ROWS} rows", result["output"])
        record = json.loads(read(os.path.join(self.backups, name + ".json")))
        self.assertEqual((record["size"], record["host_id"], record["release"], record["encrypted"]),
                         (len(data), box.host_id(), box.link("current"), False))
        self.assertEqual([(d["path"], d["state"], d["rows"]) for d in record["databases"]], [("data.db", "ok", ROWS)])
        self.assertGreater(record["last_verified"], 0)
        self.assertEqual(self.listed(box)[0], {**record, "recorded": True})
        self.assertEqual(self.leftovers(box), [])

        # The manifest is the first member and agrees with an independent reading of the format.
        raw = backup_archive.decompress(data)
        self.assertEqual(raw[:13], b"manifest.json")
        manifest = json.loads(raw[512:512 + int(raw[124:135], 8)])
        self.assertEqual(manifest["format"], "hermes-runtime-backup")
        entries = {e["path"]: e for e in manifest["entries"]}
        self.assertEqual(entries["readable"]["sha256"], hashlib.sha256(b"content").hexdigest())
        self.assertEqual((entries["readable"]["mode"], entries["data.db"]["sqlite"]), ("0644", True))
        self.assertIn("d/n\\377\\376\\040\\012\\075", entries)

        # Everything is changed, then everything comes back.
        box.stop("installer")
        os.unlink(box.data + "/read-only")
        shutil.rmtree(box.data + "/d")
        write(box.data + "/new", b"new")
        write(box.data + "/readable", b"CHANGED", 0o600)
        for log in ("-wal", "-shm"):
            if os.path.exists(box.data + "/data.db" + log):
                os.unlink(box.data + "/data.db" + log)
        wal_database(box.data + "/other.db", 3)
        os.lchown(box.data + "/new", box.state.uid("runtime"), box.state.uid("runtime"))
        changed = tree(box.data)
        box.start("installer")
        box.until("healthy")
        request = box.sealed("restore", backup=name)
        self.assertEqual(request["sealed"]["backup_sha256"], result["backup_sha256"])
        self.assertEqual(request["sealed"]["contents"], {k: record[k] for k in (
            "created_at", "files", "bytes", "host_id", "release", "image")})
        result = self.succeeded(box.finish(box.begin(request)))
        self.assertEqual(tree(box.data), before)
        top = os.stat(box.data)
        self.assertEqual((top.st_uid, top.st_mode & 0o7777), (box.state.uid("runtime"), 0o700))
        self.assertEqual(self.rows(box), ROWS)
        box.until("healthy")
        # What was there is kept for undo, whole.
        self.assertEqual(tree(result["set_aside"]), changed)
        self.assertIn(result["set_aside"], result["output"])
        self.assertEqual(box.call("GET", "/backups")[1]["set_aside"], [result["set_aside"]])
        self.assertEqual(self.leftovers(box), [])

    def test_h30_rows_in_the_wal_survive(self):
        box = self.box()
        wal_database(box.data + "/data.db")
        # The main file alone knows nothing of them: a copy of it opens fine and is silently older.
        alone = box.state.file("alone.db")
        shutil.copy(box.data + "/data.db", alone)
        with sqlite3.connect(alone) as c:
            self.assertEqual(c.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0], 0)
        name = self.back_up(box)
        for entry in os.listdir(box.data):
            if entry.startswith("data.db"):
                os.unlink(os.path.join(box.data, entry))
        self.succeeded(box.run("restore", backup=name))
        self.assertEqual(self.rows(box), ROWS)

    def test_h32_private_from_the_first_byte_and_modes_come_back(self):
        box = self.box()
        self.fill(box)
        # A key that somebody made readable: it is recorded as it is, and never restored so.
        os.chmod(box.data + "/secret.key", 0o644)
        os.chmod(box.data + "/d", 0o755)
        box.stop("installer")
        box.start("installer", prefix=["sh", "-c", 'umask 000; exec "$@"', "sh"])
        box.until("healthy")
        trace = box.state.file("log/trace")
        pid = str(box.processes["installer"].pid)
        tracer = subprocess.Popen(["strace", "-f", "-qq", "-y", "-s", "300", "-o", trace, "-e",
                                   "trace=openat,openat2,fchmod,fchmodat,chmod,mkdirat,mkdir,renameat2,renameat,umask",
                                   "-p", pid])
        seen, stop = set(), threading.Event()

        def watch():
            while not stop.is_set():
                for directory, names, files in os.walk(self.backups):
                    for entry in [".", *names, *files]:
                        try:
                            seen.add(oct(os.lstat(os.path.join(directory, entry)).st_mode & 0o077))
                        except FileNotFoundError:
                            pass

        watcher = threading.Thread(target=watch)
        try:
            eventually(lambda: "TracerPid:\t0\n" not in read(f"/proc/{pid}/status"), "strace attaches")
            watcher.start()
            name = self.back_up(box)
        finally:
            stop.set()
            tracer.send_signal(signal.SIGINT)
            tracer.communicate()
        watcher.join()
        self.assertEqual(seen, {"0o0"})
        created = [line for line in read(trace).splitlines() if "O_CREAT" in line and "backups>" in line]
        self.assertTrue(any(".new-" in line for line in created), created)
        for line in created:
            self.assertTrue(line.split("=")[-2].rstrip().endswith("0600)") or "0600) =" in line, line)
        for line in read(trace).splitlines():
            if "chmod" in line and "backups/" in line and ".scratch-" not in line:
                self.assertIn("0600", line)
        self.assertEqual(os.stat(self.backups).st_mode & 0o7777, 0o700)
        self.assertEqual(os.stat(os.path.join(self.backups, name)).st_mode & 0o7777, 0o600)

        self.succeeded(box.run("restore", backup=name))
        modes = {n: os.lstat(os.path.join(box.data, n)).st_mode & 0o7777 for n in (
            "secret.key", "readable", "script", "read-only", "d", "d/large")}
        self.assertEqual(modes, {"secret.key": 0o600, "readable": 0o644, "script": 0o755, "read-only": 0o400,
                                 "d": 0o755, "d/large": 0o600})

    def test_stopped_before_stopped_after(self):
        box = self.box()
        self.fill(box)
        before = tree(box.data)
        self.succeeded(box.run("stop"))
        name = self.back_up(box)
        self.assertFalse(box.serves())
        os.unlink(box.data + "/readable")
        result = self.succeeded(box.run("restore", backup=name))
        self.assertIn("stopped, as before", result["output"])
        self.assertFalse(box.serves())
        self.assertEqual(tree(box.data), before)
        self.succeeded(box.run("start"))

    def test_verify_says_what_it_finds(self):
        box = self.box()
        self.fill(box)
        name = self.back_up(box)
        path = os.path.join(self.backups, name)
        record = json.loads(read(path + ".json"))
        check = self.check(box, name)
        self.assertTrue(check["ok"], check)
        self.assertEqual({**check["record"], "last_verified": 0}, {**record, "last_verified": 0})
        with open(path, "r+b") as f:
            f.seek(5000)
            byte = f.read(1)
            f.seek(5000)
            f.write(bytes([byte[0] ^ 1]))
        check = self.check(box, name)
        self.assertEqual((check["ok"], check["code"]), (False, "bad_backup"))
        # It no longer counts as verified, and so can't be restored.
        self.assertEqual(self.listed(box)[0]["last_verified"], 0)
        self.assertIn("hermesctl backup verify " + name, self.refused(box.seal("restore", backup=name),
                                                                      "backup_unverified"))
        self.assertEqual(box.call("POST", "/backups/verify", {"backup": "nothing.tar.zst"})[1]["code"],
                         "backup_missing")
        self.assertEqual(box.call("POST", "/backups/verify", {"backup": "../../conf/hermes.conf"})[1]["code"],
                         "backup_missing")
        self.assertEqual(box.call("POST", "/backups/verify", {})[1]["code"], "missing_field")
        self.assertEqual(self.leftovers(box), [])

    def test_bytes_that_change_after_the_approval(self):
        box = self.box()
        one, two = self.back_up(box), None
        write(box.data + "/more", b"more")
        two = self.back_up(box)
        request = box.sealed("restore", backup=one)
        before, pid = tree(box.data), box.until("healthy")["process"]["pid"]
        # Another good archive in its place: good, but not what was approved.
        os.replace(os.path.join(self.backups, two), os.path.join(self.backups, one))
        self.failed(box.finish(box.begin(request)), "sealed_changed")
        self.assertEqual((tree(box.data), box.runtime()["process"]["pid"]), (before, pid))
        self.assertEqual(self.leftovers(box), [])

    def test_a_backup_from_elsewhere(self):
        box = self.box()
        name = "brought.tar.zst"
        write(os.path.join(self.backups, name), backup_archive.good(host_id="e" * 32))
        listed = self.listed(box)
        self.assertEqual([(b["name"], b["recorded"]) for b in listed], [(name, False)])
        self.refused(box.seal("restore", backup=name), "backup_unverified")
        self.assertTrue(self.check(box, name)["ok"])
        self.succeeded(box.run("restore", backup=name))
        self.assertEqual(read(box.data + "/a"), "content")
        for mode, owner in ((0o640, 0), (0o600, box.state.uid("runtime"))):
            os.chmod(os.path.join(self.backups, name), mode)
            os.chown(os.path.join(self.backups, name), owner, owner)
            self.assertIn("chmod 600", self.refused(box.seal("restore", backup=name), "loose_permissions"))


class Refusals(BackupTest):
    def test_never_inside_the_data(self):
        box = self.box(install=False)
        box.stop("installer")
        inside = box.data + "/backups"
        box.configure(**{"runtime.backup_dir": inside})
        box.start("installer")
        message = self.refused(box.seal("backup"), "backup_dir_inside_data")
        self.assertIn("runtime.backup_dir", message)
        self.assertFalse(os.path.exists(inside))
        # Everything else works.
        self.succeeded(box.run(image=box.image()))

    def test_data_that_no_backup_can_hold(self):
        box = self.box()
        pid = box.runtime()["process"]["pid"]
        os.symlink("/etc/passwd", box.data + "/out")
        self.assertIn("out", self.failed(box.run("backup"), "unsafe_link"))
        os.unlink(box.data + "/out")
        os.mknod(box.data + "/device", 0o600 | 0o020000, os.makedev(1, 3))
        self.failed(box.run("backup"), "unsafe_file")
        os.unlink(box.data + "/device")
        write(box.data + "/broken.db", b"SQLite format 3\0" + b"\x10\x00\x01\x01\x00\x40\x20\x20" + b"\xff" * 4072)
        self.assertIn("broken.db", self.failed(box.run("backup"), "database_damaged"))
        os.unlink(box.data + "/broken.db")
        self.assertEqual((self.archives(), self.leftovers(box)), ([], []))
        # Each time it was started again.
        self.assertNotEqual(box.until("healthy")["process"]["pid"], pid)
        # Sockets and fifos hold nothing.
        os.mkfifo(box.data + "/fifo")
        write(box.data + "/setuid", b"x", 0o4755)
        result = self.succeeded(box.run("backup"))
        self.assertIn("1 sockets and fifos were left out", result["output"])
        self.succeeded(box.run("restore", backup=result["backup"]))
        self.assertEqual(os.stat(box.data + "/setuid").st_mode & 0o7777, 0o755)
        self.assertFalse(os.path.exists(box.data + "/fifo"))

    def test_a_data_directory_that_cannot_be_swapped(self):
        box = self.box()
        name = self.back_up(box)
        os.rename(box.data, box.data + ".old")
        os.mkdir(box.data)
        os.chown(box.data, box.state.uid("runtime"), box.state.uid("runtime"))
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", box.data], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", "-l", box.data], check=True))
        self.assertIn("runtime.data", self.failed(box.run("restore", backup=name), "data_not_swappable"))
        self.assertEqual(self.leftovers(box), [])

    def test_nothing_to_back_up(self):
        box = self.box(install=False)
        self.failed(box.run("backup"), "data_missing")
        self.refused(box.seal("restore", backup="x.tar.zst"), "backup_missing")


class Known(BackupTest):
    def test_h24_a_known_installation_without_data_waits_for_a_restore(self):
        box = self.box()
        self.fill(box)
        before = tree(box.data)
        name = self.back_up(box)
        for lost in ("missing", "empty"):
            with self.subTest(lost):
                box.stop("installer")
                shutil.rmtree(box.data)
                if lost == "empty":
                    os.mkdir(box.data, 0o700)
                    os.chown(box.data, box.state.uid("runtime"), box.state.uid("runtime"))
                box.start("installer")
                eventually(lambda: box.runtime()["trouble"], "it says why it doesn't start")
                self.assertIn("hermesctl runtime restore", box.runtime()["trouble"])
                self.assertFalse(box.serves())
                self.assertEqual(os.path.exists(box.data) and os.listdir(box.data), [] if lost == "empty" else False)
                self.failed(box.run("start"), "data_missing")
                self.failed(box.run("backup"), "data_missing")
                self.succeeded(box.run("restore", backup=name))
                box.until("healthy")
                self.assertEqual(tree(box.data), before)

    def test_a_restore_that_does_not_become_healthy_is_taken_back(self):
        box = self.box(install=False)
        image = box.image("hold")
        operation = box.begin(box.sealed(image=image))
        eventually(lambda: os.path.exists(box.data + "/starts"), "it is started")
        write(box.data + "/go", b"", 0o644)
        self.succeeded(box.finish(operation))
        # A backup of data with which it never becomes healthy.
        self.succeeded(box.run("stop"))
        os.rename(box.data + "/go", box.state.file("go"))
        name = self.back_up(box)
        os.rename(box.state.file("go"), box.data + "/go")
        write(box.data + "/newest", b"x")
        self.succeeded(box.run("start"))
        before = tree(box.data)
        status = box.run("restore", backup=name)
        self.assertEqual(status["state"], "failed", status)
        self.assertIn("the data is as before", status["error"])
        box.until("healthy")
        self.assertEqual(tree(box.data), before)
        self.assertEqual(self.leftovers(box), [])
        self.assertEqual(box.call("GET", "/backups")[1]["set_aside"], [])

    def test_a_release_that_the_store_has_lost_is_fetched_again(self):
        box = self.box()
        self.fill(box)
        before, release = tree(box.data), box.link("current")
        name = self.back_up(box)
        box.stop("installer")
        shutil.rmtree(os.path.join(box.storage, "releases", release))
        shutil.rmtree(os.path.join(box.storage, "blobs", "sha256"))
        shutil.rmtree(box.data)
        box.stop("fetcher")
        box.start("installer", "fetcher")
        self.succeeded(box.run("restore", backup=name))
        self.assertEqual((box.link("current"), tree(box.data)), (release, before))
        box.until("healthy")

    def test_restore_without_any_release(self):
        box = self.box()
        self.fill(box)
        before = tree(box.data)
        name = self.back_up(box)
        image = box.runtime()["installed_image"]
        box.stop("installer")
        shutil.rmtree(box.data)
        shutil.rmtree(box.storage)
        box.state.directory("storage", 0o755)
        box.start("installer")
        box.restart("fetcher")
        self.assertIn("install one now", self.succeeded(box.run("restore", backup=name))["output"])
        self.assertEqual(tree(box.data), before)
        self.succeeded(box.run(image=image))
        self.assertEqual(tree(box.data), before)


class SetAside(BackupTest):
    def test_prune_takes_what_was_shown_and_never_the_last(self):
        box = self.box()
        nothing = box.sealed("prune")
        self.assertEqual((nothing["sealed"]["set_aside"], nothing["sealed"]["undo"]), ([], ""))
        self.assertNotIn("last_backup", box.sealed("upgrade", image=box.image(mark="next"))["sealed"])
        name, aside = self.back_up(box), []
        for n in range(3):
            write(box.data + "/number", str(n).encode())
            aside.append(self.succeeded(box.run("restore", backup=name))["set_aside"])
        self.failed(box.finish(box.begin(nothing)), "sealed_changed")
        # Others beside it are nobody's to take.
        os.makedirs(box.data + ".before-mine")
        request = box.sealed("prune")
        self.assertEqual((request["sealed"]["set_aside"], request["sealed"]["undo"]), (aside[:2], aside[2]))
        result = self.succeeded(box.finish(box.begin(request)))
        self.assertEqual(result["set_aside_removed"], 2)
        self.assertEqual([os.path.exists(a) for a in aside], [False, False, True])
        self.assertEqual(read(aside[2] + "/number"), "2")
        self.assertTrue(os.path.isdir(box.data + ".before-mine"))
        self.assertEqual(box.sealed("prune")["sealed"]["set_aside"], [])
        box.until("healthy")
        self.assertEqual(self.leftovers(box), [])


class Keeping(BackupTest):
    def test_retention_by_count(self):
        box = self.box(settings={"runtime.backup_keep": "2"})
        names = [self.back_up(box) for _ in range(2)]
        # Names and times have seconds: these two must be older than what follows.
        for name in names:
            path = os.path.join(self.backups, name + ".json")
            record = json.loads(read(path))
            record["created_at"] -= 1000 - 100 * names.index(name)
            write(path, json.dumps(record).encode())
        write(os.path.join(self.backups, "brought.tar.zst"), backup_archive.good())
        result = self.succeeded(box.run("backup"))
        self.assertEqual(result["removed"], [names[0]])
        self.assertEqual(self.archives(), sorted(["brought.tar.zst", names[1], result["backup"]]))
        self.assertFalse(os.path.exists(os.path.join(self.backups, names[0] + ".json")))

    def test_encrypted(self):
        identity = f"/tmp/hb-age-{os.getpid()}"
        subprocess.run(["age-keygen", "-o", identity], check=True, stderr=subprocess.DEVNULL)
        self.addCleanup(os.unlink, identity)
        recipient = re.search(r"public key: (\S+)", read(identity))[1]
        box = self.box(settings={"runtime.age_recipients": recipient})
        self.fill(box)
        before = tree(box.data)
        result = self.succeeded(box.run("backup"))
        name = result["backup"]
        self.assertTrue(name.endswith(".tar.zst.age"))
        with open(os.path.join(self.backups, name), "rb") as f:
            data = f.read()
        self.assertTrue(data.startswith(b"age-encryption.org/v1\n"))
        self.assertEqual(hashlib.sha256(data).hexdigest(), result["backup_sha256"])
        self.assertEqual((self.archives(), self.leftovers(box)), ([name], []))
        self.assertTrue(self.listed(box)[0]["encrypted"])
        self.assertTrue(self.check(box, name)["ok"])
        self.assertIn("hermesctl backup decrypt", self.refused(box.seal("restore", backup=name), "backup_encrypted"))
        done = subprocess.run([os.path.join(BUILD, "admin/hermesctl"), "--state", box.state.path, "--json", "backup",
                               "decrypt", name, "--identity", identity], stdout=subprocess.PIPE, check=True)
        plain = json.loads(done.stdout)["backup"]
        self.assertEqual(os.stat(os.path.join(self.backups, plain)).st_mode & 0o7777, 0o600)
        self.assertTrue(self.check(box, plain)["ok"])
        os.unlink(box.data + "/readable")
        self.succeeded(box.run("restore", backup=plain))
        self.assertEqual(tree(box.data), before)
        # A changed byte of what nobody here can read is seen all the same.
        with open(os.path.join(self.backups, name), "ab") as f:
            f.write(b"x")
        self.assertEqual(self.check(box, name)["code"], "bad_backup")

    def test_recipients_that_are_none(self):
        box = self.box(settings={"runtime.age_recipients": "-o/etc/passwd"})
        self.refused(box.seal("backup"), "bad_recipient")
        self.assertTrue(box.serves())


class Drill(BackupTest):
    def test_drill(self):
        box = self.box()
        self.fill(box)
        name = self.back_up(box)
        before, pid = tree(box.data), box.until("healthy")["process"]["pid"]
        check = self.check(box, name, "drill")
        self.assertTrue(check["ok"], check)
        drill = self.listed(box)[0]["drill"]
        self.assertEqual(drill, check["drill"])
        self.assertTrue(drill["ok"])
        self.assertIn("became healthy", drill["proves"])
        # The live one was not touched, and nothing is left.
        self.assertEqual((tree(box.data), box.runtime()["process"]["pid"]), (before, pid))
        self.assertEqual(self.leftovers(box), [])
        self.assertEqual(len(box.children(box.state.uid("runtime"))), 1)
        # A verification afterwards doesn't forget it.
        self.check(box, name)
        self.assertEqual(self.listed(box)[0]["drill"], drill)
        # Who approves the next upgrade is told.
        sealed = box.sealed("upgrade", image=box.image(mark="next"))["sealed"]
        record = self.listed(box)[0]
        self.assertEqual(sealed["last_backup"], {k: record[k] for k in ("name", "created_at", "last_verified")})
        self.assertEqual(sealed["last_drill"], {"backup": name, "at": drill["at"], "ok": True, "of_current": True})
        self.assertNotIn("last_drill", box.sealed(image=box.image(mark="next"))["sealed"])

    def test_a_drill_that_fails_says_why(self):
        box = self.box(install=False, settings={"runtime.start_timeout": "2"})
        operation = box.begin(box.sealed(image=box.image("hold")))
        eventually(lambda: os.path.exists(box.data + "/starts"), "it is started")
        write(box.data + "/go", b"", 0o644)
        self.succeeded(box.finish(operation))
        self.succeeded(box.run("stop"))
        os.rename(box.data + "/go", box.state.file("go"))
        name = self.back_up(box)
        os.rename(box.state.file("go"), box.data + "/go")
        self.succeeded(box.run("start"))
        pid = box.until("healthy")["process"]["pid"]
        check = self.check(box, name, "drill")
        self.assertFalse(check["ok"])
        drill = self.listed(box)[0]["drill"]
        self.assertEqual((drill["ok"], drill["code"]), (False, check["drill"]["code"]))
        self.assertTrue(drill["error"])
        self.assertFalse(box.sealed("upgrade", image=box.image(mark="next"))["sealed"]["last_drill"]["ok"])
        self.assertEqual(box.until("healthy")["process"]["pid"], pid)
        self.assertEqual(self.leftovers(box), [])
        self.assertEqual(len(box.children(box.state.uid("runtime"))), 1)


class Interruptions(BackupTest):
    def settled(self, box, operation):
        status = box.finish(operation)
        self.assertIn(status["state"], FINAL)
        self.assertEqual(self.leftovers(box), [])
        box.until("healthy")
        return status

    def killed_at(self, box, action, call, threads, old, new):
        """The action killed at its first, second, third ... use of a system call, until one isn't reached. After each,
        the data is exactly one of the two trees, as the outcome says."""
        seen = []
        for number in range(1, 200):
            fields = {"backup": self.name} if action == "restore" else {}
            request = box.sealed(action, **fields)
            archives = self.archives()
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
            died = box.processes["installer"].poll() is not None
            if died:
                box.start("installer")
            if box.status(operation).get("code") == "unknown_operation":  # killed before the burn
                seen.append("not begun")
                continue
            status = self.settled(box, operation)
            seen.append(status["state"])
            now = tree(box.data)
            with self.subTest(call=call, number=number, state=status["state"]):
                if action == "backup":
                    self.assertEqual(now, old)
                    made = set(self.archives()) - set(archives)
                    self.assertLessEqual(len(made), 1)
                    for name in made:
                        self.assertTrue(self.check(box, name)["ok"])
                        os.unlink(os.path.join(self.backups, name))
                elif status["state"] == "succeeded":
                    self.assertEqual(now, new)
                else:
                    self.assertEqual(now, old)
                    self.assertEqual(box.call("GET", "/backups")[1]["set_aside"], [])
            if now == new and action == "restore":  # begin again from the old data
                aside = box.call("GET", "/backups")[1]["set_aside"]
                self.assertEqual(len(aside), 1)
                box.stop("installer")
                shutil.rmtree(box.data)
                os.rename(aside[0], box.data)
                box.start("installer")
                box.until("healthy")
            if status["state"] == "succeeded" and not died and status["result"].get("duration_ms"):
                return seen
        self.fail(f"no end: {seen}")

    def prepared(self):
        box = self.box()
        self.fill(box)
        new = tree(box.data)
        self.name = self.back_up(box)
        write(box.data + "/readable", b"OLD", 0o640)
        os.lchown(box.data + "/readable", box.state.uid("runtime"), box.state.uid("runtime"))
        os.utime(box.data + "/readable", (1700000000, 1700000000))
        box.until("healthy")
        return box, tree(box.data), new

    def test_installer_killed_at_every_durable_step_of_a_restore(self):
        box, old, new = self.prepared()
        seen = self.killed_at(box, "restore", "fdatasync", [], old, new)
        self.assertGreater(seen.count("outcome_unknown"), 3, seen)
        self.assertGreater(seen.count("succeeded"), 1, seen)

    def test_workers_killed_at_every_step_of_a_restore_that_changes_names(self):
        box, old, new = self.prepared()
        for call in ("renameat2", "mkdirat", "unlinkat", "syncfs"):
            self.assertGreater(len(self.killed_at(box, "restore", call, ["-f"], old, new)), 1)

    def test_killed_at_every_step_of_a_backup(self):
        box, old, new = self.prepared()
        for call, threads in (("fdatasync", []), ("renameat2", ["-f"]), ("fsync", ["-f"]), ("mkdirat", ["-f"])):
            self.assertGreater(len(self.killed_at(box, "backup", call, threads, old, new)), 1)

    def test_recovery_itself_is_killed(self):
        box, old, _ = self.prepared()
        request = box.sealed("restore", backup=self.name)
        pid = box.processes["installer"].pid
        tracer = subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2", "-e",
                                   "inject=renameat2:signal=STOP:when=1", "-p", str(pid)])
        eventually(lambda: "TracerPid:\t0\n" not in read(f"/proc/{pid}/status"), "strace attaches")
        operation, _ = box.execute(request)
        # The worker stops behind the first of the two renames: there is no data directory in its place.
        eventually(lambda: not os.path.exists(box.data), "the data is set aside")
        box.crash()
        tracer.terminate()
        tracer.wait()
        for call, number in (("renameat2", 1), ("fdatasync", 1), ("fdatasync", 2)):
            box.start("installer", check=False, prefix=[
                "strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                f"inject={call}:signal=KILL:when={number}"])
            p = box.processes.pop("installer")
            eventually(lambda: p.poll() is not None or box.call("GET", "/health")[0] == 200, "killed or up")
            if p.poll() is None:
                p.terminate()
                p.wait(PATIENCE)
        box.start("installer")
        self.settled(box, operation)
        self.assertEqual(tree(box.data), old)

    def test_a_drill_whose_worker_dies_leaves_nothing(self):
        box = self.box(install=False, settings={"runtime.start_timeout": "60"})
        operation = box.begin(box.sealed(image=box.image("hold")))
        eventually(lambda: os.path.exists(box.data + "/starts"), "it is started")
        write(box.data + "/go", b"", 0o644)
        self.succeeded(box.finish(operation))
        self.succeeded(box.run("stop"))
        os.rename(box.data + "/go", box.state.file("go"))
        name = self.back_up(box)
        os.rename(box.state.file("go"), box.data + "/go")
        self.succeeded(box.run("start"))
        before = set(box.children(0))
        box.call("POST", "/backups/drill", {"backup": name})
        eventually(lambda: len(box.children(box.state.uid("runtime"))) == 2, "the second one runs")
        job = [p for p in set(box.children(0)) - before if os.readlink(f"/proc/{p}/exe").endswith("hermes-installer")]
        for pid in job:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: len(box.children(box.state.uid("runtime"))) == 1, "it is ended")
        box.restart()
        box.until("healthy")
        self.assertEqual(self.leftovers(box), [])


class FullDisk(BackupTest):
    def small(self, size):
        path = f"/tmp/hb-small-{os.getpid()}-{secrets.token_hex(4)}"
        os.mkdir(path)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", path], check=True)
        self.addCleanup(lambda: (subprocess.run(["umount", "-l", path], check=True), os.rmdir(path)))
        return path

    def test_too_little_room_is_refused_with_numbers_while_it_runs(self):
        where = self.small("12m")
        box = self.box(settings={"runtime.backup_dir": where})
        self.backups = where
        request = box.sealed("backup")
        write(box.data + "/large", os.urandom(8 << 20))
        pid = box.runtime()["process"]["pid"]
        # Before anybody is asked, and again when the room is gone since.
        for message in (self.refused(box.seal("backup"), "not_enough_space"),
                        self.failed(box.finish(box.begin(request)), "not_enough_space")):
            self.assertRegex(message, r"has \d+ MiB free and about \d+ MiB are needed.*free \d+ MiB more")
            self.assertIn(where, message)
        self.assertEqual(box.runtime()["process"]["pid"], pid)
        self.assertEqual(os.listdir(where), [])
        os.unlink(box.data + "/large")
        self.back_up(box)

    def test_a_disk_that_fills_up_meanwhile(self):
        where = self.small("200m")
        box = self.box(settings={"runtime.backup_dir": where})
        self.backups = where
        write(box.data + "/large", os.urandom(100 << 20))
        operation = box.begin(box.sealed("backup"))
        eventually(lambda: any(n.startswith(".new-") for n in os.listdir(where)), "it is being written")
        filler = os.open(where + "/filler", os.O_WRONLY | os.O_CREAT)
        with self.assertRaises(OSError):
            for at in range(1000):
                os.posix_fallocate(filler, at << 20, 1 << 20)
        os.close(filler)
        self.failed(box.finish(operation), "disk_full")
        self.assertEqual(os.listdir(where), ["filler"])
        box.until("healthy")
        os.unlink(where + "/filler")
        self.back_up(box)

    def test_restore_without_room(self):
        box = self.box()
        write(box.data + "/large", bytes(60 << 20))
        name = self.back_up(box)
        os.unlink(box.data + "/large")
        place = self.small("200m")
        os.chmod(place, 0o755)
        box.stop("installer")
        shutil.copytree(box.data, place + "/data", symlinks=True)
        os.chmod(place + "/data", 0o700)
        subprocess.run(["chown", "-R", f"{box.state.uid('runtime')}:{box.state.uid('runtime')}", place + "/data"],
                       check=True)
        box.configure(**{"runtime.data": place + "/data"})
        box.data = place + "/data"
        box.start("installer")
        self.succeeded(box.run("restart"))
        before = tree(box.data)
        request = box.sealed("restore", backup=name)
        subprocess.run(["mount", "-o", "remount,size=40m", place], check=True)
        for message in (self.refused(box.seal("restore", backup=name), "not_enough_space"),
                        self.failed(box.finish(box.begin(request)), "not_enough_space")):
            self.assertRegex(message, r"free \d+ MiB more")
        self.assertEqual(tree(box.data), before)
        self.assertEqual(self.leftovers(box), [])
        self.assertTrue(box.serves())


if __name__ == "__main__":
    enter_namespace()
    payload()
    unittest.main(verbosity=2)
