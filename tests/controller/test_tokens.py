"""Delegation tokens as the controller keeps them: their times, their secrets, and their end."""

from __future__ import annotations

from ottla.controller.requester import AnyRequester
from ottla.controller.token_control import token_hmac
from ottla.errors import ErrorCode
from ottla.wire.messages.create_delegation_token_request import CreatableRenewers, CreateDelegationTokenRequest
from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from ottla.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from tests.controller.acting import Acting

ANN, BOB = AnyRequester("User:ann"), AnyRequester("User:bob")
HOUR_MS = 3_600_000


def keeper() -> Acting:
    return Acting(
        delegation_token_secret_key="hush",
        delegation_token_max_lifetime_ms=str(3 * HOUR_MS),
        delegation_token_expiry_time_ms=str(HOUR_MS),
        delegation_token_expiry_check_interval_ms="60000",
    )


def new_token(acting: Acting, lifetime_ms: int = -1) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(renewers=[CreatableRenewers("User", "bob")], max_lifetime_ms=lifetime_ms)
    return acting.ask(lambda controller, now_ms: controller.create_delegation_token(request, now_ms, ANN))


def renew(acting: Acting, token: CreateDelegationTokenResponse, period_ms: int) -> tuple[int, int]:
    request = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms)
    answer = acting.ask(lambda controller, now_ms: controller.renew_delegation_token(request, now_ms, BOB))
    return answer.error_code, answer.expiry_timestamp_ms - acting.now_ms


def test_a_token_lives_as_long_as_it_may_and_is_then_swept_away() -> None:
    acting = keeper()
    token, other = new_token(acting), new_token(acting, lifetime_ms=HOUR_MS // 2)
    assert token.hmac == token_hmac(token.token_id, "hush") != other.hmac
    assert token.expiry_timestamp_ms == acting.now_ms + HOUR_MS
    assert other.expiry_timestamp_ms == other.max_timestamp_ms == acting.now_ms + HOUR_MS // 2
    acting.time_passes(HOUR_MS // 2 + 60_001)
    assert list(acting.image.delegation_tokens) == [token.token_id]
    assert renew(acting, token, 60_000) == (0, 60_000)
    assert renew(acting, token, 99 * HOUR_MS) == (0, HOUR_MS)
    for _ in range(2):
        acting.time_passes(HOUR_MS - 1_000)
        assert renew(acting, token, -1)[0] == 0
    # Not beyond the longest life that it was given.
    assert renew(acting, token, HOUR_MS)[1] == token.max_timestamp_ms - acting.now_ms < HOUR_MS
    acting.time_passes(HOUR_MS)
    assert not list(acting.image.delegation_tokens)


def test_times_are_the_walls() -> None:
    """A controller's own clock may have begun anywhere; a token outlives it."""
    acting = keeper()
    acting.controller.on_wall_clock(1_800_000_000_000 - acting.now_ms)
    token = new_token(acting)
    assert token.issue_timestamp_ms == 1_800_000_000_000


def test_a_token_that_is_not_swept_yet_has_ended_all_the_same() -> None:
    acting = keeper()
    token = new_token(acting)
    acting.now_ms += HOUR_MS + 1
    assert renew(acting, token, 60_000)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_without_a_secret_there_are_no_tokens() -> None:
    acting = Acting()
    token = new_token(acting)
    assert (token.error_code, token.hmac) == (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, b"")
    request = ExpireDelegationTokenRequest(hmac=b"x")
    answer = acting.ask(lambda controller, now_ms: controller.expire_delegation_token(request, now_ms, ANN))
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_before_3_6_there_are_none_either() -> None:
    acting = Acting(metadata_version=13, delegation_token_secret_key="hush")
    assert new_token(acting).error_code == ErrorCode.UNSUPPORTED_VERSION
