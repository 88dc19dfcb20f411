"""What clients ask again and again in the same words, answered as the last one who asked was.

Whoever connects asks what is served (ApiVersions), who the brokers are and who leads a topic's partitions (Metadata),
and where its group is coordinated (FindCoordinator); and asks again every few minutes. A hundred consumers of one topic
send the very same bytes, but for the number that a client gives its request. As long as the metadata is the same, so is
the answer, and of a topic with a thousand partitions it takes milliseconds to make. So it is kept, as bytes.

Not kept: what holds an error (it may be another the next time), what came later than at once, what is long, and
anything where there is an authorizer, since who asks counts there. One instance a listener, whose addresses the
answers name; driven by its dispatcher.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.monitoring.error_codes import error_codes
from ottla.wire.apis import API_VERSIONS
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.services import Services
    from ottla.metadata.images import MetadataImage

REPEATED = frozenset({3, 10, API_VERSIONS})
"""Metadata, FindCoordinator, ApiVersions: the answer hangs on the request's bytes, on the metadata and what else
`KnownAnswers` looks at, and on nothing else."""
SOFTWARE_FROM = 3
"""The version of ApiVersions that says what the client is."""

QUESTION_BYTES_MAX = 1024
ANSWER_BYTES_MAX = 256 * 1024
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Beyond that all are forgotten: what is asked often is soon kept again."""

_HEAD = Struct(">hh").unpack_from
_ID_BEGINS, _ID_ENDS = 4, 8
"""Where the correlation id lies, in a request without its length as in an answer with it."""


class _Answer(NamedTuple):
    length: bytes
    rest: bytes
    """What follows the correlation id."""
    software: tuple[str, str] | None
    """What the question said of the client (ApiVersions), which its connection is to know."""


class KnownAnswers:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[bytes, _Answer] = {}
        self._bytes = 0
        # What the answers hang on, beside the questions.
        self._image: MetadataImage | None = None
        self._telemetry = False
        self._kraft_version = 0

    def find(self, connection: ClientConnection, frame: bytes) -> bytes | None:
        """The answer to `frame`, if it is known."""
        known = self._known.get(frame[:_ID_BEGINS] + frame[_ID_ENDS:])
        if known is None or connection.borrowed_host or not self._are_current():
            return None
        if known.software is not None:
            connection.software = known.software
        return known.length + frame[_ID_BEGINS:_ID_ENDS] + known.rest

    def keep(self, connection: ClientConnection, frame: bytes, response: Message, answer: bytes) -> None:
        """`answer`, which is `response` as it is sent, is what whoever asks the same is told next."""
        if (
            len(frame) > QUESTION_BYTES_MAX
            or len(answer) > ANSWER_BYTES_MAX
            or self._services.authorizer is not None
            or connection.borrowed_host
            or any(error_codes(response))
        ):
            return
        if self._bytes > KEPT_BYTES_MAX or not self._are_current():
            self._forget()
        api_key, version = _HEAD(frame)
        software = connection.software if api_key == API_VERSIONS and version >= SOFTWARE_FROM else None
        question = frame[:_ID_BEGINS] + frame[_ID_ENDS:]
        self._known[question] = _Answer(answer[:_ID_BEGINS], answer[_ID_ENDS:], software)
        self._bytes += len(question) + len(answer)

    def _are_current(self) -> bool:
        services = self._services
        return (
            services.image is self._image
            and services.telemetry.is_wanted == self._telemetry
            and services.control.kraft_version == self._kraft_version
        )

    def _forget(self) -> None:
        services = self._services
        self._known.clear()
        self._bytes = 0
        self._image = services.image
        self._telemetry = services.telemetry.is_wanted
        self._kraft_version = services.control.kraft_version
