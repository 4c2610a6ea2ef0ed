#!/usr/bin/env python3
"""Backup, restore and drill of the real payload (npm package `executor`) through the whole installer."""
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from installer_harness import BUILD, Box, enter_namespace, eventually, payload, platform  # noqa: E402
import payload_rootfs  # noqa: E402

CACHE = os.environ.get("HB_CACHE") or os.path.join(BUILD, "cache")
TOKEN = "token-of-this-test-0123456789"


class RealPayload(unittest.TestCase):
    def box(self):
        box = Box(settings={"runtime.health_path": "/", "runtime.health_body": "", "runtime.start_timeout": "40",
                            "runtime.health_token_file": "installer/payload-token",
                            "runtime.mcp_key_file": "installer/payload-token", "runtime.stop_timeout": "20",
                            "runtime.env.EXECUTOR_HOST": "127.0.0.1"})
        self.addCleanup(box.__exit__)
        box.state.write("installer/payload-token", TOKEN + "\n", 0o600)
        box.start("installer", "fetcher")
        return box

    def image(self, box):
        root = box.state.file("rootfs")
        os.mkdir(root)
        payload_rootfs.executor_rootfs(CACHE)(root)
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as t:
            for name in sorted(os.listdir(root)):
                t.add(os.path.join(root, name), name)
        shutil.rmtree(root)
        command = f"exec executor web --hostname 127.0.0.1 --port $PORT --auth-token {TOKEN}"
        config = {"Cmd": ["/bin/sh", "-c", command], "WorkingDir": "/", "Volumes": {"/data": {}},
                  "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "EXECUTOR_DATA_DIR=/data", "HOME=/data"]}
        layer = box.layout.layer(raw.getvalue())
        box.images += 1
        return box.reference(box.layout.index([box.layout.image([layer], platform=platform(), config=config)]))

    def rows(self, box):
        """Of every table, from a copy of data.db with its log."""
        copy = box.state.file("copy")
        shutil.rmtree(copy, ignore_errors=True)
        os.mkdir(copy)
        for name in os.listdir(box.data):
            if name.startswith("data.db"):
                shutil.copy(os.path.join(box.data, name), copy)
        with sqlite3.connect(copy + "/data.db") as c:
            tables = [t for (t,) in c.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND "
                                              "name NOT LIKE 'sqlite_%'")]
            return {t: c.execute(f'SELECT count(*) FROM "{t}"').fetchone()[0] for t in tables}

    def succeeded(self, status):
        self.assertEqual(status["state"], "succeeded", status)
        return status["result"]

    def test_h30_everything_in_the_wal_comes_back_and_serves(self):
        box = self.box()
        self.succeeded(box.run(image=self.image(box)))
        box.until("healthy")
        self.succeeded(box.run("stop"))
        before = self.rows(box)
        self.assertTrue(before, "the payload has made its tables")
        names = sorted(os.listdir(box.data))
        # What the payload leaves: most of it is not in data.db itself.
        wal = os.path.getsize(box.data + "/data.db-wal")
        self.assertGreater(wal, os.path.getsize(box.data + "/data.db"))
        # A row more, in the log only.
        with sqlite3.connect(box.data + "/data.db", isolation_level=None) as c:
            c.execute("PRAGMA wal_autocheckpoint=0")
            c.execute("CREATE TABLE hermes_test (x)")
            c.execute("INSERT INTO hermes_test VALUES ('kept')")
            for name in ("data.db", "data.db-wal"):
                shutil.copy(os.path.join(box.data, name), box.state.file(name))
        c.close()  # writes the log into the main file and removes it; put back what was there before
        for name in ("data.db", "data.db-wal"):
            shutil.copy(box.state.file(name), os.path.join(box.data, name))
        owner = box.state.uid("runtime")
        subprocess.run(["chown", "-R", f"{owner}:{owner}", box.data], check=True)
        self.succeeded(box.run("start"))
        result = self.succeeded(box.run("backup"))
        record = box.call("GET", "/backups")[1]["backups"][0]
        database = [d for d in record["databases"] if d["path"] == "data.db"][0]
        self.assertEqual(database["state"], "ok")
        self.assertGreater(database["rows"], 0)

        # Lost, and brought back; it serves, and with the token that is in the data.
        box.stop("installer")
        shutil.rmtree(box.data)
        box.start("installer")
        self.succeeded(box.run("restore", backup=result["backup"]))
        health = box.until("healthy")["health"]
        self.assertEqual(health["checks"]["http"], "ok")
        self.assertEqual(health["tools"], ["execute", "resume"])
        self.succeeded(box.run("stop"))
        after = self.rows(box)
        self.assertEqual(after.pop("hermes_test"), 1)
        self.assertEqual(set(after), set(before))
        self.assertLessEqual(set(names) - {"data.db-shm", "data.db-wal"}, set(os.listdir(box.data)))
        self.succeeded(box.run("start"))

        # The same copy beside the live one.
        pid = box.until("healthy")["process"]["pid"]
        self.assertEqual(box.call("POST", "/backups/drill", {"backup": result["backup"]})[1], {"status": "accepted"})
        check = eventually(lambda: (lambda c: c if c["state"] != "running" else None)(
            box.call("GET", "/backups")[1]["check"]), "the drill ends")
        self.assertTrue(check["ok"], check)
        self.assertEqual(box.runtime()["process"]["pid"], pid)


if __name__ == "__main__":
    enter_namespace()
    payload()
    unittest.main(verbosity=2)
