"""Texts of errors that tools print are those of Apache Kafka 4.3.1, as it was observed to answer."""

from __future__ import annotations

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignableTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.record_builder import Record, build_batch
from tests.conformance.acl_requests.asked import made
from tests.support.node import Node, serve_and

MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an"
    " incompatible broker. See the broker logs for more details."
)


def test_records_without_a_key_are_refused_in_the_words_of_apache_kafka() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        compacted = [made(CreatableTopicConfig, name="cleanup.policy", value="compact")]
        topic = made(CreatableTopic, name="c", num_partitions=1, replication_factor=1, configs=compacted)
        await client.ask(made(CreateTopicsRequest, topics=[topic], timeout_ms=1000), 5)
        records = [Record(None, b"v", 1), Record(b"k", b"v", 1), Record(None, b"v", 1)]
        answer = await client.produce("c", build_batch(records))
        said = "Compacted topic cannot accept message without key in topic partition c-0"
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index_error_message for each in answer.record_errors] == [said, said]
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{said}')" for index in (0, 2))
        assert answer.error_message == (
            "One or more records have been rejected due to 2 record errors in total, and only showing the first three"
            f" errors at most: [{shown}]"
        )

    serve_and(story)


def test_a_type_of_coordinator_that_does_not_exist_is_refused_in_the_words_of_apache_kafka() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        old = await client.ask(made(FindCoordinatorRequest, key="g", key_type=7), 3)
        new = await client.ask(made(FindCoordinatorRequest, coordinator_keys=["g"], key_type=7), 6)
        share = await client.ask(made(FindCoordinatorRequest, coordinator_keys=["g"], key_type=2), 6)
        assert (old.error_message, new.coordinators[0].error_message) == (MALFORMED, MALFORMED)
        assert (share.coordinators[0].error_code, share.coordinators[0].error_message) == (42, "")
        answer = await client.ask(made(DescribeClusterRequest, endpoint_type=2), 2)
        wanted = "sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        assert wanted in answer.error_message

    serve_and(story)


def test_settings_of_an_unknown_type_are_refused_in_the_words_of_apache_kafka() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        resources = [made(DescribeConfigsResource, resource_type=each, resource_name="x") for each in (0, 5, 99, -1)]
        answer = await client.ask(made(DescribeConfigsRequest, resources=resources), 4)
        assert [(each.error_code, each.error_message) for each in answer.results] == [(42, MALFORMED)] * 4

    serve_and(story)


def test_a_request_without_time_ends_undecided() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", 1)
        partitions = [made(TopicPartitions, topic="t", partitions=[0])]
        for version in (0, 2):
            answer = await client.ask(made(ElectLeadersRequest, topic_partitions=partitions, timeout_ms=0), version)
            (part,) = answer.replica_election_results[0].partition_result
            assert (part.error_code, part.error_message) == (ErrorCode.REQUEST_TIMED_OUT, None)
        topics = [ReassignableTopic(name="t", partitions=[])]
        for named, error, text in ((topics, int(ErrorCode.REQUEST_TIMED_OUT), None), ([], 0, "")):
            answer = await client.ask(made(AlterPartitionReassignmentsRequest, topics=named, timeout_ms=0), 0)
            assert (answer.error_code, answer.error_message) == (error, text)
        for timeout_ms, error in ((0, ErrorCode.REQUEST_TIMED_OUT), (-1, ErrorCode.REQUEST_TIMED_OUT), (1000, 0)):
            request = made(DeleteTopicsRequest, topic_names=["t"], timeout_ms=timeout_ms)
            assert (await client.ask(request, 5)).responses[0].error_code == error

    serve_and(story)


def test_reassignments_without_an_error_have_no_text_and_an_empty_list_an_empty_one() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic = ReassignableTopic(name="none", partitions=[])
        for topics, text in (([], ""), ([topic], None)):
            request = made(AlterPartitionReassignmentsRequest, topics=topics, timeout_ms=1000)
            assert (await client.ask(request, 0)).error_message == text

    serve_and(story)
