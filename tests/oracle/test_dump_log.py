"""kafka-dump-log reads the files that a stopped node left: records deep, indexes, producer snapshots and metadata."""

from __future__ import annotations

import json
import re
import shutil
import struct
from pathlib import Path

import pytest

from .apache_kafka import KafkaTools, ToolResult
from .conftest import At, Node, StartNode

pytestmark = pytest.mark.oracle

RECORDS = 5_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_COMPLAINTS = re.compile(
    r"mismatch|out of order|corrupt|not found in log|isvalid: false|Could not read|exception", re.IGNORECASE
)


@pytest.fixture(scope="module")
def stopped(start_node: StartNode, tools: KafkaTools) -> Node:
    """A node with records of every compression over several segments, stopped cleanly."""
    node = start_node("dumped", {"log.index.interval.bytes": "2048"})
    at = At(tools, node.bootstrap)
    at("kafka-topics", "--create", "--topic", "rolled", "--config", "segment.bytes=1048576")
    load = ["--num-records", str(RECORDS), "--record-size", "1000", "--throughput", "-1"]
    at("kafka-producer-perf-test", "--topic", "rolled", *load)
    for codec in CODECS:
        at("kafka-topics", "--create", "--topic", f"in-{codec}")
        lines = "".join(f"key-{number}\tvalue {number}\n" for number in range(300))
        keyed = ["--reader-property", "parse.key=true", "--compression-codec", codec]
        at("kafka-console-producer", "--topic", f"in-{codec}", *keyed, stdin=lines)
    at("kafka-topics", "--create", "--topic", "to-delete")
    at("kafka-topics", "--delete", "--topic", "to-delete")
    at("kafka-configs", "--alter", "--topic", "rolled", "--add-config", "retention.ms=86400000")
    node.stop()
    return node


def dump(tools: KafkaTools, files: list[Path], *arguments: str) -> ToolResult:
    assert files
    done = tools.check("kafka-dump-log", "--files", ",".join(map(str, files)), *arguments)
    # The deep walk takes the first batch of every later segment for a gap after "-1"; Kafka's own files show it too.
    remarks = [line for line in done.err.splitlines() if "Non-consecutive offsets in" not in line]
    assert all(line.startswith("  -1 is followed by ") for line in remarks), done.err
    assert all(f"Dumping {file}" in done.out for file in files)
    return done


def files_of(node: Node, partition: str, suffix: str) -> list[Path]:
    return sorted((node.log_dir / partition).glob(f"*{suffix}"))


def batches_of(dumped: ToolResult) -> list[dict[str, str]]:
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in dumped.lines if line.startswith("baseOffset:")]


