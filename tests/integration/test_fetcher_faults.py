#!/usr/bin/env python3
"""Faults that registries, token servers, CDNs and disks have shown: H01 to H08, each against a server that does it."""
import email.utils
import itertools
import json
import os
import shutil
import socket
import tempfile
import time
import unittest

from fetcher_harness import AUTH, METADATA, REGISTRY, Fetcher, basic, enter_namespace, simple_layout
from faulty_registry import FaultyRegistry
from registry import Authority

PASSWORD = "never-Seen-42"


def challenge(value):
    """A 401 with this WWW-Authenticate until a Bearer token comes along."""
    def fault(request):
        if request.headers.get("Authorization", "").startswith("Bearer "):
            return False
        return request.answer(401, b"{}", {"WWW-Authenticate": value})
    return fault


def tokens(reply=None):
    """A token server's answer."""
    def fault(request):
        body = reply if isinstance(reply, bytes) else json.dumps(reply or {"token": "tok-1"}).encode()
        return request.answer(200, body, {"Content-Type": "application/json"})
    return fault


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="hermes-fetcher-test-")
        self.addCleanup(shutil.rmtree, self.directory, True)
        os.chmod(self.directory, 0o755)

    def image(self, sizes=(100_000,)):
        self.layout, self.index, self.manifest, self.layers = simple_layout(os.path.join(self.directory, "image"),
                                                                            sizes=sizes)

    def server(self, **options):
        s = FaultyRegistry(self.layout, **options)
        self.addCleanup(s.stop)
        return s

    def plain(self, sizes=(100_000,), **settings):
        """A faulty registry on loopback over plain http, and a fetcher that may use it."""
        self.image(sizes)
        s = self.server()
        self.ref = f"{s.host}/team/app:v1@{self.index['digest']}"
        return s, self.fetcher(insecure_registries=s.host, **settings)

    def fetcher(self, **settings):
        f = Fetcher(**settings)
        self.addCleanup(f.remove)
        return f

    def assertRefused(self, answer, code, text=""):
        self.assertEqual(answer.get("code"), code, answer)
        self.assertIn(text, answer["error"])

    def assertFetched(self, f, events):
        self.assertEqual(events[-1], {"event": "done"}, f.logged())
        for layer in self.layers:
            self.assertEqual(f.stored(layer["digest"]), self.layout.read(layer["digest"]))


