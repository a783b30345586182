"""Finds the topics, partitions, groups and transactional ids that a request names. It reads the declarations of
messages, so it works for every API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from moldau.broker.faults.fault import FaultSubject
from moldau.broker.network.route import RequestContext
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.schema import ZERO_UUID, Field, WireType, fields_of

NODE_CLIENT: Final = "node-"
"""The prefix of the client ids of nodes. The node id follows it."""
GROUP_KEY, TRANSACTIONAL_KEY = 0, 1
"""The key types in FindCoordinator."""
TopicNames = Callable[[bytes], str | None]
"""A function that gives the name of a topic by its id, or None."""


def subject_of(context: RequestContext, request: object, name_of: TopicNames) -> FaultSubject:
    """Make the subject of a request: the properties that scopes are compared with."""
    topics: dict[str, set[int]] = {}
    groups: set[str] = set()
    transactional_ids: set[str] = set()
    for kind, name, partitions in _named(request, name_of):
        if kind == "topic":
            topics.setdefault(name, set()).update(partitions)
        else:
            (groups if kind == "group" else transactional_ids).add(name)
    client_id = context.client_id or ""
    return FaultSubject(
        api=context.route.name,
        client_id=client_id,
        from_node=node_of(client_id),
        listener=context.listener.name,
        topics={name: frozenset(partitions) for name, partitions in topics.items()},
        groups=frozenset(groups),
        transactional_ids=frozenset(transactional_ids),
    )


def node_of(client_id: str) -> int:
    """The node id in the client id of a node; -1 for the client id of another client."""
    digits = client_id.removeprefix(NODE_CLIENT)
    return int(digits) if client_id.startswith(NODE_CLIENT) and digits.isdecimal() else -1


def _named(value: object, name_of: TopicNames) -> Iterator[tuple[str, str, list[int]]]:
    """Find the resources that a request, or a struct of it, names. Yields a tuple of type, name and partition indexes
    for each; the type is topic, group or transactional id.
    """
    if isinstance(value, FindCoordinatorRequest):
        kind = {GROUP_KEY: "group", TRANSACTIONAL_KEY: "transactional id"}.get(value.key_type)
        if kind is not None:
            yield from ((kind, key, []) for key in (*value.coordinator_keys, value.key) if key)
        return
    for field in fields_of(type(value)):
        found = getattr(value, field.name, None)
        if not found:
            continue
        if field.name in ("group_id", "transactional_id") and isinstance(found, str):
            yield field.name.removesuffix("_id").replace("transactional", "transactional id"), found, []
        elif field.is_array and "topic" in field.name:
            for each in found:
                yield from _topic(each, field, name_of)
        elif field.is_array and field.kind is WireType.STRING and "group" in field.name:
            yield from (("group", each, []) for each in found)
        elif field.struct is not None:
            for each in found if field.is_array else (found,):
                yield from _named(each, name_of)


def _topic(value: object, field: Field, name_of: TopicNames) -> Iterator[tuple[str, str, list[int]]]:
    """Find the topic that an element of a list names. The element is a name, an id, or a struct with the name or the id
    and partitions. Yields a tuple as `_named` does, or nothing.
    """
    if field.struct is None:
        name = value if isinstance(value, str) else name_of(value) if isinstance(value, bytes) else None
        partitions: list[int] = []
    else:
        name = topic_name(value, name_of)
        partitions = [number for each in partition_list(value) if (number := partition_number(each)) is not None]
    if name:
        yield "topic", name, partitions


def give_topic_ids(answer: object, request: object, name_of: TopicNames) -> None:
    """Set the topic ids in a response to those in the request. Responses of newer versions have no topic names."""
    ids = {}
    for each in _structs(request):
        topic_id = getattr(each, "topic_id", ZERO_UUID)
        name = None if topic_id == ZERO_UUID else name_of(topic_id)
        if name is not None:
            ids[name] = topic_id
    for each in _structs(answer):
        if getattr(each, "topic_id", None) == ZERO_UUID:
            each.topic_id = ids.get(topic_name(each, name_of) or "", ZERO_UUID)  # type: ignore[attr-defined]


def _structs(value: object) -> Iterator[object]:
    """Yield a message and all structs in it, at any depth."""
    yield value
    for field in fields_of(type(value)):
        found = getattr(value, field.name, None)
        if field.struct is not None and found:
            for each in found if field.is_array else (found,):
                yield from _structs(each)


def topic_name(value: object, name_of: TopicNames) -> str | None:
    """The name of the topic in a struct; None if the struct has neither a name nor a known topic id."""
    for attribute in ("name", "topic", "topic_name"):
        name = getattr(value, attribute, None)
        if isinstance(name, str) and name:
            return name
    topic_id = getattr(value, "topic_id", ZERO_UUID)
    return None if topic_id == ZERO_UUID else name_of(topic_id)


def partition_field(value: object) -> Field | None:
    """The field of a topic's struct that lists its partitions; None if it has no such field."""
    return next((each for each in fields_of(type(value)) if each.is_array and each.name.startswith("partition")), None)


def partition_list(value: object) -> list[object]:
    """The partitions in a topic's struct: numbers or structs."""
    field = partition_field(value)
    return [] if field is None else list(getattr(value, field.name, None) or [])


def partition_number(value: object) -> int | None:
    """The index of a partition, which is a number or a struct; None if the struct has none."""
    if isinstance(value, int):
        return value
    for attribute in ("partition", "partition_index", "index", "partition_id"):
        number = getattr(value, attribute, None)
        if isinstance(number, int):
            return number
    return None
