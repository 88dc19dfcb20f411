"""A load generator for locked doors: fetches and produces over TLS as fast as one thread a connection can, and logs in.

A process of its own (`python -m benchmarks.tls_load`), told what to do by JSON on its command line; it prints what came
of it. Requests are encoded beforehand and answers are not decoded, but for their length and the errors in them, so that
of its time the most goes into OpenSSL.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import cycle
from random import Random
from typing import Any

from ottla.records import BatchBuilder
from ottla.security.sasl import Derive
from ottla.security.scram import ScramClient, new_nonce, salted_password
from ottla.wire.frames import request_frame
from ottla.wire.messages import fetch_request, produce_request
from ottla.wire.messages.produce_response import ProduceResponse
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.oracle.apache_kafka import REPOSITORY

from .load import LoadFailed

HOST = "127.0.0.1"
IN_FLIGHT = 5
FETCH_BYTES = 1 << 20
_FETCH_VERSION, _PRODUCE_VERSION, _AUTHENTICATE_VERSION = 12, 12, 2
_LENGTH = struct.Struct(">i")


def run(what: str, *, timeout: float = 120, **options: Any) -> dict[str, float]:
    """One run of the generator, which is one of the functions in `_WORK`; what it printed."""
    command = [sys.executable, "-m", "benchmarks.tls_load", what, json.dumps(options)]
    try:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{what} over TLS: no end after {timeout} s") from None
    if done.returncode:
        raise LoadFailed(f"{what} over TLS: {done.stderr.strip()[-800:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


# In the generator's own process.


def _connect(port: int, authority: str | None) -> socket.socket:
    sock = socket.create_connection((HOST, port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if authority is None else _context(authority).wrap_socket(sock, server_hostname="localhost")


_contexts: dict[str, ssl.SSLContext] = {}


def _context(authority: str) -> ssl.SSLContext:
    if authority not in _contexts:
        _contexts[authority] = ssl.create_default_context(cafile=authority)
    return _contexts[authority]


def _receive(sock: socket.socket, buffer: memoryview) -> int:
    """One answer into `buffer`, without its length; its size."""
    _fill(sock, buffer[:4])
    (size,) = _LENGTH.unpack_from(buffer)
    _fill(sock, buffer[:size])
    return int(size)


def _fill(sock: socket.socket, view: memoryview) -> None:
    filled = 0
    while filled < len(view):
        got = sock.recv_into(view[filled:])
        if not got:
            raise LoadFailed("the server hung up")
        filled += got


def fetch(
    port: int, authority: str | None, topic: str, offsets: list[int], connections: int, seconds: float
) -> dict[str, float]:
    """Bytes of answers, a megabyte each, in `seconds`: from each offset in turn."""
    frames = []
    for offset in offsets:
        wanted = fetch_request.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = fetch_request.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            session_epoch=-1,
            topics=[fetch_request.FetchTopic(topic=topic, partitions=[wanted])],
        )
        frames.append(request_frame(1, _FETCH_VERSION, 7, "load", request.encode(_FETCH_VERSION)))

    def work(until_s: float) -> float:
        buffer = memoryview(bytearray(2 * FETCH_BYTES))
        moved = 0
        with _connect(port, authority) as sock:
            for frame in cycle(frames):
                sock.sendall(frame)
                size = _receive(sock, buffer)
                if size < FETCH_BYTES // 2:
                    raise LoadFailed(f"a fetch was answered with {size} bytes")
                moved += size
                if time.monotonic() > until_s:
                    break
        return moved

    return _in_threads(work, connections, seconds)


def produce(
    port: int, authority: str | None, topic: str, records: int, size: int, connections: int, seconds: float
) -> dict[str, float]:
    """Bytes of values, in batches of `records`, acknowledged by the leader."""
    builder = BatchBuilder()
    value = bytes(97 + index % 26 for index in range(size))
    for _ in range(records):
        builder.append(int(time.time() * 1000), None, value)
    data = produce_request.PartitionProduceData(index=0, records=bytes(builder.build()))
    request = produce_request.ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[produce_request.TopicProduceData(name=topic, partition_data=[data])]
    )
    frame = request_frame(0, _PRODUCE_VERSION, 7, "load", request.encode(_PRODUCE_VERSION))

    def work(until_s: float) -> float:
        buffer = memoryview(bytearray(64 * 1024))
        with _connect(port, authority) as sock:
            for _ in range(IN_FLIGHT):
                sock.sendall(frame)
            sent, acknowledged = IN_FLIGHT, 0
            while acknowledged < sent:
                got = _receive(sock, buffer)
                answer = ProduceResponse.decode(bytes(buffer[5:got]), _PRODUCE_VERSION)
                if code := answer.responses[0].partition_responses[0].error_code:
                    raise LoadFailed(f"a record was refused with error {code}")
                acknowledged += 1
                if time.monotonic() < until_s:
                    sock.sendall(frame)
                    sent += 1
        return acknowledged * records * size

    return _in_threads(work, connections, seconds)


def log_in(
    port: int, authority: str | None, mechanism: str, user: str, password: str, connections: int, seconds: float
) -> dict[str, float]:
    """Connections that were opened and let in. The password's key is derived once: the rest is the server's work."""
    keys: dict[tuple[bytes, int], bytes] = {}
    chance = Random(os.getpid())
    handshake = request_frame(17, 1, 7, "load", SaslHandshakeRequest(mechanism=mechanism).encode(1))

    def one() -> None:
        client = ScramClient(mechanism, user, password, nonce=new_nonce(chance), keys=keys)
        with _connect(port, authority) as sock:
            # A reset instead of a farewell, or the machine would soon be out of ports.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            buffer = memoryview(bytearray(4096))
            sock.sendall(handshake)
            _receive(sock, buffer)
            if bytes(buffer[4:6]) != b"\0\0":
                raise LoadFailed(f"{mechanism} is not offered")
            answer: bytes | Derive | None = client.first()
            while answer is not None:
                if isinstance(answer, Derive):
                    key = salted_password(answer.password, answer.salt, answer.iterations, answer.algorithm)
                    answer = client.on_derived(key)
                body = SaslAuthenticateRequest(auth_bytes=answer).encode(_AUTHENTICATE_VERSION)
                sock.sendall(request_frame(36, _AUTHENTICATE_VERSION, 7, "load", body))
                size = _receive(sock, buffer)
                told = SaslAuthenticateResponse.decode(bytes(buffer[5:size]), _AUTHENTICATE_VERSION)
                if told.error_code:
                    raise LoadFailed(f"the login was refused: {told.error_message}")
                answer = client.on_challenge(bytes(told.auth_bytes))

    one()

    def work(until_s: float) -> float:
        count = 0
        while time.monotonic() < until_s:
            one()
            count += 1
        return count

    return _in_threads(work, connections, seconds)


def _in_threads(work: Callable[[float], float], connections: int, seconds: float) -> dict[str, float]:
    """`work` is told until when, and says how much it did."""
    done: list[float] = []
    failures: list[BaseException] = []
    began_s, began_cpu_s = time.monotonic(), sum(os.times()[:2])

    def run_one() -> None:
        try:
            done.append(work(began_s + seconds))
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run_one) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    took_s = time.monotonic() - began_s
    cpu = (sum(os.times()[:2]) - began_cpu_s) / took_s
    return {"per_s": sum(done) / took_s, "moved": sum(done), "client_cpu": cpu}


_WORK: dict[str, Callable[..., dict[str, float]]] = {"fetch": fetch, "produce": produce, "log_in": log_in}


if __name__ == "__main__":
    print(json.dumps(_WORK[sys.argv[1]](**json.loads(sys.argv[2]))))
