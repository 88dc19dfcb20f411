"""`ottla up --nodes N`: every node has its place, and keeps what the others know of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.cluster import (
    PLAN_FILE,
    Plan,
    check_ports,
    check_size,
    configure,
    keep,
    make_plan,
    properties_of,
    settle,
)
from ottla.config.properties import parse_properties
from ottla.errors import StartupError
from ottla.log.checkpoints import MetaProperties, read_meta_properties
from ottla.model import METADATA_TOPIC, uuid_to_text
from ottla.raft.checkpoint import decode_checkpoint
from ottla.runtime import Runtime
from ottla.runtime.system import system_runtime


@pytest.fixture
def runtime() -> Runtime:
    return system_runtime(durable=False)


def plan(runtime: Runtime, data: Path, nodes: int = 3, port: int = 19092, host: str = "127.0.0.1") -> Plan:
    made = make_plan(runtime, data=str(data), host=host, port=port, nodes=nodes)
    keep(runtime.disk, str(data), made)
    return made


def settled(runtime: Runtime, found: Plan) -> list[MetaProperties]:
    identities = []
    for config in configure(found, {}).values():
        settle(runtime, found, config)
        identity = read_meta_properties(runtime.disk, config.log_dirs[0])
        assert identity is not None
        identities.append(identity)
    return identities


def voters_of(data: Path, node_id: int) -> list[tuple[int, str, str, int]]:
    """The voters that the first snapshot of a node names."""
    path = data / f"node-{node_id}" / f"{METADATA_TOPIC}-0" / "00000000000000000000-0000000000.checkpoint"
    voters = decode_checkpoint(path.read_bytes(), str(path)).voters
    assert voters is not None
    return [
        (voter.key.id, uuid_to_text(voter.key.directory_id), endpoint.host, endpoint.port)
        for voter in voters.voters
        for endpoint in voter.endpoints
    ]


def test_ports_count_up_and_controllers_are_a_thousand_above(runtime: Runtime, tmp_path: Path) -> None:
    places = plan(runtime, tmp_path).places
    assert [(each.node_id, each.port, each.controller_port) for each in places] == [
        (1, 19092, 20092),
        (2, 19093, 20093),
        (3, 19094, 20094),
    ]
    assert [each.directory for each in places] == [f"{tmp_path}/node-{n}" for n in (1, 2, 3)]


def test_port_zero_gives_everyone_a_port_of_its_own(runtime: Runtime, tmp_path: Path) -> None:
    places = plan(runtime, tmp_path, port=0).places
    assert len({each.port for each in places} | {each.controller_port for each in places}) == 6


def test_all_nodes_are_voters_and_know_each_other_from_the_first_start(runtime: Runtime, tmp_path: Path) -> None:
    found = plan(runtime, tmp_path)
    identities = settled(runtime, found)
    assert {identity.cluster_id for identity in identities} == {found.cluster_id}
    assert [identity.node_id for identity in identities] == [1, 2, 3]
    voters = [
        (place.node_id, uuid_to_text(identity.directory_id), "127.0.0.1", place.controller_port)
        for place, identity in zip(found.places, identities, strict=True)
    ]
    assert [voters_of(tmp_path, node_id) for node_id in (1, 2, 3)] == [voters] * 3


def test_the_same_data_is_the_same_cluster(runtime: Runtime, tmp_path: Path) -> None:
    first = plan(runtime, tmp_path)
    identities = settled(runtime, first)
    again = plan(runtime, tmp_path)
    assert again == first
    assert settled(runtime, again) == identities


@pytest.mark.parametrize("port", [0, 29092])
def test_controllers_stay_where_the_others_know_them(runtime: Runtime, tmp_path: Path, port: int) -> None:
    settled(runtime, plan(runtime, tmp_path))
    moved = plan(runtime, tmp_path, port=port, host="127.0.0.2")
    assert [(each.controller_host, each.controller_port) for each in moved.places] == [
        ("127.0.0.1", 20092),
        ("127.0.0.1", 20093),
        ("127.0.0.1", 20094),
    ]
    assert all(each.host == "127.0.0.2" for each in moved.places)
    assert moved.places[0].port != 19092


def test_a_start_that_was_cut_short_is_finished_by_the_next(runtime: Runtime, tmp_path: Path) -> None:
    first = plan(runtime, tmp_path)
    settle(runtime, first, configure(first, {})[2])
    again = plan(runtime, tmp_path, port=0)
    identities = settled(runtime, again)
    assert [uuid_to_text(identity.directory_id) for identity in identities] == [
        place.directory_id for place in first.places
    ]
    assert voters_of(tmp_path, 1) == voters_of(tmp_path, 2) == voters_of(tmp_path, 3)


def test_a_cluster_grows_by_nodes_that_follow(runtime: Runtime, tmp_path: Path) -> None:
    settled(runtime, plan(runtime, tmp_path))
    grown = plan(runtime, tmp_path, nodes=5)
    identities = settled(runtime, grown)
    assert {identity.cluster_id for identity in identities} == {grown.cluster_id}
    assert [place.directory_id is None for place in grown.places] == [False, False, False, True, True]
    assert not (tmp_path / "node-4" / f"{METADATA_TOPIC}-0").exists(), "it learns who votes when it joins"
    config = configure(grown, {})[4]
    assert len(config.bootstrap_controllers) == 5


def test_a_node_that_was_alone_gets_company(runtime: Runtime, tmp_path: Path) -> None:
    from ottla.broker.control.format import FormatOptions, format_node

    alone = configure(plan(runtime, tmp_path / "elsewhere", nodes=1), {"broker.rack": "r"})[1]
    moved = type(alone)({**alone.static, "log.dirs": f"{tmp_path}/node-1"})
    done = format_node(
        runtime.disk, moved, FormatOptions(standalone=True), random=runtime.random, now_ms=runtime.clock.wall_ms()
    )
    grown = plan(runtime, tmp_path)
    assert grown.cluster_id == done.cluster_id
    assert [place.directory_id for place in grown.places] == [None, None, None], "the one voter is its own affair"
    settled(runtime, grown)


def test_fewer_nodes_than_the_data_has_are_refused(runtime: Runtime, tmp_path: Path) -> None:
    plan(runtime, tmp_path)
    for nodes in (1, 2):
        with pytest.raises(StartupError, match="holds a cluster of 3 nodes: start it with --nodes 3"):
            check_size(runtime.disk, str(tmp_path), nodes)
    check_size(runtime.disk, str(tmp_path), 3)
    check_size(runtime.disk, str(tmp_path), 4)


@pytest.mark.parametrize("nodes", [0, 101])
def test_a_number_of_nodes_that_makes_no_sense(runtime: Runtime, tmp_path: Path, nodes: int) -> None:
    with pytest.raises(StartupError, match="between 1 and 100"):
        check_size(runtime.disk, str(tmp_path), nodes)


def test_ports_that_do_not_fit() -> None:
    check_ports(64533, 3)
    with pytest.raises(StartupError, match="64533 is the most"):
        check_ports(64534, 3)
    with pytest.raises(StartupError, match="64535 is the most"):
        check_ports(64536, 1)


@pytest.mark.parametrize(("nodes", "copies", "in_sync"), [(2, "2", "1"), (3, "3", "2"), (5, "3", "2")])
def test_copies_follow_from_the_number_of_nodes(
    runtime: Runtime, tmp_path: Path, nodes: int, copies: str, in_sync: str
) -> None:
    found = plan(runtime, tmp_path, nodes=nodes)
    properties = properties_of(found, found.places[0], {})
    assert properties["default.replication.factor"] == copies
    assert properties["min.insync.replicas"] == in_sync
    assert properties["offsets.topic.replication.factor"] == copies
    assert properties["transaction.state.log.replication.factor"] == copies
    assert properties["transaction.state.log.min.isr"] == in_sync
    # A coordinator on each node, and none that waits for members which never come.
    assert properties["offsets.topic.num.partitions"] == str(nodes)
    assert properties["transaction.state.log.num.partitions"] == str(nodes)
    assert properties["group.initial.rebalance.delay.ms"] == "0"


def test_settings_are_for_all_nodes_or_refused(runtime: Runtime, tmp_path: Path) -> None:
    found = plan(runtime, tmp_path)
    configs = configure(found, {"min.insync.replicas": "1", "num.partitions": "6"})
    assert [config.get_int("num.partitions") for config in configs.values()] == [6, 6, 6]
    assert configs[1].get_int("min.insync.replicas") == 1
    for key in ("node.id", "listeners", "log.dirs", "process.roles"):
        with pytest.raises(StartupError, match=f"--set {key} would be the same for all nodes"):
            configure(found, {key: "1"})


def test_each_node_leaves_properties_to_start_it_again_with(runtime: Runtime, tmp_path: Path) -> None:
    found = plan(runtime, tmp_path)
    configs = configure(found, {"broker.rack": "a: b\\c"})
    settle(runtime, found, configs[2])
    text = (tmp_path / "node-2.properties").read_text()
    assert parse_properties(text) == properties_of(found, found.places[1], {"broker.rack": "a: b\\c"})
    assert (tmp_path / PLAN_FILE).exists()


def test_addresses_of_the_sixth_version(runtime: Runtime, tmp_path: Path) -> None:
    found = plan(runtime, tmp_path, host="::1")
    settled(runtime, found)
    assert {host for _, _, host, _ in voters_of(tmp_path, 1)} == {"::1"}
    assert plan(runtime, tmp_path, host="::1") == found
