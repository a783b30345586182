"""UpdateFeatures: raises or lowers the finalized levels of features. Either all changes of a request are made or none.

A level must be in the range of every registered broker and controller. A lower level must be requested as a downgrade;
metadata.version can be lowered only if the log can have no record of the higher level.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.kraft.controller.view import MIN_INSYNC_REPLICAS_CONFIG, ControllerView
from moldau.kraft.features import (
    ELIGIBLE_LEADER_REPLICAS,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    SupportedRange,
)
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from moldau.protocol.records.metadata import ConfigRecord, FeatureLevelRecord, NoOpRecord

DISABLED_FEATURE_RANGE: Final = SupportedRange(0, 0)
METADATA_CHANGED: Final = frozenset({30, 32, 33})
"""The levels of metadata.version that added records or fields which nodes at an earlier level cannot read."""
UPDATE_FAILED_PREFIX: Final = "The update failed for all features since the following feature had an error: "


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(context: DecisionContext, request: UpdateFeaturesRequest) -> Decision:
    view = context.view
    records: list[object] = []
    for update in request.feature_updates:
        refusal = refusal_of_update(view, update)
        if refusal is not None:
            error = ErrorCode.INVALID_UPDATE_VERSION
            return Decision((), UpdateFeaturesResponse(error_code=error, error_message=UPDATE_FAILED_PREFIX + refusal))
        records.extend(records_of_update(view, update))
    results = [
        UpdatableFeatureResult(feature=update.feature, error_message="NONE") for update in request.feature_updates
    ]
    reply = UpdateFeaturesResponse(error_message=None, results=results)
    if request.validate_only:
        return Decision((), reply)
    versions = [each.max_version_level for each in request.feature_updates if each.feature == KRAFT_VERSION]
    return Decision(records, reply, kraft_version=versions[0] if versions else None)


def level_of(view: ControllerView, name: str) -> int:
    features = view.image.features
    if name == KRAFT_VERSION:
        return view.settings.quorum.kraft_version
    return features.metadata_version if name == METADATA_VERSION else features.levels.get(name, 0)


def type_of(update: FeatureUpdateKey) -> UpgradeType | None:
    """The kind of change that a request asks for; None if the code is unknown. Version 0 of the request has one flag
    instead, which allows a safe downgrade."""
    if update.allow_downgrade:
        return UpgradeType.SAFE_DOWNGRADE
    return UpgradeType(update.upgrade_type) if update.upgrade_type in set(UpgradeType) else None


def refusal_of_update(view: ControllerView, update: FeatureUpdateKey) -> str | None:
    name, level = update.feature, update.max_version_level
    reason = reason_for_refusal(view, update)
    if reason is not None:
        return f"Invalid update version {level} for feature {name}. {reason}"
    if name == KRAFT_VERSION:
        return view.settings.quorum.refusal_of_version(level)
    current = level_of(view, name)
    if name == METADATA_VERSION and level < current:
        if METADATA_CHANGED.isdisjoint(range(level + 1, current + 1)):
            return None
        is_unsafe = type_of(update) is UpgradeType.UNSAFE_DOWNGRADE
        because = (
            "Unsafe metadata downgrade is not supported in this version."
            if is_unsafe
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        return f"Unsupported metadata.version downgrade from {current} to {level}. {because}"
    return None


def reason_for_refusal(view: ControllerView, update: FeatureUpdateKey) -> str | None:
    name, level, upgrade_type = update.feature, update.max_version_level, type_of(update)
    if upgrade_type is None:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    for node, supported in ranges_of(view, name):
        if not supported.first <= level <= supported.last:
            if supported.last == 0:
                return f"{node} does not support this feature."
            return f"{node} only supports versions {supported.first}-{supported.last}"
    current = level_of(view, name)
    if level < current and upgrade_type is UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade."
        )
    if level > current and upgrade_type is not UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if name == KRAFT_VERSION and level < current:
        return "Can't downgrade the version of this feature."
    return None


def ranges_of(view: ControllerView, name: str) -> Iterator[tuple[str, SupportedRange]]:
    """Yield the name of each node and the range of levels of the feature that the node supports, this controller
    first."""
    cluster, own_id = view.image.cluster, view.settings.node_id
    yield f"Local controller {own_id}", SUPPORTED_FEATURES.get(name, DISABLED_FEATURE_RANGE)
    for broker in cluster.brokers.values():
        yield f"Broker {broker.id}", broker.features.get(name, DISABLED_FEATURE_RANGE)
    for controller in cluster.controllers.values():
        if controller.id != own_id:
            yield f"Controller {controller.id}", controller.features.get(name, DISABLED_FEATURE_RANGE)


def records_of_update(view: ControllerView, update: FeatureUpdateKey) -> Iterator[object]:
    if update.feature == KRAFT_VERSION:
        yield NoOpRecord()  # The response waits until this record is committed; the quorum writes kraft.version itself.
        return
    yield FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
    if update.feature == ELIGIBLE_LEADER_REPLICAS and update.max_version_level > 0:
        yield from records_of_eligible_replicas(view)


def records_of_eligible_replicas(view: ControllerView) -> Iterator[ConfigRecord]:
    """Yield the records that give min.insync.replicas one value for the whole cluster, as eligible leader replicas
    need.

    The cluster gets a value if it has none, and the values of single brokers are removed.
    """
    configs = view.image.configs
    if MIN_INSYNC_REPLICAS_CONFIG not in configs.settings_of(ResourceType.BROKER, ""):
        value = str(view.settings.min_insync_replicas)
        yield ConfigRecord(
            resource_type=ResourceType.BROKER, resource_name="", name=MIN_INSYNC_REPLICAS_CONFIG, value=value
        )
    for resource, settings in configs.by_resource.items():
        if resource.type == ResourceType.BROKER and resource.name and MIN_INSYNC_REPLICAS_CONFIG in settings:
            yield ConfigRecord(
                resource_type=ResourceType.BROKER,
                resource_name=resource.name,
                name=MIN_INSYNC_REPLICAS_CONFIG,
                value=None,
            )
