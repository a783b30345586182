"""The response that refuses a request as a whole, derived from the declarations of the messages.

    request                                  response
    group_id: id                             error_code: error
    topics: [(name, partitions: [index])]    topics: [(name, partitions: [(index, error)])]
    groups: [id]                             groups: [(id, error)]

If the response itself has an error code in the version, the error is there. Otherwise it is in each element of the
lists, and an element repeats the names and ids of the corresponding element of the request. Two lists correspond if
their elements have the same name or id, or if the elements of the request are the names or ids themselves. `EXCEPTIONS`
has the APIs that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.schema import (
    NEVER,
    VERSION_MAX,
    Field,
    Range,
    default_struct,
    fields_of,
    response_class_of,
    spec_of,
    struct_of,
)

NAMES: Final = {
    **dict.fromkeys(("name", "topic", "topic_name", "user"), "name"),
    **dict.fromkeys(("partition", "partition_index", "partition_id", "index"), "partition"),
    **{
        name: name
        for name in (
            "group_id",
            "group_instance_id",
            "key",
            "log_dir",
            "member_id",
            "producer_id",
            "resource_name",
            "resource_type",
            "topic_id",
            "transactional_id",
        )
    },
}
"""The meaning of each field that has a name or an id, by the field's name. Messages have several field names for a
topic, and for a partition."""
UNKNOWN: Final = frozenset(
    {
        "base_offset",
        "committed_offset",
        "high_watermark",
        "low_watermark",
        "node_id",
        "num_partitions",
        "port",
        "replication_factor",
    }
)
"""The fields that are -1 in a refusal, whatever their defaults are."""
ERRORS: Final = frozenset({"error_code", "partition_error_code"})
MESSAGE: Final = "error_message"
MESSAGES: Final = {
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}
"""Apache Kafka's messages for these errors.

DIVERGES: for a client without the permission Apache Kafka often sends the text of a Java object, with addresses of its
threads: "Request Request(processor=2, ...) needs ALTER permission."; here it is the plain message of the error.
"""
NAMED_MESSAGES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Apache Kafka's messages for errors about a named topic, group or transactional id. Most APIs send these errors
without a message."""


def refused(request: object, version: int | None, error: ErrorCode, message: str | None = None) -> Any:
    """The response that refuses a request as a whole with an error. `version` is that of the request; None stands for
    the newest version. `message` is the error message.

    DIVERGES: the message is also in responses such as those of FindCoordinator, DescribeConfigs, AlterClientQuotas and
    DeleteTopics, if Apache Kafka has the general text of the error, or none. What is neither a name nor an error has
    the value of one rule (`UNKNOWN`), and not the one that Apache Kafka chose for its API. Each marker of a
    WriteTxnMarkers has its error; Apache Kafka tells the last one of each producer id.
    """
    return _refuse(request, version, error, message)


def refused_with_text(request: object, version: int | None, error: ErrorCode) -> Any:
    """The response that refuses a request as a whole, with Apache Kafka's message for the error. Most errors and some
    APIs have no message."""
    return _refuse(request, version, error, _text(request, error))


def refused_elements(request: object, version: int, error: ErrorCode, results: str) -> list[object]:
    """Make one element of the list `results` for each element of the request, with the error and its message. The
    caller adds them to a response that refuses only these elements."""
    elements: list[object] = getattr(_refuse(request, version, error, _text(request, error), repeats=True), results)
    return elements


def refused_parts(request: object, version: int, error: ErrorCode) -> Any:
    """The response in which each element of the request is refused with the error, even if the response itself has an
    error code."""
    return _refuse(request, version, error, None, repeats=True)


def _text(request: object, error: ErrorCode) -> str | None:
    exception = _exception(request)
    if exception.is_silent:
        return None
    return MESSAGES.get(error) or (NAMED_MESSAGES.get(error) if exception.tells_names else None)


def _refuse(
    request: object, version: int | None, error: ErrorCode, message: str | None, *, repeats: bool = False
) -> Any:
    exception = _exception(request)
    refusal = _Refusal(spec_of(type(request)).versions.last if version is None else version, error, message)
    response = refusal.target(response_class_of(type(request)))
    if repeats or refusal.version in exception.repeats_parts or not refusal.has_error(type(response)):
        refusal.repeat_parts(response, request)
    if exception.change is not None:
        exception.change(response, request, refusal)
    return response


