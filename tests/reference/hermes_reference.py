#!/usr/bin/env python3
"""A second implementation of what is signed and chained, written from docs/PROTOCOL.md and not from the C code.

    hermes_reference.py digest FILE              canonical form (RFC 8785) and its SHA-256
    hermes_reference.py grant KEYFILE FILE       checks the signature of a grant's envelope
    hermes_reference.py audit LOG                checks a chain against its head file
    hermes_reference.py signed KIND KEYFILE FILE checks a signed record (control, checkpoint, receipt)
    hermes_reference.py receipt KEYFILE FILE [APPROVER-LOG]
                                                 checks a receipt, and that its records are in the approver's chain

Standard library only; Ed25519 is the `openssl` command's.
"""

import base64
import hashlib
import json
import os
import subprocess
import sys
import tempfile

INT_MAX = 2**53 - 1
DEPTH_MAX = 32
ZERO = "0" * 64


class Refused(Exception):
    """The input is not what the protocol allows; args[0] says why."""


# Strict JSON

def _object(pairs):
    result = {}
    for key, value in pairs:
        if key in result:
            raise Refused("an object has the same key twice")
        result[key] = value
    return result


def _refuse_number(text):
    raise Refused(f"{text} is not an integer")


def _check(value, depth):
    if depth > DEPTH_MAX:
        raise Refused("nested too deeply")
    if isinstance(value, str):
        if "\0" in value or any(0xD800 <= ord(c) <= 0xDFFF for c in value):
            raise Refused("a string holds U+0000 or half a surrogate pair")
    elif isinstance(value, dict):
        for key, item in value.items():
            if "\0" in key or any(0xD800 <= ord(c) <= 0xDFFF for c in key):
                raise Refused("a key holds U+0000 or half a surrogate pair")
            _check(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) > INT_MAX:
        raise Refused("a number is beyond 2^53-1")


