"""What a request is answered with when nobody decided on it: one error in every place where its response has one."""

from __future__ import annotations

from typing import Final

from broker.peer_channel import response_class
from protocol.errors import ErrorCode
from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.schema import default_struct

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
    response = default_struct(response_class(type(request)))
    assert hasattr(response, "error_code"), f"{type(response).__name__} has no error of its own"
    response.error_code = error
    return response


def error_of(response: object) -> ErrorCode:
    """The error that stands for the whole response: its own, or that of its first part where it has none."""
    code = getattr(response, "error_code", None)
    if code is None:
        parts = next(
            (value for name in ("topics", "responses", "results") if (value := getattr(response, name, None))), ()
        )
        code = parts[0].error_code if parts else ErrorCode.NONE
    return ErrorCode(code)
