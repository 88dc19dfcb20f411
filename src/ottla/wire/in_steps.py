"""Long messages, read and written a slice at a time, so that whoever drives it may do something else in between.

The generators are the very codecs of `wire.decoding` and `wire.encoding`, compiled once more with places to stop.
Invariant: what they come to is what `Message.read` and `Message.encode` do. Driven by the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from ottla.wire.decoding import compile_step_decoder
from ottla.wire.encoding import compile_step_encoder
from ottla.wire.message import Message
from ottla.wire.splicing import Spliced

STEP_BYTES = 8 * 1024
STEP_PIECES = 4096
"""Either is a millisecond or so."""

M = TypeVar("M", bound=Message)
Decoder = Callable[[bytes, int, int, int], Generator[None, None, tuple[Message, int]]]
Encoder = Callable[[Message], Iterator[bytes]]

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}


def read_in_steps(
    owner: type[M], data: bytes, position: int, version: int, elements_max: int
) -> Generator[None, None, M]:
    """Returns the message at `position`, as `Message.read` does; raises `Malformed` as soon as it finds that it is."""
    decode = _decoders.get((owner, version))
    if decode is None:
        decode = _decoders[owner, version] = compile_step_decoder(owner, version, STEP_BYTES)
    message, _ = yield from decode(data, position, len(data), elements_max)
    assert isinstance(message, owner)
    return message


def encode_in_steps(message: Message, version: int) -> Iterator[bytes]:
    """What `Message.encode` says, in order."""
    if isinstance(message, Spliced):
        yield message.encode(version)  # Its elements are encoded already.
        return
    owner = type(message)
    encode = _encoders.get((owner, version))
    if encode is None:
        encode = _encoders[owner, version] = compile_step_encoder(owner, version, STEP_PIECES)
    yield from encode(message)
