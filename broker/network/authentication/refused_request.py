"""The response of an API with one error for the whole request, as Apache Kafka's brokers make it of every request.

    request                                  response
    topics: [(name, partitions: [index])]    topics: [(name, partitions: [(index, error)])]
    groups: [id]                             groups: [(id, error)]

The response repeats the parts of the request that have an error of their own. Which list of the response belongs to
which list of the request follows from the declarations: the elements share fields, such as the name of a topic, or the
elements of the request are the values of such a field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.schema import Field, default_struct, fields_of

SAME: Final = {
    "topic": "name",
    "topic_name": "name",
    "user": "name",
    "partition": "partition_index",
    "index": "partition_index",
}
"""Names of fields for which messages have several words."""
UNKNOWN: Final = frozenset(
    {
        "base_offset",
        "high_watermark",
        "low_watermark",
        "node_id",
        "num_partitions",
        "port",
        "producer_epoch",
        "replication_factor",
    }
)
"""Fields that are -1 in such a response, whatever their default and the request."""
ERRORS: Final = frozenset({"error_code", "partition_error_code"})
MESSAGE: Final = "error_message"
NULL: Final = "protocol_name"
"""The field that is null in such a response, in the versions that allow it."""
NOT_NAMES: Final = UNKNOWN | ERRORS | {MESSAGE}
"""Fields that do not name a part."""


def refused_response(
    response_class: type[object], version: int, request: object | None, error: ErrorCode, message: str
) -> object:
    """The response to a request with this error; without parts where the request is None.

    DIVERGES: the message is also in responses such as those of FindCoordinator, DescribeConfigs, AlterClientQuotas and
    DeleteTopics, where Apache Kafka has the general text of the error, or none. Every part of the request is repeated;
    Apache Kafka leaves out those of LeaveGroup, OffsetDelete, WriteTxnMarkers, DescribeQuorum and UpdateFeatures. What
    is neither a name nor an error has the value of one rule (`UNKNOWN`), and not the one that Apache Kafka chose for
    its API. A Produce whose records are null has this response, too; Apache Kafka closes the connection without one.
    """
    result = _refused(response_class, error, message)
    for field in fields_of(response_class):
        if field.name == NULL and version in field.nullable:
            setattr(result, NULL, None)
    if request is not None:
        _repeat_parts(result, request, error, message)
    return result


def _refused(target: type[object], error: ErrorCode, message: str) -> object:
    """A response, or a part of one, with the error and no parts."""
    result = default_struct(target)
    for field in fields_of(target):
        if field.name in ERRORS:
            setattr(result, field.name, error)
        elif field.name == MESSAGE:
            setattr(result, MESSAGE, message)
        elif field.name in UNKNOWN:
            setattr(result, field.name, -1)
    return result


def _repeat_parts(result: object, source: object, error: ErrorCode, message: str) -> None:
    """Add the parts of the request, or of a part of it, that have an error of their own in the response."""
    for field in fields_of(type(result)):
        if field.is_array and field.struct is not None and _has_error(field.struct):
            setattr(result, field.name, _parts(field.struct, source, error, message))


def _parts(target: type[object], source: object, error: ErrorCode, message: str) -> list[object]:
    """The parts of the response for the lists of the request that belong to them; empty where there are none.

    A list whose elements have no such part, such as the directories of AlterReplicaLogDirs, may have one that does in
    each element.
    """
    parts: list[object] = []
    named = {_same(each): each for each in fields_of(target) if not each.is_array and each.name not in NOT_NAMES}
    for field in fields_of(type(source)):
        elements = getattr(source, field.name) if field.is_array else None
        if not elements:
            continue
        names: Sequence[tuple[str, str | None]]
        if field.struct is None:
            names = [(each.name, None) for each in named.values() if each.kind is field.kind][:1]
        else:
            given = {_same(each): each for each in fields_of(field.struct) if not each.is_array}
            names = [
                (each.name, given[same].name)
                for same, each in named.items()
                if same in given and given[same].kind is each.kind
            ]
        if names or not named:
            parts += [_part(target, element, names, error, message) for element in elements]
        elif field.struct is not None:
            for element in elements:
                parts += _parts(target, element, error, message)
    return parts


def _part(
    target: type[object],
    element: object,
    names: Sequence[tuple[str, str | None]],
    error: ErrorCode,
    message: str,
) -> object:
    """The part for an element of the request. `names`: the fields of the part and those of the element that name it;
    None where the element is the name itself.
    """
    part = _refused(target, error, message)
    for name, of_element in names:
        setattr(part, name, element if of_element is None else getattr(element, of_element))
    if not names or names[0][1] is not None:
        _repeat_parts(part, element, error, message)
    return part


def _has_error(struct: type[object]) -> bool:
    """Whether a part, or a part of it, has an error code of its own."""
    return any(
        each.name in ERRORS or (each.is_array and each.struct is not None and _has_error(each.struct))
        for each in fields_of(struct)
    )


def _same(field: Field) -> str:
    return SAME.get(field.name, field.name)


def api_type(name: str) -> str:
    """Apache Kafka's name of an API in messages: CREATE_TOPICS for CreateTopics."""
    return "".join(f"_{each}" if each.isupper() and index else each for index, each in enumerate(name)).upper()