class H01TokenRealm(Case):
    """The registry is registry.test, not on loopback, over TLS; the realm it names is what each test is about."""

    def setUp(self):
        super().setUp()
        self.image()
        self.ca = Authority(os.path.join(self.directory, "ca"))
        context = lambda name, *addresses: self.ca.context(name, addresses=addresses or ("127.0.0.1",),
                                                           names=(name, "localhost"))
        self.registry = self.server(host=REGISTRY, tls=context("registry.test", REGISTRY))
        self.port = self.registry.host.split(":")[1]
        self.auth_tls = self.server(host=AUTH, tls=context("auth.test", AUTH))
        self.auth_plain = self.server(host=AUTH)
        self.metadata = self.server(host=METADATA, tls=context("metadata.test", METADATA))
        self.loopback = self.server(host="127.0.0.1", tls=context("rebind.test"))
        self.others = (self.auth_tls, self.auth_plain, self.metadata, self.loopback)
        self.connections = {}
        for s in self.others:
            s.on("/token", tokens())
            self.count_connections(s)
        self.host = f"registry.test:{self.port}"
        self.ref = f"{self.host}/team/app:v1@{self.index['digest']}"
        self.f = self.fetcher(ca_file=self.ca.ca, retries=0)

    def count_connections(self, server):
        accept = server.http.get_request

        def counted():
            self.connections[server.host] = self.connections.get(server.host, 0) + 1
            return accept()

        server.http.get_request = counted

    def port_of(self, server):
        return server.host.split(":")[1]

    def realm(self, url):
        self.registry.faults[:] = [("/v2/", challenge(f'Bearer realm="{url}",service="s",scope="repository:team/app:pull"'))]

    def refused(self, url, name, code="realm_refused"):
        for credentials in ({}, {self.host: {"username": "u", "password": PASSWORD}}):
            self.f.credentials(credentials)
            self.realm(url)
            answer = self.f.resolve(self.ref)
            self.assertRefused(answer, code, name)
            self.assertEqual(self.connections, {}, url)  # not one connection, so not one byte
            self.assertNotIn(PASSWORD, json.dumps(answer) + self.f.logged())

    def test_h01a_plain_http_on_another_host(self):
        self.refused(f"http://auth.test:{self.port_of(self.auth_plain)}/token", "auth.test")

    def test_h01b_userinfo(self):
        self.refused(f"https://user:pw@auth.test:{self.port_of(self.auth_tls)}/token", "user name or password")

    def test_h01c_metadata_address(self):
        port = self.port_of(self.metadata)
        for host in (METADATA, "0xa9fea9fe", "2852039166", "169.254.43518"):
            self.refused(f"https://{host}:{port}/token", METADATA)

    def test_h01c_name_that_resolves_to_the_metadata_address(self):
        for credentials in ({}, {self.host: {"username": "u", "password": PASSWORD,
                                             "realm_hosts": [f"metadata.test:{self.port_of(self.metadata)}"]}}):
            self.f.credentials(credentials)
            self.realm(f"https://metadata.test:{self.port_of(self.metadata)}/token")
            self.assertRefused(self.f.resolve(self.ref), "address_refused", "metadata.test")
        self.assertEqual(self.connections, {})

    def test_h01d_mapped_metadata_address(self):
        self.refused(f"https://[::ffff:169.254.169.254]:{self.port_of(self.metadata)}/token", "link-local")

    def test_h01e_loopback_from_a_registry_that_is_not(self):
        port = self.port_of(self.loopback)
        for host in ("127.0.0.1", "localhost", "127.1", "[::1]", "[::ffff:127.0.0.1]"):
            self.refused(f"https://{host}:{port}/token", "loopback")

    def test_h01e_name_that_resolves_to_loopback(self):
        self.realm(f"https://rebind.test:{self.port_of(self.loopback)}/token")
        self.assertRefused(self.f.resolve(self.ref), "address_refused", "rebind.test")
        self.assertEqual(self.connections, {})

    def test_h01f_credentials_only_to_a_host_allowed_for_that_registry(self):
        where = f"auth.test:{self.port_of(self.auth_tls)}"
        entry = {"username": "u", "password": PASSWORD}
        self.f.credentials({self.host: entry})
        self.realm(f"https://{where}/token")
        self.assertRefused(self.f.resolve(self.ref), "realm_refused", where)
        self.assertEqual(self.connections, {})
        self.f.credentials({self.host: {**entry, "realm_hosts": [where]}})
        self.assertEqual(self.f.resolve(self.ref).get("status"), "ok", self.f.logged())
        sent = [r["headers"].get("Authorization") for r in self.auth_tls.seen("/token")]
        self.assertEqual(sent, [basic("u", PASSWORD)])
        self.assertNotIn(PASSWORD, self.f.logged())

    def test_h01_anonymous_from_another_host_is_fine(self):
        self.realm(f"https://auth.test:{self.port_of(self.auth_tls)}/token")
        self.assertEqual(self.f.resolve(self.ref).get("status"), "ok", self.f.logged())
        self.assertNotIn("Authorization", self.auth_tls.seen("/token")[0]["headers"])

    def test_h01_token_server_that_redirects_is_not_followed(self):
        self.auth_tls.faults[:] = [("/token", lambda r: r.answer(307, b"", {
            "Location": f"https://metadata.test:{self.port_of(self.metadata)}/token"}))]
        self.realm(f"https://auth.test:{self.port_of(self.auth_tls)}/token")
        self.assertRefused(self.f.resolve(self.ref), "bad_token_reply", "307")
        self.assertNotIn(self.metadata.host, self.connections)

    def test_redirects_keep_the_same_rules_and_drop_authorization(self):
        blob = self.layers[0]["digest"]
        self.realm(f"https://auth.test:{self.port_of(self.auth_tls)}/token")
        self.assertEqual(self.f.resolve(self.ref).get("status"), "ok", self.f.logged())
        self.connections.clear()
        for url, code in ((f"http://auth.test:{self.port_of(self.auth_plain)}/x", "redirect_refused"),
                          (f"https://{METADATA}:{self.port_of(self.metadata)}/x", "redirect_refused"),
                          (f"https://metadata.test:{self.port_of(self.metadata)}/x", "address_refused"),
                          (f"https://127.0.0.1:{self.port_of(self.loopback)}/x", "redirect_refused"),
                          (f"https://rebind.test:{self.port_of(self.loopback)}/x", "address_refused"),
                          ("file:///etc/passwd", "redirect_refused"), ("gopher://auth.test/", "redirect_refused"),
                          (f"https://u:p@auth.test:{self.port_of(self.auth_tls)}/x", "redirect_refused")):
            self.registry.faults.insert(0, ("/blobs/" + blob, lambda r, u=url: r.answer(307, b"", {"Location": u})
                                            if r.headers.get("Authorization") else False))
            self.assertRefused(self.f.fetch(self.ref, self.layers)[-1], code)
            del self.registry.faults[0]
        self.assertEqual({k: v for k, v in self.connections.items() if k != self.auth_tls.host}, {})
        # A CDN on another host gets the request, and not the token.
        target = f"https://auth.test:{self.port_of(self.auth_tls)}/v2/team/app/blobs/{blob}"
        self.registry.faults.insert(0, ("/blobs/" + blob, lambda r: r.answer(307, b"", {"Location": target})
                                        if r.headers.get("Authorization") else False))
        self.assertFetched(self.f, self.f.fetch(self.ref, self.layers))
        asked = self.auth_tls.seen("/blobs/")
        self.assertEqual(len(asked), 1)
        self.assertNotIn("Authorization", asked[0]["headers"])

    def test_redirect_loops_end(self):
        self.registry.on("/v2/", lambda r: r.answer(302, b"", {"Location": r.path}))
        self.assertRefused(self.f.resolve(self.ref), "redirect_refused", "5 times")
        self.assertEqual(len(self.registry.requests), 6)


