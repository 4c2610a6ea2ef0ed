#!/usr/bin/env python3
"""H31: archives that are hostile or damaged, given to the whole installer. Each is refused before anything changes.

Everything runs in a private mount namespace with the host read-only (tests/fixtures/confine.py). "Outside" is a directory
of the scratch space that anybody may write: an escape would succeed there and be seen.
"""
import hashlib
import json
import os
import secrets
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import confine  # noqa: E402

if confine.SCRATCH:
    os.environ["TMPDIR"] = tempfile.tempdir = confine.SCRATCH

import backup_archive  # noqa: E402
from installer_harness import Box, eventually  # noqa: E402

CODES = {"bad_backup", "unsafe_path", "unsafe_link", "unsafe_mode", "limit_exceeded", "database_damaged"}


def looks(path):
    """Everything below, so that any change is seen."""
    out = {}
    for directory, names, files in os.walk(path):
        for name in [".", *names, *files]:
            full = os.path.join(directory, name)
            st = os.lstat(full)
            out[os.path.relpath(full, path)] = (st.st_mode, st.st_uid, st.st_nlink, st.st_size, st.st_ino,
                                                st.st_mtime_ns, st.st_ctime_ns)
    return out


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        confine.require()
        cls.box = Box()
        cls.addClassCleanup(cls.box.__exit__)
        cls.box.start("installer", "fetcher")
        status = cls.box.run(image=cls.box.image())
        assert status["state"] == "succeeded", status
        cls.box.until("healthy")
        cls.outside = tempfile.mkdtemp()
        os.chmod(cls.outside, 0o777)
        with open(cls.outside + "/victim", "w", encoding="ascii") as f:
            f.write("secret")
        os.chmod(cls.outside + "/victim", 0o666)
        cls.backups = cls.box.state.file("installer/backups")

    def put(self, data):
        name = f"foreign-{secrets.token_hex(4)}.tar.zst"
        with open(os.path.join(self.backups, name), "wb", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write(data)
        return name

    def check(self, name):
        answer = self.box.call("POST", "/backups/verify", {"backup": name})[1]
        self.assertEqual(answer, {"status": "accepted"})
        return eventually(lambda: (lambda c: c if c["state"] != "running" else None)(
            self.box.call("GET", "/backups")[1]["check"]), "the check ends")

    def record(self, name, data):
        """As if somebody had verified it."""
        record = {"version": 1, "name": name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data),
                  "created_at": 1, "host_id": "", "operation_id": "", "release": "", "image": "", "files": 1,
                  "directories": 1, "links": 0, "bytes": 1, "left_out": 0, "encrypted": False, "last_verified": 1,
                  "databases": []}
        with open(os.path.join(self.backups, name + ".json"), "w", encoding="ascii",
                  opener=lambda p, f: os.open(p, f, 0o600)) as f:
            json.dump(record, f)

    def live(self):
        return (looks(self.box.data), sorted(os.listdir(os.path.dirname(self.box.data))), looks(self.outside),
                self.box.runtime()["process"]["pid"], self.box.starts())

    def test_h31_each_is_refused_before_anything_changes(self):
        before = self.live()
        for what, data in backup_archive.hostile(self.outside):
            with self.subTest(what):
                name = self.put(data)
                check = self.check(name)
                self.assertEqual((check["ok"], check["code"] in CODES), (False, True), check)
                self.assertEqual(self.box.seal("restore", backup=name)["code"], "backup_unverified")
                # Even with a record that praises it: approved, and refused by the reader again.
                self.record(name, data)
                status = self.box.run("restore", backup=name)
                self.assertEqual(status["state"], "failed", status)
                self.assertIn(status["code"], CODES | {"not_enough_space"}, status)
                self.assertEqual(self.live(), before)
                self.assertEqual([n for n in os.listdir(self.backups) if n.startswith(".")], [])
                os.unlink(os.path.join(self.backups, name))
                os.unlink(os.path.join(self.backups, name + ".json"))
        self.assertTrue(self.box.serves())

    def test_the_one_they_are_made_from_is_good(self):
        # Else the cases above could be refused for a reason that is none of theirs.
        data = backup_archive.good(host_id="f" * 32)
        name = self.put(data)
        check = self.check(name)
        self.assertTrue(check["ok"], check)
        self.assertEqual((check["record"]["host_id"], check["record"]["files"]), ("f" * 32, 2))
        request = self.box.sealed("restore", backup=name)
        self.assertEqual(request["sealed"]["backup_sha256"], hashlib.sha256(data).hexdigest())
        self.assertEqual(request["sealed"]["contents"]["host_id"], "f" * 32)
        status = self.box.finish(self.box.begin(request))
        self.assertEqual(status["state"], "succeeded", status)
        self.assertEqual(sorted(set(os.listdir(self.box.data)) - {"starts"}), ["a", "d", "l"])
        self.assertEqual(os.readlink(self.box.data + "/l"), "d/x")
        with open(self.box.data + "/d/x", "rb") as f:
            self.assertEqual(f.read(), b"x" * 5000)

    def test_a_large_promise_takes_no_memory(self):
        # 4 GiB of zeros in a few kilobytes: hashed and thrown away, or refused for room; never held.
        archive = backup_archive.Archive()
        archive.entries.append({"path": "z", "type": "file", "mode": "0600", "mtime": 1, "size": 1 << 42,
                                "sha256": "0" * 64})
        archive.members.append(backup_archive.Member("data/z", content=bytes(1 << 20), size=1 << 42))
        name = self.put(archive.bytes())
        check = self.check(name)
        self.assertEqual((check["ok"], check["code"]), (False, "bad_backup"), check)


if __name__ == "__main__":
    confine.main()
