"""Changes of settings that a node decides itself: those of its own loggers, and refusals of changes for other nodes."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moldau.broker.apis.needs import Need, on_cluster, on_group, on_topic
from moldau.broker.config.log_levels import DELETE, alter_loggers
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.errors import ErrorCode
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext

BROKER_LOGGER: Final = 8


class Verdict(NamedTuple):
    """The result for one resource; the error is NONE for a change that was made."""

    error: ErrorCode
    message: str | None = None


class ConfigChange(NamedTuple):
    """One setting, one operation of IncrementalAlterConfigs."""

    name: str
    operation: int
    value: str | None


def refusal_of_changes(changes: Sequence[ConfigChange]) -> Verdict | None:
    """The errors that Apache Kafka looks for before it checks which node the settings belong to."""
    if len({each.name for each in changes}) < len(changes):
        return Verdict(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [each.name for each in changes if each.value is None and each.operation != DELETE]
    if nulls:
        return Verdict(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    return None


def refusal_of_broker(node_id: int, resource_type: int, name: str) -> Verdict | None:
    """The error for a broker's resource: a broker accepts settings for itself and for all brokers, not for
    another one.
    """
    if resource_type != ResourceType.BROKER or not name:
        return None
    problem = _not_a_number(name)
    if problem is None and int(name) != node_id:
        problem = f"Unexpected broker id, expected {node_id}, but received {name}"
    return None if problem is None else Verdict(ErrorCode.INVALID_REQUEST, problem)


def refusal_of_node(known: Container[int], resource_type: int, name: str) -> Verdict | None:
    """The error for a node's resource: a controller accepts settings for every registered node."""
    if resource_type != ResourceType.BROKER or not name or _not_a_number(name) or int(name) in known:
        return None
    return Verdict(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")


def alter_own_loggers(node_id: int, name: str, changes: Sequence[ConfigChange], *, validate_only: bool) -> Verdict:
    """Set or reset levels of this process's loggers: all changes of the request, or none."""
    problem = _not_a_number(name)
    if problem is None and int(name) != node_id:
        problem = f"Unexpected node id. Expected {node_id}, but received {name}"
    if problem is not None:
        return Verdict(ErrorCode.INVALID_REQUEST, problem)
    return Verdict(*alter_loggers(changes, validate_only=validate_only))


def _not_a_number(name: str) -> str | None:
    is_number = name.isascii() and name[name[:1] in ("+", "-") :].isdigit()
    return None if is_number else f"Node id must be an integer, but it is: {name}"


def need_of_settings(operation: AclOperation, services: Services, context: RequestContext, element: Any) -> Need:
    """The resource on which a permission is needed: the topic or group for its own settings, the cluster for all
    others.
    """
    if element.resource_type == ResourceType.TOPIC:
        return on_topic(operation, element.resource_name)
    if element.resource_type == ResourceType.GROUP:
        return on_group(operation, element.resource_name)
    return on_cluster(operation)