class Offline(Case):
    def test_a_registry_that_nobody_reaches_names_the_ways_around_it(self):
        self.image()
        with socket.socket() as taken:  # bound and not listening: refused, and nobody else's
            taken.bind(("127.0.0.1", 0))
            host = "127.0.0.1:%d" % taken.getsockname()[1]
            f = self.fetcher(insecure_registries=host, retries=0)
            answer = f.resolve(f"{host}/team/app:v1@{self.index['digest']}")
        self.assertRefused(answer, "unreachable", host)
        self.assertIn("oci:DIR@sha256:HEX", answer["error"])
        self.assertIn("fetcher.mirrors", answer["error"])


class H02ShortBody(Case):
    def cut(self, server, after, size):
        """The first answer promises everything and stops after some bytes; later ones are proper."""
        data, count = self.layout.read(self.layers[0]["digest"]), itertools.count()

        def fault(request):
            return next(count) == 0 and request.answer(200, data[:after], length=size)

        server.on("/blobs/" + self.layers[0]["digest"], fault)

    def test_h02_short_body_is_resumed(self):
        size = 9_000_000
        for after in (0, 1, 8 << 20, -1):
            with self.subTest(after=after):
                s, f = self.plain(sizes=(size,))
                whole = self.layers[0]["size"]
                after = whole - 1 if after == -1 else after
                self.cut(s, after, whole)
                events = f.fetch(self.ref, self.layers)
                self.assertFetched(f, events)
                asked = [r["range"] for r in s.seen("/blobs/")]
                self.assertEqual(asked, [None, (after, whole - 1) if after else None])
                shutil.rmtree(self.layout.path)

    def test_h02_it_is_called_by_its_name_and_the_partial_is_kept(self):
        s, f = self.plain(sizes=(2_000_000,), retries=1)
        data, whole = self.layout.read(self.layers[0]["digest"]), self.layers[0]["size"]

        def fault(request):
            first = request.parsed_range[0] if request.parsed_range else 0
            end = min(first + 300_000, whole - 1)
            head = {"Content-Range": f"bytes {first}-{whole - 1}/{whole}"} if first else {}
            return request.answer(206 if first else 200, data[first:end], head, length=whole - first)

        s.on("/blobs/", fault)
        answer = f.fetch(self.ref, self.layers)[-1]
        self.assertRefused(answer, "connection_ended_early", f"600000 of {whole} bytes")
        self.assertNotIn("mismatch", answer["error"])
        with open(f.path(self.layers[0]["digest"]) + ".partial", "rb") as partial:
            self.assertEqual(partial.read(), data[:600_000])
        s.faults.clear()
        self.assertFetched(f, f.fetch(self.ref, self.layers))
        self.assertEqual(s.seen("/blobs/")[-1]["range"], (600_000, whole - 1))

    def test_h02_short_documents_too(self):
        s, f = self.plain()
        data, count = self.layout.read(self.index["digest"]), itertools.count()
        s.on("/manifests/" + self.index["digest"],
             lambda r: next(count) < 2 and r.answer(200, data[:100], length=len(data)))
        f.configure(retries=0)
        answer = f.resolve(self.ref)
        self.assertRefused(answer, "connection_ended_early", "after 100 bytes")
        self.assertNotIn("digest sha256", answer["error"])
        f.configure(retries=1)
        self.assertEqual(f.resolve(self.ref).get("status"), "ok")


