"""What every part of make bench measures with: tables, process trees, CPU time, peak memory, fresh file systems."""
import os
import re
import subprocess
import sys
import threading


def table(title, head, rows):
    print("\n" + title)
    widths = [max(len(str(r[i])) for r in [head] + rows) for i in range(len(head))]
    for r in [head] + rows:
        print("  " + "  ".join(str(c).ljust(w) for c, w in zip(r, widths)).rstrip())
    sys.stdout.flush()


def tree(pid):
    """pid and all below it."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, encoding="utf-8") as f:
                    children.setdefault(int(f.read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
            except OSError:
                continue
    todo, found = [pid], []
    while todo:
        p = todo.pop()
        found.append(p)
        todo += children.get(p, [])
    return found


def field(pid, name, file="smaps_rollup"):
    with open("/proc/%d/%s" % (pid, file), encoding="utf-8") as f:
        return int(re.search(r"^%s:\s+(\d+)" % name, f.read(), re.M).group(1))


def comm(pid):
    with open("/proc/%d/comm" % pid, encoding="utf-8") as f:
        return f.read().strip()


def cpu(pids):
    """CPU seconds of processes and of their children that have ended."""
    ticks = 0
    for pid in pids:
        try:
            with open("/proc/%d/stat" % pid, encoding="utf-8") as f:
                ticks += sum(int(n) for n in f.read().rsplit(")", 1)[1].split()[11:15])
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


class PeakMemory:
    """Highest sum of PSS of a process tree, sampled; with a name, only of the processes called so."""

    def __init__(self, root, prefix=""):
        self.root, self.prefix, self.peak, self.stop = root, prefix, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stop.wait(0.1):
            total = 0
            for pid in tree(self.root):
                try:
                    if comm(pid).startswith(self.prefix):
                        total += field(pid, "Pss")
                except (OSError, AttributeError):
                    continue
            self.peak = max(self.peak, total)

    def end(self):
        self.stop.set()
        self.thread.join()
        return self.peak / 1000


class Volume:
    """A freshly made ext4 file system in a file, mounted by loop. Some disks make files many times slower for minutes
    after a large tree was deleted; what never lay there can't poison the next measurement."""

    def __init__(self, directory, name, size):
        self.path, self.file = os.path.join(directory, name), os.path.join(directory, name + ".ext4")
        with open(self.file, "wb") as f:
            f.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", self.file], check=True)
        os.makedirs(self.path)
        subprocess.run(["mount", "-o", "loop,noinit_itable", self.file, self.path], check=True)
        os.chmod(self.path, 0o755)
        self.sync()

    def sync(self):
        subprocess.run(["sync", "-f", self.path], check=True)

    def used(self):
        s = os.statvfs(self.path)
        return (s.f_blocks - s.f_bfree) * s.f_frsize

    def close(self):
        """Whatever is still mounted inside goes first."""
        with open("/proc/self/mounts", encoding="utf-8") as f:
            inside = [line.split()[1] for line in f if line.split()[1].startswith(self.path + "/")]
        for where in sorted(inside, key=len, reverse=True) + [self.path]:
            subprocess.run(["umount", where], check=True)
        os.unlink(self.file)
        os.rmdir(self.path)
