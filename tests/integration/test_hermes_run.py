"""hermes-run by itself: what it refuses, what each isolation gives the payload, what the payload may still do."""
import json
import os
import shutil
import subprocess
import unittest

from runtime_harness import BUILD, RuntimeCase, payload_rootfs

DENY = os.path.join(BUILD, "tests/tools/deny_exec")
MODES = ("namespaces", "chroot", "direct")


class Refusals(RuntimeCase):
    def refused(self, code, spec):
        status, output = self.hermes_run(spec)
        self.assertEqual(status, 78, output)
        self.assertIn(f"({code})", output)
        return output

    def test_root_is_refused_by_uid_and_gid(self):
        self.refused("root_refused", self.spec("--report", uid=0))
        self.refused("root_refused", self.spec("--report", gid=0))

    def test_a_caller_that_is_not_root_is_refused(self):
        status, output = self.hermes_run(self.spec("--report"), prefix=["setpriv", "--reuid", "65534", "--clear-groups"])
        self.assertEqual(status, 78)
        self.assertRegex(output, r"\((spec_missing|not_root|loose_permissions)\)")

    def test_release_without_complete_mark(self):
        os.unlink(os.path.join(os.path.dirname(self.rootfs), "COMPLETE"))
        self.assertIn("install it again", self.refused("release_incomplete", self.spec("--report")))

    def test_complete_mark_that_is_a_link(self):
        mark = os.path.join(os.path.dirname(self.rootfs), "COMPLETE")
        os.unlink(mark)
        os.symlink("/etc/passwd", mark)
        self.refused("release_incomplete", self.spec("--report"))

    def test_release_that_the_runtime_could_write(self):
        os.chown(self.rootfs, self.uid, self.uid)
        self.refused("release_permissions", self.spec("--report"))
        os.chown(self.rootfs, 0, 0)
        os.chmod(self.rootfs, 0o777)
        self.refused("release_permissions", self.spec("--report"))

    def test_h24_missing_data_directory_is_never_made(self):
        shutil.rmtree(self.data)
        self.assertIn("restore a backup", self.refused("data_missing", self.spec("--report")))
        self.assertFalse(os.path.exists(self.data))

    def test_data_directory_that_others_can_reach(self):
        os.chmod(self.data, 0o750)
        self.assertIn("chmod 0700 " + self.data, self.refused("data_permissions", self.spec("--report")))

    def test_data_directory_of_another_user(self):
        os.chown(self.data, 0, 0)
        self.assertIn(f"chown -R {self.uid}:{self.uid} {self.data}", self.refused("data_owner", self.spec("--report")))

    def test_data_directory_not_writable(self):
        os.chmod(self.data, 0o500)
        self.refused("data_unwritable", self.spec("--report"))

    def test_data_directory_that_is_a_link(self):
        os.rename(self.data, self.data + "-real")
        os.symlink(self.data + "-real", self.data)
        self.refused("data_unusable", self.spec("--report"))

    def test_command_that_is_not_in_the_image(self):
        output = self.refused("command_not_found", self.spec(argv=["bun"]))
        self.assertIn('"bun"', output)

    def test_command_is_never_taken_from_the_host(self):
        for mode in MODES:
            self.refused("command_not_found", self.spec(argv=["sleep"], isolation=mode))
            self.refused("command_not_found", self.spec(argv=["../../../bin/sleep"], isolation=mode))

    def test_working_directory_that_is_not_there(self):
        self.refused("bad_working_dir", self.spec("--report", working_dir="/nowhere"))

    def test_specs_that_are_wrong(self):
        for change in ({"rootfs": "relative"}, {"rootfs": "/a/../b"}, {"data_mount": "/"}, {"data_mount": "data"},
                       {"isolation": "none"}, {"argv": []}, {"env": ["NOVALUE"]}, {"uid": -1}, {"uid": "5"},
                       {"manifest_digest": "xyz"}, {"working_dir": "/a//b"}):
            status, output = self.hermes_run({**self.spec("--report"), **change})
            self.assertEqual(status, 78, change)
            self.assertRegex(output, r"\((bad_spec|no_command)\)", change)

    def test_spec_file_that_others_may_write(self):
        spec = os.path.join(self.state, "loose.json")
        with open(spec, "w", encoding="utf-8") as f:
            json.dump(self.spec("--report"), f)
        os.chmod(spec, 0o666)
        done = subprocess.run([os.path.join(BUILD, "broker/installer/hermes-run"), "--spec", spec], cwd=self.state,
                              stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 78)
        self.assertIn(b"loose_permissions", done.stderr)

    def test_mount_point_behind_a_link_of_the_image(self):
        os.symlink("/tmp", self.rootfs + "/var")
        for mode in ("namespaces", "auto"):  # auto must not take a mistake for a host that allows nothing
            self.refused("bad_mount_point", self.spec("--report", isolation=mode, data_mount="/var/lib/app"))
        self.refused("bad_mount_point", self.spec("--report", isolation="namespaces", data_mount="/proc/app"))


