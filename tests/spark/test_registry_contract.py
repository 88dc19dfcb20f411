"""What Spark, tools and the console ask of a registry is what Confluent documents, and its answers, newer ones too, are
read.

The other side here is a table of answers in the words of Confluent's API reference: paths, media types, error codes.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ottla.client.registry import NoRegistry, RegistryClient, RegistrySettings, RegistryUnavailable, UnknownSchema
from ottla.console.registry import Registry, RegistryError

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
CITY = json.dumps({"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]})
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "city", "type": "City"}]})
REFERENCES = [{"name": "City", "subject": "city", "version": 1}]
NEWER = {"guid": "7d1f2a5e-0000-0000-0000-000000000001", "metadata": None, "ruleSet": None, "ts": 1_750_000_000_000}
"""Fields that later releases have added to their answers."""


class Confluent:
    """Answers by method and path, each once or, the last of them, for ever."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[tuple[int, object]]] = {
            ("GET", "/schemas/ids/7"): [(200, {"schema": ORDER, "references": REFERENCES, **NEWER})],
            ("GET", "/schemas/ids/8"): [(200, {"schema": "{}", "schemaType": "JSON"})],
            ("GET", "/schemas/ids/9"): [(404, {"error_code": 40403, "message": "Schema 9 not found"})],
            ("GET", "/subjects/city/versions/1?deleted=true"): [
                (200, {"subject": "city", "version": 1, "id": 3, "schema": CITY, "deleted": True, **NEWER})
            ],
            ("GET", "/subjects/orders%2Feu-value/versions/latest"): [
                (
                    200,
                    {
                        "subject": "orders/eu-value",
                        "version": 4,
                        "id": 7,
                        "schemaType": "AVRO",
                        "schema": ORDER,
                        "references": REFERENCES,
                        **NEWER,
                    },
                )
            ],
            ("GET", "/subjects/nobody/versions/latest"): [
                (404, {"error_code": 40401, "message": "Subject 'nobody' not found."})
            ],
            ("POST", "/subjects/city/versions"): [(200, {"id": 3, "version": 1, "schema": CITY, **NEWER})],
            ("POST", "/subjects/other/versions"): [
                (409, {"error_code": 40901, "message": "Schema being registered is incompatible"}),
                # As earlier releases say it.
                (409, {"error_code": 409, "message": "Schema being registered is incompatible"}),
            ],
        }
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []

    def answer(self, method: str, path: str) -> tuple[int, object]:
        known = self.answers.get((method, path), [(404, {"error_code": 404, "message": "HTTP 404 Not Found"})])
        return known.pop(0) if len(known) > 1 else known[0]


@pytest.fixture
def confluent() -> Confluent:
    return Confluent()


@pytest.fixture
def url(confluent: Confluent) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            told = {name.lower(): value for name, value in self.headers.items()}
            confluent.asked.append((self.command, self.path, told, json.loads(body) if body else None))
            status, answer = confluent.answer(self.command, self.path)
            said = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", MEDIA_TYPE)
            self.send_header("Content-Length", str(len(said)))
            if status == 429:
                self.send_header("Retry-After", "0")
            if status == 302:
                self.send_header("Location", str(answer))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_schema_comes_with_what_it_refers_to_and_is_asked_for_once(confluent: Confluent, url: str) -> None:
    registry = RegistryClient(RegistrySettings.parse(url, {"basic.auth.user.info": "key:secret"}))
    for _ in range(2):
        found = registry.by_id(7)
    assert (found.id, found.kind, found.text, found.references) == (7, "AVRO", ORDER, (CITY,))
    assert [each[:2] for each in confluent.asked] == [
        ("GET", "/schemas/ids/7"),
        ("GET", "/subjects/city/versions/1?deleted=true"),
    ]
    for _, _, told, _ in confluent.asked:
        assert MEDIA_TYPE in told["accept"]
        assert told["authorization"] == "Basic " + base64.b64encode(b"key:secret").decode()
    assert registry.by_id(8).kind == "JSON"


def test_subjects_are_quoted_and_their_latest_schema_is_read(url: str) -> None:
    found = RegistryClient(RegistrySettings.parse(url)).latest("orders/eu-value")
    assert (found.id, found.text, found.references) == (7, ORDER, (CITY,))


def test_a_schema_is_registered_as_confluents_clients_do(confluent: Confluent, url: str) -> None:
    registry = RegistryClient(RegistrySettings.parse(url))
    assert registry.register("city", CITY) == 3
    method, path, told, body = confluent.asked[-1]
    assert (method, path, body) == ("POST", "/subjects/city/versions", {"schema": CITY})
    assert told["content-type"] == MEDIA_TYPE
    for _ in range(2):
        with pytest.raises(RegistryUnavailable, match="incompatible"):
            registry.register("other", CITY)


def test_what_is_not_there_is_told_apart_from_a_registry_that_does_not_answer(confluent: Confluent, url: str) -> None:
    registry = RegistryClient(RegistrySettings.parse(url))
    with pytest.raises(UnknownSchema, match="Schema 9 not found"):
        registry.by_id(9)
    with pytest.raises(UnknownSchema, match="'nobody' not found"):
        registry.latest("nobody")
    confluent.answers["GET", "/schemas/ids/5"] = [(401, {"error_code": 401, "message": "Unauthorized"})]
    with pytest.raises(RegistryUnavailable, match="Unauthorized"):
        registry.by_id(5)


