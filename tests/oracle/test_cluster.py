"""kafka-metadata-quorum, kafka-cluster, kafka-features and kafka-broker-api-versions: what the node says of itself."""

from __future__ import annotations

import json
import re

import pytest

from .conftest import At, Node

pytestmark = pytest.mark.oracle


def quorum_status(at: At) -> dict[str, str]:
    lines = at("kafka-metadata-quorum", "describe", "--status").lines
    return {key: value.strip() for key, value in (line.split(":", 1) for line in lines)}


def test_a_quorum_of_one_leads_itself(at_node: At) -> None:
    status = quorum_status(at_node)
    assert status["LeaderId"] == "1"
    assert int(status["LeaderEpoch"]) >= 1
    assert (status["MaxFollowerLag"], status["CurrentObservers"]) == ("0", "[]")
    (voter,) = json.loads(status["CurrentVoters"])
    assert voter["id"] == 1
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", voter["directoryId"])
    assert re.fullmatch(r"CONTROLLER://\S+:\d+", voter["endpoints"][0])


def test_the_metadata_log_grows_with_each_change(at_node: At, topic: str) -> None:
    before = int(quorum_status(at_node)["HighWatermark"])
    at_node("kafka-topics", "--create", "--topic", topic, "--partitions", "3")
    # A TopicRecord and three PartitionRecords.
    assert int(quorum_status(at_node)["HighWatermark"]) >= before + 4


def test_replication_of_the_metadata_log_is_described(at_node: At) -> None:
    header, row = at_node("kafka-metadata-quorum", "describe", "--replication").lines
    replica = dict(zip(header.split(), row.split(), strict=True))
    assert (replica["NodeId"], replica["Lag"], replica["Status"]) == ("1", "0", "Leader")
    assert replica["DirectoryId"] == json.loads(quorum_status(at_node)["CurrentVoters"])[0]["directoryId"]


def test_the_cluster_id_is_the_one_on_disk(at_node: At, node: Node) -> None:
    written = dict(line.split("=", 1) for line in (node.log_dir / "meta.properties").read_text().split() if "=" in line)
    assert at_node("kafka-cluster", "cluster-id").lines == [f"Cluster ID: {written['cluster.id']}"]
    assert quorum_status(at_node)["ClusterId"] == written["cluster.id"]
    assert written["node.id"] == "1"
    assert written["version"] == "1"


def test_the_broker_is_listed_with_its_endpoint(at_node: At, node: Node) -> None:
    header, row = at_node("kafka-cluster", "list-endpoints").lines
    endpoint = dict(zip(header.split(), row.split(), strict=True))
    assert endpoint == {
        "ID": "1",
        "HOST": node.host,
        "PORT": str(node.port),
        "RACK": "null",
        "STATE": "unfenced",
        "ENDPOINT_TYPE": "broker",
    }


def test_features_have_the_levels_of_this_release(at_node: At) -> None:
    lines = at_node("kafka-features", "describe").lines
    features = {}
    for line in lines:
        row = dict(re.findall(r"(\w+): (\S+)", line))
        features[row["Feature"]] = row
    assert features["metadata.version"]["FinalizedVersionLevel"] == "4.3-IV0"
    assert features["metadata.version"]["SupportedMaxVersion"] == "4.3-IV0"
    assert features["kraft.version"]["FinalizedVersionLevel"] == "1"


def test_kafkas_own_client_can_use_what_the_node_advertises(at_node: At) -> None:
    rows = re.findall(r"^\t(\w+)\(\d+\): (.*?),?$", at_node("kafka-broker-api-versions").out, re.MULTILINE)
    apis = dict(rows)
    assert apis["Produce"] == "0 to 13 [usable: 13]"
    assert apis["Fetch"] == "4 to 18 [usable: 18]"
    assert apis["Metadata"] == "0 to 13 [usable: 13]"
    served = {name: range_ for name, range_ in apis.items() if "UNSUPPORTED" not in range_}
    assert all("usable" in range_ for range_ in served.values()), served
