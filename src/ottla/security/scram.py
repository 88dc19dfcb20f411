"""SCRAM (RFC 5802, RFC 7677): both sides prove that they know the password, and neither says it.

    client: n,,n=user,r=nonce                                   server: r=nonce+more,s=salt,i=iterations
    client: c=biws,r=nonce+more,p=proof                         server: v=signature

A server keeps keys that were derived from the password and are of no use for logging in (`Credential`); deriving them
is the client's work, done once for each salt. A user that nobody knows is asked the same questions as any other, with
a salt of its own that stays the same while the node runs, and fails at the end, at the same cost. Whoever asks several
nodes, or sees other iterations than the fewest, can still tell who has an account; Apache Kafka says it at once.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from ottla.security.sasl import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Derive,
)

ALGORITHMS = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
NUMBERS = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
"""What the mechanisms are called in the metadata log (KIP-554)."""

ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
"""As a client: more would be a server's way to keep us busy."""

NONCE_BITS = 192

_CLIENT_FIRST = re.compile(
    r"(?P<header>n,(?:a=(?P<authzid>(?:[^=,\0]|=2C|=3D)+))?,)"
    r"(?P<bare>n=(?P<user>(?:[^=,\0]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[a-zA-Z]+=[^,\0]+)*))"
)
_CLIENT_FINAL = re.compile(
    r"(?P<unsigned>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[a-zA-Z]+=[^,\0]+)*?)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9][0-9]{0,8})(?:,.*)?"
)
_SERVER_FINAL = re.compile(r"v=(?P<signature>[A-Za-z0-9+/=]+)(?:,.*)?")


class Credential(NamedTuple):
    """What a server knows of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class TokenOwner(NamedTuple):
    """A delegation token that can be logged in with: whom it speaks for, and until when."""

    credential: Credential
    user: str
    expires_ms: int


FindCredential = Callable[[str], Credential | None]
FindToken = Callable[[str], TokenOwner | None]


def salted_password(password: str, salt: bytes, iterations: int, algorithm: str) -> bytes:
    """PBKDF2: slow by intent. Never on a loop that serves."""
    return hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)


def credential_of(salted: bytes, salt: bytes, iterations: int, algorithm: str) -> Credential:
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    return Credential(
        salt, hashlib.new(algorithm, client_key).digest(), hmac.digest(salted, b"Server Key", algorithm), iterations
    )


def new_nonce(random: Random) -> str:
    """Printable, without a comma. `random` must be one that nobody can predict."""
    return format(random.getrandbits(NONCE_BITS), "048x")


class ScramServer:
    """States: new → asked → over."""

    def __init__(
        self,
        mechanism: str,
        *,
        nonce: str,
        secret: bytes,
        find: FindCredential,
        find_token: FindToken = lambda token_id: None,
    ) -> None:
        """`secret` is this node's own, from which the salts of unknown users are made."""
        self._algorithm = ALGORITHMS[mechanism]
        self._nonce = nonce
        self._secret = secret
        self._find = find
        self._find_token = find_token
        self._asked: _Asked | None = None

    def evaluate(self, token: bytes, now_ms: int) -> Challenge | Authenticated:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("the message is not UTF-8") from None
        if self._asked is None:
            return self._on_first(text)
        return self._on_final(self._asked, text, now_ms)

    def _on_first(self, text: str) -> Challenge:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise AuthenticationFailed("the first message is not SCRAM's")
        name = _unescaped(found["user"])
        if found["authzid"] is not None and _unescaped(found["authzid"]) != name:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username", tell=True
            )
        owner: TokenOwner | None = None
        credential: Credential | None
        by_token = ",tokenauth=true" in found["extensions"].lower()
        if by_token:
            owner = self._find_token(name)
            credential = None if owner is None else owner.credential
        else:
            credential = self._find(name)
        known = credential is not None
        # Made up for everybody, so that those whom nobody knows cost no more.
        salt = hmac.digest(self._secret, name.encode(), self._algorithm)[:24]
        if credential is None:
            credential = Credential(salt, self._secret, self._secret, ITERATIONS_MIN)
        nonce = found["nonce"] + self._nonce
        answer = f"r={nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._asked = _Asked(
            user=name if owner is None else owner.user,
            by_token=by_token,
            expires_ms=None if owner is None else owner.expires_ms,
            known=known,
            credential=credential,
            header=found["header"],
            nonce=nonce,
            messages=f"{found['bare']},{answer}",
        )
        return Challenge(token=answer.encode())

    def _on_final(self, asked: _Asked, text: str, now_ms: int) -> Authenticated:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None:
            raise AuthenticationFailed("the final message is not SCRAM's")
        algorithm, credential = self._algorithm, asked.credential
        signed = f"{asked.messages},{found['unsigned']}".encode()
        signature = hmac.digest(credential.stored_key, signed, algorithm)
        proof = _decoded(found["proof"])
        client_key = _xor(proof.ljust(len(signature), b"\0")[: len(signature)], signature)
        proved = hmac.compare_digest(hashlib.new(algorithm, client_key).digest(), credential.stored_key)
        if _decoded(found["binding"]) != asked.header.encode():
            raise AuthenticationFailed("the channel binding is not the one of the first message")
        if not hmac.compare_digest(found["nonce"].encode(), asked.nonce.encode()):
            raise AuthenticationFailed("the nonce is not the one that was agreed on")
        if not proved or not asked.known or len(proof) != len(signature):
            raise AuthenticationFailed("the proof is wrong")
        if asked.expires_ms is not None and asked.expires_ms <= now_ms:
            raise AuthenticationFailed("the delegation token has expired")
        answer = hmac.digest(credential.server_key, signed, algorithm)
        return Authenticated(
            token=b"v=" + b64encode(answer), user=asked.user, expires_ms=asked.expires_ms, by_token=asked.by_token
        )


