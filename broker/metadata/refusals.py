"""Responses to requests on which the controller did not decide, or whose records it could not write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from moldau.kraft.controller.apis import CONTROLLER_APIS, refuse_whole
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from moldau.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from moldau.protocol.schema import default_struct


class Part(Protocol):
    """The result of one topic or resource of a request."""

    error_code: int
    error_message: str | None


MESSAGES: Final = {
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}
"""The messages of Apache Kafka for these errors.

DIVERGES: for a client without the permission Apache Kafka often sends the text of a Java object, with addresses of its
threads: "Request Request(processor=2, ...) needs ALTER permission."; here it is the plain message of the error.
"""


PARTS: Final = ("topics", "responses", "results", "entries", "filter_results")
"""The fields with the results of parts, of responses without an error code of their own."""


def refused(request: object, error: ErrorCode) -> object:
    """The response to `request` with this error for every part, made by the row of its API."""
    row = CONTROLLER_APIS.get(type(request))
    refuse = refuse_whole if row is None else row.refuse
    return refuse(request, error, MESSAGES.get(error))


def undone(response: object, error: ErrorCode, message: str) -> object:
    """The response to a decision that was not written: successes become `error`; refusals keep their reasons."""
    if hasattr(response, "error_code"):
        return response if response.error_code else _failed(response, error, message)
    if isinstance(response, CreateTopicsResponse):
        # A topic that was not created has no id, partitions or settings in the response.
        response.topics = [
            each if each.error_code else CreatableTopicResult(name=each.name) for each in response.topics
        ]
    elif isinstance(response, DeleteAclsResponse):
        response.filter_results = [
            each if each.error_code else DeleteAclsFilterResult() for each in response.filter_results
        ]
    for part in parts_of(response):
        if not part.error_code:
            part.error_code, part.error_message = error, message
    return response


def _failed(response: object, error: ErrorCode, message: str) -> object:
    """A response of the same kind with this error and nothing else."""
    failed = default_struct(type(response))
    given = {"error_code": error, "error_message": message}
    given["throttle_time_ms"] = getattr(response, "throttle_time_ms", 0)
    for name, value in given.items():
        if hasattr(failed, name):
            setattr(failed, name, value)
    return failed


def error_of(response: object) -> ErrorCode:
    """The error of the whole response. Where it has no such field, the error of its first part."""
    code = getattr(response, "error_code", None)
    if code is None:
        code = next((part.error_code for part in parts_of(response)), ErrorCode.NONE)
    return ErrorCode(code)


def parts_of(response: object) -> Sequence[Part]:
    """The results in a response without an error code of its own."""
    name = next((each for each in PARTS if hasattr(response, each)), None)
    assert name is not None, f"{type(response).__name__} has neither an error code nor parts"
    parts: Sequence[Part] = getattr(response, name)
    return parts
