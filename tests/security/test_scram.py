"""SCRAM, both sides: the examples of the RFCs, each other, and everybody who tries without a password."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.sasl import Authenticated, AuthenticationFailed, Challenge, Derive
from ottla.security.scram import (
    ALGORITHMS,
    Credential,
    ScramClient,
    ScramServer,
    TokenOwner,
    credential_of,
    salted_password,
)

SHA_256, SHA_512 = ALGORITHMS
SALT = bytes.fromhex("5b6d99689d12358eeca04b141236fa81")
SECRET = b"\7" * 32


def credential(password: str, mechanism: str = SHA_256, iterations: int = 4096) -> Credential:
    algorithm = ALGORITHMS[mechanism]
    return credential_of(salted_password(password, SALT, iterations, algorithm), SALT, iterations, algorithm)


def server_for(mechanism: str = SHA_256, nonce: str = "server", **users: str) -> ScramServer:
    return ScramServer(
        mechanism,
        nonce=nonce,
        secret=SECRET,
        find=lambda name: credential(users[name], mechanism) if name in users else None,
    )


def challenged(server: ScramServer, token: bytes) -> bytes:
    outcome = server.evaluate(token, 0)
    assert isinstance(outcome, Challenge)
    return outcome.token


def log_in(client: ScramClient, server: ScramServer) -> Authenticated:
    """The whole exchange, keys derived in place."""
    answer = client.on_challenge(challenged(server, client.first()))
    if isinstance(answer, Derive):
        answer = client.on_derived(salted_password(answer.password, answer.salt, answer.iterations, answer.algorithm))
    assert answer is not None
    outcome = server.evaluate(answer, 0)
    assert isinstance(outcome, Authenticated)
    assert client.on_challenge(outcome.token) is None
    return outcome


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    server = server_for(nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", user="pencil")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    asked = challenged(server, client.first())
    assert asked == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    derive = client.on_challenge(asked)
    assert derive == Derive(password="pencil", salt=SALT, iterations=4096, algorithm="sha256")
    final = client.on_derived(salted_password("pencil", SALT, 4096, "sha256"))
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    outcome = server.evaluate(final, 0)
    assert outcome == Authenticated(token=b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", user="user")
    assert client.on_challenge(outcome.token) is None


@pytest.mark.parametrize("mechanism", ALGORITHMS)
@pytest.mark.parametrize("user", ["ann", "a=b", "a,b", "=2C", "ü"])
def test_whoever_knows_the_password_gets_in(mechanism: str, user: str) -> None:
    client = ScramClient(mechanism, user, "secret", nonce="client")
    assert log_in(client, server_for(mechanism, **{user: "secret"})).user == user


def test_a_key_is_derived_once_for_many_logins() -> None:
    keys: dict[tuple[bytes, int], bytes] = {}
    log_in(ScramClient(SHA_256, "ann", "secret", nonce="one", keys=keys), server_for(ann="secret"))
    again = ScramClient(SHA_256, "ann", "secret", nonce="two", keys=keys)
    assert isinstance(again.on_challenge(challenged(server_for(ann="secret"), again.first())), bytes)


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "secret")])
def test_a_wrong_password_and_an_unknown_user_fail_alike(user: str, password: str) -> None:
    """At the same step, after the same questions."""
    client = ScramClient(SHA_256, user, password, nonce="client")
    server = server_for(ann="secret")
    derive = client.on_challenge(challenged(server, client.first()))
    assert isinstance(derive, Derive)
    assert (len(derive.salt) > 0, derive.iterations) == (True, 4096)
    final = client.on_derived(salted_password(password, derive.salt, 4096, "sha256"))
    with pytest.raises(AuthenticationFailed, match="the proof is wrong") as refused:
        server.evaluate(final, 0)
    assert refused.value.message is None


def test_an_unknown_user_costs_the_same_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digest by digest, each over as many bytes: what takes the time is the same."""
    work: list[tuple[str, int]] = []
    real = hmac.digest, hashlib.new

    def digest(key: bytes, message: bytes, algorithm: str) -> bytes:
        work.append(("hmac", len(message)))
        return real[0](key, message, algorithm)

    def new(algorithm: str, data: bytes = b"") -> object:
        work.append(("hash", len(data)))
        return real[1](algorithm, data)

    salted = salted_password("secret", b"s" * 24, 4096, "sha256")
    users = {"ann": credential_of(salted, b"s" * 24, 4096, "sha256")}

    def refused(user: str) -> list[tuple[str, int]]:
        server = ScramServer(SHA_256, nonce="server", secret=SECRET, find=users.get)
        client = ScramClient(SHA_256, user, "wrong", nonce="client")
        with monkeypatch.context() as watched:
            watched.setattr(hmac, "digest", digest)
            watched.setattr(hashlib, "new", new)
            asked = challenged(server, client.first())
        derive = client.on_challenge(asked)
        assert isinstance(derive, Derive)
        final = client.on_derived(salted_password("wrong", derive.salt, derive.iterations, "sha256"))
        with monkeypatch.context() as watched:
            watched.setattr(hmac, "digest", digest)
            watched.setattr(hashlib, "new", new)
            with pytest.raises(AuthenticationFailed):
                server.evaluate(final, 0)
        done, work[:] = list(work), []
        return done

    known, unknown = refused("ann"), refused("bob")
    assert known == unknown
    assert len(known) == 3


