"""Every decoder, and a node, as a function of bytes: it returns, or raises what it says it raises for wrong ones.

The first bytes of an input choose among messages, versions and codecs, so that one target covers a family of decoders
and inputs that are interesting to one of them can become so to another. What would be a bug comes out as any other
exception. To add a decoder: a function here, its row in `TARGETS`, and its seeds (`seeds`), if it can be given any.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker import forwarding
from ottla.broker.monitoring.http_responder import HttpResponder, speaks_http
from ottla.client.conversation import Conversation, LoginRefused
from ottla.config.key import InvalidConfig
from ottla.config.listeners import parse_connection_limits, parse_protocol_map
from ottla.config.properties import parse_properties
from ottla.coordinator.consumer.regex import compile_regex
from ottla.coordinator.offsets import codec as offset_codec
from ottla.coordinator.stored import GROUP_KINDS, TRANSACTION_KINDS
from ottla.errors import KafkaError, Malformed, StartupError
from ottla.gateway.http import Refusal
from ottla.gateway.rest.records import documents, parse_record
from ottla.log import checkpoints, snapshots, txn_index
from ottla.log.offset_index import OffsetIndex
from ottla.log.time_index import TimeIndex
from ottla.metadata.records import decode_record
from ottla.metrics import otlp
from ottla.raft.checkpoint import decode_checkpoint, parse_file_name
from ottla.raft.control_records import read_control_batch
from ottla.raft.election import decode_quorum_state
from ottla.records import ValidationRules, batches, iterate
from ottla.records.arrow import FetchedBatches
from ottla.records.compression import CorruptCompression, decompress
from ottla.records.records import keys_and_values
from ottla.records.validate import DecompressionBudget, validate_produced
from ottla.runtime.disk import SystemDisk
from ottla.runtime.plain_values import NotPlain, read_values
from ottla.runtime.timers import TimerWheel
from ottla.schemas import avro, avro_values
from ottla.schemas.avro import InvalidSchema
from ottla.schemas.kinds import KINDS, SchemaText, SchemaType
from ottla.security.certificates import alternative_names, distinguished_name
from ottla.security.jaas import BadLoginConfig, parse_login_module
from ottla.security.oauth import OauthServer, TokenRules, read_keys
from ottla.security.oauth_login import read_answer
from ottla.security.plain import PlainServer
from ottla.security.sasl import SCRAM_SHA_256, AuthenticationFailed, Derive
from ottla.security.scram import ScramClient, ScramServer, credential_of
from ottla.wire import commit_codec, fetch_codec, produce_codec
from ottla.wire.apis import APIS, Api
from ottla.wire.frames import read_request_header, read_response_header
from ottla.wire.message import Message

if TYPE_CHECKING:
    from .live_node import LiveNode

ELEMENTS_MAX = 20_000
DECOMPRESSED_MAX = 1 << 20
NOW_MS = 1_800_000_000_000


class Target(NamedTuple):
    run: Callable[[bytes], object]
    refuses_with: tuple[type[Exception], ...]

    def try_input(self, data: bytes) -> None:
        with suppress(*self.refuses_with):
            self.run(data)


# Messages. The first two bytes are the API's place in the table, and the version's among those it has.


@cache
def _apis() -> tuple[Api, ...]:
    return tuple(APIS.values())


def choose(data: bytes) -> tuple[Api, int, bytes]:
    if len(data) < 2:
        raise Malformed("too short to choose")
    api = _apis()[data[0] % len(_apis())]
    versions = api.last_version - api.first_version + 1
    return api, api.first_version + data[1] % versions, data[2:]


def chosen(api: Api, version: int) -> bytes:
    """The two bytes that choose it."""
    return bytes((_apis().index(api), version - api.first_version))


def request(data: bytes) -> Message:
    api, version, body = choose(data)
    found, _ = api.request.read(body, 0, version, ELEMENTS_MAX)
    if found.encode(version) is None:
        raise AssertionError("a message that was read can be written")
    return found


def response(data: bytes) -> Message:
    api, version, body = choose(data)
    return api.response.read(body, 0, version, ELEMENTS_MAX)[0]


def request_header(data: bytes) -> object:
    return read_request_header(data)


def response_header(data: bytes) -> object:
    return read_response_header(data, True)


def envelope(data: bytes) -> None:
    forwarding.read_request(data)


def principal(data: bytes) -> str:
    return forwarding.read_principal(data)


def produce_request(data: bytes) -> None:
    if not data:
        return
    version = 3 + data[0] % 11
    buffer = bytearray(data)
    view = memoryview(buffer)
    produce_codec.read_request(buffer, view, version, 1, len(buffer), ELEMENTS_MAX)
    known: list[dict[bytes, produce_codec.Opening]] = [{} for _ in range(produce_codec.LAST_VERSION + 1)]
    produce_codec.find_opening(buffer, 0, len(buffer), len(buffer) % 64, known)


def fetch_request(data: bytes) -> None:
    if data:
        fetch_codec.read_request(data[1:], 4 + data[0] % 15, ELEMENTS_MAX)


def offset_commit(data: bytes) -> None:
    if data:
        versions = commit_codec.LAST_VERSION - commit_codec.FIRST_VERSION + 1
        commit_codec.read_opening(data, commit_codec.FIRST_VERSION + data[0] % versions, 1, len(data))
        commit_codec.is_plain(data, data[0] % len(data), len(data))


# Records.


def produced_batch(data: bytes) -> None:
    view = memoryview(bytearray(data))
    rules = ValidationRules(compacted=len(data) % 2 == 0, max_decompressed_bytes=DECOMPRESSED_MAX)
    validate_produced(view, rules, NOW_MS, budget=DecompressionBudget(DECOMPRESSED_MAX))


def stored_batches(data: bytes) -> None:
    for header, batch in batches(data):
        for _ in iterate(batch, limit=DECOMPRESSED_MAX):
            pass
        if not header.compression:
            keys_and_values(batch, header)


def control_records(data: bytes) -> None:
    for _ in read_control_batch(data):
        pass


def compressed(data: bytes) -> None:
    if data:
        decompress(1 + data[0] % 4, data[1:], DECOMPRESSED_MAX)


# What the coordinators and the controller have written.


def group_record(data: bytes) -> None:
    key, value = _halves(data)
    GROUP_KINDS.decode(key, value)


def transaction_record(data: bytes) -> None:
    key, value = _halves(data)
    TRANSACTION_KINDS.decode(key, value)


def committed_offset(data: bytes) -> None:
    key, value = _halves(data)
    offset_codec.decode_key(key)
    offset_codec.decode_value(value)


def _halves(data: bytes) -> tuple[bytes, bytes]:
    size = data[0] if data else 0
    return data[1 : 1 + size], data[1 + size :]


def metadata_record(data: bytes) -> None:
    decode_record(data)


# Files.


def raft_checkpoint(data: bytes) -> None:
    decode_checkpoint(data, "fuzz.checkpoint")


def quorum_state(data: bytes) -> None:
    decode_quorum_state(data, "quorum-state")


def small_files(data: bytes) -> None:
    checkpoints.decode_offsets(data)
    checkpoints.decode_epochs(data)
    checkpoints.decode_partition_metadata(data)
    checkpoints.decode_clean_shutdown(data)
    parse_file_name(data.decode("latin-1"))


def meta_properties(data: bytes) -> None:
    checkpoints.read_meta_properties(_OneFile(data), "/fuzz")


class _OneFile(SystemDisk):
    """A disk whose every file has the same content."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_file(self, path: str) -> bytes:
        return self._data