def refused_unread(response_class: type[object], version: int, error: ErrorCode, message: str) -> object:
    """Return the response to a request that could not be decoded, with the error and no elements."""
    return _Refusal(version, error, message).target(response_class)


def _exception(request: object) -> RefusalException:
    return EXCEPTIONS.get(type(request).__name__.removesuffix("Request"), NO_EXCEPTION)


class _Refusal:
    """An error and its message, to be put into a response of one version."""

    def __init__(self, version: int, error: ErrorCode, message: str | None) -> None:
        self.version = version
        self.error = error
        self.message = message

    def has_error(self, struct: type[object]) -> bool:
        """Whether a struct has an error code among its own fields in this version."""
        return any(each.name in ERRORS and self.version in each.versions for each in fields_of(struct))

    def holds_error(self, struct: type[object]) -> bool:
        """Whether a struct, or a struct in one of its lists, has an error code in this version."""
        return self.has_error(struct) or any(
            each.is_array and each.struct is not None and self.holds_error(each.struct) for each in fields_of(struct)
        )

    def target(self, struct: type[object]) -> object:
        """Make a response, or an element of a response, that has the error and empty lists."""
        result = default_struct(struct)
        for field in fields_of(struct):
            if field.name in ERRORS and self.version in field.versions:
                setattr(result, field.name, self.error)
            elif field.name == MESSAGE and (self.message is not None or self.version in field.nullable):
                setattr(result, MESSAGE, self.message)
            elif field.name in UNKNOWN:
                setattr(result, field.name, -1)
        return result

    def zero(self, struct: type[object], name: str) -> object:
        """The value of an absent field: null if the field may be null in this version, otherwise its default."""
        field = _field(struct, name)
        return None if self.version in field.nullable else field.default

    def repeat_parts(self, result: object, source: object) -> None:
        """Fill those lists of `result` (a response, or an element of one) whose elements report an error. A list gets
        one element for each element of the corresponding lists of `source` (the request, or an element of it)."""
        for field in fields_of(type(result)):
            if field.is_array and field.struct is not None and self.holds_error(field.struct):
                setattr(result, field.name, list(self._parts(field.struct, source)))

    def _parts(self, target: type[object], source: object) -> Iterator[object]:
        """Yield the elements of a list of the response, one for each element of the lists of the request that
        correspond to it.

        A list of the request whose elements have no such name, such as the directories of AlterReplicaLogDirs, may have
        in each element a list that corresponds.
        """
        named = _named(target)
        for field in fields_of(type(source)):
            elements = getattr(source, field.name) if field.is_array else None
            if not elements:
                continue
            names: Sequence[tuple[Field, str | None]]
            if field.struct is None:
                names = [(each, None) for each in named.values() if each.kind is field.kind][:1]
            else:
                given = _named(field.struct)
                names = [(each, given[name].name) for name, each in named.items() if name in given]
            if names or not named:
                for element in elements:
                    yield self._part(target, element, names)
            elif field.struct is not None:
                for element in elements:
                    yield from self._parts(target, element)

    def _part(self, target: type[object], element: object, names: Sequence[tuple[Field, str | None]]) -> object:
        """Make the element of a response that refuses one element of the request.

        `names` lists the fields to copy, so that the client sees what is refused: names and ids. Each pair has a field
        of the response's element, and the name of the request's field that has its value. If the request's element is a
        plain value, such as a topic's name, the value itself is copied, and the pair has None.
        """
        part = self.target(target)
        for field, of_element in names:
            value = element if of_element is None else getattr(element, of_element)
            if value is not None or self.version in field.nullable:
                setattr(part, field.name, value)
        if not self.has_error(target):
            self.repeat_parts(part, element)
        return part


def _field(struct: type[object], name: str) -> Field:
    return next(each for each in fields_of(struct) if each.name == name)


def _named(struct: type[object]) -> dict[str, Field]:
    """The fields of a struct that have a name or an id, by what they stand for (`NAMES`)."""
    return {NAMES[each.name]: each for each in fields_of(struct) if each.name in NAMES and not each.is_array}


# What Apache Kafka does otherwise

ALWAYS: Final = Range(0, VERSION_MAX)


