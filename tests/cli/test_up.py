"""`ottla up`, `node` and `format` as a person meets them: what they print, and how they end."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_configs_response import DescribeConfigsResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from tests.node_process import running_node, start_node
from tests.wire_client import WireClient


def ottla(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ottla.cli", *arguments], capture_output=True, text=True, timeout=timeout
    )


def one_sentence(result: subprocess.CompletedProcess[str], *, status: int = 1) -> str:
    """A refusal is a non-zero status and one line on standard error."""
    assert result.returncode == status
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("ottla: ")
    return lines[0]


def can_connect(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=5).close()
    except OSError:
        return False
    return True


def test_up_says_when_it_is_ready_and_serves_then(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        assert can_connect(node.address)


def test_its_coordinators_are_those_of_a_node_alone(tmp_path: Path) -> None:
    """One partition each, so that the first group is quick, and nobody waits for members that never come."""
    with running_node(tmp_path) as node, WireClient(node.address) as client:
        for kind, topic in enumerate(("__consumer_offsets", "__transaction_state")):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a"])
            (found,) = client.call(request, FindCoordinatorResponse).coordinators
            assert (found.error_code, found.node_id) == (0, 1)
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            (described,) = client.call(asked, MetadataResponse).topics
            assert [partition.replica_nodes for partition in described.partitions] == [[1]]
        broker = DescribeConfigsResource(
            resource_type=4, resource_name="1", configuration_keys=["group.initial.rebalance.delay.ms"]
        )
        (result,) = client.call(DescribeConfigsRequest(resources=[broker]), DescribeConfigsResponse).results
        assert [config.value for config in result.configs] == ["0"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    node = start_node(tmp_path)
    assert node.stop(number) == 0
    assert node.complaints() == []
    assert (tmp_path / "data" / "node-1" / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
def test_the_controller_listens_a_thousand_above(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1] % 20_000 + 20_000
    with running_node(tmp_path, port=port) as node:
        assert node.address == ("127.0.0.1", port)
        assert can_connect(("127.0.0.1", port + 1000))


@pytest.mark.slow
def test_what_was_there_is_there_again_after_a_restart(tmp_path: Path) -> None:
    with running_node(tmp_path):
        identity = (tmp_path / "data" / "node-1" / "meta.properties").read_text()
    with running_node(tmp_path):
        assert (tmp_path / "data" / "node-1" / "meta.properties").read_text() == identity


def test_an_ephemeral_node_keeps_nothing(tmp_path: Path) -> None:
    with running_node(tmp_path, "--ephemeral"):
        assert not (tmp_path / "data").exists()
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        said = one_sentence(ottla("up", "--port", str(port), "--data", str(tmp_path)))
    assert str(port) in said
    assert "choose another port" in said


@pytest.mark.slow
def test_a_directory_in_use_is_one_sentence(tmp_path: Path) -> None:
    with running_node(tmp_path):
        said = one_sentence(ottla("up", "--port", "0", "--data", str(tmp_path / "data")))
    assert "in use by another node" in said


def test_a_node_that_runs_is_not_made_part_of_a_cluster(tmp_path: Path) -> None:
    with running_node(tmp_path):
        before = sorted(path.name for path in (tmp_path / "data").iterdir())
        said = one_sentence(ottla("up", "--nodes", "3", "--port", "0", "--data", str(tmp_path / "data")))
        assert sorted(path.name for path in (tmp_path / "data").iterdir()) == before
    assert f"{tmp_path}/data/node-1 is in use by another node" in said


def test_a_node_that_runs_gets_no_second_directory_formatted(tmp_path: Path) -> None:
    with running_node(tmp_path):
        directories = f"log.dirs={tmp_path}/data/node-1,{tmp_path}/more"
        one_sentence(ottla("up", "--port", "0", "--data", str(tmp_path / "data"), "--set", directories))
        assert not (tmp_path / "more").exists()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("num.partitions=many", "num.partitions"),
        ("num.partitions=0", "num.partitions"),
        ("no-equals-sign", "KEY=VALUE"),
        ("listeners=NONSENSE", "listeners"),
        ("listeners=PLAINTEXT://127.0.0.1:99999,CONTROLLER://127.0.0.1:1", "listeners"),
        ("process.roles=spectator", "process.roles"),
        ("log.retention.ms=soon", "log.retention.ms"),
    ],
)
def test_a_broken_property_is_one_sentence_that_names_it(tmp_path: Path, setting: str, expected: str) -> None:
    ended = ottla("up", "--port", "0", "--data", str(tmp_path), "--set", setting)
    assert expected in one_sentence(ended, status=1 if "=" in setting else 2)


def test_security_that_is_not_there_is_refused_rather_than_pretended(tmp_path: Path) -> None:
    said = one_sentence(
        ottla(
            "up",
            "--port",
            "0",
            "--data",
            str(tmp_path),
            "--set",
            "listeners=SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "--set",
            "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "--set",
            "inter.broker.listener.name=SASL_PLAINTEXT",
        )
    )
    assert "SASL_PLAINTEXT" in said


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with running_node(tmp_path):
        pass
    directory = f"log.dirs={tmp_path / 'data' / 'node-1'}"
    said = one_sentence(ottla("node", str(properties(tmp_path)), "--set", directory, "--log-level", "error"))
    assert "belongs to node 1, not to node 7" in said


def properties(tmp_path: Path) -> Path:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        client, controller = first.getsockname()[1], second.getsockname()[1]
    path = tmp_path / "server.properties"
    path.write_text(
        f"process.roles=broker,controller\nnode.id=7\nlog.dirs={tmp_path}/logs\n"
        f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n"
    )
    return path


@pytest.mark.slow
def test_format_then_node(tmp_path: Path) -> None:
    path = properties(tmp_path)
    assert "not formatted" in one_sentence(ottla("node", str(path), "--log-level", "error"))
    formatted = ottla("format", str(path), "--standalone", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qk")
    assert formatted.returncode == 0, formatted.stderr
    assert "MkU3OEVBNTcwNTJENDM2Qk" in formatted.stdout
    assert "already formatted" in one_sentence(ottla("format", str(path), "--standalone"))
    assert ottla("format", str(path), "--standalone", "--ignore-formatted").returncode == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", "node", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert re.match(r"ready: 127\.0\.0\.1:\d+", process.stdout.readline())
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors


def test_a_directory_with_a_damaged_identity_is_told_what_helps(tmp_path: Path) -> None:
    path = properties(tmp_path)
    assert ottla("format", str(path), "--standalone").returncode == 0
    (tmp_path / "logs" / "meta.properties").write_text("garbage")
    for command in (("node", str(path)), ("format", str(path), "--standalone", "--ignore-formatted")):
        said = one_sentence(ottla(*command))
        assert said.endswith(
            f": restore it, or, if nothing in {tmp_path}/logs is needed, remove that directory and format it again"
        )
    shutil.rmtree(tmp_path / "logs")
    assert ottla("format", str(path), "--standalone").returncode == 0


def test_an_only_voter_whose_promises_are_damaged_is_told_what_helps(tmp_path: Path) -> None:
    with running_node(tmp_path):
        pass
    state = tmp_path / "data" / "node-1" / "__cluster_metadata-0" / "quorum-state"
    state.write_text("garbage")
    said = one_sentence(ottla("up", "--port", "0", "--data", str(tmp_path / "data")))
    assert f"{state} is damaged (it is not what a node writes): restore it from a backup" in said
    assert said.endswith("; a quorum's only voter needs nothing but that file removed")
    state.unlink()
    with running_node(tmp_path) as node:
        assert can_connect(node.address)


@pytest.mark.parametrize(
    "name",
    [
        "__cluster_metadata-0/quorum-state",
        "bootstrap.checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
    ],
)
def test_a_file_that_cannot_be_read_is_told_what_to_do(tmp_path: Path, name: str) -> None:
    """Something else is in its place."""
    path = properties(tmp_path)
    assert ottla("format", str(path), "--standalone").returncode == 0
    (tmp_path / "logs" / name).unlink(missing_ok=True)
    (tmp_path / "logs" / name).mkdir()
    said = one_sentence(ottla("node", str(path), "--log-level", "error"))
    assert f"cannot read {tmp_path}/logs/{name}: Is a directory" in said
    assert said.endswith(": see that the disk is sound")
    assert "KAFKA_STORAGE_ERROR" not in said
    assert "written" not in said


def test_a_properties_file_that_is_not_there(tmp_path: Path) -> None:
    assert "nowhere.properties" in one_sentence(ottla("node", str(tmp_path / "nowhere.properties")))


def test_help_and_version() -> None:
    assert "up" in ottla("--help").stdout
    assert re.fullmatch(r"ottla \d+\.\d+\.\d+\n", ottla("--version").stdout)


def test_a_killed_node_starts_again(tmp_path: Path) -> None:
    node = start_node(tmp_path)
    node.kill()
    started = time.monotonic()
    with running_node(tmp_path) as again:
        assert can_connect(again.address)
        assert time.monotonic() - started < 30


def test_the_metadata_log_may_have_a_directory_of_its_own(tmp_path: Path) -> None:
    settings = (
        *("--set", f"log.dirs={tmp_path}/a,{tmp_path}/b"),
        *("--set", f"metadata.log.dir={tmp_path}/meta"),
    )
    for _ in range(2):
        with running_node(tmp_path, *settings) as node:
            assert can_connect(node.address)
    assert (tmp_path / "meta" / "__cluster_metadata-0").is_dir()
    assert not (tmp_path / "a" / "__cluster_metadata-0").exists()
    assert (tmp_path / "meta" / ".kafka_cleanshutdown").exists()


def test_data_where_none_can_be_is_one_sentence(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("a file")
    said = one_sentence(ottla("up", "--port", "0", "--data", str(plain / "below")))
    assert str(plain) in said


@pytest.mark.parametrize("nodes", ["1", "3"])
def test_data_that_cannot_be_written_is_told_what_to_do(nodes: str) -> None:
    said = one_sentence(ottla("up", "--nodes", nodes, "--port", "0", "--data", "/proc/nowhere"))
    assert "cannot create /proc/nowhere" in said
    assert said.endswith(": choose another directory with --data, or let this user read and write there.")


@pytest.mark.parametrize("nodes", ["1", "3"])
@pytest.mark.parametrize("port", ["0", "24613"])
@pytest.mark.parametrize("host", ["999.1.1.1", "192.0.2.1", "nosuch.invalid"])
def test_an_address_that_is_not_ours_is_one_sentence(tmp_path: Path, nodes: str, port: str, host: str) -> None:
    arguments = ("--nodes", nodes, "--port", port, "--host", host, "--registry", "off", "--no-console")
    said = one_sentence(ottla("up", *arguments, "--data", str(tmp_path / "data")))
    assert said.startswith(f"ottla: {host} cannot be listened on (")
    assert said.endswith("): choose an address of this machine with --host.")
    assert not (tmp_path / "data").exists()


def test_a_listener_whose_address_is_not_ours_is_one_sentence(tmp_path: Path) -> None:
    path = properties(tmp_path)
    assert ottla("format", str(path), "--standalone").returncode == 0
    path.write_text(path.read_text().replace("PLAINTEXT://127.0.0.1", "PLAINTEXT://192.0.2.1"))
    said = one_sentence(ottla("node", str(path), "--log-level", "error"))
    assert said.startswith("ottla: 192.0.2.1 cannot be listened on (")
    assert said.endswith("): choose an address of this machine in listeners.")


@pytest.mark.parametrize("key", ["authorizer.class.name", "create.topic.policy.class.name"])
def test_a_policy_that_cannot_be_enforced_is_refused(tmp_path: Path, key: str) -> None:
    setting = f"{key}=org.example.OurOwn"
    assert key in one_sentence(ottla("up", "--port", "0", "--data", str(tmp_path), "--set", setting))


def test_a_key_that_nobody_knows_is_said_to_have_no_effect(tmp_path: Path) -> None:
    with running_node(tmp_path, "--set", "foo.bar=1") as node:
        assert "foo.bar" in node.log()


def test_data_without_its_identity_is_not_formatted_over(tmp_path: Path) -> None:
    with running_node(tmp_path):
        pass
    (tmp_path / "data" / "node-1" / "meta.properties").unlink()
    assert "bring that file back" in one_sentence(ottla("up", "--port", "0", "--data", str(tmp_path / "data")))
    assert not (tmp_path / "data" / "node-1" / "meta.properties").exists()


def test_a_node_that_lost_its_metadata_does_not_start_as_if_it_were_new(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    with running_node(tmp_path) as node:
        producer = Producer({"bootstrap.servers": node.bootstrap, "enable.metrics.push": False})
        producer.produce("precious", b"record")
        assert producer.flush(30) == 0
    for log in (tmp_path / "data" / "node-1" / "__cluster_metadata-0").glob("*.log"):
        log.unlink()
    assert "backup" in one_sentence(ottla("up", "--port", "0", "--data", str(tmp_path / "data")))
    assert (tmp_path / "data" / "node-1" / "precious-0").is_dir()


def test_a_port_whose_controller_would_have_none_is_one_sentence(tmp_path: Path) -> None:
    assert "64535" in one_sentence(ottla("up", "--port", "65000", "--data", str(tmp_path)), status=2)


def test_a_voter_that_lost_its_role_is_one_sentence(tmp_path: Path) -> None:
    path = properties(tmp_path)
    assert ottla("format", str(path), "--standalone").returncode == 0
    text = path.read_text().replace("process.roles=broker,controller", "process.roles=broker")
    path.write_text(re.sub(r",CONTROLLER://\S+", "", text))
    said = one_sentence(ottla("node", str(path), "--log-level", "error"))
    assert "broker,controller" in said


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (("--nodes", "0"), 2, "between 1 and 100"),
        (("--nodes", "3", "--port", "65000"), 2, "64533 is the most"),
        (("--nodes", "3", "--set", "node.id=4"), 1, "use `ottla node` with a file for each"),
        (("--nodes", "3", "--set", "num.partitions=many"), 1, "num.partitions"),
        (("--nodes", "3", "--host", "999.1.1.1", "--port", "0"), 1, "999.1.1.1"),
    ],
)
def test_a_cluster_that_cannot_be_is_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], status: int, expected: str
) -> None:
    assert expected in one_sentence(ottla("up", *arguments, "--data", str(tmp_path / "data")), status=status)


def test_the_data_of_a_cluster_is_not_served_by_one_node(tmp_path: Path) -> None:
    (tmp_path / "cluster.properties").write_text("cluster.id=x\ncontroller.1=127.0.0.1:1\ncontroller.3=127.0.0.1:3\n")
    said = one_sentence(ottla("up", "--port", "0", "--data", str(tmp_path)))
    assert "start it with --nodes 3" in said


@pytest.mark.parametrize("key", ["node.id=7", "broker.id=7", "process.roles=broker"])
def test_up_numbers_its_nodes_itself(tmp_path: Path, key: str) -> None:
    refused = one_sentence(ottla("up", "--port", "0", "--data", str(tmp_path / "data"), "--set", key))
    assert "`ottla node`" in refused


def test_the_directory_of_one_node_is_not_taken_for_a_clusters(tmp_path: Path) -> None:
    with running_node(tmp_path):
        pass
    inside = tmp_path / "data" / "node-1"
    assert "the directory above it" in one_sentence(ottla("up", "--port", "0", "--data", str(inside)))


def test_a_folder_given_for_a_properties_file_is_one_sentence_without_numbers(tmp_path: Path) -> None:
    assert one_sentence(ottla("node", str(tmp_path))) == f"ottla: {tmp_path} cannot be read: Is a directory."


def test_a_key_that_is_nearly_right_is_told_what_is_right(tmp_path: Path) -> None:
    with running_node(tmp_path, "--set", "auto.create.topic.enable=false") as node:
        pass
    assert "use auto.create.topics.enable instead" in node.log()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_there_is_a_node_ends_it_with_status_zero(tmp_path: Path, number: signal.Signals) -> None:
    script = (
        "import os, sys; sys.argv = ['ottla', 'up', '--port', '0', '--data', sys.argv[1]];"
        "import ottla.cli.quick as quick; quick._up = lambda parsed: os.kill(os.getpid(), int(sys.argv[-1]));"
        "import ottla.cli; ottla.cli.main(); sys.exit(3)"
    )
    script = script.replace("int(sys.argv[-1])", str(int(number)))
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "data")], timeout=60)
    assert ended.returncode == 0
