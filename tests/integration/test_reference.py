#!/usr/bin/env python3
"""The library and tests/reference/hermes_reference.py must agree: canonical forms, grants, audit chains."""

import base64
import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["HB_SOURCE"], "tests", "reference"))
sys.dont_write_bytecode = True
import hermes_reference as reference  # noqa: E402

TOOL = os.path.join(os.environ["HB_BUILD"], "tests", "unit", "reference_tool")

# RFC 8785: the sorting example, and the strings of the other one.
VECTORS = [
    (r'{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",'
     r'"\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}',
     '{"\\r":"Carriage Return","1":"One","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis",'
     '"\u20ac":"Euro Sign","\U0001f600":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}'),
    (r'{"string":"\u20ac$\u000F\u000aA' + r"'" + r'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}',
     '{"literals":[null,true,false],"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'),
]

ALPHABET = ("aAzZ019 _-/\\\"\b\t\n\f\r\x01\x1f\x7f\x80\xa0\xe9\u0301\u05d0\u2028\u20ac\ud7ff\ue000\ufb33\ufeff\ufffd\uffff"
            "\U00010000\U0001f600\U0010ffff")


def run(verb, *arguments, cwd, data=b""):
    done = subprocess.run([TOOL, verb, *arguments], input=data, cwd=cwd, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        raise AssertionError(f"{verb}: exit {done.returncode}: {done.stderr.decode()}")
    return done.stdout


def random_text(rng):
    return "".join(rng.choice(ALPHABET) for _ in range(rng.choice((0, 1, 1, 2, 3, 8))))


def random_value(rng, depth):
    kind = rng.randrange(8 if depth < 5 else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind in (1, 2):
        return rng.choice((0, 1, -1, rng.randrange(-1000, 1000), reference.INT_MAX, -reference.INT_MAX))
    if kind in (3, 4, 5):
        return random_text(rng)
    if kind == 6:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {random_text(rng): random_value(rng, depth + 1) for _ in range(rng.randrange(5))}


def spelled(rng, value):
    """JSON text of value in one of its many spellings."""
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, None, 1, "\t")),
                      separators=rng.choice(((",", ":"), (" , ", " : "), (",\n", ":\r\n"))))
    return text.replace("/", rng.choice(("/", "\\/"))).encode("utf-8")


