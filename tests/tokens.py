"""An identity provider of the tests' own: its keys as a JWKS document, and tokens that it signs."""

from __future__ import annotations

import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

_HASHES: dict[str, Callable[[], hashes.HashAlgorithm]] = {
    "256": hashes.SHA256,
    "384": hashes.SHA384,
    "512": hashes.SHA512,
}
_CURVES: dict[str, tuple[str, type[ec.EllipticCurve], int]] = {
    "ES256": ("P-256", ec.SECP256R1, 32),
    "ES384": ("P-384", ec.SECP384R1, 48),
    "ES512": ("P-521", ec.SECP521R1, 66),
}


def packed(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _number(value: int, size: int | None = None) -> str:
    return packed(value.to_bytes(size or (value.bit_length() + 7) // 8))


class Provider:
    """One key for RSA (made once: that takes a while) and one for each curve that is asked for."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._rsa = rsa.generate_private_key(65537, 2048)
        self._curves = {name: ec.generate_private_key(curve()) for name, (_, curve, _) in _CURVES.items()}

    def document(self) -> bytes:
        numbers = self._rsa.public_key().public_numbers()
        keys: list[dict[str, str]] = [
            {"kty": "RSA", "kid": "rsa", "use": "sig", "n": _number(numbers.n), "e": _number(numbers.e)},
            {"kty": "oct", "kid": "secret", "k": packed(b"secret")},
        ]
        for name, key in self._curves.items():
            curve, _, size = _CURVES[name]
            point = key.public_key().public_numbers()
            keys.append(
                {"kty": "EC", "kid": name, "crv": curve, "x": _number(point.x, size), "y": _number(point.y, size)}
            )
        return json.dumps({"keys": keys}).encode()

    def token(self, algorithm: str = "RS256", head: dict[str, Any] | None = None, **claims: Any) -> str:
        """Signed as `algorithm` says; `head` and `claims` replace what would be there, and None takes it away."""
        is_rsa = algorithm[0] in "RP"
        header = {"alg": algorithm, "kid": "rsa" if is_rsa else algorithm, **(head or {})}
        now = int(self._now())
        body = {"sub": "ann", "exp": now + 3600, "iat": now, **claims}
        parts = [
            packed(json.dumps({name: value for name, value in part.items() if value is not None}).encode())
            for part in (header, body)
        ]
        signed = ".".join(parts).encode()
        return ".".join([*parts, packed(self._sign(algorithm, signed))])

    def _sign(self, algorithm: str, signed: bytes) -> bytes:
        digest = _HASHES[algorithm[2:]]()
        if algorithm.startswith("ES"):
            r, s = decode_dss_signature(self._curves[algorithm].sign(signed, ec.ECDSA(digest)))
            size = _CURVES[algorithm][2]
            return r.to_bytes(size) + s.to_bytes(size)
        if algorithm.startswith("PS"):
            return self._rsa.sign(signed, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
        return self._rsa.sign(signed, padding.PKCS1v15(), digest)


class TokenEndpoint:
    """Where clients get tokens for their names and secrets (RFC 6749, 4.4)."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/token"
        self.asked: list[dict[str, list[str]]] = []
        """What each of those who were let in wanted."""
        self.refused = 0


@contextmanager
def token_endpoint(issue: Callable[[], str], client_id: str, secret: str) -> Iterator[TokenEndpoint]:
    """Gives everybody who knows `secret` what `issue` makes."""
    expected = f"Basic {b64encode(f'{client_id}:{secret}'.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            wanted = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            if self.path != "/token":
                self.send_response(307)
                self.send_header("Location", endpoint.url)
                self.end_headers()
            elif self.headers["Authorization"] == expected and wanted["grant_type"] == ["client_credentials"]:
                endpoint.asked.append(wanted)
                self._answer(200, {"access_token": issue(), "token_type": "Bearer"})
            else:
                endpoint.refused += 1
                self._answer(401, {"error": "invalid_client"})

        def _answer(self, status: int, body: dict[str, str]) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint = TokenEndpoint(server.server_port)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
