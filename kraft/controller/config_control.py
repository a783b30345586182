"""AlterConfigs and IncrementalAlterConfigs: for each resource all requested changes are made, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, TypeVar

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import ApiError, Decision
from moldau.kraft.controller.settings import ConfigRules
from moldau.kraft.controller.view import MIN_INSYNC_REPLICAS_CONFIG, ControllerView
from moldau.kraft.image.configs import ConfigResource, ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.topic_names import refusal_of_name
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import alter_configs as replacing
from moldau.protocol.messages import incremental_alter_configs as incremental
from moldau.protocol.primitives import TEXT_SIZE_MAX
from moldau.protocol.records.metadata import ClearElrRecord, ConfigRecord, PartitionChangeRecord

Resource = TypeVar("Resource", incremental.AlterConfigsResource, replacing.AlterConfigsResource)
NewValues = dict[str, str | None]
"""New values of settings by name; the value None removes the setting."""


class AlterConfigOperation(IntEnum):
    """The operations that IncrementalAlterConfigs can make on a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def incremental_alter_configs(
    context: DecisionContext, request: incremental.IncrementalAlterConfigsRequest
) -> Decision:
    view = context.view
    settings = view.settings

    def values_of(resource: incremental.AlterConfigsResource, existing: Mapping[str, str]) -> NewValues | ApiError:
        return changed_values(resource, existing, settings.config_rules)

    outcomes, records = alter_resources(view, request.resources, values_of)
    responses = [
        incremental.AlterConfigsResourceResponse(
            error_code=refusal.error,
            error_message=refusal.message,
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource, refusal in outcomes
    ]
    reply = incremental.IncrementalAlterConfigsResponse(responses=responses)
    return Decision(() if request.validate_only else records, reply)


def alter_configs(context: DecisionContext, request: replacing.AlterConfigsRequest) -> Decision:
    view = context.view
    outcomes, records = alter_resources(view, request.resources, replaced_values)
    responses = [
        replacing.AlterConfigsResourceResponse(
            error_code=refusal.error,
            error_message=refusal.message,
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource, refusal in outcomes
    ]
    return Decision(() if request.validate_only else records, replacing.AlterConfigsResponse(responses=responses))


TOO_LONG: Final = (
    f"The configuration value cannot be added because it exceeds the maximum value size of {TEXT_SIZE_MAX} bytes."
)
NO_API_ERROR = ApiError(ErrorCode.NONE, None)


def alter_resources(
    view: ControllerView,
    resources: Iterable[Resource],
    values_of: Callable[[Resource, Mapping[str, str]], NewValues | ApiError],
) -> tuple[list[tuple[ConfigResource, ApiError]], list[object]]:
    """Decide on all resources of a request. Returns the result for each, and the records of the accepted changes.

    `values_of`: computes a resource's new values from its present settings, or an error.
    """
    pairs = [(ConfigResource(resource.resource_type, resource.resource_name), resource) for resource in resources]
    counts = Counter(key for key, _ in pairs)
    outcomes: list[tuple[ConfigResource, ApiError]] = []
    records: list[object] = []
    for key, resource in pairs:
        if counts[key] > 1:
            # DIVERGES: Apache Kafka never answers an AlterConfigs that names a resource twice.
            once = ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            outcomes.append((key, once))
            continue
        made = records_of(view, key, resource, values_of)
        if isinstance(made, ApiError):
            outcomes.append((key, made))
            continue
        records.extend(made)
        outcomes.append((key, NO_API_ERROR))
    return outcomes, records


def records_of(
    view: ControllerView,
    key: ConfigResource,
    resource: Resource,
    values_of: Callable[[Resource, Mapping[str, str]], NewValues | ApiError],
) -> list[object] | ApiError:
    refusal = refusal_of_names([config.name for config in resource.configs]) or refusal_of_resource(key)
    if refusal is not None:
        return refusal
    existing = view.image.configs.settings_of(*key)
    changes = values_of(resource, existing)
    if isinstance(changes, ApiError):
        return changes
    after = {name: value for name, value in {**existing, **changes}.items() if value is not None}
    refusal = (
        view.settings.config_rules.refusal(key, after, existing)
        or refusal_of_missing(view.image, key)
        or refusal_of_min_in_sync(view, key, changes)
    )
    if refusal is not None:
        return refusal
    changed = {name: value for name, value in changes.items() if existing.get(name) != value}
    records: list[object] = [
        ConfigRecord(resource_type=key.type, resource_name=key.name, name=name, value=value)
        for name, value in changed.items()
    ]
    if view.has_eligible_replicas and MIN_INSYNC_REPLICAS_CONFIG in changed:
        records += [ClearElrRecord(topic_name=key.name), *restored_eligible_replicas(view, key.name)]
    return records


def restored_eligible_replicas(view: ControllerView, topic_name: str) -> Iterator[PartitionChangeRecord]:
    """Yield the records that restore eligible leader replicas after a ClearElrRecord, for partitions without an in-sync
    replica. `topic_name` is the topic of that record; empty for all topics. Such a partition commits no records, so its
    eligible leader replicas have every committed record.

    DIVERGES: Apache Kafka clears them; then only an unclean election, which may lose records, ends the outage.
    """
    for topic, partition_id, partition in view.partitions(view.by_broker.leaderless):
        if topic_name in ("", topic.name) and not partition.isr:
            yield PartitionChangeRecord(
                partition_id=partition_id,
                topic_id=topic.id,
                eligible_leader_replicas=list(partition.eligible_leader_replicas),
                last_known_elr=list(partition.last_known_elr),
            )


def refusal_of_min_in_sync(view: ControllerView, key: ConfigResource, changes: NewValues) -> ApiError | None:
    """The error of a change to a broker's min.insync.replicas that eligible leader replicas forbid; None if the change
    is allowed. Eligible leader replicas need one value for the cluster, which only topics may override (KIP-966). So a
    single broker cannot get a value of its own, and the value of the cluster cannot be removed.
    """
    if not view.has_eligible_replicas or key.type != ResourceType.BROKER or MIN_INSYNC_REPLICAS_CONFIG not in changes:
        return None
    if key.name:
        message = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    elif changes[MIN_INSYNC_REPLICAS_CONFIG] is None:
        message = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    else:
        return None
    return ApiError(ErrorCode.INVALID_CONFIG, message)


def refusal_of_names(names: Sequence[str]) -> ApiError | None:
    if len(set(names)) < len(names):
        return ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    return None


def refusal_of_resource(resource: ConfigResource) -> ApiError | None:
    if resource.type not in set(ResourceType):
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")
    if resource.type == ResourceType.CLIENT_METRICS and not resource.name:
        return ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    if resource.type == ResourceType.GROUP and not resource.name:
        return ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if resource.type != ResourceType.TOPIC:
        return None
    if not resource.name:
        return ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    message = refusal_of_name(resource.name)
    return None if message is None else ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def refusal_of_missing(image: MetadataImage, resource: ConfigResource) -> ApiError | None:
    if resource.type == ResourceType.TOPIC and resource.name not in image.topics.ids:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    return None


def replaced_values(resource: replacing.AlterConfigsResource, existing: Mapping[str, str]) -> NewValues | ApiError:
    """The changes that AlterConfigs makes to a resource: settings of the request get their values, all others are
    removed. Returns an error if the request sets a value to null."""
    changes: NewValues = {config.name: config.value for config in resource.configs}
    refusal = refusal_of_nulls(changes)
    if refusal is not None:
        return refusal
    return {**dict.fromkeys(existing), **changes}


def changed_values(
    resource: incremental.AlterConfigsResource, existing: Mapping[str, str], rules: ConfigRules
) -> NewValues | ApiError:
    """The changes that IncrementalAlterConfigs makes to a resource: each setting of the request is changed by its
    operation. Settings that the request does not name are not in the result. Returns an error if an operation or a
    value is not valid.
    """
    key = ConfigResource(resource.resource_type, resource.resource_name)
    deleted = {config.name for config in resource.configs if config.config_operation == AlterConfigOperation.DELETE}
    refusal = refusal_of_nulls({config.name: config.value for config in resource.configs if config.name not in deleted})
    if refusal is not None:
        return refusal
    changes: NewValues = {}
    for config in resource.configs:
        if config.config_operation not in set(AlterConfigOperation):
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
        operation = AlterConfigOperation(config.config_operation)
        if operation is AlterConfigOperation.DELETE:
            changes[config.name] = None
            continue
        value = config.value or ""
        if operation is not AlterConfigOperation.SET:
            if not rules.is_list(key.type, config.name):
                message = f"Can't {operation.name} to key {config.name} because its type is not LIST."
                return ApiError(ErrorCode.INVALID_CONFIG, message)
            before = existing.get(config.name)
            if before is None:
                before = rules.default_of(key, config.name)
            value = edited_list(before, value, operation)
            if value == before:
                continue  # A list that is not set is not written if the operation adds nothing and removes nothing.
            if len(value.encode()) > TEXT_SIZE_MAX:
                return ApiError(ErrorCode.INVALID_CONFIG, TOO_LONG)
        changes[config.name] = value
    return changes


def refusal_of_nulls(values: NewValues) -> ApiError | None:
    nulls = [name for name, value in values.items() if value is None]
    return ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}") if nulls else None


def edited_list(before: str, value: str, operation: AlterConfigOperation) -> str:
    """Apply APPEND or SUBTRACT to a comma-separated list: `before` with the elements of `value` added or removed. An
    element that the list has already is not added again, and one that `value` repeats is added once."""
    members = [member for member in before.split(",") if member]
    named = [member for member in value.split(",") if member]
    if operation is AlterConfigOperation.APPEND:
        known = frozenset(members)
        return ",".join([*members, *(member for member in dict.fromkeys(named) if member not in known)])
    removed = frozenset(named)
    return ",".join(member for member in members if member not in removed)
