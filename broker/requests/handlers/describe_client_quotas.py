"""DescribeClientQuotas (API key 48, versions 0-1; KIP-546): no quota is set, so a valid filter matches nothing.

An invalid filter is refused as Apache Kafka refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.network.route import RequestContext

IP: Final = "ip"
ENTITY_TYPES: Final = ("user", "client-id", IP)


class FilterRefusal(NamedTuple):
    """Why a filter is not valid."""

    error: ErrorCode
    message: str


def handle(
    services: object, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    refusal = refusal_of(request.components)
    if refusal is not None:
        return DescribeClientQuotasResponse(error_code=refusal.error, error_message=refusal.message, entries=None)
    return DescribeClientQuotasResponse(entries=[])


def refusal_of(components: Sequence[ComponentData]) -> FilterRefusal | None:
    """None where the filter is valid. The first component that is not decides."""
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
    """The message of the refusal where match type and match string contradict each other; empty where they agree."""
    match component.match_type, component.match:
        case 0, None:
            return "Request specified MATCH_TYPE_EXACT, but set match string to null."
        case 1, str():
            return "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."
        case 2, str():
            return "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
        case ((0 | 1 | 2), _):
            return ""
    return f"Unknown match type {component.match_type}"
