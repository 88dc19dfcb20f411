"""SASL OAUTHBEARER (RFC 7628): the client shows a token that somebody trusted has signed.

    n,[a=user],^Aauth=Bearer TOKEN^A[key=value^A…]^A

Tokens are signed JSON (RFC 7519). A token counts only if its signature is right by a key that is known, if the key's
kind fits the algorithm that it names, and if its times, issuer and audience are as asked: what is missing is refused,
never passed over, and so is an audience where none is expected, as in Kafka. The keys come from a JSON document (RFC
7517), which `broker/doors` keeps fresh.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.errors import StartupError
from ottla.security.sasl import Authenticated, AuthenticationFailed, Challenge

TOKEN_CHARS_MAX = 32 * 1024
_RSA_BITS_MIN = 2048
_SECONDS_MAX = 1 << 40

_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,\0]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01", re.DOTALL
)
_BEARER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/=-]+)")
_HASHES = {"256": "SHA256", "384": "SHA384", "512": "SHA512"}
_CURVES = {"ES256": ("P-256", 32), "ES384": ("P-384", 48), "ES512": ("P-521", 66)}


class Key(NamedTuple):
    """A public key: `verify(algorithm, signature, signed)` says whether the signature is right."""

    kind: str
    verify: Callable[[str, bytes, bytes], bool]


Keys = Mapping[str, Key]
"""By key id; the only key of a document without ids is under the empty one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must say: `sasl.oauthbearer.*`."""

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_ms: int = 30_000


class UnknownKey(AuthenticationFailed):
    """The token may be good, but whoever signed it has a new key."""


class OauthServer:
    """States: new → over; after a refusal the client has a word more (RFC 7628, 3.2.3)."""

    def __init__(self, rules: TokenRules, keys: Callable[[], Keys], on_unknown_key: Callable[[], None]) -> None:
        self._rules = rules
        self._keys = keys
        self._on_unknown_key = on_unknown_key
        self._refused = False

    def evaluate(self, token: bytes, now_ms: int) -> Challenge | Authenticated:
        if self._refused:
            raise AuthenticationFailed("the token was refused")
        try:
            found = _FIRST.fullmatch(token.decode())
        except UnicodeDecodeError:
            found = None
        if found is None:
            raise AuthenticationFailed("the first message is not OAUTHBEARER's")
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\1") if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise AuthenticationFailed("the first message has no bearer token")
        try:
            user, expires_ms = verified(bearer[1], self._rules, self._keys(), now_ms)
        except AuthenticationFailed as error:
            if isinstance(error, UnknownKey):
                self._on_unknown_key()
            # The client is told that its token is of no use, and has to say that it heard it.
            self._refused = True
            return Challenge(token=b'{"status":"invalid_token"}')
        authorization_id = found["authzid"]
        if authorization_id is not None and authorization_id.replace("=2C", ",").replace("=3D", "=") != user:
            raise AuthenticationFailed(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({user})",
                tell=True,
            )
        return Authenticated(user=user, expires_ms=expires_ms)


def verified(token: str, rules: TokenRules, keys: Keys, now_ms: int) -> tuple[str, int]:
    """The user that `token` speaks for, and when it expires. Raises `AuthenticationFailed`."""
    if len(token) > TOKEN_CHARS_MAX or token.count(".") != 2:
        raise AuthenticationFailed("the token is not signed JSON")
    head_text, claims_text, signature_text = token.split(".")
    head = _json(head_text)
    algorithm, key_id = head.get("alg"), head.get("kid")
    if head.get("crit") is not None:
        raise AuthenticationFailed("the token asks for extensions")
    key = keys.get(key_id) if isinstance(key_id, str) else (next(iter(keys.values())) if len(keys) == 1 else None)
    if key is None:
        raise UnknownKey("the token's key is not known")
    # Without this the public key of one kind could be made a secret of another.
    if not isinstance(algorithm, str) or kind_of(algorithm) != key.kind:
        raise AuthenticationFailed("the token's algorithm does not fit its key")
    if not key.verify(algorithm, _bytes(signature_text), f"{head_text}.{claims_text}".encode()):
        raise AuthenticationFailed("the token's signature is wrong")
    return _check_claims(_json(claims_text), rules, now_ms)


def kind_of(algorithm: str) -> str:
    """The kind of key that an algorithm needs; empty where it is not one of ours, `none` among them."""
    if algorithm in _CURVES:
        return f"EC {_CURVES[algorithm][0]}"
    return "RSA" if re.fullmatch("[RP]S(256|384|512)", algorithm) else ""


def _check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> tuple[str, int]:
    expires_ms = _time_ms(claims.get("exp"))
    if expires_ms + rules.clock_skew_ms <= now_ms:
        raise AuthenticationFailed("the token has expired")
    if "iat" not in claims:
        raise AuthenticationFailed("the token does not say when it was issued")
    for name in ("nbf", "iat"):
        if name in claims and _time_ms(claims[name]) - rules.clock_skew_ms > now_ms:
            raise AuthenticationFailed("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise AuthenticationFailed("the token's issuer is another")
    # A token that names its audience is for nobody else, also where nothing says that we are among them.
    named = claims.get("aud")
    if rules.audiences or named is not None:
        audiences = named if isinstance(named, list) else [named]
        if not set(rules.audiences) & {each for each in audiences if isinstance(each, str)}:
            raise AuthenticationFailed("the token is for another audience")
    user = claims.get(rules.subject_claim)
    if not isinstance(user, str) or not user.strip():
        raise AuthenticationFailed("the token has no subject")
    scope = claims.get(rules.scope_claim)
    if scope is not None and not isinstance(scope, str | list):
        raise AuthenticationFailed("the token's scope is neither text nor a list")
    return user, expires_ms


def expiry_of(token: str) -> int:
    """When a token expires, by the wall clock; whether it is good is not looked at. Raises `AuthenticationFailed`."""
    if len(token) > TOKEN_CHARS_MAX or token.count(".") != 2:
        raise AuthenticationFailed("the token is not signed JSON")
    return _time_ms(_json(token.split(".")[1]).get("exp"))


def _time_ms(value: object) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _SECONDS_MAX:
        raise AuthenticationFailed("the token does not say when it expires, or not in seconds")
    return int(1000 * value)


def _json(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(_bytes(text))
    except (ValueError, RecursionError):
        raise AuthenticationFailed("the token is not signed JSON") from None
    if not isinstance(value, dict):
        raise AuthenticationFailed("the token is not signed JSON")
    return value


def _bytes(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Base64Error, ValueError):
        raise AuthenticationFailed("the token is not base64") from None


# Keys.


def read_keys(document: bytes) -> dict[str, Key]:
    """The signing keys of a JWKS document. Raises `ValueError` where there is none."""
    try:
        entries = json.loads(document)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the document of keys is not JSON with a list `keys`") from None
    keys: dict[str, Key] = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("use", "sig") == "sig" and (key := _key(entry)) is not None:
            keys[str(entry.get("kid", ""))] = key
    if not keys:
        raise ValueError("the document of keys has no key that signs tokens with RSA or ECDSA")
    return keys


def _key(entry: Mapping[str, Any]) -> Key | None:
    """None for a key of a kind that is not ours: documents may hold others."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ec, rsa
    except ImportError:
        raise StartupError("OAUTHBEARER needs the package `cryptography`: install `ottla[oauth]`.") from None
    try:
        if entry.get("kty") == "RSA":
            modulus, exponent = _number(entry["n"]), _number(entry["e"])
            if modulus.bit_length() < _RSA_BITS_MIN:
                return None
            return Key("RSA", _rsa_verifier(rsa.RSAPublicNumbers(exponent, modulus).public_key()))
        if entry.get("kty") == "EC":
            curves: dict[str, ec.EllipticCurve] = {
                "P-256": ec.SECP256R1(),
                "P-384": ec.SECP384R1(),
                "P-521": ec.SECP521R1(),
            }
            numbers = ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), curves[entry["crv"]])
            return Key(f"EC {entry['crv']}", _ec_verifier(numbers.public_key()))
    except (KeyError, ValueError, TypeError, AuthenticationFailed):
        return None
    return None


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text))


def _rsa_verifier(key: Any) -> Callable[[str, bytes, bytes], bool]:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    def verify(algorithm: str, signature: bytes, signed: bytes) -> bool:
        digest = getattr(hashes, _HASHES[algorithm[2:]])()
        used = padding.PSS(padding.MGF1(digest), digest.digest_size) if algorithm[0] == "P" else padding.PKCS1v15()
        try:
            key.verify(signature, signed, used, digest)
        except InvalidSignature:
            return False
        return True

    return verify


def _ec_verifier(key: Any) -> Callable[[str, bytes, bytes], bool]:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    def verify(algorithm: str, signature: bytes, signed: bytes) -> bool:
        size = _CURVES[algorithm][1]
        if len(signature) != 2 * size:
            return False
        pair = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
        try:
            key.verify(encode_dss_signature(*pair), signed, ec.ECDSA(getattr(hashes, _HASHES[algorithm[2:]])()))
        except InvalidSignature:
            return False
        return True

    return verify
