#!/usr/bin/env python3
"""From one real release to the next and back, by the command line and with approvals: the account and the key in the data
stay, and what is written under the newer release goes and comes with it."""
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fixtures"))
from registry import Registry  # noqa: E402
from system import CACHE, System, wait_for  # noqa: E402


class Upgrade(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="hb-e2e-")
        os.chmod(cls.dir, 0o755)
        cls.registry = Registry(parent=cls.dir)
        cls.images, cls.manifests = [], []
        for label in ("1.5.9-one", "1.5.9-two"):
            layout = os.path.join(cls.dir, "layout-" + label)
            made = subprocess.run([sys.executable, os.path.join(HERE, "..", "fixtures", "payload_image.py"), layout,
                                   "--version-label", label, "--cache", CACHE], check=True, capture_output=True, text=True)
            digests = json.loads(made.stdout)
            cls.registry.push(layout, "app", "executor:" + label)
            cls.images.append("%s/executor:%s@%s" % (cls.registry.host, label, digests["index"]))
            cls.manifests.append(digests["manifest"].removeprefix("sha256:"))
            shutil.rmtree(layout)
        cls.system = System(cls.dir, cls.images[0], cls.registry.host)

    @classmethod
    def tearDownClass(cls):
        if os.path.exists(os.path.join(cls.system.state, "hermes.conf")):
            cls.system.ctl("down")
        cls.registry.stop()
        if os.environ.get("HB_KEEP"):
            print("kept:", cls.dir)
            return
        shutil.rmtree(cls.dir)

    # --- what a user has in there ---

    def database(self):
        return os.path.join(self.system.data, "data.db")

    def add_account(self, name):
        """A row in the payload's own database, written while it is stopped."""
        self.system.ctl("runtime", "stop", "--approve", check=0)
        owner = os.stat(self.database())
        with sqlite3.connect(self.database()) as c:
            c.execute("CREATE TABLE IF NOT EXISTS test_account (name TEXT)")
            c.execute("INSERT INTO test_account VALUES (?)", (name,))
        c.close()
        for entry in os.listdir(self.system.data):
            if entry.startswith("data.db"):
                os.chown(os.path.join(self.system.data, entry), owner.st_uid, owner.st_gid)
        self.system.ctl("runtime", "start", "--approve", check=0)
        wait_for(self.system.healthy, "the service")

    def accounts(self):
        copy = tempfile.mkdtemp(dir=self.dir)
        for entry in os.listdir(self.system.data):
            if entry.startswith("data.db"):
                shutil.copy(os.path.join(self.system.data, entry), copy)
        with sqlite3.connect(os.path.join(copy, "data.db")) as c:
            out = [name for (name,) in c.execute("SELECT name FROM test_account ORDER BY name")]
        c.close()
        shutil.rmtree(copy)
        return out

    def key(self):
        with open(os.path.join(self.system.data, "auth-token"), encoding="ascii") as f:
            return f.read()

    def release(self, number):
        """It is this one that serves, with its own files, and the key in the data opens it."""
        status = self.system.ctl("runtime", "status", check=0)
        self.assertEqual(status["manifest_digest"], self.manifests[number])
        self.assertEqual(status["installed_image"], self.images[number])
        self.assertEqual(sorted(status["health"]["tools"]), ["execute", "resume"])
        with open(os.path.join(self.dir, "storage/current/rootfs/app/release"), encoding="ascii") as f:
            self.assertEqual(f.read(), ("1.5.9-one\n", "1.5.9-two\n")[number])
        self.assertTrue(self.system.ctl("runtime", "check", check=0))
        return status

    def test_01_first_release_with_an_account(self):
        self.system.quickstart("--approve")
        type(self).token = self.key()
        self.add_account("alice")
        self.release(0)

    def test_02_staging_needs_no_approval_and_changes_nothing(self):
        before = self.system.runtime_pids()
        staged = self.system.ctl("runtime", "stage", "--image", self.images[1], check=0)
        self.assertEqual(staged["manifest_digest"], self.manifests[1])
        self.assertEqual(self.system.runtime_pids(), before)
        self.assertEqual([o["action"] for o in self.system.ctl("operations", "list")["operations"]
                          if o["action"] == "stage"], [])
        self.release(0)

    def test_03_without_approval_there_is_no_upgrade(self):
        self.system.ctl("runtime", "upgrade", "--image", self.images[1], check=3)
        self.release(0)

    def test_04_upgrade_keeps_account_and_key(self):
        done = self.system.ctl("runtime", "upgrade", "--image", self.images[1], "--approve", check=0)
        for line in ('version: "1.5.9-two"', 'current version: "1.5.9-one"', "unchanged: entrypoint, command"):
            self.assertIn(line, done["summary"])
        self.assertEqual(done["summary"].count(" kept\n"), 2)  # base and program are the same layers
        self.assertEqual(self.release(1)["previous"], self.manifests[0])
        self.assertEqual((self.accounts(), self.key()), (["alice"], self.token))
        # Again is no upgrade.
        again = self.system.ctl("runtime", "upgrade", "--image", self.images[1], "--approve", check=3)
        self.assertEqual(again["code"], "already_current")

    def test_05_rollback_of_the_code_keeps_what_was_written_since(self):
        self.add_account("bob")
        self.system.ctl("runtime", "rollback", "--approve", check=0)
        self.release(0)
        self.assertEqual((self.accounts(), self.key()), (["alice", "bob"], self.token))

    def test_06_rollback_with_data_goes_back_to_what_belongs_to_the_release(self):
        self.system.ctl("runtime", "upgrade", "--image", self.images[1], "--approve", check=0)
        self.add_account("carol")
        done = self.system.ctl("runtime", "rollback", "--data", "restore", "--approve", check=0)
        self.assertIn("copy of the data: ", done["summary"])
        self.release(0)
        self.assertEqual((self.accounts(), self.key()), (["alice", "bob"], self.token))
        # Nothing is lost for good: it belongs to the newer release.
        self.system.ctl("runtime", "rollback", "--release", self.manifests[1], "--data", "restore", "--approve", check=0)
        self.release(1)
        self.assertEqual((self.accounts(), self.key()), (["alice", "bob", "carol"], self.token))

    def test_07_standing_still_for_a_snapshot(self):
        quiet = self.system.ctl("runtime", "quiesce", "--for", "600", check=0)
        self.assertTrue(quiet["synced"])
        self.assertEqual(self.system.runtime_pids(), [])
        refused = self.system.ctl("runtime", "restart", "--approve")
        self.assertEqual(refused.get("code"), "quiesced", refused)
        self.system.ctl("runtime", "resume", check=0)
        self.release(1)

    def test_08_prune_and_remove(self):
        self.system.ctl("runtime", "prune", "--approve", check=0)
        self.assertEqual(len(self.system.ctl("runtime", "releases")["releases"]), 2)
        self.release(1)
        self.system.ctl("runtime", "remove", "--approve", check=0)
        self.assertEqual(self.system.runtime_pids(), [])
        self.assertEqual(self.system.ctl("runtime", "releases")["releases"], [])
        self.assertEqual((self.accounts(), self.key()), (["alice", "bob", "carol"], self.token))
        self.assertTrue(self.system.ctl("audit", "verify", check=0)["ok"])


if __name__ == "__main__":
    unittest.main(failfast=True, verbosity=2)
