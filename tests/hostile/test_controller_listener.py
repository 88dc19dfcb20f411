"""The controller's listener: well-formed requests that no node would send are answered, and nothing breaks."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ottla.broker.api import CONTROLLER_HANDLERS
from ottla.wire.apis import APIS
from ottla.wire.frames import request_frame
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from tests.node_process import start_node
from tests.wire_client import WireClient

from .requests import drawn

EXAMPLES = 8


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1]) % 20_000 + 20_000


@pytest.mark.slow
def test_odd_requests_are_answered(tmp_path: Path, port: int) -> None:
    """Those of the quorum come last: a vote out of nowhere may cost a node its lead, as it would in Kafka."""
    node = start_node(tmp_path, "--ephemeral", port=port)
    try:
        asked = 0
        for key in sorted(CONTROLLER_HANDLERS, key=lambda key: (not APIS[key].on_broker, key)):
            for version in range(APIS[key].first_version, APIS[key].last_version + 1):
                with WireClient(("127.0.0.1", port + 1000)) as client:
                    for body in drawn(key, version, EXAMPLES):
                        client.send_raw(request_frame(key, version, 7, "odd", body))
                        assert client.receive_correlation_id() == 7
                        asked += 1
        assert asked > 300
        with WireClient(("127.0.0.1", port + 1000)) as client:
            hello = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            answer = client.call(hello, ApiVersionsResponse)
        assert {each.api_key for each in answer.api_keys} == set(CONTROLLER_HANDLERS)
        assert "Traceback" not in node.log(), node.log()
    finally:
        node.kill()
