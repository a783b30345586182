"""What a request is answered with when nobody decided on it, or nobody could write down what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from protocol.errors import ErrorCode
from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.schema import default_struct, response_class_of


class Part(Protocol):
    """What became of one topic or resource of a request."""

    error_code: int
    error_message: str | None


MESSAGES: Final = {
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
}
"""As Apache Kafka words them."""


def refused(request: object, error: ErrorCode) -> object:
    """The response to `request` that says `error` of everything in it."""
    message = MESSAGES.get(error)
    match request:
        case CreateTopicsRequest(topics=topics):
            return CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(name=each.name, error_code=error, error_message=message) for each in topics
                ]
            )
        case DeleteTopicsRequest(topics=states, topic_names=names):
            results = [DeletableTopicResult(name=name, error_code=error, error_message=message) for name in names]
            results += [
                DeletableTopicResult(name=each.name, topic_id=each.topic_id, error_code=error, error_message=message)
                for each in states
            ]
            return DeleteTopicsResponse(responses=results)
        case CreatePartitionsRequest(topics=grown):
            return CreatePartitionsResponse(
                results=[
                    CreatePartitionsTopicResult(name=each.name, error_code=error, error_message=message)
                    for each in grown
                ]
            )
        case alter_configs.AlterConfigsRequest(resources=resources):
            return alter_configs.AlterConfigsResponse(
                responses=[
                    alter_configs.AlterConfigsResourceResponse(
                        resource_type=each.resource_type,
                        resource_name=each.resource_name,
                        error_code=error,
                        error_message=message,
                    )
                    for each in resources
                ]
            )
        case incremental_alter_configs.IncrementalAlterConfigsRequest(resources=altered):
            return incremental_alter_configs.IncrementalAlterConfigsResponse(
                responses=[
                    incremental_alter_configs.AlterConfigsResourceResponse(
                        resource_type=each.resource_type,
                        resource_name=each.resource_name,
                        error_code=error,
                        error_message=message,
                    )
                    for each in altered
                ]
            )
    response = default_struct(response_class_of(type(request)))
    assert hasattr(response, "error_code"), f"{type(response).__name__} has no error of its own"
    response.error_code = error
    return response


def undone(response: object, error: ErrorCode, message: str) -> object:
    """The response to what was decided and not done: `error` in place of each success, a refusal keeps its reason."""
    if isinstance(response, CreateTopicsResponse):
        # Nothing of a topic that does not exist is told.
        response.topics = [
            each if each.error_code else CreatableTopicResult(name=each.name) for each in response.topics
        ]
    if hasattr(response, "error_code"):
        response.error_code = error
        return response
    for part in parts_of(response):
        if not part.error_code:
            part.error_code, part.error_message = error, message
    return response


def error_of(response: object) -> ErrorCode:
    """The error that stands for the whole response: its own, or that of its first part where it has none."""
    code = getattr(response, "error_code", None)
    if code is None:
        code = next((part.error_code for part in parts_of(response)), ErrorCode.NONE)
    return ErrorCode(code)


def parts_of(response: object) -> Sequence[Part]:
    """The results of a response that has no error of its own."""
    lists = (getattr(response, name, None) for name in ("topics", "responses", "results"))
    return next((parts for parts in lists if parts), ())
