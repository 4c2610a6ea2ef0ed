#!/usr/bin/env python3
"""hermes-fetcher against Debian's docker-registry: plain on loopback, TLS from a test authority, Basic, token server,
mirrors, layouts, resume after kill -9, limits, and what it leaves in the store."""
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from fetcher_harness import REGISTRY, Fetcher, basic, enter_namespace, simple_layout
from faulty_registry import FaultyRegistry
from oci_layout import Layout
from registry import Authority, Registry, TokenServer
from scratch_state import UnixConnection


class Case(unittest.TestCase):
    settings = {}

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="hermes-fetcher-test-")
        self.addCleanup(shutil.rmtree, self.directory, True)

    def fetcher(self, **settings):
        f = Fetcher(**settings)
        self.addCleanup(f.remove)
        return f

    def registry(self, **options):
        r = Registry(**options)
        self.addCleanup(r.remove)
        return r

    def authority(self):
        return Authority(os.path.join(self.directory, "ca"))

    def layout(self, name="image", **kwargs):
        return simple_layout(os.path.join(self.directory, name), **kwargs)

    def assertFetched(self, f, events, layout, layers):
        self.assertEqual(events[-1], {"event": "done"}, f.logged())
        for layer in layers:
            self.assertEqual(f.stored(layer["digest"]), layout.read(layer["digest"]))
        self.assertFalse([n for n in f.names() if n.endswith(".partial")])

    def assertRefused(self, answer, code, text=""):
        self.assertEqual(answer.get("code"), code, answer)
        self.assertIn(text, answer["error"])


