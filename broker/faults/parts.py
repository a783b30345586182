"""Splits a request into the elements that the scope of a fault names, and the others. It reads the declaration of the
message, as `subjects.py` does.
"""

from __future__ import annotations

from typing import Any

from moldau.broker.faults.fault import Scope
from moldau.broker.faults.subjects import (
    GROUP_KEY,
    TopicNames,
    partition_field,
    partition_list,
    partition_number,
    topic_name,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.schema import Field, default_struct, fields_of


def request_part(request: Any, scope: Scope, name_of: TopicNames, *, is_named: bool) -> object | None:
    """Copy one part of a request, or of a struct in it: the elements that the scope names if `is_named`, otherwise the
    other elements. None if there are none. If the scope names the request as a whole, its named part is the request
    itself, and there is no other part.
    """
    if _is_named_whole(request, scope):
        return request if is_named else None
    made = default_struct(type(request))
    kept, has_lists = False, False
    for field in fields_of(type(request)):
        found = getattr(request, field.name)
        if field.is_array and found and _may_name(field):
            has_lists = True
            parts = (_element(each, field, request, scope, name_of, is_named) for each in found)
            found = [each for each in parts if each is not None]
            kept = kept or bool(found)
        setattr(made, field.name, found)
    return made if kept or not (has_lists or is_named) else None


def _is_named_whole(value: object, scope: Scope) -> bool:
    """Whether a struct has the group id or the transactional id of the scope."""
    group, id_ = getattr(value, "group_id", None), getattr(value, "transactional_id", None)
    return (group is not None and group == scope.group) or (id_ is not None and id_ == scope.transactional_id)


def _may_name(field: Field) -> bool:
    return field.struct is not None or any(word in field.name for word in ("topic", "group", "keys"))


def _element(
    each: Any, field: Field, holder: object, scope: Scope, name_of: TopicNames, is_named: bool
) -> object | None:
    """The part of a list's element that the scope names, if `is_named`, or the rest of the element. None if that is
    empty.
    """
    if field.struct is None:
        return each if _names(each, field, holder, scope, name_of) is is_named else None
    if "topic" not in field.name:
        return request_part(each, scope, name_of, is_named=is_named)
    is_topic = scope.topic is not None and topic_name(each, name_of) == scope.topic
    listed = partition_field(each)
    if not is_topic or scope.partition is None or listed is None:
        return each if is_topic is is_named else None
    chosen = [one for one in partition_list(each) if (partition_number(one) == scope.partition) is is_named]
    made = default_struct(type(each))
    for inner in fields_of(type(each)):
        setattr(made, inner.name, chosen if inner is listed else getattr(each, inner.name))
    return made if chosen else None


def _names(each: object, field: Field, holder: object, scope: Scope, name_of: TopicNames) -> bool:
    """Whether the scope names an element of a list that is a name or a topic id. `holder` is the struct that has the
    list.
    """
    if isinstance(holder, FindCoordinatorRequest):
        return each == (scope.group if holder.key_type == GROUP_KEY else scope.transactional_id)
    if "topic" in field.name:
        return scope.topic is not None and (name_of(each) if isinstance(each, bytes) else each) == scope.topic
    return each == scope.group