class H03Resume(Case):
    def start(self, fault):
        """A partial file is there; `fault(request, data)` answers what comes next."""
        s, f = self.plain(sizes=(1_000_000,))
        digest = self.layers[0]["digest"]
        data = self.layout.read(digest)
        f.plant(digest[7:] + ".partial", data[:400_000])
        s.on("/blobs/" + digest, lambda r: fault(r, data))
        self.assertFetched(f, f.fetch(self.ref, self.layers))
        return [r["range"] for r in s.seen("/blobs/" + digest)], len(data)

    def test_h03_ranges_are_closed_and_need_no_accept_ranges(self):
        def only_closed(request, data):
            if request.parsed_range and request.parsed_range[1] is None:
                return request.answer(416, b"")
            return False  # the proper answer has no Accept-Ranges
        asked, size = self.start(only_closed)
        self.assertEqual(asked, [(400_000, size - 1)])

    def test_h03_whole_body_in_answer_to_a_range(self):
        asked, size = self.start(lambda r, data: r.answer(200, data))
        self.assertEqual(asked, [(400_000, size - 1)])

    def test_h03_content_range_with_another_start(self):
        def wrong(request, data):
            if not request.parsed_range:
                return False
            return request.answer(206, data[300_000:], {"Content-Range": f"bytes 300000-{len(data) - 1}/{len(data)}"})
        asked, size = self.start(wrong)
        self.assertEqual(asked, [(400_000, size - 1), None])

    def test_h03_a_server_with_wrong_ranges_is_not_asked_for_one_again(self):
        count = itertools.count()

        def wrong(request, data):
            if request.parsed_range:
                return request.answer(206, data, {"Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}"})
            return next(count) == 0 and request.answer(200, data[:500_000], length=len(data))
        asked, size = self.start(wrong)
        self.assertEqual(asked, [(400_000, size - 1), None, None])

    def test_h03_content_range_missing_or_of_another_size(self):
        for header in ({}, {"Content-Range": "bytes 400000-999999/5"}, {"Content-Range": "bytes */5"},
                       {"Content-Range": "items 400000-999999/1"}):
            def wrong(request, data):
                return bool(request.parsed_range) and request.answer(206, data[400_000:], header)
            asked, size = self.start(wrong)
            self.assertEqual(asked, [(400_000, size - 1), None], header)
            shutil.rmtree(self.layout.path)

    def test_h03_range_refused_altogether(self):
        asked, size = self.start(lambda r, data: bool(r.parsed_range) and r.answer(416, b""))
        self.assertEqual(asked, [(400_000, size - 1), None])


