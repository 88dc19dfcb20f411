"""Every API that brokers serve can be told to fail, in every version, and the client reads the error; and the table of
what is scripted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import ottla
from ottla.broker.api import HANDLERS
from ottla.errors import ErrorCode
from ottla.metadata.images import EMPTY_IMAGE
from ottla.model import Uuid
from ottla.testing.failing import can_fail, failed
from ottla.testing.faults import BadScript, FaultTable, Rule
from ottla.wire.apis import APIS, Api
from ottla.wire.message import Message
from ottla.wire.schema import fields_of

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
TOPIC_ID = Uuid(b"0123456789abcdef")

WITHOUT_PLACE = {
    "ConsumerGroupDescribe",
    "DescribeConfigs",
    "DescribeProducers",
    "DescribeTransactions",
    "DescribeTopicPartitions",
    "OffsetForLeaderEpoch",
    "WriteTxnMarkers",
}
"""Whose errors have a place a part, and which no client's own test has needed to fail so far."""

TOO_OLD = {("DescribeLogDirs", 1), ("DescribeLogDirs", 2)}
"""Versions without a place for an error; Kafka's own answer to a request that failed says nothing, too."""


class Nobody:
    """A node that leads nothing, for those answers that tell of the cluster."""

    image = EMPTY_IMAGE
    cluster_id = "cluster"

    def endpoints_of(self, brokers: object, listener: str) -> list[tuple[int, str, int, str | None]]:
        return [(1, "localhost", 9092, None)]

    def any_controller_id(self) -> int:
        return 1

    def tell_new_leaders(self, response: object, listener: str) -> None:
        pass


def filled(owner: type[Message], version: int) -> Message:
    """A request with one element in each of its lists, so that there is something to tell of."""
    made: Any = owner()
    for each in fields_of(owner):
        if version not in each.versions:
            continue
        if each.is_array:
            made_element = filled(each.struct, version) if each.struct is not None else _element(each.kind)
            setattr(made, each.name, [made_element])
    return cast("Message", made)


def _element(kind: str) -> object:
    return {"string": "t", "uuid": TOPIC_ID, "bool": False, "bytes": b""}.get(kind, 0)


def codes_in(message: Message) -> list[int]:
    found: list[int] = []
    for name in type(message).__slots__:
        value = getattr(message, name, None)
        if name in ("error_code", "partition_error_code"):
            found.append(value)  # type: ignore[arg-type]
        elif isinstance(value, list):
            found += [code for each in value if isinstance(each, Message) for code in codes_in(each)]
    return found


def test_which_apis_cannot_be_told_to_fail() -> None:
    assert {APIS[key].name for key in HANDLERS if not can_fail(APIS[key])} == WITHOUT_PLACE


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNSTABLE_OFFSET_COMMIT])
@pytest.mark.parametrize("api", [APIS[key] for key in HANDLERS if can_fail(APIS[key])], ids=lambda api: api.name)
def test_an_error_arrives_in_every_version(api: Api, code: ErrorCode) -> None:
    for version in range(api.first_version, api.last_version + 1):
        if (api.name, version) in TOO_OLD:
            continue
        request = filled(api.request, version)
        response = failed(cast("Any", Nobody()), "PLAINTEXT", api, request, code, version)
        read = api.response.decode(response.encode(version), version)
        assert code in codes_in(read), version
        assert set(codes_in(read)) <= {code, 0}, version


def test_a_fetch_of_a_session_is_told_as_a_whole() -> None:
    from ottla.wire.messages.fetch_request import FetchRequest

    fetch = APIS[1]
    response: Any = failed(cast("Any", Nobody()), "", fetch, FetchRequest(session_id=7, session_epoch=3), CODE, 12)
    assert (response.error_code, response.responses) == (CODE, [])


def test_rules_are_taken_in_order_and_used_up() -> None:
    table = FaultTable()
    first = table.add("Produce", Rule(times=2, error=CODE))
    second = table.add("Produce", Rule(times=None, delay_ms=1))
    other = table.add("Fetch", Rule(times=1, drops=True))
    taken = [table.take(0) for _ in range(4)]
    assert [rule is not None and rule.error for rule in taken] == [CODE, CODE, None, None]
    assert [table.seen(number) for number in (first, second, other)] == [2, 2, 0]
    table.clear()
    assert table.take(0) is None
    assert table.take(1) is None
    assert table.seen(second) == 2


def test_an_api_that_brokers_do_not_serve_is_refused() -> None:
    with pytest.raises(BadScript):
        FaultTable().add("BeginQuorumEpoch", Rule(times=1, drops=True))


def test_what_serves_in_production_never_loads_the_script() -> None:
    """A node's listeners are given another class of dispatcher: the one that `ottla up` has knows of no table."""
    source = Path(ottla.__file__).parent
    inside = source / "testing"
    outside = [path for path in source.rglob("*.py") if inside not in path.parents]
    assert [path for path in outside if "ottla.testing" in path.read_text()] == []
