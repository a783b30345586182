"""What a request is about: the topics, partitions, groups and transactional ids that it names, found by the declaration
of its message, whatever its API is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from moldau.broker.faults.fault import Subject
from moldau.broker.network.route import RequestContext
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.schema import ZERO_UUID, Field, Wire, fields_of

NODE_CLIENT: Final = "node-"
"""The client ids of nodes begin with this; the node's id follows."""
GROUP_KEY, TRANSACTIONAL_KEY = 0, 1
"""The types of keys in FindCoordinator."""
TopicNames = Callable[[bytes], str | None]
"""The name of a topic by its id."""


def subject_of(context: RequestContext, request: object, name_of: TopicNames) -> Subject:
    """The subject of a request."""
    topics: dict[str, set[int]] = {}
    groups: set[str] = set()
    transactional_ids: set[str] = set()
    for kind, name, partitions in _named(request, name_of):
        if kind == "topic":
            topics.setdefault(name, set()).update(partitions)
        else:
            (groups if kind == "group" else transactional_ids).add(name)
    client_id = context.client_id or ""
    return Subject(
        api=context.route.name,
        client_id=client_id,
        from_node=node_of(client_id),
        listener=context.listener.name,
        topics={name: frozenset(partitions) for name, partitions in topics.items()},
        groups=frozenset(groups),
        transactional_ids=frozenset(transactional_ids),
    )


def node_of(client_id: str) -> int:
    """The node that has this client id; -1 for a client."""
    digits = client_id.removeprefix(NODE_CLIENT)
    return int(digits) if client_id.startswith(NODE_CLIENT) and digits.isdecimal() else -1


def _named(value: object, name_of: TopicNames) -> Iterator[tuple[str, str, list[int]]]:
    """The resources that a request, or a part of it, names: (kind, name, partitions)."""
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
        elif field.is_array and field.kind is Wire.STRING and "group" in field.name:
            yield from (("group", each, []) for each in found)
        elif field.struct is not None:
            for each in found if field.is_array else (found,):
                yield from _named(each, name_of)


def _topic(value: object, field: Field, name_of: TopicNames) -> Iterator[tuple[str, str, list[int]]]:
    """A topic of a list of topics: its name, or a struct with its name or id, and its partitions."""
    if field.struct is None:
        name = value if isinstance(value, str) else name_of(value) if isinstance(value, bytes) else None
        partitions: list[int] = []
    else:
        name = topic_name(value, name_of)
        partitions = [number for each in partition_list(value) if (number := partition_number(each)) is not None]
    if name:
        yield "topic", name, partitions


def give_topic_ids(answer: object, request: object, name_of: TopicNames) -> None:
    """Set the ids of the topics that an answer names to the ids in the request, because answers of newer versions have
    only ids.
    """
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
    """A message and all structs in it."""
    yield value
    for field in fields_of(type(value)):
        found = getattr(value, field.name, None)
        if field.struct is not None and found:
            for each in found if field.is_array else (found,):
                yield from _structs(each)


def topic_name(value: object, name_of: TopicNames) -> str | None:
    """The name of the topic that a struct is about; None if the struct has neither a name nor a known id."""
    for attribute in ("name", "topic", "topic_name"):
        name = getattr(value, attribute, None)
        if isinstance(name, str) and name:
            return name
    topic_id = getattr(value, "topic_id", ZERO_UUID)
    return None if topic_id == ZERO_UUID else name_of(topic_id)


def partition_field(value: object) -> Field | None:
    """The field of a topic's struct that lists its partitions."""
    return next((each for each in fields_of(type(value)) if each.is_array and each.name.startswith("partition")), None)


def partition_list(value: object) -> list[object]:
    """The partitions in a topic's struct: numbers or structs."""
    field = partition_field(value)
    return [] if field is None else list(getattr(value, field.name, None) or [])


def partition_number(value: object) -> int | None:
    """The number of a partition; None if the struct has none."""
    if isinstance(value, int):
        return value
    for attribute in ("partition", "partition_index", "index", "partition_id"):
        number = getattr(value, attribute, None)
        if isinstance(number, int):
            return number
    return None
