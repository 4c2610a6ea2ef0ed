"""The unpacked tree equals what skopeo and umoci make of the same image, over seeded random layer stacks.

  test_unpack_peer.py [COUNT [FIRST_SEED]]      default 40 stacks

Each stack is valid by a small model of the image (parents exist, hard links have targets), since what a hostile one does is
the business of test_unpack.py. Intended differences, taken out of the peer's tree before comparing:
- setuid and setgid bits: stripped by policy, kept by umoci (it runs as root).
- devices and fifos: left out by policy.
- owners and extended attributes: squashed and dropped; not compared.
- time of directories that no layer lists: the epoch, so that the tree digest is the same everywhere; umoci leaves the time
  of unpacking.
"""
import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))
import confine  # noqa: E402
from layers import CHAR, FIFO, Box, Layer, directory, entry, hardlink, snapshot, symlink  # noqa: E402

COUNT = int(os.environ.get("HB_PEER_COUNT", "40"))
FIRST = int(os.environ.get("HB_PEER_SEED", "1"))
MODES = (0o644, 0o755, 0o600, 0o444, 0o4755, 0o2755, 0o1777, 0o000)
DIR_MODES = (0o755, 0o700, 0o555, 0o1777, 0o2775)


class Stack:
    """Random layers over few names, so that they meet often. tree: what a path holds by now."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tree, self.listed = {}, set()
        self.layers = [self.layer() for _ in range(self.random.randint(1, 4))]

    def pick(self, kinds):
        found = sorted(p for p, k in self.tree.items() if k in kinds)
        return self.random.choice(found) if found else None

    def new_path(self):
        parent = self.pick(("dir",)) if self.random.random() < 0.7 else None
        name = self.random.choice(("a", "b", "c", "d", "\u00e9", "with space", "x" * 120))
        if parent is None and self.random.random() < 0.3:
            name = self.random.choice(("p", "q")) + "/" + name  # an unlisted parent
        path = f"{parent}/{name}" if parent else name
        top = os.path.dirname(path)
        return path if not top or self.tree.get(top) in (None, "dir") else None

    def put(self, path, kind):
        top = os.path.dirname(path)
        while top and top not in self.tree:
            self.tree[top] = "dir"
            top = os.path.dirname(top)
        if not (kind == "dir" and self.tree.get(path) == "dir"):
            self.forget(path)
        if kind:
            self.tree[path] = kind
        self.made.add(path)

    def forget(self, path):
        for p in [p for p in self.tree if p == path or p.startswith(path + "/")]:
            del self.tree[p]
            self.listed.discard(p)

    def layer(self):
        self.made, self.gone = set(), set()
        before = dict(self.tree)
        entries = [e for _ in range(self.random.randint(1, 25)) for e in self.operation(before)]
        return Layer(*entries, compression=self.random.choice(("gzip", "gzip", "none")))

    def operation(self, before):
        kind = self.random.choices(("file", "dir", "link", "hard", "special", "whiteout", "opaque", "through"),
                                   (8, 5, 3, 2, 1, 2, 1, 1))[0]
        return getattr(self, "make_" + kind)(before)

    def stamp(self):
        return {"mtime": self.random.randint(1, 2_000_000_000), "uid": self.random.randint(0, 9999)}

    def make_file(self, _):
        path = self.new_path()
        if path is None:
            return []
        self.put(path, "file")
        data = self.random.randbytes(self.random.choice((0, 1, 511, 512, 513, 20_000)))
        return [entry(path, data=data, mode=self.random.choice(MODES), **self.stamp())]

    def make_dir(self, _):
        path = self.new_path()
        if path is None:
            return []
        self.put(path, "dir")
        self.listed.add(path)
        return [directory(path + self.random.choice(("", "/")), mode=self.random.choice(DIR_MODES), **self.stamp())]

    def make_link(self, _):
        path = self.new_path()
        if path is None:
            return []
        self.put(path, "link")
        target = self.random.choice(("a", "/a", "../b", "nowhere", "/p/q", "."))
        return [symlink(path, target, **self.stamp())]

    def make_hard(self, _):
        target, path = self.pick(("file",)), self.new_path()
        if target is None or path is None or path == target or target.startswith(path + "/"):
            return []
        self.put(path, "file")
        return [hardlink(path, target)]

    def make_special(self, _):
        path = self.new_path()
        if path is None:
            return []
        self.put(path, None)
        return [entry(path, self.random.choice((CHAR, FIFO)), **self.stamp())]

    def make_whiteout(self, before):
        """Of something older that this layer has not touched, nor anything in it."""
        old = sorted(p for p in before if p in self.tree and
                     not any(m == p or m.startswith(p + "/") or p.startswith(m + "/") for m in self.made))
        if not old:
            return []
        path = self.random.choice(old)
        self.forget(path)
        self.made.add(path)
        head, tail = os.path.split(path)
        return [entry(os.path.join(head, ".wh." + tail))]

    def make_opaque(self, before):
        path = self.random.choice(sorted(p for p in before if self.tree.get(p) == "dir") or [None])
        if path is None or any(m.startswith(path + "/") for m in self.made):
            return []
        for p in [p for p in self.tree if p.startswith(path + "/")]:
            self.forget(p)
        self.made.add(path)
        return [directory(path, **self.stamp()), entry(path + "/.wh..wh..opq")] if self.listed.add(path) is None else []

    def make_through(self, _):
        """A file through a link to a directory of the image."""
        target = self.pick(("dir",))
        if target is None:
            return []
        name = f"via{self.random.randint(0, 3)}"
        if self.tree.get(name) not in (None, "link"):
            return []
        self.put(name, "link")
        self.put(target + "/through", "file")
        return [symlink(name, "/" + target, **self.stamp()), entry(name + "/through", data="t", **self.stamp())]


def write_layout(where, layers):
    """An OCI image layout with one image, tagged t."""
    blobs = os.path.join(where, "blobs", "sha256")
    os.makedirs(blobs)

    def put(data):
        digest = hashlib.sha256(data).hexdigest()
        with open(os.path.join(blobs, digest), "wb") as out:
            out.write(data)
        return {"digest": "sha256:" + digest, "size": len(data)}

    config = put(json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {
        "type": "layers", "diff_ids": ["sha256:" + layer.diff_id for layer in layers]}}).encode())
    manifest = put(json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **config},
        "layers": [{"mediaType": layer.media_type, **put(layer.blob)} for layer in layers]}).encode())
    with open(os.path.join(where, "oci-layout"), "w", encoding="ascii") as out:
        out.write('{"imageLayoutVersion":"1.0.0"}')
    with open(os.path.join(where, "index.json"), "w", encoding="ascii") as out:
        json.dump({"schemaVersion": 2, "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json", **manifest,
            "annotations": {"org.opencontainers.image.ref.name": "t"}}]}, out)


def tree_with_times(root):
    tree = {}
    for path, (kind, mode, what) in snapshot(root).items():
        tree[path] = (kind, mode, what, os.lstat(os.path.join(os.fsencode(root), os.fsencode(path))).st_mtime)
    return tree


class Peer(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(dir=confine.SCRATCH)
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir)

    def peer(self, layers):
        first, second, bundle = (os.path.join(self.dir, n) for n in ("layout", "copy", "bundle"))
        for old in (first, second, bundle):
            shutil.rmtree(old, ignore_errors=True)
        write_layout(first, layers)
        env = {**os.environ, "TMPDIR": self.dir, "HOME": self.dir, "XDG_RUNTIME_DIR": self.dir}
        for command in (["skopeo", "copy", "-q", f"oci:{first}:t", f"oci:{second}:t"],
                        ["umoci", "unpack", "--image", f"{second}:t", bundle]):
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, f"{command[0]}: {done.stdout}")
        return os.path.join(bundle, "rootfs")

    def as_intended(self, tree, listed):
        """The peer's tree with the intended differences applied."""
        out = {}
        for path, (kind, mode, what, mtime) in tree.items():
            if kind == "special":
                continue
            if kind != "link":
                mode &= ~(stat.S_ISUID | stat.S_ISGID)
            if kind == "dir" and os.fsdecode(path) not in listed:
                mtime = 0
            out[path] = (kind, mode, what, mtime)
        return out

    def test_peer_makes_the_same_tree(self):
        for seed in range(FIRST, FIRST + COUNT):
            with self.subTest(seed=seed):
                stack = Stack(seed)
                box = Box(os.path.join(self.dir, f"box{seed}"))
                answer = box.unpack(*stack.layers)
                self.assertTrue(answer["ok"], answer)
                ours = tree_with_times(box.root)
                theirs = self.as_intended(tree_with_times(self.peer(stack.layers)), stack.listed)
                self.maxDiff = None
                self.assertEqual({k: ours.get(k) for k in {*ours, *theirs} if ours.get(k) != theirs.get(k)},
                                 {k: theirs.get(k) for k in {*ours, *theirs} if ours.get(k) != theirs.get(k)})
                shutil.rmtree(box.where)


if __name__ == "__main__":
    if not confine.SCRATCH:
        for variable, value in zip(("HB_PEER_COUNT", "HB_PEER_SEED"), sys.argv[1:]):
            os.environ[variable] = value
    sys.argv[1:] = []
    confine.main()
