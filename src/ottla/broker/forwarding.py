"""Requests that only the active controller can answer, sent by clients that know nothing but brokers (KIP-590).

Where this node is the active controller, the request is handled in the process, as on its controller listener. Else it
goes there in an envelope, with the client's principal and address and the request itself, header and all; the answer
comes back in the client's version. `ControllerChannel` finds the controller, and asks again until the time is up.

A topic that was created elsewhere is known here a moment later. Whoever heard of it from this broker will use it with
this broker, so an answer waits, not for long, until this node has seen what it tells of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, cast

from ottla.broker.access.authorisation import call
from ottla.broker.api.refusals import refusal, says
from ottla.broker.bounds.limits import ELEMENTS_MAX
from ottla.broker.context import Context
from ottla.client.conversation import ELEMENTS_MAX as RESPONSE_ELEMENTS_MAX
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.metadata.images import MetadataImage
from ottla.model import ZERO_UUID, Uuid
from ottla.wire.apis import APIS
from ottla.wire.frames import (
    LENGTH_SIZE,
    RequestHead,
    read_request_header,
    read_response_header,
    request_frame,
    response_frame,
)
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest
    from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
    from ottla.wire.messages.create_topics_response import CreateTopicsResponse
    from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse

FORWARDABLE = frozenset({19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 80, 81})
"""The keys of what an envelope may hold, as in Kafka."""

SEEN_HERE_MS_MAX = 1_000
RETRY_MS = 20

_INT16 = Struct(">h")
_CORRELATION_ID = 0
"""The client's own is between it and its broker."""


async def forward(context: Context, request: Message) -> Message:
    """The active controller's answer, or a refusal in the form of one."""
    services = context.services
    clock = services.clock
    deadline = clock.monotonic() + services.config.get_int("request.timeout.ms") / 1000
    while True:
        answer: Message | None
        if services.control.is_active_controller:
            answer = await _handle_here(context, request)
            if not says(answer, ErrorCode.NOT_CONTROLLER):
                return answer  # Nothing to wait for: a controller publishes before it answers.
        else:
            try:
                answer = await _send_envelope(context, request, max(1, int((deadline - clock.monotonic()) * 1000)))
            except KafkaError as error:
                # Where this node has become the controller while it looked for one, there was nobody to open the
                # envelope. Asked again, it needs none.
                if error.code is not ErrorCode.UNSUPPORTED_VERSION or not services.control.is_active_controller:
                    return refusal(request, error, context.api_version)
            else:
                if wait_ms := getattr(answer, "throttle_time_ms", 0):
                    services.client_quotas.mute(context.connection, wait_ms)
                holds = _seen_here(request, answer)
                if holds is not None:
                    await services.image_watch.until(holds, services.image, SEEN_HERE_MS_MAX)
                return answer
        if clock.monotonic() >= deadline:
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "No active controller answered in time.")
            return refusal(request, late, context.api_version)
        # A leadership that is over is given up in turns of the loop to come.
        await asyncio.sleep(RETRY_MS / 1000)


async def _handle_here(context: Context, request: Message) -> Message:
    from ottla.broker.api import CONTROLLER_HANDLERS, load

    result = call(context._replace(on_controller=True), load(CONTROLLER_HANDLERS[context.api_key]), request)
    return result if isinstance(result, Message) else await result


async def _send_envelope(context: Context, request: Message, timeout_ms: int) -> Message:
    from ottla.wire.messages.envelope_request import EnvelopeRequest
    from ottla.wire.messages.envelope_response import EnvelopeResponse

    version = context.api_version
    frame = request_frame(context.api_key, version, _CORRELATION_ID, context.client_id, request.encode(version))
    envelope = EnvelopeRequest(
        request_data=frame[LENGTH_SIZE:],
        request_principal=pack_principal(context.principal),
        client_host_address=pack_address(context.client_host),
    )
    answer = await context.services.controller.send(envelope, EnvelopeResponse, timeout_ms=timeout_ms)
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code), "The active controller refused what this broker handed on.")
    try:
        return read_response(context.api_key, version, answer.response_data or b"")
    except Malformed as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The active controller's answer is broken: {error}") from None