class RealRegistry(Case):
    def test_plain_loopback_whole_pull(self):
        layout, index, image, layers = self.layout(sizes=(300_000, 0, 5_000_000))
        registry = self.registry()
        registry.push(layout, "v1", "team/app:v1")
        f = self.fetcher(insecure_registries=registry.host)
        ref = f"{registry.host}/team/app:v1@{index['digest']}"
        found = f.resolve(ref)
        manifest = json.loads(layout.read(image["digest"]))
        self.assertEqual(found, {
            "status": "ok", "index_digest": index["digest"][7:], "manifest_digest": image["digest"][7:],
            "config_digest": manifest["config"]["digest"][7:],
            "layers": [{"digest": d["digest"][7:], "size": d["size"], "media_type": d["mediaType"]} for d in layers]})
        for document in (index["digest"], image["digest"], manifest["config"]["digest"]):
            self.assertEqual(f.stored(document), layout.read(document))
        events = f.fetch(ref, layers)
        self.assertFetched(f, events, layout, layers)
        total = sum(d["size"] for d in layers)
        self.assertEqual({e["digest"] for e in events if e["event"] == "blob"}, {d["digest"][7:] for d in layers})
        progress = [e for e in events if e["event"] == "progress"]
        self.assertEqual((progress[-1]["all_done"], progress[-1]["all_total"]), (total, total))
        for layer in layers:
            st = os.stat(f.path(layer["digest"]))
            self.assertEqual((stat.S_IMODE(st.st_mode), st.st_uid), (0o644, f.state.uid("fetcher")))
        # Again, without the registry: all of it is there and hashed, no request is needed.
        registry.stop()
        self.assertEqual(f.resolve(ref), found)
        self.assertFetched(f, f.fetch(ref, layers), layout, layers)

    def test_docker_schema2_and_manifest_list(self):
        layout = Layout(os.path.join(self.directory, "docker"))
        layer = layout.layer([("a", b"x" * 1000)], docker=True)
        image = layout.image([layer], docker=True)
        index = layout.index([image], docker=True)
        server = FaultyRegistry(layout)
        self.addCleanup(server.stop)
        f = self.fetcher(insecure_registries=server.host)
        found = f.resolve(f"{server.host}/a/b:t@{index['digest']}")
        self.assertEqual(found.get("manifest_digest"), image["digest"][7:], found)
        accepts = server.seen("/manifests/")[0]["headers"]["Accept"]
        for kind in ("oci.image.index.v1", "docker.distribution.manifest.list.v2", "oci.image.manifest.v1",
                     "docker.distribution.manifest.v2"):
            self.assertIn(kind, accepts)

    def test_digest_that_names_a_manifest(self):
        layout, _, image, layers = self.layout()
        registry = self.registry()
        registry.push(layout, "v1", "team/app:v1")
        f = self.fetcher(insecure_registries=registry.host)
        ref = f"{registry.host}/team/app:v1@{image['digest']}"
        found = f.resolve(ref)
        self.assertEqual(found["manifest_digest"], image["digest"][7:])
        self.assertEqual(found["index_digest"], image["digest"][7:])
        self.assertRefused(f.resolve(ref, "linux/arm64"), "platform_mismatch", "linux/amd64")
        self.assertFetched(f, f.fetch(ref, layers), layout, layers)

    def test_platform_pin(self):
        layout, index, image, _ = self.layout()
        self.readable(layout)
        ref = f"oci:{layout.path}@{index['digest']}"
        f = self.fetcher(**{"runtime.image": ref})
        self.assertEqual(f.resolve(ref, pin=image["digest"])["manifest_digest"], image["digest"][7:])
        self.assertRefused(f.resolve(ref, pin="sha256:" + "0" * 64), "platform_mismatch", image["digest"])

    def readable(self, layout):
        os.chmod(self.directory, 0o755)
        for base, directories, files in os.walk(layout.path):
            for name in directories + files:
                os.chmod(os.path.join(base, name), 0o755)

    def test_oci_layout_without_network(self):
        layout, index, _, layers = self.layout(sizes=(200_000, 3_000_000))
        self.readable(layout)
        ref = f"oci:{layout.path}@{index['digest']}"
        f = self.fetcher(**{"runtime.image": ref})
        self.assertEqual(f.resolve(ref)["status"], "ok")
        self.assertFetched(f, f.fetch(ref, layers), layout, layers)
        # A blob that is not what its name says is refused and leaves nothing.
        damaged = layout.blob_path(layers[0]["digest"])
        data = bytearray(layout.read(layers[0]["digest"]))
        data[1000] ^= 1
        with open(damaged, "wb") as out:
            out.write(data)
        os.unlink(f.path(layers[0]["digest"]))
        events = f.fetch(ref, layers)
        self.assertRefused(events[-1], "digest_mismatch", layers[0]["digest"])
        self.assertNotIn(layers[0]["digest"][7:], f.names())
        # Another directory is out of reach whatever the request says.
        other, other_index, _, _ = self.layout("other")
        self.readable(other)
        self.assertRefused(f.resolve(f"oci:{other.path}@{other_index['digest']}"), "layout_unreadable", "runtime.image")

    def test_tls_from_a_test_authority(self):
        ca = self.authority()
        registry = self.registry(tls=(*ca.issue("registry"), ca.ca))
        layout, index, _, layers = self.layout()
        registry.push(layout, "v1", "team/app:v1")
        ref = f"{registry.host}/team/app:v1@{index['digest']}"
        os.chmod(self.directory, 0o755)
        f = self.fetcher(retries=0)
        self.assertRefused(f.resolve(ref), "tls_failed", "fetcher.ca_file")
        f.configure(ca_file=ca.ca)
        self.assertEqual(f.resolve(ref).get("status"), "ok")
        self.assertFetched(f, f.fetch(ref, layers), layout, layers)

    def test_plain_http_only_where_listed_and_on_loopback(self):
        layout, index, _, _ = self.layout()
        registry = self.registry()
        registry.push(layout, "v1", "team/app:v1")
        f = self.fetcher(retries=0)
        self.assertRefused(f.resolve(f"{registry.host}/team/app:v1@{index['digest']}"), "tls_failed",
                           "fetcher.insecure_registries")
        f.configure(insecure_registries=f"{REGISTRY}:5000")
        self.assertRefused(f.resolve(f"{REGISTRY}:5000/team/app:v1@{index['digest']}"), "insecure_registry", "loopback")

    def test_basic_authentication(self):
        registry = self.registry(users={"puller": "s3cret-Pass"})
        layout, index, _, layers = self.layout()
        registry.push(layout, "v1", "team/app:v1")
        ref = f"{registry.host}/team/app:v1@{index['digest']}"
        f = self.fetcher(insecure_registries=registry.host)
        self.assertRefused(f.resolve(ref), "unauthorized", "fetcher/credentials.json")
        f.credentials({registry.host: {"username": "puller", "password": "wrong-Pass"}})
        answer = f.resolve(ref)
        self.assertRefused(answer, "unauthorized", "refused the user name")
        self.assertNotIn("wrong-Pass", json.dumps(answer) + f.logged())
        f.credentials({registry.host: {"username": "puller", "password": "s3cret-Pass"}})
        self.assertEqual(f.resolve(ref).get("status"), "ok")
        self.assertFetched(f, f.fetch(ref, layers), layout, layers)
        self.assertEqual(f.health()["checks"]["fetcher"]["credentials"], "1 registries")
        for name in os.listdir(f.state.file("fetcher")):
            if name != "credentials.json":
                with open(f.state.file(f"fetcher/{name}"), "rb") as kept:
                    self.assertNotIn(b"s3cret-Pass", kept.read())
        self.assertNotIn("s3cret-Pass", f.logged())

    def test_loose_or_malformed_credentials_are_refused(self):
        layout, index, _, _ = self.layout()
        server = FaultyRegistry(layout)
        self.addCleanup(server.stop)
        ref = f"{server.host}/a/b:t@{index['digest']}"
        f = self.fetcher(insecure_registries=server.host)
        good = {"username": "u", "password": "hidden-Pass"}
        f.credentials({server.host: good}, mode=0o640)
        self.assertRefused(f.resolve(ref), "secret_permissions", "fetcher/credentials.json")
        self.assertEqual(f.health()["status"], "error")
        for broken in ({server.host: {**good, "token": "x"}}, {server.host: {"username": "u"}},
                       {server.host: {**good, "username": "a:b"}}, {server.host: {**good, "realm_hosts": "x"}}):
            f.credentials(broken)
            answer = f.resolve(ref)
            self.assertRefused(answer, "bad_credentials", server.host)
            self.assertNotIn("hidden-Pass", json.dumps(answer))
        self.assertEqual(server.requests, [])

    def token_case(self, users=None, tls=False, reply=None):
        ca = self.authority()
        server = TokenServer(ca, users=users, tls=tls, reply=reply)
        self.addCleanup(server.stop)
        registry = self.registry(token_server=server)
        layout, index, _, layers = self.layout(sizes=(100_000, 200_000, 300_000, 400_000))
        registry.push(layout, "v1", "team/app:v1")
        os.chmod(self.directory, 0o755)
        f = self.fetcher(insecure_registries=registry.host, ca_file=ca.ca)
        server.requests.clear()
        return registry, server, f, f"{registry.host}/team/app:v1@{index['digest']}", layout, layers

    def test_token_authentication_anonymous(self):
        _, server, f, ref, layout, layers = self.token_case()
        self.assertEqual(f.resolve(ref).get("status"), "ok", f.logged())
        self.assertFetched(f, f.fetch(ref, layers), layout, layers)
        for r in server.requests:
            self.assertEqual(r["authorization"], "")
            self.assertEqual(r["query"]["scope"], ["repository:team/app:pull"])
            self.assertEqual(r["query"]["service"], ["test-registry"])

    def test_token_authentication_with_credentials(self):
        registry, server, f, ref, layout, layers = self.token_case(users={"puller": "s3cret-Pass"}, tls=True)
        self.assertRefused(f.resolve(ref), "unauthorized", "credentials.json")
        entry = {"username": "puller", "password": "s3cret-Pass"}
        # The realm is another host (port) than the registry: not without being listed.
        f.credentials({registry.host: entry})
        server.requests.clear()
        self.assertRefused(f.resolve(ref), "realm_refused", server.host)
        self.assertEqual(server.requests, [])
        f.credentials({registry.host: {**entry, "realm_hosts": [server.host]}})
        self.assertEqual(f.resolve(ref).get("status"), "ok", f.logged())
        self.assertFetched(f, f.fetch(ref, layers), layout, layers)
        self.assertTrue(server.requests)
        for r in server.requests:
            self.assertEqual(r["authorization"], basic("puller", "s3cret-Pass"))
        self.assertNotIn("s3cret-Pass", f.logged())

    def test_mirror_first_then_origin(self):
        layout, index, _, layers = self.layout(sizes=(100_000, 50_000))
        mirror = FaultyRegistry(layout)
        self.addCleanup(mirror.stop)
        registry = self.registry()
        registry.push(layout, "v1", "team/app:v1")
        ref = f"{registry.host}/team/app:v1@{index['digest']}"
        f = self.fetcher(insecure_registries=f"{registry.host},{mirror.host}",
                         mirrors=f"{registry.host}=http://{mirror.host}/prefix/")
        f.credentials({registry.host: {"username": "u", "password": "origin-Pass"}})
        self.assertEqual(f.resolve(ref).get("status"), "ok")
        self.assertTrue(mirror.paths("/prefix/v2/team/app/manifests/"))
        mirror.on("/blobs/", lambda r: r.answer(500, b"broken"))
        self.assertFetched(f, f.fetch(ref, layers), layout, layers)
        self.assertTrue(mirror.paths("/blobs/"))
        self.assertFalse([r for r in mirror.requests if "Authorization" in r["headers"]])
        self.assertIn(f"mirror {mirror.host} failed", f.logged())

    def test_kill_9_in_mid_layer_resumes(self):
        layout, index, _, layers = self.layout(sizes=(8_000_000,))
        server = FaultyRegistry(layout)
        self.addCleanup(server.stop)
        data = layout.read(layers[0]["digest"])

        def slow(request):
            if request.parsed_range or not slow.on:
                return False
            request.answer(200, data[:6_000_000], length=len(data))
            while slow.on:
                time.sleep(0.05)
            return True

        slow.on = True
        server.on("/blobs/" + layers[0]["digest"], slow)
        f = self.fetcher(insecure_registries=server.host)
        ref = f"{server.host}/team/app:v1@{index['digest']}"
        conn, answer = f.open_fetch(ref, layers)
        while json.loads(answer.readline())["done"] < 5_900_000:
            pass
        f.stop(kill=True)
        conn.close()
        slow.on = False
        f.start()
        self.assertFetched(f, f.fetch(ref, layers), layout, layers)
        ranges = [r["range"] for r in server.seen("/blobs/") if r["range"]]
        self.assertEqual(len(ranges), 1)
        self.assertGreater(ranges[0][0], 1_000_000)
        self.assertEqual(ranges[0][1], len(data) - 1)

    def test_client_that_goes_away_ends_the_job(self):
        layout, index, _, layers = self.layout(sizes=(1_000_000,))
        server = FaultyRegistry(layout)
        self.addCleanup(server.stop)
        gone = []

        def hang(request):
            request.answer(200, layout.read(layers[0]["digest"])[:600_000], length=layers[0]["size"])
            request.connection.settimeout(30)
            gone.append(request.connection.recv(1))  # empty when the fetcher hangs up
            return True

        server.on("/blobs/", hang)
        f = self.fetcher(insecure_registries=server.host, stall_timeout=60)
        conn, answer = f.open_fetch(f"{server.host}/team/app:v1@{index['digest']}", layers)
        while json.loads(answer.readline())["done"] < 500_000:
            pass
        self.assertEqual(f.health()["checks"]["fetcher"]["jobs"], 1)
        answer.close()
        conn.close()
        while not gone or f.health()["checks"]["fetcher"]["jobs"]:
            time.sleep(0.02)
        self.assertEqual(gone, [b""])
        self.assertIn(layers[0]["digest"][7:] + ".partial", f.names())

    def test_two_jobs_for_one_blob(self):
        layout, index, _, layers = self.layout(sizes=(3_000_000,))
        server = FaultyRegistry(layout)
        self.addCleanup(server.stop)

        def slow(request):
            time.sleep(1)
            return False

        server.on("/blobs/", slow)
        f = self.fetcher(insecure_registries=server.host)
        ref = f"{server.host}/team/app:v1@{index['digest']}"
        first, one = f.open_fetch(ref, layers)
        second, two = f.open_fetch(ref, layers)
        for answer in (one, two):
            self.assertEqual(json.loads(answer.read().splitlines()[-1]), {"event": "done"})
        first.close()
        second.close()
        self.assertEqual(len(server.paths("/blobs/" + layers[0]["digest"])), 1)
        self.assertEqual(f.stored(layers[0]["digest"]), layout.read(layers[0]["digest"]))

    def test_same_blob_listed_twice_is_fetched_once(self):
        layout, index, _, layers = self.layout(sizes=(1000,))
        server = FaultyRegistry(layout)
        self.addCleanup(server.stop)
        f = self.fetcher(insecure_registries=server.host)
        events = f.fetch(f"{server.host}/team/app:v1@{index['digest']}", layers * 3)
        self.assertFetched(f, events, layout, layers)
        self.assertEqual(len(server.paths("/blobs/")), 1)
        self.assertEqual(len([e for e in events if e["event"] == "blob"]), 1)


