"""The part `pull` of make bench: an image from a registry on loopback into a cold store, verified and unpacked, by us
and by the tools of the field, each on a file system made for it.

What is counted for everybody: wall time from the command to the end of the file system's sync, CPU seconds of all its
processes (a daemon's own too), and the highest sampled sum of PSS. The registry's work is nobody's.
"""
import contextlib
import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import time

from measure import PeakMemory, Volume, cpu, table, tree
from registry import Registry
from system import CTL, System, wait_for

GIB = 1 << 30


def blob(layout, digest):
    return os.path.join(layout, "blobs", "sha256", digest.partition(":")[2])


def load(layout, digest):
    with open(blob(layout, digest), encoding="utf-8") as f:
        return json.load(f)


def store(layout, data):
    raw = data if isinstance(data, bytes) else json.dumps(data, separators=(",", ":")).encode()
    digest = "sha256:" + hashlib.sha256(raw).hexdigest()
    with open(blob(layout, digest), "wb") as f:
        f.write(raw)
    return digest, len(raw)


class Image:
    """The layout that is pulled: manifest and layers of this machine's platform."""

    def __init__(self, layout):
        self.layout = layout
        with open(os.path.join(layout, "index.json"), encoding="utf-8") as f:
            self.digest = json.load(f)["manifests"][0]["digest"]
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine)
        self.manifest = load(layout, next(m["digest"] for m in load(layout, self.digest)["manifests"]
                                          if m["platform"]["architecture"] == machine))

    def layers(self):
        return [blob(self.layout, d["digest"]) for d in self.manifest["layers"]]

    def successor(self):
        """The same image with one more, empty layer on top, as `next` in the layout: the digest of its index."""
        index = load(self.layout, self.digest)
        for entry in index["manifests"]:
            manifest = load(self.layout, entry["digest"])
            config = load(self.layout, manifest["config"]["digest"])
            digest, size = store(self.layout, bytes(1024))  # a tar of nothing
            config["rootfs"]["diff_ids"].append(digest)
            manifest["config"]["digest"], manifest["config"]["size"] = store(self.layout, config)
            manifest["layers"].append({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest,
                                       "size": size})
            entry["digest"], entry["size"] = store(self.layout, manifest)
        digest, size = store(self.layout, index)
        with open(os.path.join(self.layout, "index.json"), encoding="utf-8") as f:
            top = json.load(f)
        top["manifests"][1:] = [dict(top["manifests"][0], digest=digest, size=size,
                                     annotations={"org.opencontainers.image.ref.name": "next"})]
        with open(os.path.join(self.layout, "index.json"), "w", encoding="utf-8") as f:
            json.dump(top, f)
        return digest


# Older ones refuse layers compressed so; Debian 12 has older ones.
ZSTD_SINCE = {"dockerd": (23, 0), "umoci": (0, 5)}


def version(program):
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    return tuple(int(n) for n in re.search(r"(\d+)\.(\d+)", said).groups())


class Daemon:
    """A real dockerd with everything it writes on one file system."""

    def __init__(self, where):
        self.socket = os.path.join(where, "sock")
        env = {**os.environ, "TMPDIR": where, "DOCKER_TMPDIR": where}
        with open(os.path.join(where, "daemon.json"), "w", encoding="ascii") as f:
            f.write("{}")
        self.log = open(os.path.join(where, "log"), "wb")
        self.process = subprocess.Popen(
            ["dockerd", "--config-file", os.path.join(where, "daemon.json"), "--data-root", os.path.join(where, "root"),
             "--exec-root", os.path.join(where, "exec"), "--pidfile", os.path.join(where, "pid"), "-H",
             "unix://" + self.socket, "--iptables=false", "--ip6tables=false", "--bridge=none",
             "--storage-driver=overlay2"], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=env)
        wait_for(lambda: subprocess.run(self.command("version"), capture_output=True, check=False).returncode == 0,
                 "dockerd, whose log is %s" % self.log.name)

    def command(self, *args):
        return ["docker", "-H", "unix://" + self.socket, *args]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


