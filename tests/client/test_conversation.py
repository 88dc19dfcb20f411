"""What arrives on a connection is matched to what was asked, however it is cut up, and whatever it claims."""

from __future__ import annotations

import pytest

from ottla.client.conversation import FRAME_BYTES_MAX, SCRATCH_BYTES, Answer, Conversation, LoginRefused, Ready, Send
from ottla.client.conversation import Heard as HeardOf
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.model import Uuid
from ottla.security.plain import PlainClient
from ottla.security.sasl import Derive, MakeClient
from ottla.security.scram import ScramClient, ScramServer, credential_of, salted_password
from ottla.wire.frames import RequestHead, read_request_header, response_frame
from ottla.wire.message import Message
from ottla.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from ottla.wire.messages.envelope_request import EnvelopeRequest
from ottla.wire.messages.envelope_response import EnvelopeResponse
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.client.stand_in import frame

TOPIC = Uuid(b"t" * 16)
VERSIONS = {1: (4, 18), 18: (0, 4), 63: (0, 1)}

Heard = list[HeardOf[str]]


def hear(conversation: Conversation[str], data: bytes, step: int | None = None) -> Heard:
    """Deliver `data`, at most `step` bytes at a time."""
    heard: Heard = []
    position = 0
    while position < len(data):
        buffer = conversation.get_buffer()
        assert len(buffer) > 0
        size = min(len(buffer), len(data) - position, step or len(data))
        buffer[:size] = data[position : position + size]
        position += size
        heard += conversation.on_received(size)
    return heard


def greeted(
    versions: dict[int, tuple[int, int]] | None = None, frame_bytes_max: int = FRAME_BYTES_MAX
) -> Conversation[str]:
    conversation: Conversation[str] = Conversation("node-1", frame_bytes_max=frame_bytes_max)
    head = head_of(conversation.hello())
    assert hear(conversation, frame(head, advertised(versions or VERSIONS))) == [Ready()]
    return conversation


def advertised(versions: dict[int, tuple[int, int]]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions.items()]
    )


def head_of(data: bytes) -> RequestHead:
    return read_request_header(data[4:])


def ask(conversation: Conversation[str], request: Message, response: type[Message], token: str) -> RequestHead:
    return head_of(conversation.ask(request, response, token))


def fetched(size: int) -> FetchResponse:
    partition = PartitionData(partition_index=3, records=bytes(range(256)) * (size // 256))
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC, partitions=[partition])])


def test_the_greeting_comes_first_and_the_newest_common_version_is_spoken() -> None:
    conversation = greeted({1: (4, 15), 18: (0, 4)})
    head = ask(conversation, FetchRequest(), FetchResponse, "a")
    assert (head.api_key, head.api_version, head.client_id) == (1, 15, "node-1")
    assert conversation.version_of(FetchRequest(), max_version=12) == 12


def test_a_peer_of_the_past_says_which_greeting_it_understands() -> None:
    conversation: Conversation[str] = Conversation("node-1")
    head = head_of(conversation.hello())
    refusal = advertised({18: (0, 2), 1: (4, 11)})
    refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
    again = hear(conversation, response_frame(head.correlation_id, refusal.encode(0), flexible=False))
    assert len(again) == 1
    assert isinstance(again[0], Send)
    second = head_of(again[0].data)
    assert second.api_version == 2
    assert hear(conversation, frame(second, advertised({18: (0, 2), 1: (4, 11)}))) == [Ready()]
    assert conversation.version_of(FetchRequest()) == 11


def test_a_peer_that_refuses_every_greeting_is_given_up() -> None:
    conversation: Conversation[str] = Conversation("node-1")
    data = conversation.hello()
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

    def refuse(data: bytes) -> bytes:
        correlation_id = head_of(data).correlation_id
        (heard,) = hear(conversation, response_frame(correlation_id, refusal.encode(0), flexible=False))
        assert isinstance(heard, Send)
        return heard.data

    data = refuse(data)
    assert head_of(data).api_version == 0
    with pytest.raises(Malformed, match="greeting"):
        refuse(data)