class H04Digests(Case):
    def test_h04_nothing_is_requested_or_written(self):
        s, f = self.plain()
        bad = ["sha256:../x", "sha256:" + "a" * 63, "sha256:" + "A" * 64, "sha256:" + "a" * 64 + "/..", "md5:" + "a" * 32,
               "", "sha256:" + "a" * 2_000_000, "sha256:" + "a" * 63 + "\0", "sha256:" + "a" * 64 + "\n", "a" * 64, 7, None]
        good = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 3}
        here = {"platform": {"os": "linux", "architecture": "amd64"}}
        elsewhere = {"platform": {"os": "plan9", "architecture": "mips"}}
        for digest in bad:
            for place in ("layer", "config", "child", "other child"):
                layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": 3}
                if place == "layer":
                    d = self.layout.image([{**layer, "diff_id": "x"}])
                elif place == "config":
                    d = self.layout.image([], manifest={"config": layer})
                else:
                    children = [{**good, **here, "digest": digest}] if place == "child" else [
                        {**good, **here, "digest": self.manifest["digest"]}, {**good, **elsewhere, "digest": digest}]
                    d = self.layout.index(children)
                before, names = len(s.requests), set(f.names())
                answer = f.resolve(f"{s.host}/team/app:v1@{d['digest']}")
                self.assertIn(answer.get("code"), ("bad_digest", "bad_manifest"), (place, repr(digest)[:80], answer))
                self.assertEqual(len(s.requests) - before, 1, (place, repr(digest)[:80]))
                self.assertLess(len(answer["error"]), 500)
                self.assertLessEqual(set(f.names()) - names, {d["digest"][7:]})


class H05Platform(Case):
    def entries(self, *names):
        made = [self.layout.image([], platform=n, config={"Labels": {"n": str(i)}}) for i, n in enumerate(names)]
        return made

    def choose(self, f, s, entries, platform):
        """The same answer for every order of the entries."""
        answers = set()
        for order in itertools.islice(itertools.permutations(entries), 24):
            index = self.layout.index(list(order))
            answer = f.resolve(f"{s.host}/team/app:v1@{index['digest']}", platform)
            answers.add(answer.get("manifest_digest") or answer["code"] + ": " + ",".join(sorted(
                answer["error"].split("offers: ")[-1].split(", "))))
        self.assertEqual(len(answers), 1)
        return answers.pop()

    def test_h05_platform_choice(self):
        s, f = self.plain()
        amd, arm = self.entries("linux/amd64", "linux/arm64")
        v8 = self.layout.image([], platform="linux/arm64/v8", config={"Labels": {"v": "8"}})
        v9 = self.layout.image([], platform="linux/arm64/v9", config={"Labels": {"v": "9"}})
        notes = self.layout.attestation(amd)
        name = lambda d: d["digest"][7:]
        self.assertEqual(self.choose(f, s, [notes, amd, arm], "linux/arm64"), name(arm))
        self.assertEqual(self.choose(f, s, [notes, amd, v8], "linux/arm64"), name(v8))
        self.assertEqual(self.choose(f, s, [amd, v8, v9], "linux/arm64"), name(v8))
        junk = self.layout.image([], platform="linux/amd64/v99x")
        self.assertEqual(self.choose(f, s, [junk, arm], "linux/amd64"), name(junk))
        self.assertEqual(self.choose(f, s, [junk, amd], "linux/amd64"), name(amd))
        v5, v7 = self.entries("linux/arm/v5", "linux/arm/v7")
        self.assertEqual(self.choose(f, s, [v7, v5, notes], "linux/arm/v6"), name(v5))
        twins = self.entries("linux/amd64", "linux/amd64", "linux/arm64")
        self.assertIn(self.choose(f, s, twins, "linux/amd64"), {name(twins[0]), name(twins[1])})
        absent = self.choose(f, s, [amd, v5, notes], "linux/arm64")
        self.assertEqual(absent, "platform_absent: linux/amd64,linux/arm/v5")
        self.assertTrue(self.choose(f, s, [v9, amd], "linux/arm64").startswith("platform_absent"))
        self.assertTrue(self.choose(f, s, [notes], "linux/amd64").startswith("platform_absent"))

    def test_h05_config_decides_too(self):
        s, f = self.plain()
        liar = self.layout.image([], platform="linux/arm64")
        liar["platform"] = {"os": "linux", "architecture": "amd64"}
        index = self.layout.index([liar])
        self.assertRefused(f.resolve(f"{s.host}/team/app:v1@{index['digest']}"), "platform_mismatch", "linux/arm64")