class RefusalException(NamedTuple):
    """How the refusals of one API differ from the rules in this module's docstring."""

    reason: str
    repeats_parts: Range = NEVER
    """The versions in which the elements have the error in addition to the response as a whole."""
    is_silent: bool = False
    """Whether the refusal has no error message."""
    tells_names: bool = False
    """Whether the errors in `NAMED_MESSAGES` have their message."""
    change: Callable[[Any, Any, _Refusal], None] | None = None
    """Changes the response; it is called with (response, request, refusal). None if no change is needed."""


def _empty_records(response: Any, request: Any, refusal: _Refusal) -> None:
    for topic in response.responses:
        for partition in topic.partitions:
            partition.records = b""


def _each_entity(response: Any, request: Any, refusal: _Refusal) -> None:
    """Add one element of the response for each quota entity of the request. For INVALID_REQUEST there are none, because
    the lists of the request may be too long."""
    if refusal.error is ErrorCode.INVALID_REQUEST:
        return
    kind = struct_of(type(response), "entries")
    part_kind = struct_of(kind, "entity")
    entities = dict.fromkeys(
        tuple(sorted({each.entity_type: each.entity_name for each in entry.entity}.items()))
        for entry in request.entries
    )
    response.entries = []
    for entity in entities:
        result: Any = refusal.target(kind)
        for entity_type, entity_name in entity:
            part: Any = default_struct(part_kind)
            part.entity_type, part.entity_name = entity_type, entity_name
            result.entity.append(part)
        response.entries.append(result)


def _each_user(response: Any, request: Any, refusal: _Refusal) -> None:
    response.results = list({each.user: each for each in response.results}.values())


def _no_epoch(response: Any, request: Any, refusal: _Refusal) -> None:
    response.producer_epoch = -1


def _no_entries(response: Any, request: Any, refusal: _Refusal) -> None:
    response.entries = None


def _no_names(response: Any, request: Any, refusal: _Refusal) -> None:
    for each in response.results:
        each.user = ""


def _no_protocol(response: Any, request: Any, refusal: _Refusal) -> None:
    response.protocol_name = refusal.zero(type(response), "protocol_name")


def _text_of_one(response: Any, request: Any, refusal: _Refusal) -> None:
    for each in response.coordinators:
        if each.error_message is None or each.error_message in NAMED_MESSAGES.values():
            each.error_message = ""


NO_EXCEPTION: Final = RefusalException("")
EXCEPTIONS: Final[Mapping[str, RefusalException]] = {
    "AlterClientQuotas": RefusalException("an entity is named by parts, and is told once", change=_each_entity),
    "AlterConfigs": RefusalException("a resource is refused with a text", tells_names=True),
    "AlterPartitionReassignments": RefusalException("clients look at the partitions", repeats_parts=ALWAYS),
    "AlterUserScramCredentials": RefusalException("a user is told once", change=_each_user),
    "DeleteTopics": RefusalException("a topic is refused with a text", tells_names=True),
    "DescribeClientQuotas": RefusalException("the entries are null", is_silent=True, change=_no_entries),
    "DescribeConfigs": RefusalException("a resource is refused with a text", tells_names=True),
    "DescribeProducers": RefusalException("a partition is refused with a text", tells_names=True),
    "DescribeUserScramCredentials": RefusalException(
        "each user is refused without its name", repeats_parts=ALWAYS, is_silent=True, change=_no_names
    ),
    "ElectLeaders": RefusalException("clients look at the partitions", repeats_parts=ALWAYS),
    "Fetch": RefusalException(
        "clients look at the partitions, until topics are named by id; a partition has empty records",
        repeats_parts=Range(0, 12),
        change=_empty_records,
    ),
    "FindCoordinator": RefusalException(
        "one key has a text; of several, those of share state alone", tells_names=True, change=_text_of_one
    ),
    "IncrementalAlterConfigs": RefusalException("a resource is refused with a text", tells_names=True),
    "InitProducerId": RefusalException("there is no epoch", change=_no_epoch),
    "JoinGroup": RefusalException("there is no protocol, which versions that can say so do", change=_no_protocol),
    "Metadata": RefusalException("clients look at the topics", repeats_parts=ALWAYS),
}
"""The APIs whose refusals differ from the rules in this module's docstring: as Apache Kafka 4.3.1 was seen to answer,
or as Moldau answered before it had one rule."""
