"""Preparing a node's directories, as kafka-storage's `format` does.

Each directory gets `meta.properties` with the cluster's, the node's and its own id, and `bootstrap.checkpoint` with the
first records of the metadata. The directory of the metadata log also gets its first snapshot, which holds the voters,
unless they come from `controller.quorum.voters` or will be joined later. `meta.properties` is written last: until it is
there the directory is not formatted, whatever else is in it.

Blocks; nothing serves yet when it is called. Refusals are `StartupError`, one sentence each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from ottla.broker.control.bootstrap import BOOTSTRAP_FILE, bootstrap_records, encode_bootstrap
from ottla.broker.control.stores import SnapshotStore
from ottla.config.node import NodeConfig
from ottla.errors import StartupError
from ottla.log.checkpoints import MetaProperties, read_meta_properties, write_meta_properties
from ottla.log.files import parse_directory
from ottla.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    SUPPORTED_FEATURES,
    default_features,
    has_scram,
    level_of_release,
    release_names,
    unmet_dependency,
)
from ottla.metadata.ids import random_uuid
from ottla.metadata.records import MetadataRecord
from ottla.model import METADATA_TOPIC, Uuid, uuid_from_text, uuid_to_text
from ottla.raft.checkpoint import BOOTSTRAP_SNAPSHOT, encode_checkpoint
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from ottla.runtime.seams import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """kafka-storage's flags."""

    cluster_id: str | None = None
    """A random one if it is not given."""

    ignore_formatted: bool = False
    release_version: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    standalone: bool = False
    """This node alone is the quorum."""

    no_initial_controllers: bool = False
    """The voters will be known once this node has joined."""

    initial_controllers: str | None = None
    """id@host:port:directory,… the same on all of them."""

    scram: tuple[str, ...] = ()
    """Users that the cluster knows from the beginning, as `format_scram` reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formatted:
    cluster_id: str
    directories: tuple[str, ...]
    """Those that were formatted now; none if all were before."""


def format_node(disk: Disk, config: NodeConfig, options: FormatOptions, *, random: Random, now_ms: int) -> Formatted:
    metadata_version, levels = _levels(options)
    dynamic = _check_quorum_options(config, options, levels)
    paths = list(dict.fromkeys((config.metadata_log_dir, *config.log_dirs)))
    known = {path: read_meta_properties(disk, path) for path in paths}
    formatted = {path: properties for path, properties in known.items() if properties is not None}
    if formatted and not options.ignore_formatted:
        raise StartupError(
            f"{next(iter(formatted))} is already formatted: use --ignore-formatted to format only the directories that "
            f"are not"
        )
    cluster_id = _cluster_id(options.cluster_id, formatted, random)
    for path, properties in formatted.items():
        if properties.cluster_id != cluster_id or properties.node_id != config.node_id:
            raise StartupError(
                f"{path} belongs to node {properties.node_id} of cluster {properties.cluster_id}, not to node "
                f"{config.node_id} of cluster {cluster_id}"
            )
    fresh = [path for path in paths if path not in formatted]
    for path in fresh:
        _refuse_data_without_identity(disk, path)
    ids = {path: random_uuid(random) for path in fresh}
    voters: VoterSet | None = None
    if dynamic and config.metadata_log_dir in ids:
        voters = _voters(config, options, ids)
    users = _users(options, metadata_version, random)
    bootstrap = encode_bootstrap([*bootstrap_records(metadata_version, levels), *users], now_ms)
    for path in fresh:
        disk.make_dirs(path)
        _write_new(disk, f"{path}/{BOOTSTRAP_FILE}", bootstrap)
        if path == config.metadata_log_dir and voters is not None:
            _write_first_snapshot(disk, path, voters, now_ms)
        # Its directory is synced with it, and so are the entries of what was written before.
        write_meta_properties(
            disk, path, MetaProperties(cluster_id=cluster_id, node_id=config.node_id, directory_id=ids[path])
        )
    return Formatted(cluster_id=cluster_id, directories=tuple(fresh))


def _users(options: FormatOptions, metadata_version: int, random: Random) -> list[MetadataRecord]:
    if not options.scram:
        return []
    from ottla.broker.control.format_scram import scram_records

    users = scram_records(options.scram, random)
    if not has_scram(metadata_version):
        raise StartupError("--add-scram needs a metadata.version that has SCRAM credentials: 3.5-IV2 or later")
    return users


def _refuse_data_without_identity(disk: Disk, path: str) -> None:
    """New ids would cut the records off from the metadata that knows them. A format that was cut short leaves none."""
    if not disk.is_dir(path):
        return
    for name in disk.list(path):
        directory = f"{path}/{name}"
        is_partition = parse_directory(name) is not None and disk.is_dir(directory)
        if is_partition and any(inner.endswith(".log") for inner in disk.list(directory)):
            raise StartupError(
                f"{path} holds data ({name}) but no meta.properties: bring that file back, or use another directory"
            )


def parse_features(entries: Iterable[str]) -> dict[str, int]:
    """From `--feature name=level` flags."""
    found: dict[str, int] = {}
    for entry in entries:
        name, separator, level = (part.strip() for part in entry.partition("="))
        if not separator or not level.isdecimal():
            raise StartupError(f"--feature {entry} is not of the form name=level")
        if name in found:
            raise StartupError(f"--feature names {name} more than once")
        found[name] = int(level)
    return found


def _levels(options: FormatOptions) -> tuple[int, dict[str, int]]:
    """The metadata.version, and the levels of everything else: those that were named, else a new cluster's."""
    metadata_version = METADATA_VERSION_MAX
    if options.release_version is not None:
        level = level_of_release(options.release_version)
        if level is None:
            raise StartupError(
                f"--release-version {options.release_version} is not known: the releases are "
                f"{', '.join(release_names())}"
            )
        metadata_version = level
    levels = dict(options.features)
    if METADATA_VERSION in levels:
        named = levels.pop(METADATA_VERSION)
        if options.release_version is not None and named != metadata_version:
            raise StartupError("--release-version and --feature metadata.version contradict each other")
        metadata_version = named
    for name, level in ((METADATA_VERSION, metadata_version), *levels.items()):
        supported = SUPPORTED_FEATURES.get(name)
        if supported is None:
            raise StartupError(
                f"--feature {name} is not known: the features are {', '.join(sorted(SUPPORTED_FEATURES))}"
            )
        if level not in supported:
            raise StartupError(f"--feature {name}={level}: this release speaks {supported.min} to {supported.max}")
    levels = {**default_features(metadata_version), **levels}
    if (unmet := unmet_dependency({**levels, METADATA_VERSION: metadata_version})) is not None:
        name, other, least = unmet
        raise StartupError(f"--feature {name}={levels[name]} needs {other} at {least} or above")
    return metadata_version, levels


