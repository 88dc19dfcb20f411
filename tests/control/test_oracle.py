"""Apache Kafka 4.3.1 and this control plane, on the same directories."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.control.staging import StagedNode
from tests.oracle.apache_kafka import classpath, free_ports, java, run_java

pytestmark = pytest.mark.oracle


def tool(name: str, *arguments: str) -> str:
    return run_java(name, *arguments, timeout=60).check().out


@contextmanager
def apache_kafka(directory: Path, ports: list[int]) -> Iterator[str]:
    """A broker of Apache Kafka on `directory` as it is; it gets no chance to format it."""
    properties = directory.parent / "kafka.properties"
    properties.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{ports[1]}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}\n"
        "controller.listener.names=CONTROLLER\n"
        f"log.dirs={directory}\n"
    )
    output = directory.parent / "kafka.out"
    with output.open("w") as out:
        process = subprocess.Popen(
            [java(), "-Xmx512m", "-cp", classpath(), "kafka.Kafka", str(properties)], stdout=out, stderr=out
        )
        try:
            address = f"127.0.0.1:{ports[0]}"
            deadline = time.monotonic() + 60
            while True:
                assert process.poll() is None, output.read_text()
                assert time.monotonic() < deadline, output.read_text()
                listed = run_java(
                    "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, "--list", timeout=60
                )
                if listed.status == 0:
                    break
            yield address
        finally:
            process.terminate()
            process.wait(60)


async def test_a_directory_goes_from_our_format_to_kafka_to_us_and_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    ports = free_ports(2)
    listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}"}
    topics = "org.apache.kafka.tools.TopicCommand"
    StagedNode(data, properties=listeners).manager.close(0)
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with apache_kafka(data, ports) as address:
        tool(topics, "--bootstrap-server", address, "--create", "--topic", "theirs", "--partitions", "2")
    node = await StagedNode(data, properties=listeners).start()
    theirs = node.image.topic("theirs")
    assert theirs is not None
    assert [p.leader for p in theirs.partitions.values()] == [1, 1]
    assert await node.create("ours", partitions=3) == [0]
    snapshot = await node.plane._snapshotter.write(node.image, node.runtime.clock.wall_ms())
    assert await node.create("after") == [0]
    await node.stop()
    for name in (snapshot.file_name, "00000000000000000000.log"):
        dumped = tool(
            "org.apache.kafka.tools.DumpLogSegments",
            "--cluster-metadata-decoder",
            "--files",
            str(data / "__cluster_metadata-0" / name),
        )
        assert '"name":"ours"' in dumped
        assert "isvalid: false" not in dumped
    with apache_kafka(data, ports) as address:
        described = tool(topics, "--bootstrap-server", address, "--describe")
        for line in ("Topic: theirs", "Topic: ours", "Topic: after"):
            assert line in described
        assert described.count("Leader: 1") == 6
