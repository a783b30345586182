"""The filters of DescribeClientQuotas: decides which entities a filter matches, and which filters are refused."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_client_quotas import ComponentData
from moldau.security.quotas.entity import ENTITY_TYPES, IP, QuotaEntity


class MatchType(IntEnum):
    """The way in which a component of a filter compares names."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


_MATCH_TYPES: Final = frozenset(MatchType)


class FilterRefusal(NamedTuple):
    """The error code and the message with which an invalid filter is refused."""

    error: ErrorCode
    message: str


def matches(entity: QuotaEntity, components: Sequence[ComponentData], is_strict: bool) -> bool:
    """Whether a filter of these components, which must be valid, matches an entity. A strict filter matches only
    entities without further parts.
    """
    names = dict(entity.parts)
    if is_strict and len(names) != len(components):
        return False
    return all(each.entity_type in names and _matches_name(each, names[each.entity_type]) for each in components)


def _matches_name(component: ComponentData, name: str | None) -> bool:
    match component.match_type:
        case MatchType.EXACT:
            return name is not None and name == component.match
        case MatchType.DEFAULT:
            return name is None
    return True


def refusal_of(components: Sequence[ComponentData]) -> FilterRefusal | None:
    """Return the refusal of the first invalid component of a filter; None if the filter is valid."""
    seen: list[str] = []
    for component in components:
        kind = component.entity_type
        if kind in seen:
            text = f"Entity type {kind} cannot appear more than once in the filter."
            return FilterRefusal(ErrorCode.INVALID_REQUEST, text)
        if not kind:
            return FilterRefusal(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind not in ENTITY_TYPES:
            return FilterRefusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        seen.append(kind)
        text = _match_problem(component)
        if text:
            return FilterRefusal(ErrorCode.INVALID_REQUEST, text)
    if IP in seen and len(seen) > 1:
        text = (
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId"
            " filter component."
        )
        return FilterRefusal(ErrorCode.INVALID_REQUEST, text)
    return None


def _match_problem(component: ComponentData) -> str:
    """Why the match type and the match string of a component contradict each other; empty if they agree."""
    match component.match_type, component.match:
        case MatchType.EXACT, None:
            return "Request specified MATCH_TYPE_EXACT, but set match string to null."
        case MatchType.DEFAULT, str():
            return "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."
        case MatchType.SPECIFIED, str():
            return "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
    if component.match_type in _MATCH_TYPES:
        return ""
    return f"Unknown match type {component.match_type}"