def parse(data):
    """One object from bytes, or Refused."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_object,
                           parse_float=_refuse_number, parse_constant=_refuse_number)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise Refused(str(error)) from None
    if not isinstance(value, dict):
        raise Refused("the outermost value is not an object")
    _check(value, 1)
    return value


# RFC 8785

_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def _string(text):
    return '"' + "".join(_SHORT.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def _canonical(value):
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return "[" + ",".join(_canonical(item) for item in value) + "]"
    keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
    return "{" + ",".join(_string(key) + ":" + _canonical(value[key]) for key in keys) + "}"


def canonical(value):
    return _canonical(value).encode("utf-8")


def digest(value):
    return hashlib.sha256(canonical(value)).hexdigest()


# Grants

GRANT_FIELDS = {"v", "grant_id", "audience", "capability", "operation_id", "target", "feature", "action", "digest",
                "summary_digest", "user_ids", "session", "generation", "decision", "issued_at", "not_before",
                "expires_at", "key_id"}


def read_public_key(path):
    with open(path, encoding="ascii") as file:
        word, text = file.read().rstrip("\n").split(" ")
    key = base64.b64decode(text, validate=True)
    if word != "hermes-public-key-v1" or len(key) != 32:
        raise Refused(f"{path} is not a public key")
    return key


def verify_signature(key, message, signature):
    """Ed25519 by the openssl command, which wants a key as DER SubjectPublicKeyInfo."""
    der = bytes.fromhex("302a300506032b6570032100") + key
    with tempfile.TemporaryDirectory() as directory:
        names = {}
        for name, data in (("key", der), ("message", message), ("signature", signature)):
            names[name] = os.path.join(directory, name)
            with open(names[name], "wb") as file:
                file.write(data)
        done = subprocess.run(["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER", "-inkey",
                               names["key"], "-in", names["message"], "-sigfile", names["signature"]],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def open_grant(envelope, key):
    """The grant inside, or Refused."""
    if set(envelope) != {"grant", "signature"} or not isinstance(envelope["grant"], dict):
        raise Refused("the envelope is malformed")
    grant = envelope["grant"]
    if set(grant) - {"tree_digest", "requested_by"} != GRANT_FIELDS or grant["v"] != 1:
        raise Refused("the grant has other fields")
    if grant["key_id"] != hashlib.sha256(key).hexdigest()[:16]:
        raise Refused("the grant is signed by another key")
    signature = base64.b64decode(envelope["signature"], validate=True)
    if not verify_signature(key, b"hermes-grant-v1\0" + canonical(grant), signature):
        raise Refused("the signature is wrong")
    return grant


# Other records that the approver signs

def open_signed(kind, envelope, key, audience=None):
    """The record inside, or Refused."""
    if set(envelope) != {"record", "signature"} or not isinstance(envelope["record"], dict):
        raise Refused("the envelope is malformed")
    record = envelope["record"]
    if record.get("v") != 1 or record.get("key_id") != hashlib.sha256(key).hexdigest()[:16]:
        raise Refused("the record is of another version or signed by another key")
    message = kind.encode("ascii") + b"\0" + canonical(record)
    if not verify_signature(key, message, base64.b64decode(envelope["signature"], validate=True)):
        raise Refused("the signature is wrong")
    if audience is not None and record.get("audience") != audience:
        raise Refused("the record is for another host")
    return record


# Receipts

RECEIPT_FIELDS = {"v", "kind", "operation_id", "state", "feature", "target", "summary", "request", "envelope",
                  "attestation", "result"}


def same(what, *values):
    if any(value != values[0] for value in values):
        raise Refused(f"{what} differs")


def check_receipt(receipt, key, log=None):
    if set(receipt) != RECEIPT_FIELDS or receipt["v"] != 1 or receipt["kind"] != "hermes-receipt":
        raise Refused("this is no receipt")
    grant = open_grant(receipt["envelope"], key)
    record = open_signed("hermes-receipt-v1", receipt["attestation"], key, grant["audience"])
    same("operation", receipt["operation_id"], grant["operation_id"], record["operation_id"])
    same("feature", receipt["feature"], grant["feature"], record["feature"])
    same("target", receipt["target"], grant["target"])
    same("digest", digest({"feature": receipt["feature"], "request": receipt["request"]}), grant["digest"],
         record["digest"])
    same("summary", hashlib.sha256(receipt["summary"].encode("utf-8")).hexdigest(), grant["summary_digest"],
         record["summary_digest"])
    same("grant", grant["grant_id"], record["grant_id"])
    same("decision", grant["decision"], record["decision"])
    same("people", grant["user_ids"], record["decided_by"])
    outcome, result = record["outcome"], receipt["result"]
    if grant["decision"] == "denied":
        same("outcome", (receipt["state"], outcome, result), ("denied", {}, None))
    else:
        same("state", receipt["state"], outcome.get("state"))
    if result is not None:
        same("hash of the output", result["output_sha256"], outcome["output_sha256"])
        same("exit code", result["returncode"], outcome["returncode"])
        if not result["truncated"]:
            same("output", hashlib.sha256(result["output"].encode("utf-8")).hexdigest(), outcome["output_sha256"])
    if log is not None:
        with open(log, "rb") as file:
            lines = file.read().split(b"\n")[:-1]
        verify_audit(log)
        for name in ("decision_record", "outcome_record"):
            place = record[name]
            if place and (place["seq"] > len(lines) or
                          hashlib.sha256(lines[place["seq"] - 1]).hexdigest() != place["hash"]):
                raise Refused(f"the {name} is not in the chain")
    return record


# Audit

RECORD_FIELDS = {"action", "detail", "prev", "process", "seq", "status", "ts"}


def read_head(path):
    with open(path + ".head", encoding="ascii") as file:
        word, seq, record_hash, size = file.read().split()
    if word != "hermes-audit-head-v1":
        raise Refused("the head is malformed")
    return int(seq), record_hash, int(size)


def verify_audit(path):
    """(sequence, hash) of the last record, or Refused."""
    head_seq, head_hash, head_size = read_head(path)
    with open(path, "rb") as file:
        data = file.read()
    seq, previous, size = 0, ZERO, 0
    if head_seq == 0 and (head_hash, head_size) != (ZERO, 0):
        raise Refused("the head contradicts itself")
    for line in data.split(b"\n")[:-1]:  # what follows the last newline is a torn record
        record = parse(line)
        if set(record) != RECORD_FIELDS or canonical(record) != line:
            raise Refused(f"line {seq + 1} is not a record in canonical form")
        if record["seq"] != seq + 1 or record["prev"] != previous:
            raise Refused(f"line {seq + 1} doesn't continue the chain")
        seq += 1
        previous = hashlib.sha256(line).hexdigest()
        size += len(line) + 1
        if seq == head_seq and (previous, size) != (head_hash, head_size):
            raise Refused(f"line {seq} is not the record that the head names")
    if seq < head_seq:
        raise Refused(f"the log was cut: it ends with record {seq} and the head names {head_seq}")
    if seq > head_seq + 1:
        raise Refused("there are records that the head doesn't know")
    return seq, previous


def main(arguments):
    def content(path):
        with open(path, "rb") as file:
            return file.read()

    try:
        if len(arguments) == 2 and arguments[0] == "digest":
            value = parse(content(arguments[1]))
            print(canonical(value).decode("utf-8"))
            print(digest(value))
        elif len(arguments) == 3 and arguments[0] == "grant":
            grant = open_grant(parse(content(arguments[2])), read_public_key(arguments[1]))
            print(canonical(grant).decode("utf-8"))
        elif len(arguments) == 2 and arguments[0] == "audit":
            print(*verify_audit(arguments[1]))
        elif len(arguments) == 4 and arguments[0] == "signed":
            print(canonical(open_signed(arguments[1], parse(content(arguments[3])),
                                        read_public_key(arguments[2]))).decode("utf-8"))
        elif len(arguments) in (3, 4) and arguments[0] == "receipt":
            print(canonical(check_receipt(parse(content(arguments[2])), read_public_key(arguments[1]),
                                          *arguments[3:])).decode("utf-8"))
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except (Refused, OSError, ValueError, KeyError, TypeError) as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
