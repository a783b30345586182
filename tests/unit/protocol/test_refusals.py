"""Responses with one error for the whole request, as Apache Kafka 4.3.1 was observed to send them."""

from __future__ import annotations

import pytest

from moldau.broker.network.authentication.sasl import api_type
from moldau.protocol.compiler import decode, encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)
from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from moldau.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from moldau.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.refusals import EXCEPTIONS, refused, refused_unread
from moldau.protocol.schema import default_struct, response_class_of
from tests.support.apis import APIS

ERROR, TEXT = ErrorCode.ILLEGAL_SASL_STATE, "text"


def observed() -> list[tuple[object, object, int]]:
    """A request, Apache Kafka's response, and the version."""
    partition = FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=100)
    fetched = [FetchTopic(topic="t", partitions=[partition])]
    topic = AlterReplicaLogDirTopic(name="t", partitions=[1])
    part = AlterReplicaLogDirPartitionResult(partition_index=1, error_code=ERROR)
    return [
        (
            FetchRequest(topics=fetched, max_wait_ms=1, min_bytes=1),
            FetchResponse(
                error_code=ERROR,
                responses=[
                    FetchableTopicResponse(
                        topic="t",
                        partitions=[PartitionData(partition_index=1, error_code=ERROR, high_watermark=-1, records=b"")],
                    )
                ],
            ),
            12,
        ),
        (FetchRequest(topics=fetched, max_wait_ms=1, min_bytes=1), FetchResponse(error_code=ERROR), 13),
        (
            FindCoordinatorRequest(coordinator_keys=["g", "h"]),
            FindCoordinatorResponse(
                coordinators=[
                    Coordinator(key=key, node_id=-1, host="", port=-1, error_code=ERROR, error_message=TEXT)
                    for key in "gh"
                ]
            ),
            4,
        ),
        (
            DescribeGroupsRequest(groups=["g"]),
            DescribeGroupsResponse(
                groups=[
                    DescribedGroup(
                        error_code=ERROR, group_id="g", group_state="", protocol_type="", protocol_data="", members=[]
                    )
                ]
            ),
            5,
        ),
        (
            CreateTopicsRequest(
                topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])],
                timeout_ms=100,
            ),
            CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=ERROR, error_message=TEXT)]),
            7,
        ),
        (
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=2,
                        resource_name="t",
                        principal="User:a",
                        host="*",
                        operation=3,
                        permission_type=3,
                    )
                ]
            ),
            CreateAclsResponse(results=[AclCreationResult(error_code=ERROR, error_message=TEXT)]),
            2,
        ),
        (
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10),
            InitProducerIdResponse(error_code=ERROR, producer_epoch=-1),
            4,
        ),
        (MetadataRequest(topics=None), MetadataResponse(brokers=[], topics=[], error_code=ERROR), 13),
        (joined(), JoinGroupResponse(error_code=ERROR, protocol_name=None, leader="", member_id=""), 7),
        (joined(), JoinGroupResponse(error_code=ERROR, protocol_name="", leader="", member_id=""), 6),
        (
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t",
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[1])],
            ),
            AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    AddPartitionsToTxnTopicResult(
                        name="t",
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=1, partition_error_code=ERROR)
                        ],
                    )
                ]
            ),
            3,
        ),
        (
            AlterReplicaLogDirsRequest(
                dirs=[AlterReplicaLogDir(path=path, topics=[moved]) for path, moved in (("/a", topic), ("/b", topic))]
            ),
            AlterReplicaLogDirsResponse(results=[AlterReplicaLogDirTopicResult(topic_name="t", partitions=[part])] * 2),
            2,
        ),
        (
            AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name="a", mechanism=1)],
                upsertions=[
                    ScramCredentialUpsertion(name="b", mechanism=1, iterations=1, salt=b"", salted_password=b"")
                ],
            ),
            AlterUserScramCredentialsResponse(
                results=[
                    AlterUserScramCredentialsResult(user=user, error_code=ERROR, error_message=TEXT) for user in "ab"
                ]
            ),
            0,
        ),
    ]


def joined() -> JoinGroupRequest:
    return JoinGroupRequest(group_id="g", session_timeout_ms=10, member_id="", protocol_type="consumer")


@pytest.mark.parametrize(("request_", "response", "version"), observed())
def test_the_error_is_in_the_whole_and_in_each_part(request_: object, response: object, version: int) -> None:
    assert encode(refused(request_, version, ERROR, TEXT), version) == encode(response, version)


@pytest.mark.parametrize("row", APIS, ids=lambda row: row.name)
def test_each_api_has_such_a_response_in_each_version(row: object) -> None:
    (api,) = (each for each in APIS if each is row)
    response_class = response_class_of(api.request)
    for version in range(api.first, api.last + 1):
        unread = refused_unread(response_class, version, ERROR, TEXT)
        for response in (unread, refused(default_struct(api.request), version, ERROR, TEXT)):
            made = encode(response, version)
            assert encode(decode(response_class, memoryview(made), version), version) == made


def test_each_exception_is_one_of_an_api_and_says_why() -> None:
    assert EXCEPTIONS.keys() <= {api.name for api in APIS}
    assert all(each.reason for each in EXCEPTIONS.values())


def test_a_name_that_the_response_cannot_leave_out_is_empty() -> None:
    """A client that asks for a topic by its id, before the versions in which the response may lack the name."""
    topic = MetadataRequestTopic(name=None, topic_id=b"t" * 16)
    made = refused(MetadataRequest(topics=[topic]), 10, ERROR, TEXT)
    assert [(each.name, each.topic_id) for each in made.topics] == [("", b"t" * 16)]
    assert encode(made, 10)


def test_the_name_of_an_api_in_a_message() -> None:
    assert [api_type(each) for each in ("Fetch", "AddOffsetsToTxn")] == ["FETCH", "ADD_OFFSETS_TO_TXN"]