class Limits(Case):
    def setUp(self):
        super().setUp()
        self.image = self.layout(sizes=(2_000_000, 100_000))
        self.server = FaultyRegistry(self.image[0])
        self.addCleanup(self.server.stop)
        self.ref = f"{self.server.host}/team/app:v1@{self.image[1]['digest']}"

    def test_size_limits_come_before_any_byte(self):
        _, _, _, layers = self.image
        f = self.fetcher(insecure_registries=self.server.host, max_blob_size="1M")
        self.assertRefused(f.resolve(self.ref), "blob_too_large", str(layers[0]["size"]))
        self.assertRefused(f.fetch(self.ref, layers)[-1], "blob_too_large")
        f.configure(max_blob_size="3M", max_image_size="2M")
        self.assertRefused(f.resolve(self.ref), "image_too_large")
        self.assertRefused(f.fetch(self.ref, layers)[-1], "image_too_large")
        self.assertEqual(self.server.paths("/blobs/" + layers[0]["digest"]), [])

    def small_disk(self, f, options):
        """The blob store on a file system of its own, made before the fetcher starts."""
        f.stop()
        store, uid = f.state.file("storage/blobs/sha256"), f.state.uid("fetcher")
        self.run_tool("mount", "-t", "tmpfs", "-o", f"{options},uid={uid},gid={uid},mode=755", "none", store)
        self.addCleanup(self.run_tool, "umount", "-l", store)
        f.start()

    def run_tool(self, *command):
        subprocess.run(command, check=True)

    def test_not_enough_space_is_refused_with_numbers(self):
        _, _, _, layers = self.image
        f = self.fetcher(insecure_registries=self.server.host)
        self.small_disk(f, "size=33M")
        answer = f.fetch(self.ref, layers)[-1]
        self.assertRefused(answer, "not_enough_space", "33 MiB free")
        self.assertEqual(f.names(), [])
        self.assertEqual(self.server.paths("/blobs/"), [])

    def test_not_enough_inodes_is_refused_with_numbers(self):
        _, _, _, layers = self.image
        f = self.fetcher(insecure_registries=self.server.host)
        self.small_disk(f, "size=100M,nr_inodes=20")
        self.assertRefused(f.fetch(self.ref, layers)[-1], "not_enough_space", "inodes")
        self.assertEqual(self.server.paths("/blobs/"), [])

    def test_disk_that_fills_up_meanwhile(self):
        layout, _, _, layers = self.image
        f = self.fetcher(insecure_registries=self.server.host)
        self.small_disk(f, "size=40M")
        filler = f.state.file("storage/blobs/sha256/filler")

        def fill(request):
            with open(filler, "wb") as out:
                try:
                    while out.write(b"x" * 65536):
                        out.flush()
                except OSError:
                    pass
            return False

        self.server.on("/blobs/" + layers[0]["digest"], fill)
        self.assertRefused(f.fetch(self.ref, layers[:1])[-1], "disk_full", layers[0]["digest"][7:])
        os.unlink(filler)
        self.server.faults.clear()
        self.assertFetched(f, f.fetch(self.ref, layers), layout, layers)

    def test_documents_are_limited(self):
        layout = self.image[0]
        huge = layout.document({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                                "manifests": [], "annotations": {"x": "y" * (4 << 20)}}, "x")
        f = self.fetcher(insecure_registries=self.server.host)
        self.assertRefused(f.resolve(f"{self.server.host}/team/app:v1@{huge['digest']}"), "bad_manifest", "allowed")
        self.assertEqual(f.names(), [])

    def test_documents_that_mean_two_things(self):
        layout, index, image, _ = self.image
        both = {**json.loads(layout.read(index["digest"])), **json.loads(layout.read(image["digest"]))}
        both.pop("mediaType")
        f = self.fetcher(insecure_registries=self.server.host)
        for body in (both, {"schemaVersion": 1, "fsLayers": []}, [], {"schemaVersion": 2, "mediaType": "text/plain"},
                     {"schemaVersion": 2}):
            d = layout.document(body, "x")
            self.assertRefused(f.resolve(f"{self.server.host}/team/app:v1@{d['digest']}"), "bad_manifest")

    def test_foreign_layer_without_content(self):
        layout = self.image[0]
        foreign = layout.layer([("x", b"y")])
        foreign.update(mediaType="application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
                       urls=[f"http://{self.server.host}/elsewhere"])
        index = layout.index([layout.image([foreign])])
        ref = f"{self.server.host}/team/app:v1@{index['digest']}"
        f = self.fetcher(insecure_registries=self.server.host)
        self.assertEqual(f.resolve(ref).get("status"), "ok")
        os.unlink(layout.blob_path(foreign["digest"]))
        self.assertRefused(f.resolve(ref), "layer_not_distributable", foreign["digest"])
        self.assertEqual(self.server.paths("elsewhere"), [])

    def test_storage_that_vanished(self):
        f = self.fetcher(insecure_registries=self.server.host)
        shutil.rmtree(f.state.file("storage"))
        self.assertRefused(f.resolve(self.ref), "storage_missing", "manage.sh up")
        self.assertEqual(f.health()["status"], "error")

    def test_requests_are_decoded_strictly(self):
        f = self.fetcher(insecure_registries=self.server.host)
        call = lambda path, body: f.state.call("fetcher", "POST", path, body)[1]
        good = {"image": self.ref, "platform": "linux/amd64"}
        self.assertRefused(call("/resolve", {**good, "extra": 1}), "unknown_field")
        self.assertRefused(call("/resolve", {"image": self.ref}), "missing_field")
        self.assertRefused(call("/resolve", {**good, "platform": "linux"}), "bad_platform")
        self.assertRefused(call("/resolve", {**good, "image": self.ref.split("@")[0]}), "image_not_pinned")
        for digest in ("sha256:" + "A" * 64, "sha256:" + "a" * 63, "../" + "a" * 64, "md5:" + "a" * 64):
            body = {"image": self.ref, "blobs": [{"digest": digest, "size": 1}]}
            self.assertIn(call("/fetch", body)["code"], ("bad_digest", "out_of_range"), digest)
        conflict = [{"digest": "a" * 64, "size": 1}, {"digest": "a" * 64, "size": 2}]
        self.assertRefused(call("/fetch", {"image": self.ref, "blobs": conflict}), "bad_manifest", "two different sizes")
        self.assertEqual(call("/fetch", {"image": self.ref, "blobs": []}), {"event": "done"})
        self.assertEqual(self.server.requests, [])

    def test_stop_ends_jobs_and_keeps_partials(self):
        layout, _, _, layers = self.image
        stop = []

        def hang(request):
            request.answer(200, layout.read(layers[0]["digest"])[:1_000_000], length=layers[0]["size"])
            while not stop:
                time.sleep(0.05)
            return True

        self.server.on("/blobs/", hang)
        f = self.fetcher(insecure_registries=self.server.host, stall_timeout=60)
        conn, answer = f.open_fetch(self.ref, layers[:1])
        while json.loads(answer.readline())["done"] < 900_000:
            pass
        pid = f.process.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            worker = int(children.read().split()[0])
        os.kill(worker, signal.SIGKILL)
        self.assertEqual(json.loads(answer.read().splitlines()[-1])["code"], "worker_died")
        conn.close()
        f.stop()
        stop.append(True)
        self.assertIn(layers[0]["digest"][7:] + ".partial", f.names())


