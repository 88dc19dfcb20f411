"""The records with which a controller takes over: the very first of a cluster, or the tidying of what was left open."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.errors import StartupError
from ottla.metadata.features import METADATA_VERSION, METADATA_VERSION_MIN, SUPPORTED_FEATURES, has_transactions
from ottla.metadata.records import MetadataRecord
from ottla.metadata.state import MetadataState


def activation_records(state: MetadataState, bootstrap: Sequence[MetadataRecord]) -> list[MetadataRecord]:
    """`bootstrap` is what `format` wrote for the first activation. KIP-868: whole, in a metadata transaction."""
    from ottla.wire.messages.abort_transaction_record import AbortTransactionRecord
    from ottla.wire.messages.begin_transaction_record import BeginTransactionRecord
    from ottla.wire.messages.end_transaction_record import EndTransactionRecord

    records: list[MetadataRecord] = []
    if state.transaction is not None:
        records.append(MetadataRecord(AbortTransactionRecord(reason="Controller failover"), 0))
    if not _is_empty(state):
        return records
    level = _metadata_version(bootstrap)
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


def _metadata_version(bootstrap: Sequence[MetadataRecord]) -> int:
    from ottla.wire.messages.feature_level_record import FeatureLevelRecord

    for record in bootstrap:
        message = record.message
        if isinstance(message, FeatureLevelRecord) and message.name == METADATA_VERSION:
            return message.feature_level
    return METADATA_VERSION_MIN


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