@pytest.mark.parametrize("versions", [{18: (0, 4)}, {1: (19, 30)}, {1: (0, 3)}, {1: (9, 5)}, {1: (-5, -1)}])
def test_an_api_without_a_common_version_is_refused_and_nothing_is_asked(versions: dict[int, tuple[int, int]]) -> None:
    conversation = greeted(versions)
    with pytest.raises(KafkaError) as refused:
        conversation.ask(FetchRequest(), FetchResponse, "a")
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
    assert conversation.unanswered == []


def test_what_an_old_version_cannot_say_is_refused_and_nothing_is_asked() -> None:
    conversation = greeted({63: (0, 0)})
    with pytest.raises(KafkaError):
        conversation.ask(BrokerHeartbeatRequest(offline_log_dirs=[TOPIC]), BrokerHeartbeatResponse, "a")
    assert conversation.unanswered == []


@pytest.mark.parametrize("step", [None, 1, 3, 4, 5, 1000])
def test_answers_come_in_order_however_they_are_cut(step: int | None) -> None:
    conversation = greeted()
    heads = [
        ask(conversation, BrokerHeartbeatRequest(), BrokerHeartbeatResponse, "first"),
        ask(conversation, FetchRequest(), FetchResponse, "second"),
        ask(conversation, BrokerHeartbeatRequest(), BrokerHeartbeatResponse, "third"),
    ]
    assert conversation.unanswered == ["first", "second", "third"]
    large = fetched(2 * SCRATCH_BYTES)
    data = b"".join(
        (
            frame(heads[0], BrokerHeartbeatResponse(is_fenced=True)),
            frame(heads[1], large),
            frame(heads[2], BrokerHeartbeatResponse(is_fenced=False)),
        )
    )
    heard = hear(conversation, data, step)
    assert heard == [
        Answer(token="first", response=BrokerHeartbeatResponse(is_fenced=True)),
        Answer(token="second", response=large),
        Answer(token="third", response=BrokerHeartbeatResponse(is_fenced=False)),
    ]
    assert conversation.unanswered == []


def test_fetched_records_are_the_bytes_as_they_came() -> None:
    """No copy: the records of a large answer are views of the one buffer that the network wrote to, and stay."""
    conversation = greeted()
    head = ask(conversation, FetchRequest(), FetchResponse, "a")
    data = frame(head, fetched(1 << 20))
    first = conversation.get_buffer()
    size = len(first)
    first[:] = data[:size]
    assert conversation.on_received(size) == []
    rest = conversation.get_buffer()
    assert len(rest) == len(data) - size, "the network is lent exactly what is missing"
    rest[:] = data[size:]
    (heard,) = conversation.on_received(len(rest))
    assert isinstance(heard, Answer)
    assert isinstance(heard.response, FetchResponse)
    records = heard.response.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is rest.obj
    head = ask(conversation, FetchRequest(), FetchResponse, "b")
    hear(conversation, frame(head, fetched(1 << 20)))
    assert records == bytes(range(256)) * 4096


def test_a_frame_that_is_too_large_or_too_small_is_not_waited_for() -> None:
    for size in (0x7FFFFFFF, 1001, 3, 0, -1):
        conversation = greeted(frame_bytes_max=1000)
        conversation.ask(FetchRequest(), FetchResponse, "a")
        with pytest.raises(Malformed):
            hear(conversation, size.to_bytes(4, "big", signed=True) + b"12345678")


def test_an_answer_to_nothing_or_to_another_question_is_malformed() -> None:
    conversation = greeted()
    with pytest.raises(Malformed, match="nothing"):
        hear(conversation, response_frame(0, b"\0" * 20, flexible=True))
    conversation = greeted()
    head = ask(conversation, BrokerHeartbeatRequest(), BrokerHeartbeatResponse, "a")
    with pytest.raises(Malformed, match="is due"):
        hear(conversation, response_frame(head.correlation_id + 1, b"\0" * 20, flexible=True))


