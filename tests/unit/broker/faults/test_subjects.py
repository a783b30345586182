"""Topics of requests and of answers that a test gives, by name and by id."""

from __future__ import annotations

from moldau.broker.faults.messages import message_from_json
from moldau.broker.faults.subjects import give_topic_ids
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from moldau.protocol.schema import ZERO_UUID

ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))


def name_of(topic_id: bytes) -> str | None:
    return {ID: "t"}.get(topic_id)


def request(**topic: object) -> ProduceRequest:
    data = TopicProduceData(partition_data=[PartitionProduceData(index=0, records=b"")], **topic)  # type: ignore[arg-type]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])


def given_id(asked: ProduceRequest, **topic: object) -> bytes:
    """The id in the answer {"responses": [topic]} to a request."""
    answer = message_from_json(ProduceResponse, {"responses": [topic]})
    give_topic_ids(answer, asked, name_of)
    assert isinstance(answer, ProduceResponse)
    (found,) = answer.responses
    assert isinstance(found, TopicProduceResponse)
    return found.topic_id


def test_a_topic_that_an_answer_names_has_the_id_of_the_request() -> None:
    assert given_id(request(topic_id=ID), name="t") == ID
    assert given_id(request(topic_id=OTHER_ID), name="t") == ZERO_UUID, "a topic that the node does not know"
    assert given_id(request(topic_id=ID), name="u") == ZERO_UUID
    assert given_id(request(name="t"), name="t") == ZERO_UUID, "the request names no id"


def test_an_id_that_the_answer_gives_stays() -> None:
    assert given_id(request(topic_id=ID), name="t", topicId="EBESExQVFhcYGRobHB0eHw==") == OTHER_ID
