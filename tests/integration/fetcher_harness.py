"""hermes-fetcher as it really runs (own uid, sandbox on), and the namespace its tests live in."""
import base64
import http.client
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fixtures"))

from oci_layout import Layout  # noqa: E402
from scratch_state import ScratchState, UnixConnection  # noqa: E402

REGISTRY, AUTH, METADATA = "203.0.113.10", "203.0.113.20", "169.254.169.254"
HOSTS = f"127.0.0.1 localhost rebind.test\n{REGISTRY} registry.test\n{AUTH} auth.test\n{METADATA} metadata.test\n"


def enter_namespace():
    """The tests need addresses that are not loopback, a metadata address, and names: in a network and mount namespace of
    their own they get them without touching the machine."""
    if os.environ.get("HB_TEST_NAMESPACE") != "1":
        os.environ["HB_TEST_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", "--", sys.executable, *sys.argv])
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (REGISTRY, AUTH, METADATA):
        subprocess.run(["ip", "addr", "add", f"{address}/32", "dev", "lo"], check=True)
    hosts = f"/run/hermes-test-hosts-{os.getpid()}"
    with open(hosts, "w", encoding="ascii") as f:
        f.write(HOSTS)
    os.chmod(hosts, 0o644)
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    os.unlink(hosts)


class Fetcher:
    """One state directory and one process. `settings` are [fetcher] keys without the prefix."""

    def __init__(self, **settings):
        settings = {"retries": 3, "connect_timeout": 5, "stall_timeout": 5, **settings}
        other = {k: str(v) for k, v in settings.items() if "." in k}
        own = {f"fetcher.{k}": str(v) for k, v in settings.items() if "." not in k}
        self.state = ScratchState(settings={**own, **other})
        self.process = None
        self.start()

    def configure(self, **settings):
        self.stop()
        self.state.settings.update({f"fetcher.{k}": str(v) for k, v in settings.items()})
        self.state.write_config()
        self.start()

    def start(self):
        uid = self.state.uid("fetcher")
        read, write = os.pipe()
        program = os.path.join(os.environ["HB_BUILD"], "fetcher", "hermes-fetcher")
        self.log = open(self.state.file("log/fetcher.log"), "ab")
        # secrets must not come from here, and a proxy in the environment must not be used
        environment = {"PATH": "/usr/bin:/bin", "http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}
        self.process = subprocess.Popen([program, "--state", self.state.path, "--ready-fd", str(write)],
                                        pass_fds=[write], user=uid, group=uid, extra_groups=[], env=environment,
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(write)
        ready = os.read(read, 1)
        os.close(read)
        if ready != b"1":
            raise RuntimeError("hermes-fetcher did not start:\n" + self.logged())

    def stop(self, kill=False):
        if self.process:
            (self.process.kill if kill else self.process.terminate)()
            self.process.wait()
            self.log.close()
            self.process = None

    def remove(self):
        self.stop()
        self.state.remove()

    def logged(self):
        with open(self.state.file("log/fetcher.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def credentials(self, registries, mode=0o600):
        uid = self.state.uid("fetcher")
        self.state.write("fetcher/credentials.json", json.dumps({"registries": registries}), mode, uid, uid)

    def health(self):
        return self.state.call("fetcher", "GET", "/health")[1]

    def resolve(self, image, platform="linux/amd64", pin=None):
        body = {"image": image, "platform": platform, **({"platform_digest": pin} if pin else {})}
        return self.state.call("fetcher", "POST", "/resolve", body, timeout=150)[1]

    def open_fetch(self, image, blobs):
        """The response of a /fetch that is still running; readline() gives events."""
        body = {"image": image, "blobs": [{"digest": b["digest"], "size": b["size"]} for b in blobs]}
        conn = UnixConnection(self.state.socket("fetcher"), 150)
        conn.request("POST", "/fetch", json.dumps(body).encode())
        return conn, conn.getresponse()

    def fetch(self, image, blobs):
        """All events; the last is done or error."""
        conn, answer = self.open_fetch(image, blobs)
        try:
            data = answer.read()
        except http.client.IncompleteRead as broken:
            data = broken.partial
        finally:
            conn.close()
        events = [json.loads(line) for line in data.splitlines() if line.strip()]
        return events if events and "event" in events[0] else [{"event": "error", **events[0]}]

    def path(self, digest):
        return os.path.join(self.state.path, "storage", "blobs", "sha256", digest.split(":")[-1])

    def stored(self, digest):
        with open(self.path(digest), "rb") as f:
            return f.read()

    def plant(self, name, data):
        """Put a file into the store as the fetcher itself would have."""
        uid = self.state.uid("fetcher")
        self.state.write(os.path.join("storage/blobs/sha256", name), data, 0o644, uid, uid)

    def names(self):
        return sorted(os.listdir(os.path.join(self.state.path, "storage", "blobs", "sha256")))


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def simple_layout(directory, sizes=(100_000,), **kwargs):
    """One image with incompressible layers of about these sizes, and its index."""
    layout = Layout(directory)
    layers = [layout.layer([(f"file{i}", os.urandom(size))], compression="none") for i, size in enumerate(sizes)]
    image = layout.image(layers, **kwargs)
    index = layout.index([image])
    layout.tag(index, "v1")
    return layout, index, image, layers
