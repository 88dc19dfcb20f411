"""A connection for programs that wait: what the peer does not read in time is not waited for."""

from __future__ import annotations

import socket

import pytest

from ottla.runtime.blocking import BlockingStream


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_peer_that_does_not_read_is_waited_for_so_long_and_no_longer(pieces: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = BlockingStream("127.0.0.1", listener.getsockname()[1], timeout_s=60)
        try:
            with pytest.raises(TimeoutError):
                stream.write([bytes(32 * 1024 * 1024)] * pieces, 0.05)
        finally:
            stream.close()