class H06PoisonedFiles(Case):
    def test_h06_partial_with_a_flipped_byte(self):
        for length in (500_000, None):
            s, f = self.plain(sizes=(900_000,))
            digest = self.layers[0]["digest"]
            data = bytearray(self.layout.read(digest))
            data[1234] ^= 0x40
            f.plant(digest[7:] + ".partial", bytes(data[:length]))
            f.plant("f" * 64, b"another file that is none of its business")
            self.assertFetched(f, f.fetch(self.ref, self.layers))
            self.assertIn("f" * 64, f.names())
            self.assertEqual(s.seen("/blobs/")[-1]["range"], None)
            shutil.rmtree(self.layout.path)

    def test_h06_full_size_file_with_a_flipped_byte(self):
        s, f = self.plain(sizes=(900_000,))
        digest = self.layers[0]["digest"]
        data = bytearray(self.layout.read(digest))
        data[-1] ^= 1
        f.plant(digest[7:], bytes(data))
        self.assertFetched(f, f.fetch(self.ref, self.layers))
        data = bytearray(self.layout.read(self.index["digest"]))
        data[10] ^= 1
        f.plant(self.index["digest"][7:], bytes(data))
        self.assertEqual(f.resolve(self.ref).get("status"), "ok")

    def test_h06_a_server_that_always_lies_is_asked_a_bounded_number_of_times(self):
        s, f = self.plain(sizes=(100_000,), retries=50)
        digest = self.layers[0]["digest"]
        wrong = os.urandom(self.layers[0]["size"])
        s.on("/blobs/" + digest, lambda r: r.answer(200, wrong))
        self.assertRefused(f.fetch(self.ref, self.layers)[-1], "digest_mismatch", digest)
        self.assertEqual(len(s.paths("/blobs/")), 3)
        self.assertFalse([n for n in f.names() if digest[7:] in n])

    def test_h06_longer_than_its_size(self):
        s, f = self.plain(sizes=(100_000,), retries=1)
        digest = self.layers[0]["digest"]
        data = self.layout.read(digest) + b"more"
        for length in (None, -1):
            s.faults[:] = [("/blobs/" + digest, lambda r: r.answer(200, data, length=length))]
            self.assertRefused(f.fetch(self.ref, self.layers)[-1], "size_mismatch")
            self.assertFalse([n for n in f.names() if digest[7:] in n])

    def test_h06_links_in_the_store_are_not_followed(self):
        s, f = self.plain(sizes=(1000,))
        digest, victim = self.layers[0]["digest"], f.state.file("fetcher/victim")
        uid = f.state.uid("fetcher")
        f.state.write("fetcher/victim", "untouched", 0o644, uid, uid)
        os.symlink(victim, f.path(digest) + ".partial")
        self.assertRefused(f.fetch(self.ref, self.layers)[-1], "storage_unusable", "not a regular file")
        with open(victim, encoding="ascii") as kept:
            self.assertEqual(kept.read(), "untouched")


