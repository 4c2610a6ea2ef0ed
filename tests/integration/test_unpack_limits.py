"""The unpack worker's limits, hashes, and what happens when the disk is full or the worker dies.

Confined like test_unpack.py: the archives here are hostile too.
"""
import gzip
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))
import confine  # noqa: E402
from layers import END, Box, Layer, driver, entry, header, names, padded, pax, record  # noqa: E402

MIB = 1 << 20


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(dir=confine.SCRATCH)
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir)
        self.count = 0

    def box(self, **how):
        self.count += 1
        return Box(os.path.join(self.dir, f"box{self.count}"), **how)

    def refuse(self, code, *layers, **how):
        self.last = self.box(**how)
        self.answer = self.last.unpack(*layers)
        self.assertFalse(self.answer["ok"], "was unpacked")
        self.assertEqual(self.answer["code"], code, self.answer["message"])
        # What is left has no manifest, so that nothing can take it for an unpacked image.
        self.assertFalse(os.path.exists(self.last.staging + "/manifest.mtree"))
        return self.answer["message"]

    def accept(self, *layers, **how):
        box = self.box(**how)
        self.answer = box.unpack(*layers)
        self.assertTrue(self.answer["ok"], self.answer)
        return box.tree()


def zeros_gzip(head, count, tail=b""):
    """A gzip of head, count zero bytes, tail, made without holding it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    whole = hashlib.sha256(head)
    out = [packer.compress(head)]
    block = bytes(MIB)
    for _ in range(count // MIB):
        out.append(packer.compress(block))
        whole.update(block)
    whole.update(tail)
    out += [packer.compress(tail), packer.flush()]
    layer = Layer(compression="gzip")
    layer.blob = b"".join(out)
    layer.size, layer.digest = len(layer.blob), hashlib.sha256(layer.blob).hexdigest()
    layer.diff_id = whole.hexdigest()
    return layer


class Limits(Case):
    def test_h15_small_gzip_that_becomes_large(self):
        layer = zeros_gzip(header("big", size=400 * MIB), 400 * MIB, END)
        self.assertLess(layer.size, 450_000)
        self.refuse("limit_exceeded", layer, limits={"total_bytes": 50 * MIB})
        self.refuse("limit_exceeded", layer, limits={"file_bytes": 399 * MIB})

    def test_h15_padding_after_the_end_counts_and_is_hashed(self):
        layer = zeros_gzip(entry("f", data="x") + END, 300 * MIB)
        self.refuse("limit_exceeded", layer, limits={"total_bytes": 100 * MIB})
        self.assertEqual(names(self.accept(layer)), ["f"])
        layer.diff_id = hashlib.sha256(entry("f", data="x") + END).hexdigest()
        self.refuse("diff_id_mismatch", layer)
        # Up to 10 KB of padding is what tar programs write.
        self.accept(Layer(entry("f"), end=END + bytes(9216)))

    def test_h15_limit_is_for_all_layers_together(self):
        layer = Layer(entry("f", data=bytes(3 * MIB)))
        self.accept(layer, layer, limits={"total_bytes": 7 * MIB})
        self.refuse("limit_exceeded", layer, layer, limits={"total_bytes": 5 * MIB})
        padding = Layer(entry("f"), end=bytes(3 * MIB))
        self.refuse("limit_exceeded", padding, padding, limits={"total_bytes": 5 * MIB})

    def test_h15_many_entries(self):
        layers = [Layer(*(entry(f"{n}/{i}") for i in range(600))) for n in "ab"]
        self.accept(*layers, limits={"entries": 1200})
        self.refuse("limit_exceeded", *layers, limits={"entries": 1199})

    def test_h15_declared_sizes(self):
        for size in (8 * 1024 ** 3 + 1, 2 ** 63 - 1, 2 ** 62, 2 ** 70):
            with self.subTest(size):
                self.refuse("limit_exceeded", Layer(header("f", size=size), bytes(1024)))
                self.refuse("limit_exceeded", Layer(pax({"size": str(size)}), header("f"), bytes(1024)))
        self.refuse("bad_archive", Layer(pax({"size": "-1"}), header("f"), bytes(1024)))

    def test_h15_sparse_files_count_with_their_holes(self):
        def sparse(real):
            body = b"1\n0\n4\n".ljust(512, b"\0") + b"data"
            return [entry("x", data=body, pax={"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "s",
                                               "GNU.sparse.realsize": str(real)})]

        tree = self.accept(Layer(*sparse(5000), entry("after")))
        self.assertEqual(tree["s"][2], b"data" + bytes(4996))
        self.assertIn("after", tree)
        self.refuse("limit_exceeded", Layer(*sparse(2 ** 40)))
        self.refuse("limit_exceeded", Layer(*sparse(600 * MIB)), limits={"total_bytes": 500 * MIB})

    def test_h15_large_headers(self):
        for kind in b"xgLK":
            with self.subTest(chr(kind)):
                layer = zeros_gzip(header("h", bytes([kind]), size=1024 ** 3), 64 * MIB)
                self.refuse("limit_exceeded", layer)
                self.assertLess(self.answer["worker_max_rss_kib"], 64 * 1024)
        # Below libarchive's own limit, above ours.
        body = record("comment", "c" * 7000)
        self.refuse("limit_exceeded", Layer(header("pax", b"x", size=len(body)), padded(body), entry("f")),
                    limits={"header_bytes": 4096})
        self.accept(Layer(header("pax", b"x", size=len(body)), padded(body), entry("f")), limits={"header_bytes": 8192})

    def test_h15_endless_sparse_map(self):
        # An old GNU sparse file whose map goes on and on: 21 extents a block, every block says another follows.
        block = b"".join(b"%011o\0%011o\0" % (i * 1024, 512) for i in range(21)) + b"\1" + bytes(7)
        fixed = bytearray(header("s", b"S", size=512, magic=b"ustar  \0") + block * 200_000 + END)
        fixed[386:410] = b"%011o\0%011o\0" % (0, 512)
        fixed[482] = 1
        fixed[148:156] = b" " * 8
        fixed[148:156] = b"%06o\0 " % sum(fixed[:512])
        self.refuse("limit_exceeded", Layer(bytes(fixed), end=b""))
        self.assertLess(self.answer["worker_max_rss_kib"], 64 * 1024)

    def test_h15_many_special_headers_in_a_row(self):
        self.refuse("bad_archive", Layer(*[pax({"comment": "c"})] * 40, entry("f")))

    def test_path_limit(self):
        self.refuse("limit_exceeded", Layer(entry("a/b/c/d")), limits={"path_bytes": 6})
        self.refuse("limit_exceeded", Layer(entry("l", b"2", link="t" * 101)), limits={"path_bytes": 100})


class Hashes(Case):
    def test_blob_that_is_not_the_one(self):
        for compression in ("gzip", "zstd", "none"):
            good = Layer(entry("f", data=os.urandom(4_000_000)), compression=compression)
            for at in (0, 5, good.size // 2, good.size - 3):
                with self.subTest(compression, at=at):
                    bad = Layer(entry("f"), compression=compression)
                    bad.__dict__.update(good.__dict__)
                    bad.blob = good.blob[:at] + bytes([good.blob[at] ^ 1]) + good.blob[at + 1:]
                    self.refuse("digest_mismatch", bad)
            bad.blob = good.blob[:-10]
            self.refuse("short_blob", bad)
            bad.blob = good.blob + b"more"
            self.refuse("digest_mismatch", bad)

    def test_stream_that_is_not_the_one(self):
        layer = Layer(entry("f", data="x"))
        layer.diff_id = "0" * 64
        self.refuse("diff_id_mismatch", layer)

    def test_gzip_of_several_members(self):
        tar = entry("a", data=os.urandom(3_000_000)) + entry("b", data="b") + END
        for cuts in ((1_500_000,), (512, 1000, 2_999_999), (0, len(tar))):
            parts = [tar[a:b] for a, b in zip((0, *cuts), (*cuts, len(tar)))]
            layer = Layer(tar, end=b"")
            layer.blob = b"".join(gzip.compress(p, 1) for p in parts)
            layer.size, layer.digest = len(layer.blob), hashlib.sha256(layer.blob).hexdigest()
            self.assertEqual(len(self.accept(layer)["a"][2]), 3_000_000)

    def test_streams_that_are_cut_or_damaged(self):
        for compression in ("gzip", "zstd"):
            whole = Layer(entry("f", data=os.urandom(50_000)), compression=compression)
            for blob in (whole.blob[:-1], whole.blob[:1000], whole.blob[:3], whole.blob + b"garbage!"):
                with self.subTest(compression, size=len(blob)):
                    whole.size, whole.digest = len(blob), hashlib.sha256(blob).hexdigest()
                    cut = Layer(compression=compression)
                    cut.__dict__.update(whole.__dict__, blob=blob)
                    self.refuse("bad_archive", cut)
        layer = Layer(entry("f"))
        layer.blob = b"not gzip at all"
        layer.size, layer.digest = len(layer.blob), hashlib.sha256(layer.blob).hexdigest()
        self.refuse("bad_archive", layer)

    def test_archives_that_are_cut_or_damaged(self):
        body = entry("f", data="x" * 2000)
        self.refuse("bad_archive", Layer(body[:1500], end=b""))
        self.refuse("bad_archive", Layer(body[:300], end=b""))
        self.refuse("bad_archive", Layer(body, b"junk" * 128, entry("g")))
        self.refuse("bad_archive", Layer(pax({"path": "x"})[:512], padded(b"99 path=x\n"), header("f")))

    def test_layers_without_entries(self):
        for compression in ("gzip", "zstd", "none"):
            for end in (b"", END, bytes(512), bytes(10240)):
                self.assertEqual(self.accept(Layer(end=end, compression=compression)), {})
        empty = Layer(compression="none", end=b"")
        self.assertEqual(empty.size, 0)
        self.assertEqual(names(self.accept(empty, Layer(entry("f")), empty)), ["f"])

    def test_media_types(self):
        layer = Layer(entry("f"))
        for good in ("application/vnd.docker.image.rootfs.diff.tar.gzip",
                     "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"):
            layer.media_type = good
            self.accept(layer)
        for bad in ("application/vnd.oci.image.layer.v1.tar+xz", "", "text/plain", "application/zstar"):
            layer.media_type = bad
            self.refuse("bad_archive", layer)

    def test_zstd_of_several_frames_and_large_windows(self):
        tar = entry("a", data=bytes(range(256)) * 8192) + END
        for flags, parts in ((["-1"], (tar[:5000], tar[5000:])), (["--ultra", "-22", "--long=24"], (tar,))):
            layer = Layer(tar, end=b"", compression="zstd")
            layer.blob = b"".join(subprocess.run(["zstd", "-q", "-c", *flags], input=p, stdout=subprocess.PIPE,
                                                 check=True).stdout for p in parts)
            layer.size, layer.digest = len(layer.blob), hashlib.sha256(layer.blob).hexdigest()
            self.accept(layer)


class Failures(Case):
    def small_disk(self, options):
        point = os.path.join(self.dir, "disk")
        os.mkdir(point)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755," + options, "small", point], check=True)
        self.addCleanup(subprocess.run, ["umount", point], check=True)
        return point

    def on_small_disk(self, options, layer):
        plan = self.box().plan([layer])
        point = self.small_disk(options)  # after the check of all mounts; it is the test's own
        staging = os.path.join(point, "staging")
        os.mkdir(staging)
        os.chown(staging, 10112, 10112)
        with open(plan, encoding="ascii") as f:
            data = json.load(f)
        data["staging"] = staging
        with open(plan, "w", encoding="ascii") as out:
            json.dump(data, out)
        done = subprocess.run([driver(), "unpack", plan], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def test_disk_full(self):
        answer = self.on_small_disk("size=2m", Layer(entry("f", data=os.urandom(4 * MIB))))
        self.assertEqual(answer["code"], "disk_full", answer)

    def test_no_inodes_left(self):
        answer = self.on_small_disk("size=8m,nr_inodes=50", Layer(*(entry(f"f{i}") for i in range(100))))
        self.assertEqual(answer["code"], "disk_full", answer)

    def start(self, box, *layers):
        return subprocess.Popen([driver(), "unpack", box.plan(layers)], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)

    def test_worker_killed(self):
        box = self.box(wait=True)
        with self.start(box, Layer(entry("a")), Layer(entry("b"))) as run:
            worker = int(run.stdout.readline().split()[1])
            run.stdin.write("\n")
            run.stdin.flush()
            self.assertEqual(int(run.stdout.readline().split()[1]), worker)
            os.kill(worker, signal.SIGKILL)
            run.stdin.write("\n")
            run.stdin.flush()
            answer = json.loads(run.stdout.readline())
        self.assertEqual(answer["code"], "worker_died")
        self.assertIn("signal 9", answer["message"])

    def test_worker_ends_with_its_parent(self):
        self.dies_with_parent(lambda worker: None)

    def test_stuck_worker_ends_with_its_parent(self):
        # Stopped, it cannot notice anything by itself.
        self.dies_with_parent(lambda worker: os.kill(worker, signal.SIGSTOP))

    def dies_with_parent(self, before):
        box = self.box(wait=True)
        with self.start(box, Layer(entry("a"))) as run:
            worker = int(run.stdout.readline().split()[1])
            handle = os.pidfd_open(worker)
            before(worker)
            run.kill()
        ended = select.select([handle], [], [], 20)[0]
        if not ended:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
        self.assertTrue(ended, "the worker outlived its parent")

    def test_worker_holds_nothing(self):
        box = self.box(wait=True)
        with self.start(box, Layer(entry("a"))) as run:
            worker = int(run.stdout.readline().split()[1])
            with open(f"/proc/{worker}/status", encoding="ascii") as f:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
            links = {fd: os.readlink(f"/proc/{worker}/fd/{fd}") for fd in os.listdir(f"/proc/{worker}/fd")}
            run.stdin.write("\n")
            run.stdin.flush()
            self.assertTrue(json.loads(run.stdout.readline())["ok"])
        self.assertEqual(status["Uid"].split(), ["10112"] * 4)
        self.assertEqual(status["Gid"].split(), ["10112"] * 4)
        self.assertEqual(status["Groups"].strip(), "")
        self.assertEqual({int(status[c], 16) for c in ("CapPrm", "CapEff", "CapInh", "CapAmb")}, {0})
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        targets = sorted(v for k, v in links.items() if int(k) > 2)
        self.assertEqual(len(targets), 4, links)  # staging (and once more to sync it), its rootfs, the socket
        self.assertTrue(targets[1].endswith("/staging") and targets[2].endswith("/rootfs"), targets)
        self.assertTrue(targets[3].startswith("socket:"), targets)


if __name__ == "__main__":
    confine.main()