# What is in an envelope.


def read_request(data: bytes) -> tuple[Message, RequestHead]:
    """Raises `Malformed`, or `KafkaError` for a version that is not served."""
    head = read_request_header(data)
    api = APIS[head.api_key]
    if not api.serves(head.api_version):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Version {head.api_version} of {api.name} is not served.")
    request, _ = api.request.read(data, head.body_position, head.api_version, ELEMENTS_MAX)
    return request, head


def pack_response(head: RequestHead, response: Message) -> bytes:
    flexible = APIS[head.api_key].response_header_version(head.api_version) == 1
    return response_frame(head.correlation_id, response.encode(head.api_version), flexible)[LENGTH_SIZE:]


def read_response(api_key: int, version: int, data: bytes) -> Message:
    api = APIS[api_key]
    head = read_response_header(data, api.response_header_version(version) == 1)
    return api.response.read(data, head.body_position, version, RESPONSE_ELEMENTS_MAX)[0]


def pack_principal(principal: str) -> bytes:
    """As Kafka's default principal builder does: a version, and then the principal in that version."""
    from ottla.wire.messages.default_principal_data import DefaultPrincipalData

    kind, _, name = principal.partition(":")
    version = DefaultPrincipalData.VERSIONS[-1]
    return _INT16.pack(version) + DefaultPrincipalData(type=kind, name=name).encode(version)


def read_principal(data: bytes | None) -> str:
    from ottla.wire.messages.default_principal_data import DefaultPrincipalData

    try:
        if data is None or len(data) < _INT16.size:
            raise Malformed("no principal")
        (version,) = _INT16.unpack_from(data)
        if version not in DefaultPrincipalData.VERSIONS:
            raise Malformed(f"a principal of version {version}")
        principal = DefaultPrincipalData.decode(data[_INT16.size :], version)
    except Malformed as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    return f"{principal.type}:{principal.name}"


def pack_address(host: str) -> bytes:
    from ipaddress import ip_address

    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)  # A peer without an address of its own.


def read_address(data: bytes) -> str:
    from ipaddress import ip_address

    try:
        return str(ip_address(data))
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The envelope's client address is none.") from None


# What is to be seen here before the answer leaves.


def _seen_here(request: Message, answer: Message) -> Callable[[MetadataImage], bool] | None:
    """What holds of an image that has taken in what `answer` tells; None where nobody would notice."""
    if getattr(request, "validate_only", False):
        return None
    name = type(request).__name__
    if name == "CreateTopicsRequest":
        created = [each.name for each in cast("CreateTopicsResponse", answer).topics if not each.error_code]
        return lambda image: all(image.topic(topic) is not None for topic in created)
    if name == "DeleteTopicsRequest":
        deleted = [each for each in cast("DeleteTopicsResponse", answer).responses if not each.error_code]
        return lambda image: not any(_has_topic(image, each.name, each.topic_id) for each in deleted)
    if name == "CreatePartitionsRequest":
        grown = {each.name for each in cast("CreatePartitionsResponse", answer).results if not each.error_code}
        counts = [(each.name, each.count) for each in cast("CreatePartitionsRequest", request).topics]
        wanted = [(topic, count) for topic, count in counts if topic in grown]
        return lambda image: all((found := image.topic(t)) is None or len(found.partitions) >= n for t, n in wanted)
    return None


def _has_topic(image: MetadataImage, name: str | None, topic_id: Uuid) -> bool:
    # Before version 6 the answer knows names alone.
    if topic_id == ZERO_UUID:
        return name is not None and image.topic(name) is not None
    return image.topic_by_id(topic_id) is not None
