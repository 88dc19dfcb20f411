"""Formatting directories, as kafka-storage does."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from ottla.broker.control.bootstrap import read_bootstrap
from ottla.broker.control.format import FormatOptions, Formatted, format_node, parse_features
from ottla.config.node import NodeConfig
from ottla.errors import StartupError
from ottla.log import read_meta_properties
from ottla.model import uuid_from_text
from ottla.raft.checkpoint import decode_checkpoint
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from ottla.security.scram import credential_of, salted_password
from ottla.wire.messages.feature_level_record import FeatureLevelRecord
from ottla.wire.messages.user_scram_credential_record import UserScramCredentialRecord
from tests.control.staging import StagedDisk, node_config

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
FIRST = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
DIRECTORIES = ["M7SJc-RSRxG5rpmI1j7tPw", "YcgvnpLm5pwNy4a_SNDWNA"]


def formatted(config: NodeConfig, **options: object) -> Formatted:
    chosen = FormatOptions(**options)  # type: ignore[arg-type]
    return format_node(StagedDisk(), config, chosen, random=Random(1), now_ms=1_794_731_661_105)


def refusal(config: NodeConfig, **options: object) -> str:
    with pytest.raises(StartupError) as refused:
        formatted(config, **options)
    return str(refused.value)


def levels(path: Path) -> dict[str, int]:
    """The feature levels that a formatted directory begins with."""
    found = [record.message for record in read_bootstrap(StagedDisk(), str(path))]
    return {each.name: each.feature_level for each in found if isinstance(each, FeatureLevelRecord)}


def test_a_standalone_node_gets_its_identity_its_first_records_and_itself_as_voter(tmp_path: Path) -> None:
    disk = StagedDisk()
    options = FormatOptions(standalone=True, cluster_id=CLUSTER)
    result = format_node(disk, node_config(tmp_path), options, random=Random(1), now_ms=5)
    assert result == Formatted(cluster_id=CLUSTER, directories=(str(tmp_path),))
    identity = read_meta_properties(disk, str(tmp_path))
    assert identity is not None
    assert (identity.cluster_id, identity.node_id) == (CLUSTER, 1)
    assert levels(tmp_path) == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
    first = decode_checkpoint((tmp_path / FIRST).read_bytes(), "first")
    endpoint = VoterEndpoint("CONTROLLER", "127.0.0.1", 9093)
    assert first.kraft_version == 1
    assert first.voters == VoterSet([Voter(ReplicaKey(1, identity.directory_id), (endpoint,))])
    assert first.values == []
    assert len(disk.syncs) <= 6, disk.syncs


def test_every_directory_has_an_id_of_its_own(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "meta")]
    config = node_config(tmp_path, log_dirs=f"{paths[0]},{paths[1]}", metadata_log_dir=str(paths[2]))
    result = formatted(config, standalone=True)
    assert sorted(result.directories) == [str(path) for path in paths]
    identities = [read_meta_properties(StagedDisk(), str(path)) for path in paths]
    assert len({identity.directory_id for identity in identities if identity}) == 3
    assert len({identity.cluster_id for identity in identities if identity}) == 1
    assert [(path / FIRST).exists() for path in paths] == [False, False, True]
    assert all((path / "bootstrap.checkpoint").exists() for path in paths)
    voters = decode_checkpoint((paths[2] / FIRST).read_bytes(), "first").voters
    assert voters is not None
    assert identities[2] is not None
    assert voters.voters[0].key.directory_id == identities[2].directory_id


def test_a_formatted_directory_is_left_alone(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    first = formatted(node_config(a), standalone=True)
    before = {path: path.read_bytes() for path in a.rglob("*") if path.is_file()}
    both = node_config(tmp_path, log_dirs=f"{a},{b}")
    assert f"{a} is already formatted" in refusal(both, standalone=True)
    assert not b.exists()
    again = formatted(both, standalone=True, ignore_formatted=True)
    assert again == Formatted(cluster_id=first.cluster_id, directories=(str(b),)), "the new one joins the same cluster"
    assert formatted(both, standalone=True, ignore_formatted=True).directories == ()
    assert {path: path.read_bytes() for path in a.rglob("*") if path.is_file()} == before


def test_a_directory_of_another_node_or_cluster_is_refused(tmp_path: Path) -> None:
    formatted(node_config(tmp_path), standalone=True, cluster_id="one")
    both = {"standalone": True, "ignore_formatted": True}
    assert "node 1 of cluster one, not to node 1 of cluster two" in refusal(
        node_config(tmp_path), cluster_id="two", **both
    )
    assert "not to node 2 of cluster one" in refusal(node_config(tmp_path, node_id="2"), **both)


def test_initial_controllers_are_the_same_for_all(tmp_path: Path) -> None:
    text = f"1@127.0.0.1:9093:{DIRECTORIES[0]}, 2@[::1]:9094:{DIRECTORIES[1]}"
    formatted(node_config(tmp_path / "1"), initial_controllers=text, cluster_id=CLUSTER)
    formatted(node_config(tmp_path / "2", node_id="2"), initial_controllers=text, cluster_id=CLUSTER)
    found = [decode_checkpoint((tmp_path / name / FIRST).read_bytes(), name).voters for name in ("1", "2")]
    assert found[0] == found[1]
    assert found[0] is not None
    assert [v.key for v in found[0].voters] == [ReplicaKey(n + 1, uuid_from_text(DIRECTORIES[n])) for n in (0, 1)]
    assert found[0].voters[1].endpoints == (VoterEndpoint("CONTROLLER", "::1", 9094),)
    for n, name in enumerate(("1", "2")):
        identity = read_meta_properties(StagedDisk(), str(tmp_path / name))
        assert identity is not None
        assert identity.directory_id == uuid_from_text(DIRECTORIES[n])


@pytest.mark.parametrize(
    "text",
    ["1@127.0.0.1:9093", "1:127.0.0.1:9093:x", f"x@h:1:{DIRECTORIES[0]}", f"1@h:0:{DIRECTORIES[0]}", "1@h:9:short", ""],
)
def test_controllers_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    assert "is not of the form id@host:port:directory" in refusal(node_config(tmp_path), initial_controllers=text)
    assert not (tmp_path / "meta.properties").exists()


def test_a_controller_is_named_once(tmp_path: Path) -> None:
    text = f"1@127.0.0.1:9093:{DIRECTORIES[0]},1@127.0.0.1:9094:{DIRECTORIES[1]}"
    assert "--initial-controllers names node 1 more than once" in refusal(
        node_config(tmp_path), initial_controllers=text
    )


def test_levels_of_a_new_cluster_may_be_named(tmp_path: Path) -> None:
    """Else they are those that Kafka gives one of the same release."""
    elr = "eligible.leader.replicas.version"
    coordinators = {"group.version": 1, "transaction.version": 2}
    formatted(node_config(tmp_path / "older"), standalone=True, release_version="3.9")
    assert levels(tmp_path / "older") == {"metadata.version": 21}
    formatted(node_config(tmp_path / "old"), standalone=True, release_version="4.0")
    assert levels(tmp_path / "old") == {"metadata.version": 25, **coordinators}
    formatted(node_config(tmp_path / "early"), standalone=True, release_version="4.0", features={elr: 1})
    assert levels(tmp_path / "early") == {"metadata.version": 25, elr: 1, **coordinators}
    off = {elr: 0, "group.version": 0, "transaction.version": 1}
    formatted(node_config(tmp_path / "off"), standalone=True, features=off)
    assert levels(tmp_path / "off") == {"metadata.version": 30, "transaction.version": 1}
    assert f"{elr}=1 needs metadata.version at 23 or above" in refusal(
        node_config(tmp_path / "no"), standalone=True, release_version="3.9", features={elr: 1}
    )


def test_a_node_may_learn_of_its_voters_later(tmp_path: Path) -> None:
    formatted(node_config(tmp_path), no_initial_controllers=True)
    assert not (tmp_path / FIRST).exists()
    assert (tmp_path / "meta.properties").exists()


BROKER = {
    "process_roles": "broker",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller_quorum_bootstrap_servers": "127.0.0.1:9093",
}
STATIC = {"controller_quorum_voters": "1@127.0.0.1:9093", "controller_quorum_bootstrap_servers": ""}


@pytest.mark.parametrize(
    ("properties", "options", "part"),
    [
        ({}, {}, "say who the voters are"),
        ({}, {"standalone": True, "no_initial_controllers": True}, "exclude each other"),
        ({}, {"standalone": True, "features": {"kraft.version": 0}}, "has no dynamic quorum"),
        ({}, {"standalone": True, "features": {"nosuch": 1}}, "--feature nosuch is not known"),
        ({}, {"standalone": True, "features": {"group.version": 9}}, "this release speaks 0 to 1"),
        ({}, {"standalone": True, "features": {"metadata.version": 31}}, "this release speaks 7 to 30"),
        ({}, {"standalone": True, "release_version": "3.2"}, "--release-version 3.2 is not known"),
        ({}, {"standalone": True, "release_version": "4.3-IV9"}, "is not known"),
        (
            {},
            {"standalone": True, "release_version": "4.2", "features": {"metadata.version": 30}},
            "contradict each other",
        ),
        ({}, {"standalone": True, "cluster_id": "a b"}, "is no cluster id"),
        ({}, {"standalone": True, "cluster_id": ""}, "is no cluster id"),
        (BROKER, {"standalone": True}, "--standalone is for controllers"),
        (STATIC, {"standalone": True}, "needs a dynamic quorum"),
        (STATIC, {"features": {"kraft.version": 1}}, "needs a dynamic quorum"),
    ],
)
def test_options_that_make_no_sense(
    tmp_path: Path, properties: Mapping[str, str], options: Mapping[str, object], part: str
) -> None:
    assert part in refusal(node_config(tmp_path / "data", **properties), **options)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("properties", "options"), [(BROKER, {}), (BROKER, {"no_initial_controllers": True}), (STATIC, {})]
)
def test_nodes_without_a_voter_set_of_their_own(
    tmp_path: Path, properties: Mapping[str, str], options: Mapping[str, object]
) -> None:
    formatted(node_config(tmp_path, **properties), **options)
    assert (tmp_path / "meta.properties").exists()
    assert not (tmp_path / FIRST).exists()


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"release_version": "4.1"}, 27),
        ({"release_version": "4.1.0"}, 27),
        ({"release_version": "3.9-IV0"}, 21),
        ({"features": {"metadata.version": 24}}, 24),
        ({"release_version": "4.3", "features": {"metadata.version": 30}}, 30),
    ],
)
def test_releases_and_levels(tmp_path: Path, options: Mapping[str, object], level: int) -> None:
    formatted(node_config(tmp_path), standalone=True, **options)
    assert levels(tmp_path)["metadata.version"] == level


def test_feature_flags() -> None:
    assert parse_features(["a=1", " b = 22 "]) == {"a": 1, "b": 22}
    for entry in ("a", "a=", "a=x", "a=-1"):
        with pytest.raises(StartupError, match="name=level"):
            parse_features([entry])
    with pytest.raises(StartupError, match="more than once"):
        parse_features(["a=1", "a=2"])


# Users from the beginning (KIP-900).


def users(path: Path) -> dict[tuple[str, int], UserScramCredentialRecord]:
    found = [record.message for record in read_bootstrap(StagedDisk(), str(path))]
    return {(each.name, each.mechanism): each for each in found if isinstance(each, UserScramCredentialRecord)}


def test_users_are_known_from_the_first_record_on(tmp_path: Path) -> None:
    salt, salted = b"salt", salted_password("hers", b"salt", 8192, "sha512")
    formatted(
        node_config(tmp_path),
        standalone=True,
        scram=(
            "SCRAM-SHA-256=[name=bob,password=his]",
            f'SCRAM-SHA-512=[name="ann",salt="{b64encode(salt).decode()}",'
            f'saltedpassword="{b64encode(salted).decode()}",iterations=8192]',
        ),
    )
    found = users(tmp_path)
    bob, ann = found["bob", 1], found["ann", 2]
    expected = credential_of(salted_password("his", bytes(bob.salt), 4096, "sha256"), bytes(bob.salt), 4096, "sha256")
    assert (bob.stored_key, bob.server_key, bob.iterations) == (expected.stored_key, expected.server_key, 4096)
    expected = credential_of(salted, salt, 8192, "sha512")
    assert (ann.salt, ann.stored_key, ann.server_key) == (salt, expected.stored_key, expected.server_key)


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("bob", "must be of the form"),
        ("SCRAM-SHA-1=[name=bob,password=top]", "must be of the form"),
        ("SCRAM-SHA-256=[password=top]", "needs the name"),
        ("SCRAM-SHA-256=[name=bob]", "either password or saltedpassword"),
        ("SCRAM-SHA-256=[name=bob,password=top,saltedpassword=AAAA]", "either password or saltedpassword"),
        ("SCRAM-SHA-256=[name=bob,saltedpassword=AAAA]", "needs its salt"),
        ("SCRAM-SHA-256=[name=bob,password=top,iterations=1]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=bob,password=top,iterations=99999]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=bob,password=top,salt=?]", "base64"),
        ("SCRAM-SHA-256=[name=bob,password=top,hat=red]", "takes iterations, name"),
        ("SCRAM-SHA-256=[name=bob,name=ann,password=top]", "each once"),
    ],
)
def test_users_that_cannot_be_read(tmp_path: Path, flag: str, reason: str) -> None:
    said = refusal(node_config(tmp_path), standalone=True, scram=(flag,))
    assert reason in said
    assert "top" not in said


def test_a_user_is_named_once_with_each_mechanism(tmp_path: Path) -> None:
    bob = "SCRAM-SHA-256=[name=bob,password=his]"
    assert "bob twice" in refusal(node_config(tmp_path), standalone=True, scram=(bob, bob))
    older = node_config(tmp_path, **STATIC)
    assert "3.5-IV2 or later" in refusal(older, release_version="3.3", scram=(bob,))
