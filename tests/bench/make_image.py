#!/usr/bin/env python3
"""A deterministic synthetic OCI image for benchmarks: many small text files, a few large binaries, whiteouts.

    make_image.py OUT_DIR [--scale 1.0] [--compression gzip|zstd|none]

Scale 1.0 is about 1 GB unpacked in 75,000 entries and five layers. Content is slices of a pool of made-up words, so
it compresses about four to one as source code does. The same arguments give the same diff ids everywhere.
"""
import argparse
import gzip
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile

MTIME = 1700000000
MEDIA = "application/vnd.oci.image.layer.v1.tar"


class Pool:
    """Bytes to cut files from: `text` of repeated phrases, `noise` that doesn't compress."""

    def __init__(self, rng):
        words = ["".join(rng.choice("bcdfghklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(1, 4)))
                 for _ in range(3000)]
        out = []
        size = 0
        while size < 24 << 20:
            phrases = [" ".join(rng.choice(words) for _ in range(rng.randint(3, 9))) for _ in range(30)]
            for _ in range(120):
                line = rng.choice(phrases) if rng.random() < 0.5 else " ".join(rng.choice(words) for _ in range(8))
                out.append("  " * rng.randint(0, 3) + line + rng.choice([";\n", ",\n", " {\n", "}\n"]))
                size += len(out[-1])
        self.text = "".join(out).encode()
        self.noise = hashlib.shake_256(b"noise").digest(8 << 20)

    def cut(self, rng, n, noise=False):
        pool = self.noise if noise else self.text
        parts = []
        while n > 0:
            take = min(n, 1 << 20)
            at = int(rng.random() * (len(pool) - take))
            parts.append(pool[at:at + take])
            n -= take
        return b"".join(parts)


class Layer:
    """tar stream -> diff id -> compressor -> digest -> blob file."""

    def __init__(self, blobs, compression):
        self.path = os.path.join(blobs, "layer.tmp")
        self.diff = hashlib.sha256()
        self.compression = compression
        self.process = None
        self.file = open(self.path, "wb")
        if compression == "gzip":
            self.sink = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=self.file, mtime=0)
        elif compression == "zstd":
            self.process = subprocess.Popen(["zstd", "-q", "-3", "-c"], stdin=subprocess.PIPE, stdout=self.file)
            self.sink = self.process.stdin
        else:
            self.sink = self.file
        self.tar = tarfile.open(fileobj=self, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 18)

    def write(self, data):
        self.diff.update(data)
        self.sink.write(data)
        return len(data)

    def add(self, name, data=None, kind=tarfile.REGTYPE, mode=0o644, link=""):
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.mtime, info.linkname = kind, mode, MTIME, link
        info.size = len(data) if data is not None else 0
        self.tar.addfile(info, None if data is None else _Reader(data))
        self.tar.members.clear()

    def finish(self, blobs):
        self.tar.close()
        if self.sink is not self.file:
            self.sink.close()
        if self.process and self.process.wait():
            sys.exit("zstd failed")
        self.file.close()
        digest, size = hashlib.sha256(), 0
        with open(self.path, "rb") as f:
            while chunk := f.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
        os.rename(self.path, os.path.join(blobs, digest.hexdigest()))
        suffix = {"gzip": "+gzip", "zstd": "+zstd", "none": ""}[self.compression]
        return ({"mediaType": MEDIA + suffix, "digest": "sha256:" + digest.hexdigest(), "size": size},
                "sha256:" + self.diff.hexdigest())


class _Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def read(self, n):
        piece = self.data[self.at:self.at + n]
        self.at += len(piece)
        return piece


def parents(layer, path, seen):
    parts = path.split("/")[:-1]
    for i in range(1, len(parts) + 1):
        d = "/".join(parts[:i])
        if d not in seen:
            seen.add(d)
            layer.add(d + "/", kind=tarfile.DIRTYPE, mode=0o755)


def base(layer, rng, pool, scale, seen):
    for i in range(max(1, int(60 * scale))):
        name = "usr/lib/libpart%d.so.1" % i
        parents(layer, name, seen)
        layer.add(name, pool.cut(rng, 200_000 + int(2_000_000 * rng.random())), mode=0o755)
        layer.add("usr/lib/libpart%d.so" % i, kind=tarfile.SYMTYPE, link="libpart%d.so.1" % i)
    for i in range(int(8000 * scale)):
        name = "usr/share/doc/p%d/f%d" % (i // 8, i)
        parents(layer, name, seen)
        layer.add(name, pool.cut(rng, 200 + int(5000 * rng.random())))


def program(layer, rng, pool, scale, seen):
    parents(layer, "usr/local/bin/program", seen)
    layer.add("usr/local/bin/program", pool.cut(rng, int(100_000_000 * scale)), mode=0o755)


def modules(layer, rng, pool, scale, seen):
    for i in range(int(60_000 * scale)):
        name = "app/node_modules/m%d/lib/d%d/f%d.js" % (i // 40, i % 4, i)
        parents(layer, name, seen)
        layer.add(name, pool.cut(rng, 500 + int(18_000 * rng.random() ** 1.5)))


def assets(layer, rng, pool, scale, seen):
    for i in range(int(2000 * scale)):
        name = "app/public/a%02d/asset%d" % (i // 200, i)
        parents(layer, name, seen)
        layer.add(name, pool.cut(rng, 50_000 + int(150_000 * rng.random()), noise=i % 3 == 0))


def patch(layer, rng, pool, scale, seen):
    layer.add("app/", kind=tarfile.DIRTYPE, mode=0o755)
    layer.add("app/node_modules/.wh.m0", b"")
    layer.add("usr/share/doc/p0/", kind=tarfile.DIRTYPE, mode=0o755)
    layer.add("usr/share/doc/p0/.wh..wh..opq", b"")
    layer.add("usr/share/doc/p0/new", pool.cut(rng, 1000))
    layer.add("app/start", b"#!/bin/sh\nexec sleep 1\n", mode=0o755)
    layer.add("app/again", kind=tarfile.LNKTYPE, link="app/start", mode=0o755)


def blob(blobs, obj, media, **extra):
    raw = json.dumps(obj, separators=(",", ":"), sort_keys=True).encode()
    digest = hashlib.sha256(raw).hexdigest()
    with open(os.path.join(blobs, digest), "wb") as f:
        f.write(raw)
    return dict({"mediaType": media, "digest": "sha256:" + digest, "size": len(raw)}, **extra)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--scale", type=float, default=1.0)
    ap.add_argument("--compression", choices=["gzip", "zstd", "none"], default="gzip")
    a = ap.parse_args()
    shutil.rmtree(a.out, ignore_errors=True)
    blobs = os.path.join(a.out, "blobs", "sha256")
    os.makedirs(blobs)
    pool, layers = Pool(random.Random("pool")), []
    for fill in (base, program, modules, assets, patch):
        layer = Layer(blobs, a.compression)
        fill(layer, random.Random(fill.__name__), pool, a.scale, set())
        layers.append(layer.finish(blobs))
    manifests = []
    for arch in ("amd64", "arm64"):
        config = blob(blobs, {"architecture": arch, "os": "linux",
                              "config": {"Entrypoint": ["/app/start"], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
                              "rootfs": {"type": "layers", "diff_ids": [d for _, d in layers]}},
                      "application/vnd.oci.image.config.v1+json")
        manifests.append(blob(blobs, {"schemaVersion": 2, "config": config, "layers": [d for d, _ in layers],
                                      "mediaType": "application/vnd.oci.image.manifest.v1+json"},
                              "application/vnd.oci.image.manifest.v1+json",
                              platform={"os": "linux", "architecture": arch}))
    media = "application/vnd.oci.image.index.v1+json"
    index = blob(blobs, {"schemaVersion": 2, "mediaType": media, "manifests": manifests}, media,
                 annotations={"org.opencontainers.image.ref.name": "app"})
    with open(os.path.join(a.out, "index.json"), "w", encoding="utf-8") as f:
        json.dump({"schemaVersion": 2, "mediaType": media, "manifests": [index]}, f)
    with open(os.path.join(a.out, "oci-layout"), "w", encoding="utf-8") as f:
        f.write('{"imageLayoutVersion":"1.0.0"}')
    print(json.dumps({"index": index["digest"], "bytes": sum(d["size"] for d, _ in layers)}))


if __name__ == "__main__":
    main()
