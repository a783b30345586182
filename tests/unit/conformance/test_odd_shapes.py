"""Requests with one field in an odd shape."""

from __future__ import annotations

from moldau.protocol.compiler import encode
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.conformance.acl_requests import of_new_groups, of_records
from tests.conformance.acl_requests.asked import Asked, Ids, made
from tests.conformance.acl_requests.shapes import LEFT_OUT, shaped

IDS = Ids({"orders": b"\1" * 16, "hidden": b"\2" * 16})


def test_each_field_is_asked_in_each_shape_of_its_type() -> None:
    topic = made(ListOffsetsTopic, name="t", partitions=[made(ListOffsetsPartition, partition_index=3)])
    request = made(ListOffsetsRequest, replica_id=-1, topics=[topic])
    assert [each.name for each in shaped([Asked(request, 1)])] == [
        "ListOffsets v1 replica_id low",
        "ListOffsets v1 replica_id high",
        "ListOffsets v1 topics empty",
        "ListOffsets v1 topics first twice",
        "ListOffsets v1 topics.0.name empty",
        "ListOffsets v1 topics.0.name not a name",
        "ListOffsets v1 topics.0.partitions empty",
        "ListOffsets v1 topics.0.partitions first twice",
        "ListOffsets v1 topics.0.partitions.0.partition_index low",
        "ListOffsets v1 topics.0.partitions.0.partition_index high",
        "ListOffsets v1 topics.0.partitions.0.timestamp low",
        "ListOffsets v1 topics.0.partitions.0.timestamp high",
    ]
    twice = [each.asked.request for each in shaped([Asked(request, 1)]) if each.shape == "topics first twice"]
    assert twice == [made(ListOffsetsRequest, replica_id=-1, topics=[topic, topic])]
    assert request.topics == [topic]


def test_each_shape_can_be_written_and_has_a_name_of_its_own() -> None:
    asked = [*shaped(of_records.requests(IDS)), *shaped(of_new_groups.requests(IDS))]
    assert all(encode(each.asked.request, each.asked.version) for each in asked)
    assert len({each.name for each in asked}) == len(asked)
    assert not {each.name.partition(" ")[0] for each in asked} & LEFT_OUT