class Questions(Case):
    """/resolve of what was asked before, and of more at once than there may be jobs."""

    def setUp(self):
        super().setUp()
        self.image, self.index, self.manifest, _ = self.layout()
        self.server = FaultyRegistry(self.image)
        self.addCleanup(self.server.stop)
        self.f = self.fetcher(insecure_registries=self.server.host)
        self.ref = f"{self.server.host}/team/app:v1@{self.index['digest']}"

    def hold(self, part):
        """The registry answers questions for `part` only once the returned event is set."""
        release = threading.Event()
        self.addCleanup(release.set)
        self.server.on(part, lambda request: release.wait() and False)
        return release

    def ask(self, count, ref=None):
        connections = []
        for _ in range(count):
            conn = UnixConnection(self.f.state.socket("fetcher"), 150)
            self.addCleanup(conn.close)
            conn.request("POST", "/resolve", json.dumps({"image": ref or self.ref, "platform": "linux/amd64"}).encode())
            connections.append(conn)
        return connections

    def answers(self, connections):
        return [json.loads(conn.getresponse().read()) for conn in connections]

    def until(self, jobs, waiting):
        found = None
        while found != (jobs, waiting):
            checks = self.f.health()["checks"]["fetcher"]
            found = (checks["jobs"], checks["waiting"])
            time.sleep(0.02)

    def take_all_jobs(self):
        """No more children from now on until the returned event is set."""
        release = self.hold("/team/other/")
        self.ask(8, f"{self.server.host}/team/other:v1@sha256:{'1' * 64}")
        self.until(8, 0)
        return release

    def test_what_is_known_needs_no_child(self):
        first = self.f.resolve(self.ref)
        self.assertEqual(first["status"], "ok")
        release = self.take_all_jobs()
        self.assertEqual(self.f.resolve(self.ref), first)
        for question in ({"image": self.ref, "platform": "linux/arm64"},
                         {"image": self.ref, "platform": "linux/amd64", "platform_digest": "0" * 64}):
            conn = UnixConnection(self.f.state.socket("fetcher"), 150)
            conn.request("POST", "/resolve", json.dumps(question).encode())
            self.until(8, 1)
            conn.close()
            self.until(8, 0)
        release.set()

    def test_documents_are_looked_at_again(self):
        first = self.f.resolve(self.ref)
        for number, name in enumerate(("index_digest", "manifest_digest", "config_digest")):
            release = self.take_all_jobs()
            if number == 1:
                os.unlink(self.f.path(first[name]))
            else:
                with open(self.f.path(first[name]), "ab") as document:
                    document.write(b" ")
            asked = self.ask(1)
            self.until(8, 1)
            release.set()
            self.assertEqual(self.answers(asked), [first])
            self.assertEqual(self.f.stored(first[name]), self.image.read("sha256:" + first[name]))
            self.until(0, 0)
            self.server.faults.clear()

    def test_loose_credentials_count_for_what_is_known_too(self):
        self.f.credentials({})
        self.assertEqual(self.f.resolve(self.ref)["status"], "ok")
        self.f.credentials({}, mode=0o644)
        self.assertNotEqual(self.f.resolve(self.ref).get("status"), "ok")

    def test_more_questions_than_jobs_wait(self):
        release = self.hold("/manifests/")
        asked = self.ask(12)
        self.until(8, 4)
        self.ask(1)[0].close()
        self.until(8, 4)
        release.set()
        answers = self.answers(asked)
        self.assertEqual([a.get("status") for a in answers], ["ok"] * 12, answers)
        self.until(0, 0)

    def test_stop_while_some_wait(self):
        release = self.hold("/manifests/")
        self.ask(9)
        self.until(8, 1)
        self.f.process.terminate()
        self.assertEqual(self.f.process.wait(), 0)
        release.set()


if __name__ == "__main__":
    enter_namespace()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    unittest.main(verbosity=2)
