#!/usr/bin/env python3
"""The Operations Center page in a real browser (page.mjs), against real processes. Screenshots are kept in the build
directory."""
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.abspath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(HERE, "..", "fixtures"))
from installation import BUILD, CTL, EmptyEngine, Installation, free_port  # noqa: E402
from registry import Registry  # noqa: E402
from system import System  # noqa: E402

CACHE = os.environ.get("HB_CACHE") or os.path.join(BUILD, "cache")
SHOTS = os.environ.get("HB_SHOTS") or os.path.join(BUILD, "screenshots")
TOKEN = "123456789:AAEhBOweik6ad9r_QXMENQjcrGbqCr4K-bc"
PACKAGES = ["playwright-core@1.65.1", "axe-core@4.14.1"]


def modules():
    """The two npm packages, once a cache."""
    directory = os.path.join(CACHE, "page-modules")
    if not os.path.exists(os.path.join(directory, "node_modules", "axe-core", "axe.min.js")):
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, "package.json"), "w", encoding="ascii") as f:
            f.write('{"private": true}\n')
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES], cwd=directory,
                       check=True, stdout=subprocess.DEVNULL)
    return directory


class Files(http.server.ThreadingHTTPServer):
    """Another Operations Center: the page's files from an origin that is not the endpoint's."""

    def __init__(self, port):
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *args):
                pass

        super().__init__(("127.0.0.1", port), functools.partial(Quiet, directory=os.path.join(SOURCE, "admin", "page")))
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Page(unittest.TestCase):
    def test_every_task_in_a_browser(self):
        os.makedirs(SHOTS, exist_ok=True)
        allowed, foreign = free_port(), free_port()
        installation = Installation("admin.allowed_origins=http://127.0.0.1:%d" % allowed,
                                    "approver.api_base=http://127.0.0.1:9", users=("111", "222"))
        servers = [Files(allowed), Files(foreign)]
        engine = EmptyEngine(os.path.join(installation.dir, "docker.sock"))
        try:
            installation.up()
            env = dict(os.environ, PAGE_TEST=json.dumps({
                "port": installation.port, "state": installation.state, "ctl": CTL, "modules": modules(), "shots": SHOTS,
                "chromium": shutil.which("chromium") or "/usr/bin/chromium", "closed": free_port(), "token": TOKEN,
                "allowed": "http://127.0.0.1:%d/" % allowed, "foreign": "http://127.0.0.1:%d/" % foreign,
                "installed": False}))
            r = subprocess.run(["node", os.path.join(HERE, "page.mjs")], env=env, capture_output=True, text=True,
                               timeout=600)
        finally:
            for s in servers:
                s.shutdown()
                s.server_close()
            engine.close()
            installation.close()
        tasks = [line for line in r.stdout.splitlines() if line.startswith(("ok ", "not ok "))]
        for line in tasks:
            with self.subTest(task=line.split(":")[0]):
                self.assertTrue(line.startswith("ok "), line.replace("\\n", "\n"))
        self.assertGreaterEqual(len(tasks), 22, r.stdout + r.stderr)
        self.assertEqual(r.returncode, 0, r.stderr[-3000:])


class Upgrade(unittest.TestCase):
    def test_an_upgrade_is_followed_live(self):
        os.makedirs(SHOTS, exist_ok=True)
        directory = tempfile.mkdtemp(prefix="hb-page-")
        os.chmod(directory, 0o755)
        registry = Registry(parent=directory)
        images, manifests, system = [], [], None
        try:
            for label in ("1.5.9-one", "1.5.9-two"):
                layout = os.path.join(directory, "layout")
                made = subprocess.run([sys.executable, os.path.join(HERE, "..", "fixtures", "payload_image.py"), layout,
                                       "--version-label", label, "--cache", CACHE], check=True, capture_output=True,
                                      text=True)
                digests = json.loads(made.stdout)
                registry.push(layout, "app", "executor:" + label)
                images.append("%s/executor:%s@%s" % (registry.host, label, digests["index"]))
                manifests.append(digests["manifest"].removeprefix("sha256:"))
                shutil.rmtree(layout)
            system = System(directory, images[0], registry.host)
            system.quickstart("--approve")
            env = dict(os.environ, PAGE_TEST=json.dumps({
                "port": system.admin_port, "state": system.state, "ctl": CTL, "modules": modules(), "shots": SHOTS,
                "chromium": shutil.which("chromium") or "/usr/bin/chromium", "image": images[1],
                "before": manifests[0], "after": manifests[1]}))
            r = subprocess.run(["node", os.path.join(HERE, "page_service.mjs")], env=env, capture_output=True, text=True,
                               timeout=400)
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr[-4000:])
        finally:
            if system:
                system.ctl("down")
            registry.stop()
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
