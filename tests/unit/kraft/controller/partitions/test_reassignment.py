"""AlterPartitionReassignments on which the controller did not decide."""

from __future__ import annotations

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.refusals import refused


def test_the_refusal_names_each_partition() -> None:
    partitions = [ReassignablePartition(partition_index=index, replicas=[1]) for index in (0, 2)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    response = refused(request, None, error, "no")
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    assert (response.error_code, response.error_message) == (error, "no")
    (topic,) = response.responses
    assert topic.name == "t"
    assert [(each.partition_index, each.error_code, each.error_message) for each in topic.partitions] == [
        (0, error, "no"),
        (2, error, "no"),
    ]