class Pull:
    def __init__(self, args, directory):
        self.args, self.dir = args, directory
        layout = args.layout
        if not layout:
            layout = os.path.join(directory, "layout")
            maker = os.environ.get("HB_BENCH_IMAGE", os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                                 "make_image.py"))
            subprocess.run(["python3", maker, layout, "--scale", str(args.scale), "--compression", args.compression],
                           check=True, stdout=subprocess.DEVNULL)
        self.image = Image(layout)
        self.registry = Registry(parent=directory)
        self.registry.push(layout, "app", "bench/app:1")
        self.name = "%s/bench/app@%s" % (self.registry.host, self.image.digest)
        self.ref = "%s/bench/app:1@%s" % (self.registry.host, self.image.digest)
        self.tree = None

    def close(self):
        self.registry.stop()

    # --- ours ---

    @contextlib.contextmanager
    def system(self, where):
        """A whole installation that runs, and its launcher's pid; nothing of it is left running."""
        s = System(where, self.ref, self.registry.host)
        s.ctl("setup", "--image", self.ref, "--insecure-registry", s.registry, *s.settings(), check=0)
        s.ctl("up", check=0)
        try:
            with open(os.path.join(s.state, "run", "launcher.pid"), encoding="ascii") as f:
                yield s, int(f.read())
        finally:
            s.ctl("down", check=0)

    @staticmethod
    def stage(s, image):
        """Waits for the end of staging; a refusal is the end of the benchmark."""
        return s.ctl("runtime", "stage", "--image", image, check=0)

    def hermes(self, volume):
        with self.system(volume.path) as (s, root):
            return self.timed_stage(volume, s, root)

    def timed_stage(self, volume, s, root):
        releases = os.path.join(s.dir, "storage", "releases")
        volume.sync()
        peak, before, began = PeakMemory(root, "hermes"), cpu(tree(root)), time.monotonic()
        client = subprocess.Popen([CTL, "--state", s.state, "--json", "runtime", "stage", "--image", self.ref],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        done = None
        while done is None and client.poll() is None:
            done = next((r for r in os.listdir(releases) if not r.startswith(".")
                         and os.path.exists(os.path.join(releases, r, "COMPLETE"))), None)
            time.sleep(0.005)
        volume.sync()
        wall = time.monotonic() - began
        said = client.communicate()[0].decode(errors="replace")
        used, memory = cpu(tree(root)) - before, peak.end()
        if client.returncode:
            raise SystemExit("hermesctl runtime stage: " + said[-2000:])
        if self.tree is None:
            self.tree = self.listing(os.path.join(releases, os.listdir(releases)[0], "rootfs"))
        return wall, used, memory

    # --- peers ---

    @staticmethod
    def timed(volume, root, commands, env=None):
        """`root`: pid of a daemon that does the work, or None when the commands do it themselves."""
        volume.sync()
        memory, used = 0, 0
        before, began = cpu(tree(root)) if root else 0, time.monotonic()
        for command in commands:
            own = os.times()
            p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
            peak = PeakMemory(root or p.pid)
            err = p.stderr.read()
            p.wait()
            memory = max(memory, peak.end())
            now = os.times()
            used += now.children_user + now.children_system - own.children_user - own.children_system
            if p.returncode:
                raise SystemExit("%s: %s" % (" ".join(command[:3]), err.decode(errors="replace")[-800:]))
        volume.sync()
        wall = time.monotonic() - began
        return wall, used + (cpu(tree(root)) - before if root else 0), memory

    def umoci(self, volume):
        out = self.timed(volume, None, [
            ["skopeo", "copy", "-q", "--insecure-policy", "--src-tls-verify=false", "docker://" + self.name,
             "oci:%s/oci:app" % volume.path],
            ["umoci", "unpack", "--image", volume.path + "/oci:app", volume.path + "/bundle"]],
            {**os.environ, "TMPDIR": volume.path})
        if self.tree is not None and self.listing(volume.path + "/bundle/rootfs") != self.tree:
            raise SystemExit("our tree and umoci's differ: no timing of a wrong result")
        return out

    def podman(self, volume):
        return self.timed(volume, None, [
            ["podman", "--root", volume.path + "/root", "--runroot", volume.path + "/run", "--storage-driver", "overlay",
             "pull", "-q", "--tls-verify=false", self.name]], {**os.environ, "TMPDIR": volume.path})

    def docker(self, volume):
        daemon = Daemon(volume.path)
        try:
            return self.timed(volume, daemon.process.pid, [daemon.command("pull", "-q", self.name)])
        finally:
            daemon.stop()

    # --- floors: what is left when nothing is fetched, checked or removed ---

    def bsdtar(self, volume):
        return self.timed(volume, None, [["bsdtar", "-xf", path, "-C", volume.path] for path in self.image.layers()])

    def gnutar(self, volume):
        option = {"gzip": "-z", "zstd": "--zstd", "none": "-S"}[self.args.compression]
        return self.timed(volume, None, [["tar", "-x", option, "-f", path, "-C", volume.path, "--overwrite", "--recursive-unlink"]
                                         for path in self.image.layers()])

    def copy(self, volume):
        return self.timed(volume, None, [["cp", *self.image.layers(), volume.path]])

    CASES = [("hermes", hermes, None), ("podman pull", podman, "podman"), ("docker pull", docker, "dockerd"),
             ("skopeo + umoci", umoci, "umoci"), ("floor: bsdtar of local layers", bsdtar, "bsdtar"),
             ("floor: GNU tar of local layers", gnutar, "tar"), ("floor: copy of the blobs", copy, "cp")]

    @staticmethod
    def listing(root):
        """Names, kinds, link targets, and sizes of what is not a directory."""
        out = subprocess.run(["find", root, "-mindepth", "1", "-printf", "%P %y %l %s\\n"], check=True,
                             stdout=subprocess.PIPE).stdout.decode(errors="surrogateescape").splitlines()
        return sorted(re.sub(r"^(.* d ).*", r"\1", line) for line in out)

    def volume(self):
        return Volume(self.dir, "volume", int(max(4, 12 * self.args.scale) * GIB))

    def cases(self):
        """What is compared, for this compression; what can't be is said."""
        for case in self.CASES:
            if self.args.peers and not any(p in case[0] for p in self.args.peers):
                continue
            needs = ZSTD_SINCE.get(case[2])
            if self.args.compression == "zstd" and needs and version(case[2]) < needs:
                print("%s is left out: before %d.%d it can't read zstd layers" % (case[0], *needs))
                continue
            yield case

    def run(self):
        cases = list(self.cases())
        for name, _, program in cases:
            if program and not shutil.which(program):
                raise SystemExit("%s is not installed, and %s is compared: see [bench] in deploy/packages.debian" %
                                 (program, name))
        runs = {name: [] for name, _, _ in cases}
        for _ in range(self.args.rounds):
            for name, measure, _ in cases:
                volume = self.volume()
                try:
                    runs[name].append(measure(self, volume))
                finally:
                    volume.close()
        middle = {k: [statistics.median(r[i] for r in v) for i in range(3)] for k, v in runs.items()}
        base = next(iter(middle.values()))
        table("pull + verify + unpack, scale %g, %s, medians of %d" % (self.args.scale, self.args.compression,
                                                                     self.args.rounds),
              ["tool", "wall s", "CPU s", "peak MB", "wall ratio", "CPU ratio"],
              [[k, "%.2f" % m[0], "%.2f" % m[1], "%.0f" % m[2], "%.2fx" % (m[0] / base[0]), "%.2fx" % (m[1] / base[1])]
               for k, m in middle.items()])

    # --- afterwards ---

    def again(self):
        """Re-hashing a release, and what an upgrade that shares layers fetches."""
        volume = self.volume()
        try:
            with self.system(volume.path) as (s, _):
                self.stage(s, self.ref)
                self.hashed(s)
                self.shared(s)
        finally:
            volume.close()

    def hashed(self, s):
        releases = os.path.join(s.dir, "storage", "releases")
        with open(os.path.join(releases, os.listdir(releases)[0], "COMPLETE"), encoding="utf-8") as f:
            size = json.load(f)["bytes"]
        walls = []
        for _ in range(5):
            began = time.monotonic()
            self.stage(s, self.ref)  # complete already: hashed whole, against its manifest
            walls.append(time.monotonic() - began)
        wall = statistics.median(walls)
        table("a complete release hashed again", ["MB", "s", "GB/s"],
              [["%.0f" % (size / 1e6), "%.2f" % wall, "%.2f" % (size / 1e9 / wall)]])

    def shared(self, s):
        digest = self.image.successor()
        self.registry.push(self.image.layout, "next", "bench/app:2")
        log = self.registry.log
        at = os.path.getsize(log)
        self.stage(s, "%s/bench/app:2@%s" % (self.registry.host, digest))
        table("an upgrade that shares all layers but one", ["image, bytes", "sent by the registry, bytes"],
              [[sum(d["size"] for d in self.image.manifest["layers"]), self.sent(log, at)]])

    @staticmethod
    def sent(log, at):
        """Bytes of the bodies of all answers since then, from the registry's own log."""
        with open(log, "rb") as f:
            f.seek(at)
            return sum(int(n) for n in re.findall(rb'http\.response\.written=(\d+)', f.read()))