class H07Challenges(Case):
    def pull(self, header, reply=None):
        """Resolve against a registry with this challenge; gives the token requests, or the refusal."""
        s, f = self.plain(retries=0)
        auth = self.server()
        auth.on("/token", tokens(reply))
        fill = lambda h: h.replace("REALM", f"http://{auth.host}/token")
        s.on("/v2/", challenge([fill(h) for h in header] if isinstance(header, list) else fill(header)))
        answer = f.resolve(self.ref)
        shutil.rmtree(self.layout.path)
        self.fetcher_used = f
        return answer, auth.paths()

    def test_h07_shapes_of_challenges(self):
        own = "scope=repository%3Ateam%2Fapp%3Apull"
        for header, want in (
                ('Bearer realm="REALM",service="s",scope="repository:team/app:pull"', [f"/token?service=s&{own}"]),
                ('Bearer realm="REALM",service="s"', [f"/token?service=s&{own}"]),
                ('Bearer realm="REALM"', [f"/token?{own}"]),
                ('Bearer realm="REALM",scope="pull"', [f"/token?{own}"]),
                ('Bearer realm="REALM",scope="repository:team/app:pull,push"', [f"/token?{own}"]),
                ('Bearer realm="REALM?a=b",scope="repository:other/name:pull"',
                 ["/token?a=b&scope=repository%3Aother%2Fname%3Apull"]),
                ('Basic realm="x", Bearer realm="REALM"', [f"/token?{own}"]),
                ('Bearer realm="REALM", Basic realm="a, b"', [f"/token?{own}"]),
                (['Basic realm="x"', 'Bearer realm="REALM"'], [f"/token?{own}"]),
                ('Negotiate abcd==, bearer REALM="REALM"', [f"/token?{own}"]),
                ('Bearer error="a, \\"b\\" = c",realm="REALM",service="x&scope=evil y"',
                 [f"/token?service=x%26scope%3Devil+y&{own}"])):
            with self.subTest(header=header):
                # a realm in upper case is only the parameter's name
                header = header.replace('REALM="REALM"', 'Realm="REALM"') if isinstance(header, str) else header
                answer, asked = self.pull(header)
                self.assertEqual(answer.get("status"), "ok", answer)
                self.assertEqual([a.lower() for a in asked], [w.lower() for w in want])

    def test_h07_challenges_that_cannot_be_read(self):
        for header in ('Bearer realm="REALM', 'Bearer realm="REALM",realm="REALM"', "Bearer ,,;", "Digest a=b",
                       'Bearer service="s"', ""):
            with self.subTest(header=header):
                answer, asked = self.pull(header)
                self.assertIn(answer["code"], ("bad_challenge", "unauthorized"))
                self.assertEqual(asked, [])

    def test_h07_token_replies(self):
        for reply in ({"token": "t"}, {"access_token": "t"}, {"token": "t", "access_token": "u"},
                      {"token": "", "access_token": "t"}):
            with self.subTest(reply=reply):
                self.assertEqual(self.pull('Bearer realm="REALM"', reply)[0].get("status"), "ok")
        for reply in ({"expires_in": 3}, {"token": 7}, b"not json", b"[]", {"token": "a\r\nX-Evil: 1"},
                      {"token": "x" * 20_000}, b'{"token":"a","token":"b"}',
                      json.dumps({"token": "t", "padding": "x" * 2_000_000}).encode()):
            with self.subTest(reply=str(reply)[:40]):
                answer, _ = self.pull('Bearer realm="REALM"', reply)
                self.assertRefused(answer, "bad_token_reply", "token server")

    def test_h07_a_token_that_expired_is_renewed(self):
        s, f = self.plain(sizes=(1000, 2000))
        auth = self.server()
        issued = itertools.count(1)
        auth.on("/token", lambda r: r.answer(200, json.dumps({"token": f"t{next(issued)}"}).encode()))
        valid = ["Bearer t2"]  # the first one is refused as well: it had just expired

        def check(request):
            if request.headers.get("Authorization") == valid[0]:
                return False
            return request.answer(401, b"", {"WWW-Authenticate": f'Bearer realm="http://{auth.host}/token"'})

        s.on("/manifests/", check)

        def expires(request):
            valid[0] = "Bearer t3"
            return check(request)

        s.on("/blobs/", expires)
        self.assertEqual(f.resolve(self.ref).get("status"), "ok", f.logged())
        self.assertEqual(len(auth.paths()), 3)  # the config is a blob


