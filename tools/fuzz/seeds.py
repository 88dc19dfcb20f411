"""Where fuzzing begins: bytes that real clients and servers have written (the golden files of the tests), and some made
here. The corpus of `tests/fuzz` adds what earlier runs have found."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path

from ottla.records import BatchBuilder, CompressionType
from ottla.records.compression import compress
from ottla.wire.apis import API_VERSIONS, APIS
from ottla.wire.frames import request_frame

from .targets import chosen

TESTS = Path(__file__).parents[2] / "tests"
CORPUS = TESTS / "fuzz" / "corpus"
SEED_BYTES_MAX = 4096


def seeds(target: str) -> list[bytes]:
    """The corpus of `target`, and what is known to be sound."""
    made = dict.fromkeys(data[:SEED_BYTES_MAX] for data in _made(target))
    return list(dict.fromkeys([*made, *kept(target), b"", bytes(16)]))


def kept(target: str) -> list[bytes]:
    """What earlier runs have found, a line of hexadecimal digits each."""
    path = CORPUS / f"{target}.hex"
    return [bytes.fromhex(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(target: str, inputs: Iterable[bytes]) -> None:
    lines = sorted({data.hex() for data in (*kept(target), *inputs)}, key=lambda line: (len(line), line))
    (CORPUS / f"{target}.hex").write_text("".join(f"{line}\n" for line in lines))


def _made(target: str) -> Iterator[bytes]:
    if target in ("request", "response"):
        yield from _messages(target)
    elif target in ("request_header", "envelope"):
        for api, version, body in _golden("request"):
            yield request_frame(api, version, 7, "fuzz", body)[4:]
    elif target == "live_node":
        yield from _requests()
    elif target == "response_header":
        yield b"\0\0\0\x07\0"
    elif target == "principal":
        yield b"\0\0\x05User\x04ada\0\0"
    elif target == "produce_request":
        yield from (bytes((version - 3,)) + body for api, version, body in _golden("request") if api == 0)
    elif target == "fetch_request":
        yield from (bytes((version - 4,)) + body for api, version, body in _golden("request") if api == 1)
    elif target == "offset_commit":
        yield from (bytes((max(0, version - 8),)) + body for api, version, body in _golden("request") if api == 8)
    elif target in ("produced_batch", "stored_batches", "control_records", "fetched_records"):
        yield from _batches()
    elif target == "compressed":
        for codec in CompressionType:
            if codec != CompressionType.NONE:
                yield bytes((codec - 1,)) + compress(codec, b"to be or not to be " * 20)
    elif target in ("group_record", "transaction_record", "committed_offset"):
        yield from _coordinator_records(target)
    elif target == "metadata_record":
        for name, _, body in _golden_messages("_record.hex"):
            yield b"\x01" + name + body
    elif target == "raft_checkpoint":
        for path in sorted((TESTS / "raft" / "golden").glob("*.checkpoint")):
            yield path.read_bytes()
    elif target == "quorum_state":
        state = {"data_version": 1, "leaderEpoch": 3, "leaderId": 1, "votedId": -1, "votedDirectoryId": "A" * 22}
        yield json.dumps(state).encode()
    elif target in ("small_files", "meta_properties", "producer_snapshot", "indexes"):
        yield from _files(target)
    elif target == "properties":
        yield b"a=b\nlisteners = PLAINTEXT://:9092,\\\n  SSL://[::1]:9093\nmap:A:B,C:D\n# no\nx\\u0041=127.0.0.1:5\n"
    elif target == "pattern":
        yield from (b"a.*b", b"^(x|y){2,3}[a-z]+\\d$", b"(((((a*)*)*)*)*)*b")
    elif target == "telemetry":
        for path in sorted((TESTS / "metrics").glob("*.otlp")):
            yield path.read_bytes()
    elif target == "worker_answer":
        yield b'["tuple",[1,["error","builtins:ValueError",["x"]]]]'
        yield b'["dict",[["a",["bytes","AA=="]],[1,["list",[null,true,1.5]]]]]'
    elif target == "sasl_plain":
        yield from (b"\0ada\0secret", b"ada\0ada\0secret")
    elif target == "sasl_scram":
        yield b"n,,n=ada,r=client\0c=biws,r=clientserver,p=" + b64encode(bytes(32))
        yield b"r=clientserver,s=c2FsdA==,i=4096\0v=" + b64encode(bytes(32))
    elif target == "sasl_oauthbearer":
        head, claims = (
            b64encode(part).rstrip(b"=") for part in (b'{"alg":"RS256"}', b'{"sub":"ada","exp":9999999999}')
        )
        yield b"n,a=ada,\x01auth=Bearer " + head + b"." + claims + b".AAAA\x01x=y\x01\x01"
    elif target == "web_keys":
        rsa = {"kty": "RSA", "kid": "1", "n": "AQAB" * 90, "e": "AQAB", "use": "sig", "alg": "RS256"}
        curve = {"kty": "EC", "kid": "2", "crv": "P-256", "x": "A" * 43, "y": "A" * 43}
        yield json.dumps({"keys": [rsa, curve]}).encode()
    elif target == "certificate_name":
        yield _certificate()
    elif target == "login_config":
        yield b'org.x.PlainLoginModule required username="a" password="b\\"c" user_ada=\'x\' n=1; // no'
    elif target == "token_answer":
        lasting = b64encode(b'{"exp":9999999999}').rstrip(b"=").decode()
        yield json.dumps({"access_token": f"e.{lasting}.s", "id_token": "x", "expires_in": 300}).encode()
    elif target == "conversation":
        for api, _, body in _golden("response"):
            if api == API_VERSIONS:
                yield (len(body) + 4).to_bytes(4, "big") + bytes(4) + body
    elif target == "rest_records":
        yield b'{"key":{"type":"BINARY","data":"YQ=="},"value":{"data":[1]},"headers":[{"name":"h","value":"YQ=="}]}\n'
        yield b'{"partition_id":0,"timestamp":"2026-01-02T03:04:05Z","value":{"type":"STRING","data":"x"}}'
    elif target == "schema":
        for number, pair in enumerate(_SCHEMAS):
            yield bytes((number,)) + b"\0".join(text.encode() for text in pair)
    elif target == "avro_value":
        yield _SCHEMAS[0][0].encode() + b"\0\x02\x06abc\x02\x04\x02\0"
    elif target == "http_request":
        yield b"GET /metrics?x HTTP/1.1\r\nHost: x\r\n\r\n"
        yield b"HEAD /health/ready HTTP/1.0\n\n"


_SCHEMAS = (
    (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"s","type":["string","null"]},'
        '{"name":"l","type":{"type":"array","items":"long"},"default":[]}]}',
        '{"type":"record","name":"R","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["X"]}}]}',
    ),
    (
        '{"type":"object","properties":{"a":{"type":["string","null"],"maxLength":5}},"required":["a"]}',
        '{"anyOf":[{"type":"integer","minimum":0},{"$ref":"#/definitions/x"}],"definitions":{"x":{"enum":[1]}}}',
    ),
    (
        'syntax = "proto3"; package p; message M { int32 a = 1; repeated string b = 2; oneof o { M c = 3; } }',
        "message M { optional int64 a = 1; enum E { X = 0; } map<string, E> m = 4; reserved 7 to 9; }",
    ),
)
"""A pair of each kind, in the order of `SchemaType`."""


def _golden(kind: str) -> Iterator[tuple[int, int, bytes]]:
    """API key, version and body of the messages that real clients and servers have sent."""
    by_file = {_snake(f"{api.name}{kind.title()}"): api for api in APIS.values()}
    for path in sorted((TESTS / "wire" / "golden").glob(f"*_{kind}.hex")):
        api = by_file.get(path.stem)
        if api is None:
            continue
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) == 3 and api.serves(int(words[0])):
                yield api.key, int(words[0]), bytes.fromhex(words[2])


def _requests() -> Iterator[bytes]:
    """Of each API the newest that a client has sent, and those that find what they ask for."""
    from tests.hostile.requests import SERVED, meaningful

    newest = {api: (version, body) for api, version, body in sorted(_golden("request"))}
    served = dict(SERVED)
    for api, (version, body) in newest.items():
        if api in served:
            yield request_frame(api, version, 7, "fuzz", body)[4:]
    for api, version in SERVED:
        sound = meaningful(api, version)
        if sound is not None:
            yield request_frame(api, version, 7, "fuzz", sound)[4:]


def _messages(kind: str) -> Iterator[bytes]:
    for key, version, body in _golden(kind):
        yield chosen(APIS[key], version) + body


def _golden_messages(suffix: str) -> Iterator[tuple[bytes, int, bytes]]:
    from ottla.metadata.records import record_class

    kinds = {_snake(record_class(kind).__name__): kind for kind in _metadata_kinds()}
    for path in sorted((TESTS / "wire" / "golden").glob(f"*{suffix}")):
        kind = kinds.get(path.stem)
        for line in path.read_text().splitlines() if kind is not None else ():
            words = line.split()
            if len(words) == 3:
                assert kind is not None
                yield bytes((kind, int(words[0]))), int(words[0]), bytes.fromhex(words[2])


def _metadata_kinds() -> list[int]:
    from ottla.metadata import records

    return list(records._NAMES)


def _batches() -> Iterator[bytes]:
    for line in (TESTS / "records" / "golden" / "batches.txt").read_text().splitlines():
        yield bytes.fromhex(line.split()[-1])
    for codec in CompressionType:
        builder = BatchBuilder(compression=codec, producer_id=5, producer_epoch=1, base_sequence=0)
        builder.append(1_800_000_000_000, b"key", b"value", [("header", b"x")])
        builder.append(1_800_000_000_001, None, b"value" * 10)
        yield bytes(builder.build())


def _coordinator_records(target: str) -> Iterator[bytes]:
    names = ("transaction_log",) if target == "transaction_record" else ("group_metadata", "offset_commit", "consumer_")
    for path in sorted((TESTS / "wire" / "golden").glob("*_key.hex")):
        if not path.stem.startswith(names):
            continue
        values = path.with_name(path.name.replace("_key", "_value"))
        for line in path.read_text().splitlines()[:3]:
            key = line.split()
            for value_line in values.read_text().splitlines()[:6] if values.exists() else ():
                value = value_line.split()
                key_bytes = int(key[0]).to_bytes(2, "big") + bytes.fromhex(key[2])
                value_bytes = int(value[0]).to_bytes(2, "big") + bytes.fromhex(value[2])
                yield bytes((len(key_bytes) % 256,)) + key_bytes + value_bytes


def _files(target: str) -> Iterator[bytes]:
    endings = {
        "small_files": ("checkpoint", ".metadata", ".properties"),
        "meta_properties": ("meta.properties",),
        "producer_snapshot": (".snapshot",),
        "indexes": ("index",),
    }[target]
    for path in sorted((TESTS / "log" / "golden").rglob("*")):
        if path.is_file() and path.name.endswith(endings):
            yield path.read_bytes()


def _certificate() -> bytes:
    """As much of one as a name is read from: version, serial number, algorithm, issuer, validity, subject."""

    def element(tag: int, *parts: bytes) -> bytes:
        content = b"".join(parts)
        return bytes((tag, len(content))) + content

    name = element(0x30, element(0x31, element(0x30, element(6, b"\x55\x04\x03"), element(12, b"ada"))))
    version = element(0xA0, element(2, b"\x02"))
    return element(0x30, element(0x30, version, element(2, b"\x01"), element(0x30), name, element(0x30), name))


def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")
