"""Bytes of real clients and of Apache Kafka 4.3.1: each is decoded, and encoding gives the same bytes again.

`tools/capture_golden.py` captured them. A file is a message; a line is its version, who spoke, and the body in hex.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.errors import Malformed
from ottla.wire.apis import APIS
from ottla.wire.message import Message
from ottla.wire.messages import message_class, message_names

GOLDEN = Path(__file__).parent / "golden"
CLASSES = {message_class(name).__module__.rpartition(".")[2]: name for name in message_names()}
CAPTURES = [(path.stem, line) for path in sorted(GOLDEN.glob("*.hex")) for line in path.read_text().splitlines()]


def parse(module: str, line: str) -> tuple[type[Message], int, str, bytes]:
    version, speaker, *body = line.split()
    return message_class(CLASSES[module]), int(version), speaker, bytes.fromhex("".join(body))


@pytest.mark.parametrize("module", sorted({module for module, _ in CAPTURES}))
def test_captured_bytes_survive(module: str) -> None:
    for line in (line for name, line in CAPTURES if name == module):
        owner, version, speaker, data = parse(module, line)
        where = f"{owner.__name__} v{version} from {speaker}"
        message = owner.decode(data, version)
        assert message.encode(version) == data, where
        assert owner.decode(memoryview(data), version) == message, where
        assert message.unknown_tagged_fields == (), where
        for end in range(0, len(data), len(data) // 50 + 1):
            with pytest.raises(Malformed):
                owner.decode(data[:end], version)


def test_the_captures_are_wide() -> None:
    parsed = [parse(module, line) for module, line in CAPTURES]
    assert {"librdkafka", "kafka-python", "aiokafka", "java", "kafka", "log"} == {
        speaker for _, _, speaker, _ in parsed
    }
    keys = {owner.API_KEY for owner, _, _, _ in parsed}
    assert len(keys) >= 65
    stored = {owner.__name__ for owner, _, speaker, _ in parsed if speaker == "log"}
    assert {"PartitionRecord", "OffsetCommitValue", "TransactionLogValue", "VotersRecord", "EndTxnMarker"} <= stored
    # Every version of the APIs that all clients use, as Kafka answers it.
    answered = {(owner.__name__, version) for owner, version, _, _ in parsed}
    for name in ("Metadata", "Fetch", "ListOffsets", "ApiVersions", "FindCoordinator", "OffsetFetch"):
        api = next(api for api in APIS.values() if api.name == name)
        for version in range(api.first_version, api.last_version + 1):
            assert (f"{name}Response", version) in answered
