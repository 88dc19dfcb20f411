"""A well-behaved client beside the hostile ones: it must notice nothing.

A process of its own, so that what the tests do costs it nothing but the machine. It produces numbered records one by
one with acks=all, times each answer, reads them back as they come, and obeys lines on its standard input: at `mark` it
prints the latencies since the last mark; when its input ends it reads the whole topic once more, says what it found
and exits.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time

from ottla.records import BatchBuilder
from ottla.records.batch import batches
from ottla.records.records import iterate
from ottla.wire.messages import fetch_request, produce_request
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.produce_response import ProduceResponse
from tests.wire_client import WireClient

PAUSE_S = 0.004
FETCH_EVERY = 25
FETCH_VERSION = 12
PRODUCE_VERSION = 12


def batch_of(*values: bytes) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(int(time.time() * 1000), None, value)
    return bytes(builder.build())


def produce(client: WireClient, topic: str, records: bytes, *, acks: int = -1, partition: int = 0) -> tuple[int, int]:
    """The error code and the offset."""
    wanted = produce_request.PartitionProduceData(index=partition, records=records)
    request = produce_request.ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[produce_request.TopicProduceData(name=topic, partition_data=[wanted])],
    )
    answer = client.call(request, ProduceResponse, PRODUCE_VERSION).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def fetch(client: WireClient, topic: str, offset: int, *, max_bytes: int = 1 << 20) -> tuple[int, int, bytes]:
    """The error code, the high watermark and the bytes of one partition, without waiting."""
    wanted = fetch_request.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = fetch_request.FetchRequest(
        max_wait_ms=0, session_epoch=-1, topics=[fetch_request.FetchTopic(topic=topic, partitions=[wanted])]
    )
    answer = client.call(request, FetchResponse, FETCH_VERSION).responses[0].partitions[0]
    return answer.error_code, answer.high_watermark, bytes(answer.records or b"")


def read_values(data: bytes) -> tuple[list[bytes], int]:
    """The values of uncompressed batches, and the offset after them. A batch that is cut off is left alone."""
    values: list[bytes] = []
    next_offset = 0
    for header, batch in batches(data):
        values += [bytes(record.value or b"") for record in iterate(batch)]
        next_offset = header.next_offset
    return values, next_offset


def read_all(client: WireClient, topic: str) -> list[bytes]:
    """Everything in partition 0, from the first offset to the high watermark."""
    values: list[bytes] = []
    offset = 0
    while True:
        error, high_watermark, data = fetch(client, topic, offset)
        assert error == 0, f"fetch says {error}"
        if offset >= high_watermark:
            return values
        found, offset = read_values(data)
        assert found, f"nothing at {offset} below {high_watermark}"
        values += found


def summary(latencies: list[float]) -> dict[str, float]:
    ordered = sorted(latencies) or [0.0]
    return {
        "count": len(latencies),
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 2),
        "p90_ms": round(ordered[int(len(ordered) * 0.9)] * 1000, 2),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 2),
        "max_ms": round(ordered[-1] * 1000, 2),
    }


def main(host: str, port: int, topic: str) -> None:
    all_latencies: list[float] = []
    since_mark: list[float] = []
    sent = read = offset = 0
    with WireClient((host, port), client_id="canary", timeout_s=60) as client:
        while True:
            began = time.perf_counter()
            error, at = produce(client, topic, batch_of(b"%d" % sent))
            since_mark.append(time.perf_counter() - began)
            assert (error, at) == (0, sent), f"record {sent}: error {error}, offset {at}"
            sent += 1
            if sent % FETCH_EVERY == 0:
                error, _, data = fetch(client, topic, offset)
                assert error == 0
                values, offset = read_values(data)
                assert values == [b"%d" % number for number in range(read, read + len(values))]
                read += len(values)
            if select.select([0], [], [], PAUSE_S)[0]:
                line = os.read(0, 100)
                all_latencies += since_mark
                if not line:
                    break
                print(json.dumps(summary(since_mark)), flush=True)
                since_mark = []
        complete = read_all(client, topic) == [b"%d" % number for number in range(sent)]
    print(json.dumps({**summary(all_latencies), "sent": sent, "complete": complete}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