def damaged(rng, data):
    """The same text with a few bytes changed: sometimes still JSON, mostly not."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        piece = rng.choice((b"", b"\0", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b'"', b"{", b"}", b"[", b",", b":", b"\\",
                            b"0", b"-", b".", b"e1", b"\\ud800", b"\\udc00", b"\\u0000", b"\\u00e9", b"null", b"NaN", b" ",
                            b"\xef\xbb\xbf", b"/**/", b"9007199254740992", b"1.0", b'"a":1,"a":1,'))
        data[at:at + rng.randrange(3)] = piece
    return bytes(data)


class Canonical(unittest.TestCase):
    def agree(self, inputs):
        """How many of the inputs both accept; the answers must be the same for each."""
        lines = b"".join(base64.b64encode(data) + b"\n" for data in inputs)
        answers = run("canonical", cwd="/", data=lines).decode().splitlines()
        self.assertEqual(len(answers), len(inputs))
        accepted = 0
        for data, answer in zip(inputs, answers):
            try:
                value = reference.parse(data)
            except reference.Refused:
                self.assertEqual(answer, "refused", data)
                continue
            form = base64.b64encode(reference.canonical(value)).decode()
            self.assertEqual(answer, f"ok {reference.digest(value)} {form}", data)
            accepted += 1
        return accepted

    def test_published_vectors(self):
        for text, want in VECTORS:
            self.assertEqual(reference.canonical(reference.parse(text.encode())), want.encode())
        self.assertEqual(self.agree([text.encode() for text, _ in VECTORS]), len(VECTORS))

    def test_random_objects(self):
        rng = random.Random(8785)
        inputs = []
        for _ in range(3000):
            value = {random_text(rng): random_value(rng, 1) for _ in range(rng.randrange(8))}
            inputs.append(spelled(rng, value))
        self.assertEqual(self.agree(inputs), len(inputs))

    def test_damaged_texts(self):
        rng = random.Random(8259)
        inputs = []
        for _ in range(12000):
            value = {random_text(rng): random_value(rng, 2) for _ in range(rng.randrange(4))}
            inputs.append(damaged(rng, spelled(rng, value)))
        accepted = self.agree(inputs)
        # Both sides of the border are visited.
        self.assertGreater(accepted, 500)
        self.assertGreater(len(inputs) - accepted, 5000)

    def test_depth_and_numbers(self):
        inputs = [b'{"a":' + b"[" * n + b"]" * n + b"}" for n in (30, 31, 32, 100)]
        inputs += [b'{"a":%s}' % n for n in (b"-0", b"1e2", b"1.0", b"9007199254740991", b"9007199254740992",
                                             b"-9007199254740992", b"9" * 40, b"01", b"+1", b"Infinity", b"-")]
        self.assertEqual(self.agree(inputs), 4)


class InDirectory(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="hermes-reference-")
        self.addCleanup(self.temporary.cleanup)
        self.dir = self.temporary.name

    def path(self, name):
        return os.path.join(self.dir, name)


class Grants(InDirectory):
    def grant(self, **changes):
        grant = {"v": 1, "grant_id": "1" * 64, "audience": "2" * 32, "capability": "3" * 64, "operation_id": "4" * 32,
                 "target": "installer", "feature": "runtime", "action": "install", "digest": "5" * 64,
                 "summary_digest": "6" * 64, "user_ids": ["123456789", "0"], "session": "caf\u00e9 \U0001f600",
                 "generation": 3, "decision": "approved", "issued_at": 1, "not_before": 1, "expires_at": 121,
                 "key_id": "0" * 16}
        grant.update(changes)
        return grant

    def seal(self, grant):
        return json.loads(run("seal", cwd=self.dir, data=json.dumps(grant).encode()))

    def both(self, envelope):
        """Whether the two accept the envelope, which must be the same."""
        ours = run("open", cwd=self.dir, data=json.dumps(envelope).encode()).decode().strip()
        try:
            reference.open_grant(copy.deepcopy(envelope), reference.read_public_key(self.path("public.key")))
            theirs = "ok"
        except reference.Refused:
            theirs = "refused"
        self.assertEqual(ours == "ok", theirs == "ok", (ours, theirs))
        return ours

    def test_signatures(self):
        run("keys", cwd=self.dir)
        for changes in ({}, {"decision": "denied"}, {"tree_digest": "7" * 64}, {"user_ids": ["5"]}):
            envelope = self.seal(self.grant(**changes))
            self.assertEqual(self.both(envelope), "ok")
            self.assertNotEqual(envelope["grant"]["key_id"], "0" * 16)

    def test_forgeries(self):
        run("keys", cwd=self.dir)
        envelope = self.seal(self.grant())
        for name, value in (("generation", 4), ("user_ids", ["0"]), ("decision", "denied"), ("session", "x"),
                            ("digest", "8" * 64), ("expires_at", 122), ("tree_digest", "9" * 64)):
            forged = copy.deepcopy(envelope)
            forged["grant"][name] = value
            self.assertEqual(self.both(forged), "grant_bad_signature", name)
        forged = copy.deepcopy(envelope)
        forged["grant"]["key_id"] = "f" * 16
        self.assertEqual(self.both(forged), "grant_unknown_key")
        forged = copy.deepcopy(envelope)
        forged["grant"]["extra"] = 1
        self.assertNotEqual(self.both(forged), "ok")
        forged = dict(envelope, signature=base64.b64encode(bytes(64)).decode())
        self.assertEqual(self.both(forged), "grant_bad_signature")

    def test_command_line(self):
        run("keys", cwd=self.dir)
        with open(self.path("grant.json"), "w", encoding="utf-8") as file:
            json.dump(self.seal(self.grant()), file)
        for key, status in (("public.key", 0), ("other.key", 1)):
            if status:
                with open(self.path(key), "w", encoding="ascii") as file:
                    file.write("hermes-public-key-v1 " + base64.b64encode(bytes(32)).decode() + "\n")
            done = subprocess.run([sys.executable, reference.__file__, "grant", self.path(key), self.path("grant.json")],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            self.assertEqual(done.returncode, status)


class Audit(InDirectory):
    def both(self):
        """(accepted, answer of the library)"""
        ours = run("audit-verify", cwd=self.dir).decode().strip()
        try:
            theirs = "ok {} {}".format(*reference.verify_audit(self.path("audit.log")))
        except (reference.Refused, OSError, ValueError):
            theirs = "refused"
        if ours.startswith("ok"):
            self.assertEqual(ours, theirs)
        else:
            self.assertEqual(theirs, "refused", ours)
        return ours.split()[0]

    def test_good_chains(self):
        for count in (0, 1, 7, 40):
            run("audit-write", str(count), cwd=self.dir)
            self.assertEqual(self.both(), "ok")

    def test_every_cut_and_every_changed_byte(self):
        run("audit-write", "3", cwd=self.dir)
        log = self.path("audit.log")
        with open(log, "rb") as file:
            data = file.read()
        for size in range(0, len(data), 7):
            with open(log, "wb") as file:
                file.write(data[:size])
            self.assertEqual(self.both(), "audit_truncated", size)
        for at in range(0, len(data), 5):
            changed = bytearray(data)
            changed[at] ^= 1
            with open(log, "wb") as file:
                file.write(changed)
            self.assertNotEqual(self.both(), "ok", at)

    def test_torn_tail_is_no_break(self):
        run("audit-write", "2", cwd=self.dir)
        with open(self.path("audit.log"), "ab") as file:
            file.write(b'{"action":"x"')
        self.assertEqual(self.both(), "ok")


if __name__ == "__main__":
    unittest.main()
