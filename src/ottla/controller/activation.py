"""The records with which a controller takes over: the very first of a cluster, or the tidying of what was left open."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.controller.config_control import config_record
from ottla.controller.config_table import MIN_INSYNC_REPLICAS
from ottla.errors import StartupError
from ottla.metadata.features import (
    ELR_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MIN,
    SUPPORTED_FEATURES,
    has_transactions,
)
from ottla.metadata.images import DEFAULT_BROKER
from ottla.metadata.records import MetadataRecord
from ottla.metadata.state import MetadataState


def activation_records(
    state: MetadataState, bootstrap: Sequence[MetadataRecord], min_insync_replicas: int
) -> list[MetadataRecord]:
    """`bootstrap` is what `format` wrote for the first activation. KIP-868: whole, in a metadata transaction.

    KIP-966: where eligible leader replicas are kept, all nodes must agree on `min_insync_replicas`, so that the default
    of the first controller becomes the cluster's.
    """
    from ottla.wire.messages.abort_transaction_record import AbortTransactionRecord
    from ottla.wire.messages.begin_transaction_record import BeginTransactionRecord
    from ottla.wire.messages.end_transaction_record import EndTransactionRecord

    records: list[MetadataRecord] = []
    if state.transaction is not None:
        records.append(MetadataRecord(AbortTransactionRecord(reason="Controller failover"), 0))
    if not _is_empty(state):
        return records
    bootstrap = list(bootstrap)
    level = _level(bootstrap, METADATA_VERSION) or METADATA_VERSION_MIN
    if _level(bootstrap, ELR_VERSION):
        bootstrap.append(config_record(DEFAULT_BROKER, MIN_INSYNC_REPLICAS, str(min_insync_replicas)))
    if not has_transactions(level):
        return [*records, *bootstrap]
    records.append(MetadataRecord(BeginTransactionRecord(name="Bootstrap records"), 0))
    records += bootstrap
    records.append(MetadataRecord(EndTransactionRecord(), 0))
    return records


def _is_empty(state: MetadataState) -> bool:
    """Has nothing but perhaps a half-written bootstrap ever taken effect?"""
    image = state.image
    return not (image.features.levels or image.cluster.brokers or image.cluster.controllers or image.topics.by_id) and (
        image.features.metadata_version == METADATA_VERSION_MIN and not image.configs
    )


def _level(bootstrap: Sequence[MetadataRecord], feature: str) -> int:
    from ottla.wire.messages.feature_level_record import FeatureLevelRecord

    for record in bootstrap:
        message = record.message
        if isinstance(message, FeatureLevelRecord) and message.name == feature:
            return message.feature_level
    return 0


def check_features(state: MetadataState) -> None:
    """Refuse to lead a cluster that was raised beyond what this release can speak."""
    features = state.newest.features
    for name, level in {**features.levels, METADATA_VERSION: features.metadata_version}.items():
        supported = SUPPORTED_FEATURES.get(name)
        if supported is None or level not in supported:
            spoken = "nothing of it" if supported is None else f"{supported.min} to {supported.max}"
            raise StartupError(
                f"the cluster has {name} at level {level}, but this release speaks {spoken}: lower it with "
                f"kafka-features before this node joins"
            )
