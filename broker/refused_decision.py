"""What the controller's client is told when a decision could not be written down."""

from __future__ import annotations

from typing import Protocol, cast

from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from protocol.messages.incremental_alter_configs import AlterConfigsResourceResponse as IncrementalResourceResponse
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse


class WholeAnswer(Protocol):
    """Of what brokers ask: one error says that nothing else in the answer holds."""

    error_code: int


ERROR = ErrorCode.KAFKA_STORAGE_ERROR
Refused = (
    CreatableTopicResult
    | DeletableTopicResult
    | CreatePartitionsTopicResult
    | AlterConfigsResourceResponse
    | IncrementalResourceResponse
)


def refused_decision(answer: object, message: str) -> object:
    """The answer, with KAFKA_STORAGE_ERROR in place of each success."""
    match answer:
        case CreateTopicsResponse(topics=created):
            answer.topics = [
                each if each.error_code else with_error(CreatableTopicResult(name=each.name), message)
                for each in created
            ]
        case DeleteTopicsResponse(responses=deleted):
            for each in deleted:
                refuse(each, message)
        case CreatePartitionsResponse(results=grown):
            for partitions in grown:
                refuse(partitions, message)
        case AlterConfigsResponse(responses=altered):
            for resource in altered:
                refuse(resource, message)
        case IncrementalAlterConfigsResponse(responses=changed):
            for change in changed:
                refuse(change, message)
        case _:
            cast("WholeAnswer", answer).error_code = ERROR
    return answer


def refuse(result: Refused, message: str) -> None:
    if not result.error_code:
        result.error_code, result.error_message = ERROR, message


def with_error(result: CreatableTopicResult, message: str) -> CreatableTopicResult:
    refuse(result, message)
    return result
