"""What users change from the console, where moldau.console.writes is on: each change is a form, and a Kafka request
under the user's access. A change of offsets is shown before it is made.

    form ──▶ same origin, secret of the session ──▶ change ──▶ a line in the log ──▶ the page that shows the result
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.broker.console.group_pages import BY_NAME_VERSION, SHARE, committed_offsets, coordinator_of, group_row
from moldau.broker.console.page import Refusal, Visit, error_name, gather, path_to
from moldau.broker.console.topic_pages import EARLIEST, LATEST, Partition, offsets_of, visible_topic
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TIMEOUT_MS: Final = 30_000
TARGETS: Final = ("earliest", "latest", "time", "offset", "shift")


class Changed(NamedTuple):
    """A change that was made."""

    what: str
    """For the log."""
    location: str
    """The page that shows the result."""


@dataclass(frozen=True, slots=True)
class OffsetChange:
    topic: str
    partition: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class OffsetPreview:
    """What a change of a group's offsets would do."""

    group: str
    changes: list[OffsetChange]


Change = Callable[[Visit, Mapping[str, str]], Awaitable[Changed | OffsetPreview]]


async def create_topic(visit: Visit, form: Mapping[str, str]) -> Changed:
    """Create a topic; an empty number is the broker's default."""
    name = form.get("name", "").strip()
    partitions, replicas = _number(form, "partitions", -1), _number(form, "replicas", -1)
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    answer = await visit.client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), CreateTopicsResponse)
    (result,) = answer.topics
    _refuse_error(result.error_code, result.error_message)
    return Changed(f"topic {name} created", path_to("topics", name))


async def delete_topic(visit: Visit, form: Mapping[str, str]) -> Changed:
    """Delete a topic whose name was typed again."""
    name = visit.variables["name"]
    topic = visible_topic(visit, name)
    if form.get("confirm", "") != name:
        raise Refusal(400, f"type {name} in order to delete it")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic.id)], timeout_ms=TIMEOUT_MS)
    answer = await visit.client.ask(request, DeleteTopicsResponse)
    (result,) = answer.responses
    _refuse_error(result.error_code, result.error_message)
    return Changed(f"topic {name} with id {topic.id.hex()} deleted", "/topics")


async def change_offsets(visit: Visit, form: Mapping[str, str]) -> Changed | OffsetPreview:
    """Change the committed offsets of a group without members. The first form is answered with what would change; the
    second one holds these offsets, so what is made is what was shown.
    """
    group_id = visit.variables["id"]
    coordinator = await coordinator_of(visit.client, group_id)
    if form.get("confirm") == "yes":
        offsets = _confirmed(form)
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), offset in offsets.items():
            partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            topics.setdefault(topic, []).append(partition)
        request = OffsetCommitRequest(
            group_id=group_id,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        answer = await visit.client.ask(request, OffsetCommitResponse, broker_id=coordinator, version=BY_NAME_VERSION)
        for topic_answer in answer.topics:
            for each in topic_answer.partitions:
                _refuse_error(each.error_code, None)
        return Changed(f"offsets of group {group_id} set to {offsets}", path_to("groups", group_id))
    return await _preview(visit, form, group_id, coordinator)


async def _preview(visit: Visit, form: Mapping[str, str], group_id: str, coordinator: int) -> OffsetPreview:
    row = await group_row(visit.client, group_id, coordinator)
    if row.kind == SHARE:
        raise Refusal(400, "the offsets of a share group are not changed here")
    if row.state != "Empty":
        raise Refusal(409, f"the group is {row.state}: its members have to stop first")
    committed = (await committed_offsets(visit.client, [row]))[group_id].offsets
    keys = [key for key in committed if form.get("topic", "").strip() in ("", key[0])]
    target = form.get("to", TARGETS[0])
    if target not in TARGETS:
        raise Refusal(400, f"to must be one of {', '.join(TARGETS)}")
    at = _number(form, "at", 0)
    firsts, lasts = await gather(offsets_of(visit.client, keys, EARLIEST), offsets_of(visit.client, keys, LATEST))
    at_time = await offsets_of(visit.client, keys, at) if target == "time" else {}
    changes = []
    for key in sorted(keys):
        if key not in firsts or key not in lasts:
            continue
        before = committed[key]
        wanted = {
            "earliest": firsts[key],
            "latest": lasts[key],
            "time": at_time.get(key, -1) if at_time.get(key, -1) >= 0 else lasts[key],
            "offset": at,
            "shift": (before if before is not None else lasts[key]) + at,
        }[target]
        changes.append(OffsetChange(*key, before, min(max(wanted, firsts[key]), lasts[key])))
    return OffsetPreview(group_id, changes)


def _confirmed(form: Mapping[str, str]) -> dict[Partition, int]:
    """The offsets in the second form, whose fields are named `offset:PARTITION:TOPIC`."""
    found: dict[Partition, int] = {}
    for name, text in form.items():
        kind, _, rest = name.partition(":")
        index, _, topic = rest.partition(":")
        if kind == "offset" and index.isdecimal() and text.isdecimal():
            found[topic, int(index)] = int(text)
    if not found:
        raise Refusal(400, "no offset is given")
    return found


async def end_transaction(visit: Visit, form: Mapping[str, str]) -> Changed:
    """Abort a transaction that hangs in a partition, by a marker of the epochs that its leader knows."""
    name, index = form.get("topic", ""), _number(form, "partition", -1)
    topic = visible_topic(visit, name)
    if index not in topic.partitions:
        raise Refusal(404, f"topic {name} has no partition {index}")
    marker = WritableTxnMarker(
        producer_id=_number(form, "producer_id", -1),
        producer_epoch=_number(form, "producer_epoch", -1),
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[index])],
        coordinator_epoch=max(_number(form, "coordinator_epoch", 0), 0),
    )
    answer = await visit.client.ask(
        WriteTxnMarkersRequest(markers=[marker]),
        WriteTxnMarkersResponse,
        broker_id=topic.partitions[index].leader,
        version=1,
    )
    _refuse_error(answer.markers[0].topics[0].partitions[0].error_code, None)
    return Changed(f"transaction of producer {marker.producer_id} in {name}-{index} aborted", "/transactions")


def _number(form: Mapping[str, str], name: str, default: int) -> int:
    """A whole number of a form. Raises `Refusal`."""
    text = form.get(name, "").strip()
    try:
        return int(text) if text else default
    except ValueError:
        raise Refusal(400, f"{name} is {text[:40]!r}, and must be a whole number") from None


def _refuse_error(code: int, message: str | None) -> None:
    if code:
        raise Refusal(409, f"not changed: {message or error_name(code)}")


CHANGES: Final[Mapping[str, Change]] = {
    "/topics": create_topic,
    "/topics/{name}/delete": delete_topic,
    "/groups/{id}/offsets": change_offsets,
    "/transactions/end": end_transaction,
}
"""The changes by the path to which their forms are sent."""
