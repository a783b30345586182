"""Makes the response to a request whose records the controller could not write, and finds the error in a response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from moldau.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from moldau.protocol.schema import default_struct


class ResponsePart(Protocol):
    """The result for one topic or resource of a request."""

    error_code: int
    error_message: str | None


PARTS: Final = ("topics", "responses", "results", "entries", "filter_results")
"""The names of the fields in which a response without an error code of its own has its results for topics or
resources.
"""


def failed_write_response(response: object, error: ErrorCode, message: str) -> object:
    """Turn `response` into the response to a request whose decision could not be written. Each success becomes `error`
    with `message`; refusals keep their errors.
    """
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
    """A response of the same class with this error and its message, the throttle time, and otherwise default values."""
    failed = default_struct(type(response))
    given = {"error_code": error, "error_message": message}
    given["throttle_time_ms"] = getattr(response, "throttle_time_ms", 0)
    for name, value in given.items():
        if hasattr(failed, name):
            setattr(failed, name, value)
    return failed


def error_of(response: object) -> ErrorCode:
    """The error code of a response. If it has none of its own, the error code of its first topic or resource."""
    code = getattr(response, "error_code", None)
    if code is None:
        code = next((part.error_code for part in parts_of(response)), ErrorCode.NONE)
    return ErrorCode(code)


def parts_of(response: object) -> Sequence[ResponsePart]:
    """The results of topics or resources in a response that has no error code of its own."""
    name = next((each for each in PARTS if hasattr(response, each)), None)
    assert name is not None, f"{type(response).__name__} has neither an error code nor parts"
    parts: Sequence[ResponsePart] = getattr(response, name)
    return parts