def _check_quorum_options(config: NodeConfig, options: FormatOptions, levels: dict[str, int]) -> bool:
    """Is the quorum a dynamic one (KIP-853), whose voters this node is to know from its first snapshot on?

    Takes kraft.version out of `levels`: it is the quorum's own, and no record of the metadata.
    """
    kraft_version = levels.pop(KRAFT_VERSION, None)
    flags = {
        "--standalone": options.standalone,
        "--no-initial-controllers": options.no_initial_controllers,
        "--initial-controllers": options.initial_controllers is not None,
    }
    given = [flag for flag, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise StartupError(f"{given[0]} and {given[1]} exclude each other")
    if config.voters:
        if given:
            raise StartupError(
                f"{given[0]} needs a dynamic quorum: remove controller.quorum.voters from the properties"
            )
        if kraft_version:
            raise StartupError(
                f"--feature {KRAFT_VERSION}={kraft_version} needs a dynamic quorum: remove controller.quorum.voters "
                f"from the properties"
            )
        return False
    if not config.is_controller:
        if given and not options.no_initial_controllers:
            raise StartupError(f"{given[0]} is for controllers, and process.roles does not name that role")
        return False
    if not given:
        raise StartupError(
            "controller.quorum.voters is not set, so say who the voters are: --standalone, --initial-controllers or "
            "--no-initial-controllers"
        )
    if kraft_version == 0:
        raise StartupError(f"--feature {KRAFT_VERSION}=0 has no dynamic quorum, but {given[0]} asks for one")
    return not options.no_initial_controllers


def _cluster_id(wanted: str | None, formatted: Mapping[str, MetaProperties], random: Random) -> str:
    if wanted is not None:
        if not wanted or any(character.isspace() or character == "=" for character in wanted):
            raise StartupError(f"{wanted!r} is no cluster id: it must be a word, best one of random-uuid")
        return wanted
    # With some directories formatted the others join the same cluster.
    for properties in formatted.values():
        return properties.cluster_id
    return uuid_to_text(random_uuid(random))


def _voters(config: NodeConfig, options: FormatOptions, ids: dict[str, Uuid]) -> VoterSet:
    if options.initial_controllers is not None:
        listener = config.controller_listener_names[0]
        named = [_parse_voter(entry, listener) for entry in options.initial_controllers.split(",")]
        voters = VoterSet(named)
        if len(voters) < len(named):
            twice = next(voter.key.id for voter in named if sum(voter.key.id == each.key.id for each in named) > 1)
            raise StartupError(f"--initial-controllers names node {twice} more than once")
        for voter in voters.voters:
            if voter.key.id == config.node_id:
                # The directory's id is told to the others before the directory exists.
                ids[config.metadata_log_dir] = voter.key.directory_id
        return voters
    listeners = config.advertised_controller_listeners
    if not listeners:
        raise StartupError("--standalone needs a listener of one of the controller.listener.names")
    endpoint = VoterEndpoint(listeners[0].name, listeners[0].host or "localhost", listeners[0].port)
    return VoterSet([Voter(ReplicaKey(config.node_id, ids[config.metadata_log_dir]), (endpoint,))])


def _parse_voter(entry: str, listener: str) -> Voter:
    node_id, at, rest = entry.strip().partition("@")
    address, _, directory = rest.rpartition(":")
    host, _, port = address.rpartition(":")
    try:
        if not at or not host or not node_id.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError
        key = ReplicaKey(int(node_id), uuid_from_text(directory))
    except ValueError:
        raise StartupError(f"--initial-controllers: {entry} is not of the form id@host:port:directory") from None
    return Voter(key, (VoterEndpoint(listener, host.strip("[]"), int(port)),))


def _write_first_snapshot(disk: Disk, path: str, voters: VoterSet, now_ms: int) -> None:
    directory = f"{path}/{METADATA_TOPIC}-0"
    disk.make_dirs(directory)
    batches = encode_checkpoint((), last_contained_log_timestamp=now_ms, now_ms=now_ms, kraft_version=1, voters=voters)
    SnapshotStore(disk, directory).write(BOOTSTRAP_SNAPSHOT, batches)


def _write_new(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.write(0, data)
        file.sync()
    finally:
        file.close()
