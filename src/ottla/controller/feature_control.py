"""Finalized feature levels (KIP-584): raised or lowered only to what every registered node can speak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.generated import Generated
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import KRAFT_VERSION, METADATA_VERSION, SUPPORTED_FEATURES, VersionRange
from ottla.metadata.images import FeaturesImage
from ottla.metadata.records import MetadataRecord

if TYPE_CHECKING:
    from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
    from ottla.wire.messages.update_features_response import UpdateFeaturesResponse

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


def finalized_level(features: FeaturesImage, name: str) -> int:
    return features.metadata_version if name == METADATA_VERSION else features.levels.get(name, 0)


class FeatureControl:
    def __init__(self, state: Speculation) -> None:
        self._state = state

    def update_features(self, request: UpdateFeaturesRequest) -> Generated[UpdateFeaturesResponse]:
        """All of the updates, or none."""
        from ottla.wire.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse

        names = [update.feature for update in request.feature_updates]
        records: list[MetadataRecord] = []
        for update in request.feature_updates:
            if names.count(update.feature) > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request names {update.feature} more than once.")
            record = self._update(update)
            if record is not None:
                records.append(record)
        response = UpdateFeaturesResponse(
            error_message=None,
            results=[UpdatableFeatureResult(feature=name, error_message=None) for name in names],
        )
        return Generated([] if request.validate_only else records, response)

    def _update(self, update: FeatureUpdateKey) -> MetadataRecord | None:
        from ottla.wire.messages.feature_level_record import FeatureLevelRecord

        name, level = update.feature, update.max_version_level
        # Version 0 of the request has a flag in place of the type.
        kind = SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type

        def refuse(reason: str) -> KafkaError:
            return KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION, f"Feature {name} cannot be set to level {level}: {reason}."
            )

        if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            raise refuse(f"the kind of update, {kind}, is unknown")
        if level < 0:
            raise refuse("a level is not negative")
        self._check_supported(name, level, refuse)
        current = finalized_level(self._state.image.features, name)
        if level < current:
            if kind == UPGRADE:
                raise refuse(f"it is at {current}, and a downgrade must be asked for as one")
            if name == METADATA_VERSION:
                raise refuse(f"it is at {current}, and metadata could be lost")
        elif level > current and kind != UPGRADE:
            raise refuse(f"it is at {current}, so that would be an upgrade")
        if level == current:
            return None
        return MetadataRecord(FeatureLevelRecord(name=name, feature_level=level), 0)

    def _check_supported(self, name: str, level: int, refuse: _Refusal) -> None:
        nowhere = VersionRange(0, 0)
        if name == KRAFT_VERSION:
            raise refuse("it is changed through the quorum, not as a feature")
        if name not in SUPPORTED_FEATURES:
            raise refuse("this release has no such feature")
        if level not in SUPPORTED_FEATURES[name]:
            supported = SUPPORTED_FEATURES[name]
            raise refuse(f"this release speaks {supported.min} to {supported.max}")
        cluster = self._state.image.cluster
        nodes = [(f"broker {b.broker_id}", b.features) for b in cluster.brokers.values()]
        nodes += [(f"controller {c.controller_id}", c.features) for c in cluster.controllers.values()]
        for who, features in nodes:
            supported = features.get(name, nowhere)
            if level not in supported:
                raise refuse(f"{who} speaks {supported.min} to {supported.max}")


if TYPE_CHECKING:
    from collections.abc import Callable

    _Refusal = Callable[[str], KafkaError]