def producer_snapshot(data: bytes) -> None:
    snapshots.decode(data)


def indexes(data: bytes) -> None:
    txn_index.decode(data, 0)
    OffsetIndex.decode(data, 1 << 20)
    TimeIndex.decode(data)


# Text and the rest.


def properties(data: bytes) -> None:
    found = parse_properties(data.decode("utf-8", "replace"))
    for value in found.values():
        parse_connection_limits("max.connections.per.ip.overrides", value)
        parse_protocol_map("listener.security.protocol.map", value)


def pattern(data: bytes) -> None:
    compile_regex(data.decode("utf-8", "replace"))


def telemetry(data: bytes) -> None:
    otlp.decode(data)


def worker_answer(data: bytes) -> None:
    read_values(data)


class _Still:
    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return NOW_MS


def http_request(data: bytes) -> None:
    speaks_http(data)
    responder = HttpResponder(
        timers=TimerWheel(_Still()),
        metrics=lambda: "",
        is_live=lambda: True,
        is_ready=lambda: False,
        replica=lambda topic, partition: None,
    )
    responder.answer(data)


# What is said before anybody has a name.


def sasl_plain(data: bytes) -> None:
    PlainServer({"ada": "secret"}).evaluate(data, NOW_MS)


def sasl_scram(data: bytes) -> None:
    """Both messages of a client, and both of a server, one after the other."""
    first, _, second = data.partition(b"\0")
    server = ScramServer(SCRAM_SHA_256, nonce="server", secret=bytes(32), find=lambda name: _CREDENTIAL)
    with suppress(AuthenticationFailed):
        server.evaluate(first, NOW_MS)
        server.evaluate(second, NOW_MS)
    client = ScramClient(SCRAM_SHA_256, "ada", "secret", nonce="client")
    client.first()
    if isinstance(client.on_challenge(first), Derive):
        client.on_derived(bytes(32))
        client.on_challenge(second)


_CREDENTIAL = credential_of(bytes(32), b"salt", 4096, "sha256")