def test_an_address_that_is_no_registrys_is_not_taken_for_schemas_that_are_missing(
    confluent: Confluent, url: str
) -> None:
    """Else every record would be a dead letter."""
    with pytest.raises(RegistryUnavailable, match="HTTP 404 Not Found"):
        RegistryClient(RegistrySettings.parse(f"{url}/elsewhere")).by_id(7)
    confluent.answers["GET", "/schemas/ids/7"] = [(404, "a proxy's page")]
    with pytest.raises(RegistryUnavailable, match="HTTP 404"):
        RegistryClient(RegistrySettings.parse(url)).by_id(7)


@pytest.mark.parametrize(
    "passing",
    [
        (429, {"error_code": 429, "message": "Rate limit exceeded"}),
        (500, {"error_code": 50003, "message": "Error while forwarding the request to the primary"}),
    ],
    ids=["asked-too-often", "no-primary"],
)
def test_what_passes_is_tried_again(confluent: Confluent, url: str, passing: tuple[int, object]) -> None:
    confluent.answers["GET", "/schemas/ids/7"].insert(0, passing)
    assert RegistryClient(RegistrySettings.parse(url)).by_id(7).text == ORDER


def test_a_login_goes_nowhere_but_to_the_configured_address(confluent: Confluent, url: str) -> None:
    confluent.answers["GET", "/schemas/ids/5"] = [(302, f"{url}/schemas/ids/7")]
    registry = RegistryClient(RegistrySettings.parse(url, {"basic.auth.user.info": "key:secret"}))
    with pytest.raises(RegistryUnavailable, match=rf"sends us to {url}/schemas/ids/7: .* schema\.registry\.url"):
        registry.by_id(5)
    assert [each[1] for each in confluent.asked] == ["/schemas/ids/5"]


def test_a_bounded_number_of_schemas_is_kept(confluent: Confluent, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.client.registry.KEPT_MAX", 2)
    registry = RegistryClient(RegistrySettings.parse(url))
    for schema_id in (20, 21, 22):
        confluent.answers["GET", f"/schemas/ids/{schema_id}"] = [(200, {"schema": CITY})]
    for schema_id in (20, 21, 20, 22, 22, 20):
        assert registry.by_id(schema_id).text == CITY
    assert [each[1].rpartition("/")[2] for each in confluent.asked] == ["20", "21", "22", "20"]


def test_what_does_not_speak_http_is_no_registry() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(b"SSH-2.0-OpenSSH\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        settings = RegistrySettings.parse(f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(RegistryUnavailable, match="No schema registry answers at"):
            RegistryClient(settings, attempts=1).by_id(7)
        thread.join()


def test_the_console_asks_once_and_never_shows_the_password(confluent: Confluent, url: str) -> None:
    registry = Registry(RegistrySettings.parse(f"{url.replace('//', '//key:s%3Acret@')}/"))
    assert registry.address == url
    assert registry.latest("orders/eu-value").schema_id == 7
    assert confluent.asked[-1][2]["authorization"] == "Basic " + base64.b64encode(b"key:s:cret").decode()
    assert registry.schema(7) is not None
    assert registry.schema(9) is None
    with pytest.raises(RegistryError, match=r"^Subject 'nobody' not found\.$"):
        registry.latest("nobody")
    confluent.asked.clear()
    confluent.answers["GET", "/subjects"] = [(500, {"error_code": 50001, "message": "Error in the backend"})]
    with pytest.raises(RegistryError, match="Error in the backend"):
        registry.subjects()
    assert len(confluent.asked) == 1


def test_an_address_may_say_who_we_are_and_there_may_be_several(confluent: Confluent, url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nobody = f"http://127.0.0.1:{gone.getsockname()[1]}"
    settings = RegistrySettings.parse(f" {nobody}/, {url.replace('//', '//key:s%3Acret@')}")
    assert settings == RegistrySettings(urls=(nobody, url), own_logins=(None, "key:s:cret"))
    assert "s:cret" not in repr(settings)
    assert RegistryClient(settings, attempts=1).latest("orders/eu-value").id == 7
    assert confluent.asked[0][2]["authorization"] == "Basic " + base64.b64encode(b"key:s:cret").decode()
    assert RegistrySettings.parse(settings.urls[0], {"basic.auth.user.info": "a:b"}).user_info == "a:b"
    with pytest.raises(NoRegistry, match="No schema registry answers at"):
        RegistryClient(RegistrySettings.parse(nobody), attempts=1).by_id(7)


def test_a_login_in_an_address_is_for_that_one_alone(confluent: Confluent, url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        mine = f"http://key:secret@127.0.0.1:{gone.getsockname()[1]}"
    settings = RegistrySettings.parse(f"{mine},{url}")
    assert RegistryClient(settings, attempts=1).latest("orders/eu-value").id == 7
    assert "authorization" not in confluent.asked[0][2]
    configured = RegistrySettings.parse(f"{mine},{url}", {"basic.auth.user.info": "a:b"})
    assert [login for _, login in configured.places] == ["a:b", "a:b"]


@pytest.mark.parametrize(
    "text", ["r:8081", "ftp://r", "http://", "http://key:secret@r:many", "http://[::1", "http://r:0"]
)
def test_what_is_no_address_is_refused_and_no_password_shown(text: str) -> None:
    with pytest.raises(ValueError, match="is no address of a schema registry: write http://host:port") as refused:
        RegistrySettings.parse(text)
    assert "secret" not in str(refused.value)