class Isolation(RuntimeCase):
    def report(self, *, prefix=(), **changes):
        status, output = self.hermes_run(self.spec("--report", **changes), prefix=prefix)
        self.assertEqual(status, 0, output)
        return json.loads(output.split("REPORT ", 1)[1])

    def common(self, r):
        self.assertEqual(r["Uid"].split(), [str(self.uid)] * 4)
        self.assertEqual(r["Gid"].split(), [str(self.uid)] * 4)
        self.assertEqual(r["Groups"].split(), [])
        for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh"):
            self.assertEqual(int(r[name], 16), 0, name)
        self.assertEqual((r["NoNewPrivs"].strip(), r["Seccomp"].strip()), ("1", "2"))
        self.assertEqual(r["descriptors"], [0, 1, 2])
        self.assertEqual((r["core"], r["umask"], r["session"]), (0, 0o077, True))
        for name in ("null", "urandom", "proc", "write_data", "inet_socket"):
            self.assertEqual(r[name], "allowed", name)
        for name in ("mount", "unshare_user", "clone_user", "ptrace", "keyctl", "bpf", "io_uring", "setuid_root",
                     "signal_init"):
            self.assertEqual(r[name], "EPERM", name)
        self.assertEqual(r["clone3"], "ENOSYS")
        self.assertEqual((r["packet_socket"], r["vsock"]), ("EAFNOSUPPORT", "EAFNOSUPPORT"))
        self.assertIn(r["write_program"], ("EROFS", "EACCES"))
        self.assertNotEqual(r["write_root"], "allowed")
        self.assertIn(r["write_shared"], ("EROFS", "EACCES"))  # the release stays as it is whatever its modes say
        self.assertEqual(os.listdir(self.data), [])

    def test_namespaces(self):
        r = self.report(isolation="namespaces")
        self.common(r)
        self.assertEqual((r["write_root"], r["write_dev"], r["write_shared"]), ("EROFS", "EROFS", "EROFS"))
        self.assertEqual((r["read_shadow"], r["resolv"]), ("ENOENT", "allowed"))
        self.assertEqual((r["cwd"], r["data"]), ("/", "/data"))
        with open("/proc/self/mountinfo", encoding="ascii") as f:
            self.assertNotIn(self.state, f.read())

    def test_payload_keeps_the_pids_of_the_host(self):
        self.assertGreater(self.report(isolation="namespaces")["pid"], 2)

    def test_chroot(self):
        r = self.report(isolation="chroot")
        self.common(r)
        self.assertEqual((r["write_root"], r["read_shadow"], r["cwd"]), ("EROFS", "ENOENT", "/"))

    def test_direct_maps_paths_and_environment(self):
        r = self.report(isolation="direct", working_dir="/opt/app", argv=["misbehave", "--report"],
                        env={"HOME": "/root", "PATH": "/usr/bin:/data/bin"})
        self.common(r)
        self.assertEqual(r["cwd"], self.rootfs + "/opt/app")
        self.assertEqual((r["data"], r["home"]), (self.data, self.data))
        self.assertEqual(r["path"], f"{self.rootfs}/usr/bin:{self.data}/bin")
        self.assertEqual(r["resolv"], "allowed")

    def test_direct_is_kept_from_the_rest_of_the_host(self):
        with open("/hermes-state-marker", "w", encoding="ascii"):
            pass
        self.addCleanup(os.unlink, "/hermes-state-marker")
        self.assertEqual(self.report(isolation="direct")["read_state"], "EACCES")

    def test_auto_takes_namespaces_here(self):
        self.assertEqual(self.report(isolation="auto")["read_shadow"], "ENOENT")

    def test_auto_goes_down_to_what_the_host_allows(self):
        r = self.report(isolation="auto", prefix=[DENY, "unshare", "--"])
        self.assertEqual((r["write_root"], r["read_shadow"]), ("EROFS", "ENOENT"))
        r = self.report(isolation="auto", prefix=[DENY, "unshare", "mount", "--"])
        self.assertEqual(r["data"], self.data)
        self.common(r)

    def test_named_isolation_that_does_not_work_is_an_error(self):
        status, output = self.hermes_run(self.spec("--report", isolation="namespaces"), prefix=[DENY, "unshare", "--"])
        self.assertEqual(status, 78)
        self.assertIn("(unshare_failed)", output)

    def test_modes_says_what_works(self):
        status, output = self.hermes_run(self.spec("--report"), "--modes", prefix=[DENY, "unshare", "--"])
        self.assertEqual(status, 0)
        self.assertRegex(output, r"namespaces +new mount, IPC and UTS namespaces are not allowed")
        self.assertRegex(output, r"chroot +works")
        self.assertRegex(output, r"direct +works")

    def test_release_is_not_written(self):
        before = subprocess.run(["find", self.top + "/releases", "-printf", "%p %m %U %s %T@\n"], check=True,
                                stdout=subprocess.PIPE).stdout
        for mode in ("namespaces", "direct"):
            self.report(isolation=mode)
        after = subprocess.run(["find", self.top + "/releases", "-printf", "%p %m %U %s %T@\n"], check=True,
                               stdout=subprocess.PIPE).stdout
        self.assertEqual(before, after)

    def test_mount_point_deep_in_a_directory_of_the_image(self):
        os.makedirs(self.rootfs + "/var/lib/other")
        with open(self.rootfs + "/var/lib/other/file", "w", encoding="ascii") as f:
            f.write("kept")
        r = self.report(isolation="namespaces", data_mount="/var/lib/app/data",
                        env={"EXECUTOR_DATA_DIR": "/var/lib/app/data"})
        self.assertEqual(r["write_data"], "allowed")

    def test_environment_is_the_spec_and_nothing_else(self):
        shutil.copy("/usr/bin/env", self.rootfs + "/usr/bin/env")
        for library in payload_rootfs.libraries("/usr/bin/env"):
            payload_rootfs.put(self.rootfs, library, library)
        status, output = self.hermes_run(self.spec(argv=["env"], env={"A": "b c"}))
        self.assertEqual(status, 0, output)
        self.assertEqual(sorted(output.split("\n")[:-1]),
                         ["A=b c", "EXECUTOR_DATA_DIR=/data", "PATH=/usr/local/bin:/usr/bin", f"PORT={self.port}"])

    def test_script_runs_with_the_interpreter_of_the_image(self):
        payload_rootfs.put(self.rootfs, shutil.which("dash"), "/opt/shell")
        for library in payload_rootfs.libraries("/bin/dash"):
            payload_rootfs.put(self.rootfs, library, library)
        script = self.rootfs + "/usr/bin/start"
        with open(script, "w", encoding="ascii") as f:
            f.write("#!/opt/shell\necho from $0 $1; exec misbehave --exit 5\n")
        os.chmod(script, 0o755)
        for mode in ("namespaces", "direct"):
            status, output = self.hermes_run(self.spec(argv=["start", "/data/x"], isolation=mode,
                                                       env={"PATH": "/usr/bin:/opt/app"}))
            self.assertEqual(status, 5, output)
            data = "/data" if mode == "namespaces" else self.data
            self.assertRegex(output, rf"from \S*/usr/bin/start {data}/x")

    def test_loader_that_only_the_image_has(self):
        env = self.rootfs + "/usr/bin/env"
        payload_rootfs.put(self.rootfs, "/usr/bin/env", "/usr/bin/env")
        loader = [p for p in payload_rootfs.libraries("/usr/bin/env") if "/ld-" in p][0]
        for library in payload_rootfs.libraries("/usr/bin/env"):
            payload_rootfs.put(self.rootfs, library, library)
        fake = loader.replace("ld-", "lx-")
        os.rename(self.rootfs + loader, self.rootfs + fake)
        with open(env, "rb") as f:
            text = f.read()
        self.assertEqual(text.count(loader.encode() + b"\0"), 1)
        with open(env, "wb") as f:
            f.write(text.replace(loader.encode() + b"\0", fake.encode() + b"\0"))
        for mode in ("namespaces", "direct"):
            status, output = self.hermes_run(self.spec(argv=["env"], isolation=mode))
            self.assertEqual(status, 0, output)
            self.assertIn(f"PORT={self.port}", output)


if __name__ == "__main__":
    unittest.main()