def test_an_answer_that_stops_short_is_malformed() -> None:
    whole = frame(head_of(Conversation[str]("x").hello()), advertised(VERSIONS))
    for size in range(4, len(whole) - 4):
        conversation: Conversation[str] = Conversation("node-1")
        conversation.hello()
        with pytest.raises(Malformed):
            hear(conversation, size.to_bytes(4, "big") + whole[4 : 4 + size])


def test_an_answer_that_would_become_too_many_objects_is_malformed() -> None:
    conversation = greeted()
    head = ask(conversation, FetchRequest(), FetchResponse, "a")
    topics = [FetchableTopicResponse(topic_id=TOPIC)] * 1_000_001
    with pytest.raises(Malformed, match="more elements"):
        hear(conversation, frame(head, FetchResponse(responses=topics)))


# Peers that ask for a name.

LOCKED = {**VERSIONS, 17: (0, 1), 36: (0, 2)}


def knocking(login: MakeClient) -> tuple[Conversation[str], Send]:
    """Up to the handshake, which follows the greeting by itself."""
    conversation: Conversation[str] = Conversation("node-1", login=login)
    head = head_of(conversation.hello())
    (sent,) = hear(conversation, frame(head, advertised(LOCKED)))
    assert isinstance(sent, Send)
    assert not conversation.is_open
    return conversation, sent


def shown(sent: Send) -> bytes:
    head = head_of(sent.data)
    return bytes(SaslAuthenticateRequest.decode(sent.data[4 + head.body_position :], head.api_version).auth_bytes)


def answered(conversation: Conversation[str], sent: Send, response: Message) -> HeardOf[str]:
    (heard,) = hear(conversation, frame(head_of(sent.data), response))
    return heard


def test_a_login_comes_between_the_greeting_and_everything_else() -> None:
    conversation, handshake = knocking(lambda: PlainClient("node", "secret"))
    head = head_of(handshake.data)
    assert (head.api_key, head.api_version) == (17, 1)
    token = answered(conversation, handshake, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    assert isinstance(token, Send)
    assert shown(token) == b"\0node\0secret"
    assert answered(conversation, token, SaslAuthenticateResponse(error_message=None)) == Ready()
    assert conversation.is_open
    assert conversation.unanswered == []


@pytest.mark.parametrize("locked", [False, True])
def test_an_introduction_follows_every_login(locked: bool) -> None:
    introduction = EnvelopeRequest(request_principal=b"somebody")
    login = (lambda: PlainClient("node", "secret")) if locked else None
    conversation: Conversation[str] = Conversation("node-1", login=login, introduction=introduction)
    (sent,) = hear(conversation, frame(head_of(conversation.hello()), advertised(LOCKED)))
    for _ in range(2):
        if locked:
            assert isinstance(sent, Send)
            token = answered(conversation, sent, SaslHandshakeResponse(mechanisms=["PLAIN"]))
            assert isinstance(token, Send)
            sent = answered(conversation, token, SaslAuthenticateResponse(error_message=None, session_lifetime_ms=9))
        assert isinstance(sent, Send)
        assert head_of(sent.data).api_key == introduction.API_KEY
        assert not conversation.is_open
        assert answered(conversation, sent, EnvelopeResponse()) == Ready(session_ms=9 if locked else 0)
        assert conversation.is_open
        assert conversation.unanswered == []
        if not locked:
            return
        sent = conversation.log_in()


def test_who_takes_no_introduction_is_no_use() -> None:
    conversation: Conversation[str] = Conversation("node-1", introduction=EnvelopeRequest())
    (sent,) = hear(conversation, frame(head_of(conversation.hello()), advertised(VERSIONS)))
    assert isinstance(sent, Send)
    with pytest.raises(LoginRefused, match="CLUSTER_AUTHORIZATION_FAILED"):
        answered(conversation, sent, EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))


