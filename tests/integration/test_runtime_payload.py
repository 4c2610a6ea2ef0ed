"""The real payload (npm package `executor`) from a release, in each isolation, with health, MCP and kill -9."""
import json
import os
import signal
import unittest

from runtime_harness import CACHE, RuntimeCase, payload_rootfs, processes_of, wait_until

TOKEN = "token-of-this-test-0123456789"


class RealPayload(RuntimeCase):
    rootfs_maker = staticmethod(payload_rootfs.executor_rootfs(CACHE))

    def setUp(self):
        super().setUp()
        os.mkdir(os.path.join(self.state, "installer"), 0o700)
        self.token_file = os.path.join(self.state, "installer/payload-token")
        with open(self.token_file, "w", encoding="ascii") as f:
            f.write(TOKEN + "\n")
        os.chmod(self.token_file, 0o600)

    def settings(self, **more):
        out = {"health_path": "/", "health_body": "", "health_token_file": "installer/payload-token",
               "mcp_key_file": self.token_file, "start_timeout": 40, "stop_timeout": 10}
        out.update(more)
        return out

    def payload(self, **changes):
        # The program takes its token as an argument only, so here it is one; it is this test's own.
        argv = ["executor", "web", "--hostname", "127.0.0.1", "--port", str(self.port), "--auth-token", TOKEN]
        return self.spec(argv=argv, working_dir="/app", **changes)

    def test_every_isolation_is_healthy_and_stops_cleanly(self):
        driver = self.driver(**self.settings())
        for mode in ("namespaces", "chroot", "direct"):
            with self.subTest(mode):
                answer = driver.ask("start", spec=self.payload(isolation=mode))
                self.assertTrue(answer["ok"], answer)
                status = driver.status()
                self.assertEqual(status["isolation"], mode)
                self.assertEqual(status["health"]["checks"],
                                 {"http": "ok", "mcp_challenge": "ok", "mcp_tools": "ok", "listeners": "ok"})
                self.assertEqual(status["health"]["tools"], ["execute", "resume"])
                self.assertEqual(driver.ask("stop"), {"done": "stop", "ok": True, "code": "", "error": ""})
                last = driver.status()["process"]["last_exit"]
                self.assertEqual((last["how"], last["status"], last["clean"], last["killed"]), ("exit", 130, True, 0))
                self.assertIn("data.db", os.listdir(self.data))

    def test_kill_9_and_restart_with_the_same_data(self):
        driver = self.driver(**self.settings())
        for mode in ("namespaces", "direct"):
            self.assertTrue(driver.ask("start", spec=self.payload(isolation=mode))["ok"])
            first = driver.status()["process"]["pid"]
            os.kill(first, signal.SIGKILL)
            wait_until("another process", lambda: driver.status()["process"]["pid"] not in (0, first))
            driver.wait_state("healthy")
            self.assertEqual(driver.ask("stop")["ok"], True)

    def test_image_default_that_listens_everywhere_is_stopped(self):
        driver = self.driver(**self.settings())
        spec = self.payload()
        spec["argv"][spec["argv"].index("127.0.0.1")] = "0.0.0.0"
        answer = driver.ask("start", spec=spec)
        self.assertEqual(answer["code"], "public_listener", answer)
        self.assertEqual(processes_of(self.uid), [])

    def test_release_that_lists_other_tools(self):
        driver = self.driver(**self.settings(mcp_tools="execute,resume,skills", start_timeout=6))
        answer = driver.ask("start", spec=self.payload())
        self.assertEqual((answer["code"], "missing: \"skills\"" in answer["error"]), ("tools_differ", True), answer)

    def test_key_file_that_others_can_read_is_refused_by_name(self):
        os.chmod(self.token_file, 0o644)
        driver = self.driver(**self.settings(start_timeout=3))
        answer = driver.ask("start", spec=self.payload())
        self.assertFalse(answer["ok"])
        self.assertIn("runtime.mcp_key_file", answer["error"])
        self.assertNotIn(TOKEN, json.dumps(answer))

    def test_key_reaches_neither_environment_nor_arguments_of_the_workers(self):
        driver = self.driver(**self.settings())
        self.assertTrue(driver.ask("start", spec=self.payload())["ok"])
        for name in ("hermes-runner", "hermes-probe"):
            for what in ("environ", "cmdline"):
                with open(f"/proc/{driver.named_child(name)}/{what}", "rb") as f:
                    self.assertNotIn(TOKEN.encode(), f.read())
        self.assertNotIn(TOKEN, json.dumps(driver.status()))
        with open(os.path.join(self.state, "driver.log"), encoding="utf-8") as f:
            self.assertNotIn(TOKEN, f.read())


if __name__ == "__main__":
    unittest.main()
