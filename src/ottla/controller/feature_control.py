"""Finalized feature levels (KIP-584): raised or lowered only to what every registered node can speak."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.controller.config_control import ConfigControl
from ottla.controller.generated import Generated
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    VersionRange,
    has_controller_registration,
    may_lose_metadata,
    unmet_dependency,
)
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
    """Of the quorum it is told by whoever drives the controller: that is not in the metadata."""

    def __init__(self, state: Speculation, configs: ConfigControl, node_id: int) -> None:
        self._state = state
        self._configs = configs
        self._node_id = node_id
        self._voters: tuple[int, ...] = ()
        self._kraft_version: int | None = None

    def on_quorum(self, voters: Iterable[int], kraft_version: int) -> None:
        self._voters = tuple(sorted(voters))
        self._kraft_version = kraft_version

    def update_features(self, request: UpdateFeaturesRequest) -> Generated[UpdateFeaturesResponse]:
        """All of the updates, or none."""
        from ottla.wire.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse

        names = [update.feature for update in request.feature_updates]
        features = self._state.image.features
        after = {**features.levels, METADATA_VERSION: features.metadata_version}
        records: list[MetadataRecord] = []
        for update in request.feature_updates:
            if names.count(update.feature) > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request names {update.feature} more than once.")
            record = self._update(update)
            if record is not None:
                records.append(record)
                after[update.feature] = update.max_version_level
        unmet = unmet_dependency(after)
        if unmet is not None:
            name, other, least = unmet
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Feature {name} cannot be at level {after[name]}: it needs {other} at {least} or above.",
            )
        if after.get(ELR_VERSION, 0) > 0 and not features.elr:
            records = [*self._configs.elr_safety_records(), *records]
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
        if name == KRAFT_VERSION:
            if level != self._kraft_version:
                # The quorum writes it into its own control records, when it is formatted.
                raise refuse("it is the quorum's own, and is set when the quorum is formatted")
            return None
        current = finalized_level(self._state.image.features, name)
        if level < current:
            if kind == UPGRADE:
                raise refuse(f"it is at {current}, and a downgrade must be asked for as one")
            if name == METADATA_VERSION and may_lose_metadata(current, level):
                # Kafka has no unsafe downgrade of it either: nothing would take the lost fields out of the log.
                raise refuse(f"it is at {current}, and metadata could be lost")
        elif level > current and kind != UPGRADE:
            raise refuse(f"it is at {current}, so that would be an upgrade")
        if level == current:
            return None
        return MetadataRecord(FeatureLevelRecord(name=name, feature_level=level), 0)

    def _check_supported(self, name: str, level: int, refuse: _Refusal) -> None:
        nowhere = VersionRange(0, 0)
        if name not in SUPPORTED_FEATURES:
            raise refuse("this release has no such feature")
        if level not in SUPPORTED_FEATURES[name]:
            supported = SUPPORTED_FEATURES[name]
            raise refuse(f"this release speaks {supported.min} to {supported.max}")
        image = self._state.image
        cluster = image.cluster
        nodes = [(f"broker {b.broker_id}", b.features) for b in cluster.brokers.values()]
        nodes += [
            (f"controller {c.controller_id}", c.features)
            for c in cluster.controllers.values()
            if c.controller_id != self._node_id
        ]
        for who, features in nodes:
            supported = features.get(name, nowhere)
            if level not in supported:
                raise refuse(f"{who} speaks {supported.min} to {supported.max}")
        if has_controller_registration(image.features.metadata_version):
            for voter in self._voters:
                if voter != self._node_id and voter not in cluster.controllers:
                    raise refuse(f"controller {voter} has not registered, and may not speak it")


if TYPE_CHECKING:
    from collections.abc import Callable

    _Refusal = Callable[[str], KafkaError]
