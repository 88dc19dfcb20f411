"""Frames: the four-byte length, the header and the body of requests and responses.

Hand-written, since every request and every response passes here. A frame that is read comes without its length; a
frame that is made has it. Driven by `broker/connection` on the server's side and by `client` on the other.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ottla.errors import Malformed
from ottla.wire.apis import APIS
from ottla.wire.primitives import Buffer, skip_tagged_fields

LENGTH_SIZE = 4

_HEAD = Struct(">hhih").unpack_from
_INT32 = Struct(">i").unpack_from
_REQUEST = Struct(">ihhih").pack
_RESPONSE = Struct(">ii").pack
_RESPONSE_FLEXIBLE = Struct(">iib").pack
_NEVER = 1 << 15
_FLEXIBLE_FROM = {key: _NEVER if api.flexible_from is None else api.flexible_from for key, api in APIS.items()}


class RequestHead(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


class ResponseHead(NamedTuple):
    correlation_id: int
    body_position: int


def read_request_header(frame: Buffer) -> RequestHead:
    """The header of a request frame.

    A key that Kafka does not have is malformed, since nobody could say how its header goes on. A version is taken as
    it comes: the dispatcher answers for it, and an ApiVersions request of the future has to be readable (KIP-511).
    """
    if len(frame) < 10:
        raise Malformed(f"a request of {len(frame)} bytes has no header")
    api_key, api_version, correlation_id, client_id_size = _HEAD(frame, 0)
    flexible_from = _FLEXIBLE_FROM.get(api_key)
    if flexible_from is None:
        raise Malformed(f"API key {api_key} does not exist")
    client_id: str | None = None
    position = 10
    if client_id_size >= 0:
        # The old two-byte length even in flexible headers, so that any server can read it.
        position += client_id_size
        if position > len(frame):
            raise Malformed(f"a client id of {client_id_size} bytes where {len(frame) - 10} are left")
        try:
            client_id = str(frame[10:position], "utf-8")
        except UnicodeDecodeError:
            raise Malformed("the client id is not UTF-8") from None
    if api_version >= flexible_from:
        if position < len(frame) and frame[position] == 0:
            position += 1
        else:
            position = skip_tagged_fields(frame, position)
    return RequestHead(api_key, api_version, correlation_id, client_id, position)


def response_head(correlation_id: int, body_size: int, flexible: bool) -> bytes:
    """Length and header of a response whose body is sent apart, such as a fetch served by sendfile.

    `flexible` says that the header is version 1; see `Api.response_header_version`.
    """
    if flexible:
        return _RESPONSE_FLEXIBLE(body_size + 5, correlation_id, 0)
    return _RESPONSE(body_size + 4, correlation_id)


def response_frame(correlation_id: int, body: bytes, flexible: bool) -> bytes:
    """A whole response, with its length in front."""
    if flexible:
        return _RESPONSE_FLEXIBLE(len(body) + 5, correlation_id, 0) + body
    return _RESPONSE(len(body) + 4, correlation_id) + body


def request_frame(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: bytes | memoryview
) -> bytes:
    """A whole request, with its length in front."""
    return request_head(api_key, api_version, correlation_id, client_id, len(body)) + body


def request_head(api_key: int, api_version: int, correlation_id: int, client_id: str | None, body_size: int) -> bytes:
    """Length and header of a request whose body is sent apart."""
    raw = b"" if client_id is None else client_id.encode()
    tags = b"\x00" if api_version >= _FLEXIBLE_FROM[api_key] else b""
    size = 10 + len(raw) + len(tags) + body_size
    return _REQUEST(size, api_key, api_version, correlation_id, -1 if client_id is None else len(raw)) + raw + tags


def read_response_header(frame: Buffer, flexible: bool) -> ResponseHead:
    """The header of a response frame; `flexible` as in `response_frame`."""
    if len(frame) < 4:
        raise Malformed(f"a response of {len(frame)} bytes has no header")
    (correlation_id,) = _INT32(frame, 0)
    return ResponseHead(correlation_id, skip_tagged_fields(frame, 4) if flexible else 4)
