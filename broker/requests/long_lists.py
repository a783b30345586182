"""How the lists of requests are bounded: what is handled whole has at most so many elements. What is cut into parts is
in `broker/requests/parts.py`; which list of an API is treated how says its row in the table of APIs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.metadata.refusals import refused
from moldau.broker.requests.parts import Parts, Pause, RequestPart
from moldau.kraft.controller.topics.new_partitions import NEW_PARTITIONS_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntryData,
)
from moldau.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.schema import fields_of

if TYPE_CHECKING:
    from moldau.broker.network.route import Handler, RequestContext
    from moldau.broker.requests.api import Api


def too_many_topics(request: object) -> Handler | None:
    """DIVERGES: Apache Kafka asks the ACLs before it refuses more than 10,000 topics; here all are refused at once."""
    assert isinstance(request, CreateTopicsRequest)
    if len(request.topics) <= NEW_PARTITIONS_MAX:
        return None

    def refuse(context: RequestContext, part: object) -> CreateTopicsResponse:
        assert isinstance(part, CreateTopicsRequest)
        error, message = ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=each.name, error_code=error, error_message=message) for each in part.topics
            ]
        )

    return refuse


class MetadataParts(Parts):
    """How requests for the metadata of topics are cut."""

    __slots__ = ()

    def of(self, request: object) -> Generator[RequestPart | Pause | None, object, None]:
        """A request for more topics than one request may create creates none, as in Apache Kafka. DIVERGES: topics that
        exist count here.
        """
        assert isinstance(request, MetadataRequest)
        if len(request.topics or ()) > NEW_PARTITIONS_MAX:
            request = copy(request)
            request.allow_auto_topic_creation = False
        return Parts.of(self, request)


class ListOfRequest(NamedTuple):
    """A list in the requests of an API, and what keeps the event loop free where it is long."""

    api: str
    path: str
    treatment: str
    """Empty where the row of the API does not name the list."""


def lists_of_requests() -> Iterator[ListOfRequest]:
    """Every list in the declaration of every request that a listener serves."""
    from moldau.broker.requests.table import APIS

    for row in APIS:
        for path in list_paths(row.request):
            yield ListOfRequest(row.name, path, treatment(row, path))


def list_paths(cls: type[object], prefix: str = "") -> Iterator[str]:
    """The paths of all lists in a message, the outer ones first."""
    for field in fields_of(cls):
        if field.is_array:
            yield prefix + field.name
        if field.struct is not None:
            yield from list_paths(field.struct, f"{prefix}{field.name}.")


def treatment(row: Api, path: str) -> str:
    """What a row of the table of APIs says of a list; empty where that is nothing."""
    texts = []
    plan = row.parts
    if plan is not None and any(f"{each.request}.".startswith(f"{path}.") for each in plan.lists):
        from_text = f", for more than {plan.long_from}" if plan.long_from else ""
        texts.append(f"parts of {plan.size}{from_text}")
    if path in row.bounds:
        texts.append(f"at most {row.bounds[path]}")
    if path in row.one_pass:
        texts.append(f"one pass: {row.one_pass[path]}")
    assert len(texts) <= 1, f"{row.name}.{path} has several treatments"
    return "".join(texts)


def bounded(limits: Mapping[str, int], answer: Handler) -> Handler:
    """A handler that refuses a request in which a list has too many elements."""
    paths = [(path.split("."), most) for path, most in limits.items()]

    def handle(context: RequestContext, request: object) -> object:
        for path, most in paths:
            if _exceeds(request, path, most):
                return _refused(request)
        return answer(context, request)

    return handle


def _refused(request: object) -> object:
    if isinstance(request, AlterClientQuotasRequest):
        # The entities are left out, because they may be what is too long.
        return AlterClientQuotasResponse(
            entries=[ResponseEntryData(error_code=ErrorCode.INVALID_REQUEST, entity=[]) for _ in request.entries]
        )
    return refused(request, ErrorCode.INVALID_REQUEST)


def _exceeds(holder: object, path: Sequence[str], most: int) -> bool:
    elements = getattr(holder, path[0]) or ()
    if len(path) == 1:
        return len(elements) > most
    return any(_exceeds(each, path[1:], most) for each in elements)