def test_an_unknown_user_is_asked_with_the_same_salt_each_time() -> None:
    first, second = (challenged(server_for(ann="secret"), b"n,,n=nobody,r=x") for _ in range(2))
    assert first == second
    assert first != challenged(server_for(ann="secret"), b"n,,n=somebody,r=x")


def test_nobody_speaks_for_somebody_else() -> None:
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        server_for(ann="secret").evaluate(b"n,a=bob,n=ann,r=x", 0)
    assert challenged(server_for(ann="secret"), b"n,a=ann,n=ann,r=x")


def final_of(server: ScramServer, **changes: str) -> bytes:
    """Ann's right answer, with parts of it replaced."""
    client = ScramClient(SHA_256, "ann", "secret", nonce="client")
    derive = client.on_challenge(challenged(server, client.first()))
    assert isinstance(derive, Derive)
    parts = dict(part.split("=", 1) for part in client.on_derived(
        salted_password("secret", derive.salt, derive.iterations, "sha256")
    ).decode().split(","))  # fmt: skip
    return ",".join(f"{key}={value}" for key, value in {**parts, **changes}.items()).encode()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"r": "other"}, "nonce"),
        ({"r": "clientserve"}, "nonce"),
        ({"r": "xclientserver"}, "nonce"),  # Its end is right, which once was enough (CVE-2024-56128).
        ({"c": "eSws"}, "binding"),
        ({"p": "AAAA"}, "proof"),
        ({"p": "A"}, "base64"),
        ({"p": ""}, "SCRAM"),
    ],
)
def test_what_was_agreed_on_stays(changes: dict[str, str], reason: str) -> None:
    server = server_for(ann="secret")
    with pytest.raises(AuthenticationFailed, match=reason):
        server.evaluate(final_of(server, **changes), 0)


def test_unchanged_the_answer_is_right() -> None:
    server = server_for(ann="secret")
    assert isinstance(server.evaluate(final_of(server), 0), Authenticated)


@given(st.binary(max_size=80) | st.text(alphabet="nacrp=,sSi1A+/", max_size=80).map(str.encode))
@settings(derandomize=True, max_examples=300)
def test_bytes_of_any_kind_are_refused_or_asked_about(token: bytes) -> None:
    for server in (server_for(ann="secret"), server_for(ann="secret")):
        try:
            outcome = server.evaluate(token, 0)
        except AuthenticationFailed:
            continue
        assert isinstance(outcome, Challenge)
        with pytest.raises(AuthenticationFailed):
            server.evaluate(token, 0)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"r=client,s=AAAA,i=4096", "nonce"),
        (b"r=other,s=AAAA,i=4096", "nonce"),
        (b"r=clientx,s=AAAA,i=4095", "iterations"),
        (b"r=clientx,s=AAAA,i=16385", "iterations"),
        (b"r=clientx,s=AAAA,i=999999999", "iterations"),
        (b"e=other-error", "SCRAM"),
    ],
)
def test_a_client_does_not_do_whatever_a_server_asks(message: bytes, reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        ScramClient(SHA_256, "ann", "secret", nonce="client").on_challenge(message)


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    client = ScramClient(SHA_256, "ann", "secret", nonce="client")
    client.on_challenge(b"r=clientx,s=AAAA,i=4096")
    client.on_derived(b"\0" * 32)
    with pytest.raises(AuthenticationFailed, match="did not prove"):
        client.on_challenge(b"v=AAAA")


def test_a_delegation_token_speaks_for_its_owner_until_it_expires() -> None:
    def server() -> ScramServer:
        owner = TokenOwner(credential("hmac"), "ann", 1_000)
        return ScramServer(
            SHA_256,
            nonce="server",
            secret=SECRET,
            find=lambda name: None,
            find_token=lambda token_id: owner if token_id == "token" else None,
        )

    def client() -> ScramClient:
        return ScramClient(SHA_256, "token", "hmac", nonce="client", extensions=",tokenauth=true")

    assert log_in(client(), server()) == Authenticated(
        token=log_in(client(), server()).token, user="ann", expires_ms=1_000, by_token=True
    )
    late = server()
    derive = (ours := client()).on_challenge(challenged(late, ours.first()))
    assert isinstance(derive, Derive)
    with pytest.raises(AuthenticationFailed, match="expired"):
        late.evaluate(ours.on_derived(salted_password("hmac", derive.salt, 4096, "sha256")), 1_000)
    plain = ScramClient(SHA_256, "token", "hmac", nonce="client")
    with pytest.raises(AuthenticationFailed, match="proof"):
        log_in(plain, server())
