"""Bearer tokens from a file, and from an identity provider that asks who wants one."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from ottla.client.login import Credentials, login_of
from ottla.client.tokens import TokenEndpoint, fetch_token
from ottla.errors import ErrorCode, KafkaError


class IdentityProvider(BaseHTTPRequestHandler):
    """Has a token for the client `app` with the secret `hush`; other paths answer nonsense."""

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        right = self.headers["Authorization"] == f"Basic {base64.b64encode(b'app:hush').decode()}"
        if self.path == "/token" and right and form["grant_type"] == ["client_credentials"]:
            self._answer(200, {"access_token": f"a.b.{form.get('scope', ['none'])[0]}", "token_type": "Bearer"})
        elif self.path == "/token":
            self._answer(401, {"error": "invalid_client"})
        else:
            self._answer(200, [] if self.path == "/list" else {"access_token": 5})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), IdentityProvider) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_file_is_read_whenever_a_token_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "to ken"
    path.write_text("a.b.c\n")
    credentials = Credentials(mechanism="OAUTHBEARER", token_endpoint=TokenEndpoint(url=path.as_uri()))
    assert login_of(credentials, "").first() == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    path.write_text("d.e.f")
    assert login_of(credentials, "").first() == b"n,,\x01auth=Bearer d.e.f\x01\x01"


def test_an_identity_provider_is_asked(provider: str) -> None:
    endpoint = TokenEndpoint(url=f"{provider}/token", client_id="app", client_secret="hush")
    assert fetch_token(endpoint) == "a.b.none"
    scoped = TokenEndpoint(url=f"{provider}/token", client_id="app", client_secret="hush", scope="kafka")
    assert fetch_token(scoped) == "a.b.kafka"


@pytest.mark.parametrize(
    ("path", "secret", "reason"),
    [("/token", "wrong", "HTTP 401"), ("/list", "hush", "no access_token"), ("/number", "hush", "no access_token")],
)
def test_a_provider_that_has_none_is_one_sentence(provider: str, path: str, secret: str, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        fetch_token(TokenEndpoint(url=f"{provider}{path}", client_id="app", client_secret=secret))
    assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert secret not in (refused.value.message or "")


@pytest.mark.parametrize("content", [None, "", "two words"])
def test_a_file_without_a_token_is_one_sentence(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(KafkaError, match=r"token.*\.$"):
        fetch_token(TokenEndpoint(url=path.as_uri()))
