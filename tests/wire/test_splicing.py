"""A message of elements that were encoded one by one is, byte for byte, the message that has them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from ottla.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseTopic
from ottla.wire.splicing import Spliced

from .strategies import messages

OF_GROUPS = [
    (owner, version)
    for owner in (DescribeGroupsResponse, ConsumerGroupDescribeResponse, OffsetFetchResponse)
    for version in owner.VERSIONS
    if owner is not OffsetFetchResponse or version >= 8
]


def spliced(whole: Any, version: int) -> bytes:
    """With the groups taken out, and put back one by one."""
    groups, whole.groups = whole.groups, []
    message = Spliced(whole, version)
    for group in groups:
        message.add(group)
    encoded = message.encode(version)
    whole.groups = groups
    return encoded


@pytest.mark.parametrize(("owner", "version"), OF_GROUPS)
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_bytes_are_those_of_the_whole(owner: type[Message], version: int, data: st.DataObject) -> None:
    whole = data.draw(messages(owner, version))
    whole.unknown_tagged_fields = ()
    assert spliced(whole, version) == whole.encode(version)


@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 20_000])
@pytest.mark.parametrize("version", [4, 5])
def test_however_many_they_are(count: int, version: int) -> None:
    whole = DescribeGroupsResponse(groups=[DescribedGroup(group_id=str(number)) for number in range(count)])
    assert spliced(whole, version) == whole.encode(version)


def test_what_cannot_be_spliced_is_refused() -> None:
    with pytest.raises(AssertionError):
        Spliced(OffsetFetchResponse(), 7)  # Its groups came later; here an error code is its last field.
    with pytest.raises(AssertionError):
        Spliced(ListOffsetsResponse(), 5).encode(6)


def test_the_elements_are_encoded_when_they_are_added() -> None:
    topic = OffsetFetchResponseTopic(name="before")
    message = Spliced(OffsetFetchResponse(), 1)
    message.add(topic)
    topic.name = "after"
    assert b"before" in message.encode(1)