def test_every_segment_is_a_chain_of_valid_batches(tools: KafkaTools, stopped: Node) -> None:
    segments = files_of(stopped, "rolled-0", ".log")
    assert len(segments) >= 5
    dumped = dump(tools, segments, "--deep-iteration")
    assert not _COMPLAINTS.search(dumped.out)
    batches = batches_of(dumped)
    assert all(batch["isvalid"] == "true" and batch["magic"] == "2" for batch in batches)
    assert {batch["partitionLeaderEpoch"] for batch in batches} == {"0"}
    assert {batch["producerEpoch"] for batch in batches} == {"0"}
    next_offset = 0
    for batch in batches:
        assert int(batch["baseOffset"]) == next_offset == int(batch["baseSequence"])
        next_offset = int(batch["lastOffset"]) + 1
    assert next_offset == RECORDS
    # Each file is named after the first offset that it holds.
    starts = re.findall(r"^Log starting offset: (\d+)$", dumped.out, re.MULTILINE)
    assert [int(start) for start in starts] == [int(segment.stem) for segment in segments]
    assert len(re.findall(r"^\| offset: ", dumped.out, re.MULTILINE)) == RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_readable_in_every_compression(tools: KafkaTools, stopped: Node, codec: str) -> None:
    dumped = dump(tools, files_of(stopped, f"in-{codec}-0", ".log"), "--print-data-log", "--deep-iteration")
    assert {batch["compresscodec"] for batch in batches_of(dumped)} == {codec}
    found = re.findall(r"^\| offset: (\d+) .* key: (\S+) payload: (.*)$", dumped.out, re.MULTILINE)
    assert found == [(str(number), f"key-{number}", f"value {number}") for number in range(300)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_agree_with_their_segments(tools: KafkaTools, stopped: Node, suffix: str) -> None:
    indexes = files_of(stopped, "rolled-0", suffix)
    assert len(indexes) == len(files_of(stopped, "rolled-0", ".log"))
    verified = dump(tools, indexes, "--verify-index-only")
    assert not _COMPLAINTS.search(verified.out)
    sane = dump(tools, indexes, "--index-sanity-check")
    assert sane.out.count("passed sanity check.") == len(indexes)


def test_the_offset_index_is_as_dense_as_asked(tools: KafkaTools, stopped: Node) -> None:
    index, log = files_of(stopped, "rolled-0", ".index")[0], files_of(stopped, "rolled-0", ".log")[0]
    dumped = dump(tools, [index])
    entries = [
        (int(offset), int(position)) for offset, position in re.findall(r"offset: (\d+) position: (\d+)", dumped.out)
    ]
    assert entries == sorted(set(entries))
    batches = {(int(b["lastOffset"]), int(b["position"])) for b in batches_of(dump(tools, [log]))}
    # Batches are larger than the interval of 2 KB, so every batch but the first gets an entry.
    assert len(entries) >= len(batches) - 2
    assert set(entries) <= batches


def test_the_time_index_rises_and_ends_with_the_newest_record(tools: KafkaTools, stopped: Node) -> None:
    for index, log in zip(
        files_of(stopped, "rolled-0", ".timeindex"), files_of(stopped, "rolled-0", ".log"), strict=True
    ):
        dumped = dump(tools, [index])
        entries = [(int(t), int(o)) for t, o in re.findall(r"timestamp: (\d+) offset: (\d+)", dumped.out)]
        assert entries
        assert entries == sorted(set(entries))
        newest = max(int(batch["CreateTime"]) for batch in batches_of(dump(tools, [log])))
        assert entries[-1][0] == newest


def test_the_tool_does_complain_of_a_wrong_index(tools: KafkaTools, stopped: Node, tmp_path: Path) -> None:
    """The oracle has teeth: one wrong position in a copy of an index is found."""
    log, index = files_of(stopped, "rolled-0", ".log")[0], files_of(stopped, "rolled-0", ".index")[0]
    shutil.copy(log, tmp_path / log.name)
    entries = bytearray(index.read_bytes())
    relative_offset, position = struct.unpack_from(">ii", entries, 8)
    struct.pack_into(">ii", entries, 8, relative_offset - 1, position)
    (tmp_path / index.name).write_bytes(entries)
    answer = tools.run("kafka-dump-log", "--files", str(tmp_path / index.name), "--verify-index-only")
    assert _COMPLAINTS.search(answer.out + answer.err)


def test_producer_snapshots_hold_the_last_sequence(tools: KafkaTools, stopped: Node) -> None:
    snapshots = files_of(stopped, "rolled-0", ".snapshot")
    # One for each roll, and one at the clean shutdown.
    assert int(snapshots[-1].stem) == RECORDS
    dumped = dump(tools, snapshots)
    states = [dict(re.findall(r"(\w+): (\S+)", line)) for line in dumped.lines if line.startswith("producerId:")]
    assert [int(state["lastSequence"]) + 1 for state in states] == [int(snapshot.stem) for snapshot in snapshots]
    assert {state["producerEpoch"] for state in states} == {"0"}
    assert {state["currentTxnFirstOffset"] for state in states} == {"OptionalLong.empty"}


def metadata_records(tools: KafkaTools, node: Node) -> list[dict[str, object]]:
    dumped = dump(tools, files_of(node, "__cluster_metadata-0", ".log"), "--cluster-metadata-decoder")
    assert not _COMPLAINTS.search(dumped.out)
    return [json.loads(text) for text in re.findall(r"^\| offset: .* payload: (\{.*\})$", dumped.out, re.MULTILINE)]


def test_the_metadata_log_tells_the_story_of_the_cluster(tools: KafkaTools, stopped: Node) -> None:
    records = metadata_records(tools, stopped)
    kinds = [record["type"] for record in records]
    for kind in ("FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD"):
        assert kind in kinds, kind
    data = [(record["type"], record["data"]) for record in records]
    topics = {row["name"]: row["topicId"] for kind, row in data if kind == "TOPIC_RECORD" and isinstance(row, dict)}
    assert set(topics) == {"rolled", "to-delete", *(f"in-{codec}" for codec in CODECS)}
    removed = [row["topicId"] for kind, row in data if kind == "REMOVE_TOPIC_RECORD" and isinstance(row, dict)]
    assert removed == [topics["to-delete"]]
    partitions = [row for kind, row in data if kind == "PARTITION_RECORD" and isinstance(row, dict)]
    assert len(partitions) == len(topics)
    assert all((row["replicas"], row["isr"], row["leader"]) == ([1], [1], 1) for row in partitions)
    assert all(len(row["directories"]) == 1 for row in partitions)
    configs = [row for kind, row in data if kind == "CONFIG_RECORD" and isinstance(row, dict)]
    assert {"resourceType": 2, "resourceName": "rolled", "name": "retention.ms", "value": "86400000"} in configs


def test_the_metadata_log_names_its_leader_and_voters(tools: KafkaTools, stopped: Node) -> None:
    dumped = dump(tools, files_of(stopped, "__cluster_metadata-0", ".log"), "--cluster-metadata-decoder")
    leader = re.search(r"LeaderChange:? (\{.*\})$", dumped.out, re.MULTILINE)
    assert leader
    assert json.loads(leader[1])["leaderId"] == 1
    # KIP-853: a formatted node begins with a snapshot that holds the set of voters.
    checkpoint = dump(tools, files_of(stopped, "__cluster_metadata-0", ".checkpoint"), "--cluster-metadata-decoder")
    voters = re.search(r"KRaftVoters (\{.*\})$", checkpoint.out, re.MULTILINE)
    assert voters
    assert [voter["voterId"] for voter in json.loads(voters[1])["voters"]] == [1]
    assert "SnapshotHeader" in checkpoint.out
    assert "SnapshotFooter" in checkpoint.out


def test_the_log_directory_holds_what_kafkas_does(stopped: Node) -> None:
    root = {path.name for path in stopped.log_dir.iterdir() if path.is_file()}
    assert {
        "meta.properties",
        "bootstrap.checkpoint",
        ".kafka_cleanshutdown",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    } <= root
    partition = {path.name for path in (stopped.log_dir / "rolled-0").iterdir()}
    assert {"leader-epoch-checkpoint", "partition.metadata"} <= partition
    version, count, *entries = (stopped.log_dir / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert version == "0"
    assert int(count) == len(entries)
    assert f"rolled 0 {RECORDS}" in entries
    version, count, entry = (stopped.log_dir / "rolled-0" / "leader-epoch-checkpoint").read_text().splitlines()
    assert (version, count, entry) == ("0", "1", "0 0")