class H08RateLimits(Case):
    def limited(self, retry_after, status=429, body=b"slow down", **settings):
        s, f = self.plain(**settings)
        head = {} if retry_after is None else {"Retry-After": retry_after}
        s.on("/manifests/", lambda r: r.answer(status, body, head))
        return s, f

    def test_h08_seconds_and_date_are_honoured(self):
        for make in (lambda: "3", lambda: email.utils.formatdate(time.time() + 3, usegmt=True)):
            s, f = self.plain()
            count = itertools.count()
            s.on("/manifests/" + self.index["digest"],
                 lambda r: next(count) == 0 and r.answer(429, b"", {"Retry-After": make()}))
            self.assertEqual(f.resolve(self.ref).get("status"), "ok", f.logged())
            first, second = s.seen("/manifests/" + self.index["digest"])
            self.assertGreaterEqual(second["wall"] - first["wall"], 2)
            shutil.rmtree(self.layout.path)

    def test_h08_own_backoff_where_the_header_says_nothing(self):
        for value in (None, "0", "-5", "soon", "Thu, 01 Jan 1970 00:00:00 GMT"):
            with self.subTest(value=value):
                s, f = self.limited(value, retries=1)
                answer = f.resolve(self.ref)
                self.assertRefused(answer, "rate_limited", "rate limited, next try at 20")
                self.assertEqual(len(s.requests), 2)
                self.assertGreater(s.requests[1]["time"] - s.requests[0]["time"], 1)
                shutil.rmtree(self.layout.path)

    def test_h08_ceiling_memory_and_status(self):
        for value, status, body in (("999999", 429, b""), ("999999", 503, b""), ("9" * 40, 429, b""),
                                    ("600", 200, json.dumps({"errors": [{"code": "TOOMANYREQUESTS",
                                                                         "message": "pull rate"}]}).encode())):
            with self.subTest(value=value, status=status):
                s, f = self.limited(value, status, body)
                before = time.time()
                answer = f.resolve(self.ref)
                self.assertRefused(answer, "rate_limited", "rate limited, next try at 20")
                self.assertEqual(len(s.requests), 1)
                limit, = f.health()["checks"]["fetcher"]["rate_limited"]
                self.assertEqual(limit["host"], s.host)
                self.assertTrue(limit["text"].startswith("rate limited, next try at 20"))
                self.assertGreaterEqual(limit["next_try"], before + 600)
                self.assertLessEqual(limit["next_try"], time.time() + 3602)
                # A new process remembers; nothing goes out before that time.
                f.stop(kill=True)
                f.start()
                self.assertRefused(f.resolve(self.ref), "rate_limited")
                self.assertRefused(f.fetch(self.ref, self.layers)[-1], "rate_limited")
                self.assertEqual(len(s.requests), 1)
                shutil.rmtree(self.layout.path)

    def test_h08_an_error_in_place_of_a_blob(self):
        body = json.dumps({"errors": [{"code": "TOOMANYREQUESTS", "message": "later"}]}).encode()
        for length in (None, -1):
            s, f = self.plain(sizes=(50_000,))
            s.on("/blobs/", lambda r: r.answer(200, body, {"Retry-After": "900"}, length=length))
            self.assertRefused(f.fetch(self.ref, self.layers)[-1], "rate_limited", "TOOMANYREQUESTS: later")
            self.assertEqual(len(s.requests), 1)
            self.assertFalse([n for n in f.names() if n.endswith(".partial")])
            shutil.rmtree(self.layout.path)

    def test_h08_the_next_mirror_is_asked_at_once(self):
        s, f = self.plain()
        mirror = self.server()
        mirror.on("/v2/", lambda r: r.answer(429, b"", {"Retry-After": "1000"}))
        f.configure(mirrors=f"{s.host}=http://{mirror.host}", insecure_registries=f"{s.host},{mirror.host}")
        self.assertEqual(f.resolve(self.ref).get("status"), "ok", f.logged())
        self.assertFetched(f, f.fetch(self.ref, self.layers))
        self.assertEqual(len(mirror.requests), 1)

    def test_h08_server_errors_are_tried_again_a_bounded_number_of_times(self):
        s, f = self.plain(retries=2)
        s.on("/manifests/", lambda r: r.answer(502, b"<html>bad gateway</html>"))
        self.assertRefused(f.resolve(self.ref), "registry_error", "502")
        self.assertEqual(len(s.requests), 3)


if __name__ == "__main__":
    enter_namespace()
    unittest.main(verbosity=2)