def test_a_login_that_needs_a_key_waits_until_it_is_derived() -> None:
    server = ScramServer(
        "SCRAM-SHA-256",
        nonce="server",
        secret=b"x" * 32,
        find=lambda _: credential_of(salted_password("secret", b"salt", 4096, "sha256"), b"salt", 4096, "sha256"),
    )
    conversation, handshake = knocking(lambda: ScramClient("SCRAM-SHA-256", "node", "secret", nonce="client"))
    first = answered(conversation, handshake, SaslHandshakeResponse())
    assert isinstance(first, Send)
    asked = server.evaluate(shown(first), 0)
    derive = answered(conversation, first, SaslAuthenticateResponse(error_message=None, auth_bytes=asked.token))
    assert isinstance(derive, Derive)
    final = conversation.on_derived(salted_password("secret", derive.salt, derive.iterations, derive.algorithm))
    proved = server.evaluate(shown(final), 0)
    response = SaslAuthenticateResponse(error_message=None, auth_bytes=proved.token, session_lifetime_ms=1_000)
    assert answered(conversation, final, response) == Ready(session_ms=1_000)


def test_a_login_is_renewed_behind_what_was_asked_before() -> None:
    conversation, handshake = knocking(lambda: PlainClient("node", "secret"))
    token = answered(conversation, handshake, SaslHandshakeResponse())
    assert isinstance(token, Send)
    answered(conversation, token, SaslAuthenticateResponse(error_message=None, session_lifetime_ms=1_000))
    asked = ask(conversation, BrokerHeartbeatRequest(), BrokerHeartbeatResponse, "before")
    again = conversation.log_in()
    assert not conversation.is_open
    (answer,) = hear(conversation, frame(asked, BrokerHeartbeatResponse()))
    assert isinstance(answer, Answer)
    assert answer.token == "before"
    token = answered(conversation, again, SaslHandshakeResponse())
    assert isinstance(token, Send)
    assert answered(conversation, token, SaslAuthenticateResponse(error_message=None)) == Ready()
    assert conversation.is_open


def test_a_peer_that_refuses_us_says_why() -> None:
    conversation, handshake = knocking(lambda: PlainClient("node", "secret"))
    with pytest.raises(LoginRefused, match="PLAIN is not enabled there, but SCRAM-SHA-512"):
        answered(conversation, handshake, SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512"]))
    conversation, handshake = knocking(lambda: PlainClient("node", "secret"))
    with pytest.raises(LoginRefused, match=r"nobody logs in on that port: leave out security\.protocol"):
        answered(conversation, handshake, SaslHandshakeResponse(error_code=33, mechanisms=[]))
    conversation, handshake = knocking(lambda: PlainClient("node", "secret"))
    token = answered(conversation, handshake, SaslHandshakeResponse())
    assert isinstance(token, Send)
    with pytest.raises(LoginRefused, match="wrong password"):
        answered(conversation, token, SaslAuthenticateResponse(error_code=58, error_message="wrong password"))


def test_a_peer_that_does_not_know_our_password_is_not_believed() -> None:
    conversation, handshake = knocking(lambda: ScramClient("SCRAM-SHA-256", "node", "secret", nonce="client"))
    first = answered(conversation, handshake, SaslHandshakeResponse())
    assert isinstance(first, Send)
    asked = SaslAuthenticateResponse(error_message=None, auth_bytes=b"r=clientx,s=AAAA,i=4096")
    assert isinstance(answered(conversation, first, asked), Derive)
    final = conversation.on_derived(b"k" * 32)
    with pytest.raises(LoginRefused, match="did not prove"):
        answered(conversation, final, SaslAuthenticateResponse(error_message=None, auth_bytes=b"v=AAAA"))