class _Asked(NamedTuple):
    """What the server has asked, and of whom."""

    user: str
    by_token: bool
    expires_ms: int | None
    known: bool
    credential: Credential
    header: str
    nonce: str
    messages: str
    """The client's first message, without its header, and the answer to it: what both sides sign."""


class ScramClient:
    """States: new → first sent → (deriving) → final sent → over.

    `keys` remembers salted passwords, so that only the first of many connections has to wait for one.
    """

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        *,
        nonce: str,
        extensions: str = "",
        keys: dict[tuple[bytes, int], bytes] | None = None,
    ) -> None:
        self.name = mechanism
        self._algorithm = ALGORITHMS[mechanism]
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escaped(user)},r={nonce}{extensions}"
        self._keys = {} if keys is None else keys
        self._server_first: tuple[str, str, bytes, int] | None = None
        self._expected = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def on_challenge(self, token: bytes) -> bytes | Derive | None:
        if self._expected:
            self._check_signature(token)
            return None
        found = _SERVER_FIRST.fullmatch(token.decode(errors="replace"))
        if found is None or self._server_first is not None:
            raise AuthenticationFailed("the server's message is not SCRAM's")
        nonce, iterations = found["nonce"], int(found["iterations"])
        if not nonce.startswith(self._nonce) or len(nonce) <= len(self._nonce):
            raise AuthenticationFailed("the server's nonce does not begin with ours")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise AuthenticationFailed(
                f"the server asks for {iterations} iterations, not between {ITERATIONS_MIN} and {ITERATIONS_MAX}"
            )
        salt = _decoded(found["salt"])
        self._server_first = (found[0], nonce, salt, iterations)
        key = self._keys.get((salt, iterations))
        if key is not None:
            return self._final(key)
        return Derive(password=self._password, salt=salt, iterations=iterations, algorithm=self._algorithm)

    def on_derived(self, key: bytes) -> bytes:
        assert self._server_first is not None
        _, _, salt, iterations = self._server_first
        self._keys[salt, iterations] = key
        return self._final(key)

    def _final(self, key: bytes) -> bytes:
        assert self._server_first is not None
        message, nonce, _, _ = self._server_first
        unsigned = f"c=biws,r={nonce}"
        signed = f"{self._bare},{message},{unsigned}".encode()
        client_key = hmac.digest(key, b"Client Key", self._algorithm)
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        proof = _xor(client_key, hmac.digest(stored_key, signed, self._algorithm))
        server_key = hmac.digest(key, b"Server Key", self._algorithm)
        self._expected = hmac.digest(server_key, signed, self._algorithm)
        return f"{unsigned},p={b64encode(proof).decode()}".encode()

    def _check_signature(self, token: bytes) -> None:
        found = _SERVER_FINAL.fullmatch(token.decode(errors="replace"))
        if found is None or not hmac.compare_digest(_decoded(found[1]), self._expected):
            raise AuthenticationFailed("the server did not prove that it knows our password")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise AuthenticationFailed("a value is not base64") from None


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
