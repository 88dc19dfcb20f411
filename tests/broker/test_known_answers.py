"""Questions that were answered before are answered from memory, and only as long as the answer is still the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker import known_answers
from ottla.broker.connection import ClientConnection
from ottla.broker.known_answers import KnownAnswers
from ottla.broker.services import Services
from ottla.errors import ErrorCode
from ottla.wire.apis import API_VERSIONS
from ottla.wire.frames import request_frame, response_frame
from ottla.wire.message import Message
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic

METADATA = 3
ANSWER = MetadataResponse(cluster_id="one", topics=[MetadataResponseTopic(name="t")])


class Surroundings:
    """What answers hang on."""

    def __init__(self) -> None:
        self.telemetry = SimpleNamespace(is_wanted=False)
        self.control = SimpleNamespace(kraft_version=1)
        self.services = SimpleNamespace(image=object(), telemetry=self.telemetry, control=self.control, authorizer=None)
        self.answers = KnownAnswers(cast(Services, self.services))

    def keep(self, frame: bytes, response: Message = ANSWER, connection: ClientConnection | None = None) -> None:
        self.answers.keep(connection or client(), frame, response, answered(7, response))

    def knows(self, frame: bytes, connection: ClientConnection | None = None) -> bool:
        return self.answers.find(connection or client(), frame) is not None


@pytest.fixture
def node() -> Surroundings:
    return Surroundings()


def client(software: tuple[str, str] | None = None, borrowed_host: str = "") -> ClientConnection:
    return cast(ClientConnection, SimpleNamespace(software=software, borrowed_host=borrowed_host))


def question(correlation_id: int = 7, topic: str = "t", client_id: str = "c", version: int = 12) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return request_frame(METADATA, version, correlation_id, client_id, request.encode(version))[4:]


def versions(version: int, name: str = "test") -> bytes:
    request = ApiVersionsRequest() if version < 3 else ApiVersionsRequest(name, "1")
    return request_frame(API_VERSIONS, version, 7, "c", request.encode(version))[4:]


def answered(correlation_id: int, response: Message) -> bytes:
    return response_frame(correlation_id, response.encode(3 if isinstance(response, ApiVersionsResponse) else 12), True)


def test_whoever_asks_the_same_gets_the_same_under_his_own_number(node: Surroundings) -> None:
    node.keep(question(7))
    assert node.answers.find(client(), question(-2)) == answered(-2, ANSWER)


@pytest.mark.parametrize("other", [question(topic="u"), question(client_id="d"), question(version=11), question()[:-1]])
def test_other_questions_are_others(node: Surroundings, other: bytes) -> None:
    node.keep(question())
    assert node.knows(question())
    assert not node.knows(other)


def test_another_image_of_the_cluster_makes_everything_unknown(node: Surroundings) -> None:
    node.keep(question())
    node.services.image = object()
    assert not node.knows(question())
    node.keep(question(topic="u"))
    assert node.knows(question(topic="u"))
    assert not node.knows(question()), "it is of the image before"


def test_so_does_what_else_answers_tell_of(node: Surroundings) -> None:
    node.keep(question())
    node.telemetry.is_wanted = True
    assert not node.knows(question())
    node.keep(question())
    node.control.kraft_version = 2
    assert not node.knows(question())


def test_errors_are_asked_about_again(node: Surroundings) -> None:
    missing = MetadataResponse(topics=[MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t")])
    node.keep(question(), missing)
    assert not node.knows(question())


def test_nothing_is_kept_where_it_matters_who_asks(node: Surroundings) -> None:
    node.services.authorizer = object()
    node.keep(question())
    assert not node.knows(question())


def test_who_speaks_for_another_is_answered_by_the_handler(node: Surroundings) -> None:
    node.keep(question(), connection=client(borrowed_host="10.0.0.9"))
    assert not node.knows(question())
    node.keep(question())
    assert not node.knows(question(), client(borrowed_host="10.0.0.9"))
    assert node.knows(question())


def test_what_a_client_says_of_itself_is_known_of_the_next_connection_too(node: Surroundings) -> None:
    node.keep(versions(3), ApiVersionsResponse(), client(("test", "1")))
    another = client()
    assert node.knows(versions(3), another)
    assert another.software == ("test", "1")
    assert not node.knows(versions(3, name="other"))


def test_a_question_that_says_nothing_of_the_client_tells_nothing(node: Surroundings) -> None:
    said_before = client(("test", "1"))
    node.keep(versions(0), ApiVersionsResponse(), said_before)
    node.keep(question(), connection=said_before)
    another = client()
    assert node.knows(versions(0), another)
    assert node.knows(question(), another)
    assert another.software is None


def test_neither_long_questions_nor_long_answers_are_kept(node: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_answers, "QUESTION_BYTES_MAX", len(question()))
    node.keep(question())
    node.keep(question(topic="longer"))
    assert node.knows(question())
    assert not node.knows(question(topic="longer"))
    monkeypatch.setattr(known_answers, "ANSWER_BYTES_MAX", len(answered(7, ANSWER)) - 1)
    node.keep(question(topic="u"))
    assert not node.knows(question(topic="u"))


def test_more_than_fits_makes_all_be_forgotten(node: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(question()) + len(answered(7, ANSWER))
    monkeypatch.setattr(known_answers, "KEPT_BYTES_MAX", 2 * size)
    for topic in "abcd":
        node.keep(question(topic=topic))
    assert [topic for topic in "abcd" if node.knows(question(topic=topic))] == ["d"]
