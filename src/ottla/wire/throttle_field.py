"""The throttle time in a response that has been encoded already.

Most responses have it first, Produce last, and some versions not at all. Whoever is throttled waits for a while in any
case, so the response is simply read and written again. Responses that hold spans of files say it for themselves
(`fetch_codec.pack_throttled`).
"""

from __future__ import annotations

from ottla.wire.apis import Api
from ottla.wire.frames import LENGTH_SIZE, read_response_header, response_frame

_FIELD = "throttle_time_ms"


def with_throttle_time(frame: bytes, api: Api, version: int, throttle_ms: int) -> bytes:
    """`frame`, length and all, with a throttle time of at least `throttle_ms`, if its version can say so."""
    message_class = api.response
    if _FIELD not in message_class.__slots__:
        return frame
    flexible = api.response_header_version(version) == 1
    head = read_response_header(frame[LENGTH_SIZE:], flexible)
    message, _ = message_class.read(frame, LENGTH_SIZE + head.body_position, version)
    setattr(message, _FIELD, max(throttle_ms, getattr(message, _FIELD)))
    return response_frame(head.correlation_id, message.encode(version), flexible)