def sasl_oauthbearer(data: bytes) -> None:
    OauthServer(TokenRules(), dict, lambda: None).evaluate(data, NOW_MS)


def web_keys(data: bytes) -> None:
    read_keys(data)


def certificate_name(data: bytes) -> None:
    with suppress(AuthenticationFailed):
        alternative_names(data)
    distinguished_name(data)


def login_config(data: bytes) -> None:
    assert isinstance(parse_login_module(data.decode("utf-8", "replace")).users, dict)


def token_answer(data: bytes) -> None:
    read_answer(data)


# What other processes, and other nodes, send.


def conversation(data: bytes) -> None:
    """A node hears what claims to be another's answer to its greeting."""
    talk: Conversation[int] = Conversation("fuzz", frame_bytes_max=1 << 20)
    talk.hello()
    while data:
        buffer = talk.get_buffer()
        part, data = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(part)] = part
        talk.on_received(len(part))


def fetched_records(data: bytes) -> None:
    """As Spark's tasks read them: the compiled walk over records, into columns."""
    fetched = FetchedBatches(data)
    for _ in fetched.record_batches("fuzz", 0, with_headers=len(data) % 2 == 0):
        pass


def rest_records(data: bytes) -> None:
    for document in documents(data):
        parse_record(document)


def schema(data: bytes) -> None:
    """Two schemas of the kind that the first byte names: registered, and judged against each other."""
    if data:
        kind = KINDS[list(SchemaType)[data[0] % len(SchemaType)]]
        texts = [
            SchemaText(text=kind.canonical(SchemaText(text=each.decode("utf-8", "replace")), False))
            for each in data[1:].partition(b"\0")[::2]
        ]
        kind.troubles(*texts)


def avro_value(data: bytes) -> None:
    text, _, value = data.partition(b"\0")
    avro_values.decode(avro.parse(text.decode("utf-8", "replace")), value)


# All of it.


@cache
def _node() -> LiveNode:
    from .live_node import LiveNode

    return LiveNode()


def live_node(data: bytes) -> None:
    _node().hear(data)


_MALFORMED = (Malformed,)
_REFUSED = (Malformed, KafkaError)

TARGETS = {
    "request": Target(request, _MALFORMED),
    "response": Target(response, _MALFORMED),
    "request_header": Target(request_header, _MALFORMED),
    "response_header": Target(response_header, _MALFORMED),
    "envelope": Target(envelope, _REFUSED),
    "principal": Target(principal, (KafkaError,)),
    "produce_request": Target(produce_request, _MALFORMED),
    "fetch_request": Target(fetch_request, _MALFORMED),
    "offset_commit": Target(offset_commit, _MALFORMED),
    "produced_batch": Target(produced_batch, _REFUSED),
    "stored_batches": Target(stored_batches, _REFUSED),
    "control_records": Target(control_records, _REFUSED),
    "compressed": Target(compressed, (CorruptCompression, *_REFUSED)),
    "group_record": Target(group_record, _MALFORMED),
    "transaction_record": Target(transaction_record, _MALFORMED),
    "committed_offset": Target(committed_offset, _MALFORMED),
    "metadata_record": Target(metadata_record, _MALFORMED),
    "raft_checkpoint": Target(raft_checkpoint, (*_REFUSED, StartupError)),
    "quorum_state": Target(quorum_state, (StartupError,)),
    "small_files": Target(small_files, ()),
    "meta_properties": Target(meta_properties, (StartupError,)),
    "producer_snapshot": Target(producer_snapshot, ()),
    "indexes": Target(indexes, ()),
    "properties": Target(properties, (InvalidConfig, ValueError)),
    "pattern": Target(pattern, (KafkaError,)),
    "telemetry": Target(telemetry, (*_REFUSED, ValueError)),
    "worker_answer": Target(worker_answer, (NotPlain,)),
    "http_request": Target(http_request, ()),
    "sasl_plain": Target(sasl_plain, (AuthenticationFailed,)),
    "sasl_scram": Target(sasl_scram, (AuthenticationFailed,)),
    "sasl_oauthbearer": Target(sasl_oauthbearer, (AuthenticationFailed,)),
    "web_keys": Target(web_keys, (ValueError,)),
    "certificate_name": Target(certificate_name, (AuthenticationFailed,)),
    "login_config": Target(login_config, (BadLoginConfig,)),
    "token_answer": Target(token_answer, (ValueError,)),
    "conversation": Target(conversation, (Malformed, LoginRefused)),
    "fetched_records": Target(fetched_records, _REFUSED),
    "rest_records": Target(rest_records, (Refusal,)),
    "schema": Target(schema, (InvalidSchema,)),
    "avro_value": Target(avro_value, (InvalidSchema, avro_values.BadValue)),
    "live_node": Target(live_node, ()),
}
