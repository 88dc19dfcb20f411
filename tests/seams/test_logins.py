"""A whole node in memory, and somebody who logs in there as nodes do."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from ottla.client.network_peer import NetworkPeers
from ottla.runtime.clock import SystemClock
from ottla.runtime.offload import SystemOffload
from ottla.runtime.timers import TimerWheel
from ottla.security.scram import ScramClient
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from tests.seams.test_maintenance import stage

T = TypeVar("T")

LOCKED = 9192
DOORS = {
    "listeners": f"PLAINTEXT://memory:9092,LOCKED://memory:{LOCKED},CONTROLLER://memory:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOCKED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
SHA_512, ITERATIONS, SALT = 2, 4096, b"salt" * 6


class JoinedOffload(SystemOffload):
    """Threads that are waited for: the loop's clock jumps whenever the loop has nothing to do, and a thread takes real
    time, in which the login's deadline would pass."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with ThreadPoolExecutor(1) as pool:
            done.set_result(pool.submit(work).result())
        return done


async def test_keys_are_derived_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever logs in, in a thread; whoever lets in derives none."""
    salted = hashlib.pbkdf2_hmac("sha512", b"secret", SALT, ITERATIONS)
    threads: list[threading.Thread] = []
    derive = hashlib.pbkdf2_hmac

    def watched(algorithm: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        threads.append(threading.current_thread())
        return derive(algorithm, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", watched)
    offload, timers = JoinedOffload(), TimerWheel(SystemClock())
    async with stage(**DOORS) as it:
        upsertion = ScramCredentialUpsertion("ann", SHA_512, ITERATIONS, SALT, salted)
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
        made = await it.client.ask(request, AlterUserScramCredentialsResponse, 0)
        assert made.results[0].error_code == 0
        peers = NetworkPeers(
            it.network,
            timers,
            "node",
            login=lambda: ScramClient("SCRAM-SHA-512", "ann", "secret", nonce="nonce"),
            offload=offload,
        )
        peer = peers.at("memory", LOCKED)
        answer = await peer.send(DescribeClusterRequest(), DescribeClusterResponse, timeout_ms=60_000)
        assert answer.brokers
        assert len(threads) == 1
        assert threads[0] is not threading.main_thread()
        peer.close()
    timers.close()
    offload.close()
