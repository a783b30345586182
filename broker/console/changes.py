"""The changes that users make to groups and transactions from the console, and the table of all changes. They are
offered if moldau.console.writes is on. Each is a form, which becomes a Kafka request with the user's permissions.

    form ──▶ same origin, secret of the session ──▶ change ──▶ a line in the log ──▶ the page that shows the result
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.broker.console.change import (
    PARTITIONS_MAX,
    Change,
    ChangePreview,
    ChangeResult,
    is_confirmed,
    number_in_form,
    raise_refusal,
)
from moldau.broker.console.groups import BY_NAME_VERSION, SHARE, committed_offsets, coordinator_of, group_of
from moldau.broker.console.page import PageRequest, Refusal, decimal, gather_results, path_to
from moldau.broker.console.partitions import EARLIEST, LATEST, Partition, offsets_of
from moldau.broker.console.topic_changes import (
    add_partitions,
    change_setting,
    create_topic,
    delete_records,
    delete_topic,
    elect_leaders,
    leader_of,
    move_partitions,
    produce,
)
from moldau.broker.console.topic_pages import visible_topic
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

TARGETS: Final = ("earliest", "latest", "time", "offset", "shift")


async def change_offsets(visit: PageRequest, form: Mapping[str, str]) -> ChangeResult | ChangePreview:
    """Change the committed offsets of a group without members. The first form is answered with a preview, whose form
    holds the new offsets. So exactly the offsets are committed that were shown.
    """
    group_id = visit.variables["id"]
    coordinator = await coordinator_of(visit.client, group_id)
    if is_confirmed(form):
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
                raise_refusal(each.error_code)
        return ChangeResult(f"offsets of group {group_id} set to {offsets}", path_to("groups", group_id))
    return await _preview(visit, form, group_id, coordinator)


async def _preview(visit: PageRequest, form: Mapping[str, str], group_id: str, coordinator: int) -> ChangePreview:
    group = await group_of(visit.client, group_id, coordinator)
    if group.kind == SHARE:
        raise Refusal(400, "the offsets of a share group are not changed here")
    if group.state != "Empty":
        raise Refusal(409, f"the group is {group.state}: its members have to stop first")
    committed = (await committed_offsets(visit.client, [group]))[group_id].offsets
    keys = [key for key in committed if form.get("topic", "").strip() in ("", key[0])]
    if len(keys) > PARTITIONS_MAX:
        raise Refusal(400, f"the group has offsets of more than {PARTITIONS_MAX} partitions: name a topic")
    target = form.get("to", TARGETS[0])
    if target not in TARGETS:
        raise Refusal(400, f"to must be one of {', '.join(TARGETS)}")
    at = number_in_form(form, "at", 0, 64)
    firsts, lasts = await gather_results(
        offsets_of(visit.client, keys, EARLIEST), offsets_of(visit.client, keys, LATEST)
    )
    at_time = await offsets_of(visit.client, keys, at) if target == "time" else {}
    rows: list[list[str | int | None]] = []
    fields = {}
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
        after = min(max(wanted, firsts[key]), lasts[key])
        rows.append([*key, before, after, None if before is None else after - before])
        fields[f"offset:{key[1]}:{key[0]}"] = str(after)
    return ChangePreview(
        f"Change the offsets of {group_id}",
        path_to("groups", group_id, "offsets"),
        path_to("groups", group_id),
        f"Change {len(rows)} offsets",
        ["Topic", "Partition", "Now", "Then", "Difference"],
        rows,
        fields,
    )


def _confirmed(form: Mapping[str, str]) -> dict[Partition, int]:
    """Read the offsets from the form of the preview, whose fields are named `offset:PARTITION:TOPIC`. Raises `Refusal`
    if there are none.
    """
    found: dict[Partition, int] = {}
    for name, text in form.items():
        kind, _, rest = name.partition(":")
        index, _, topic = rest.partition(":")
        partition, offset = decimal(index), decimal(text)
        if kind == "offset" and partition is not None and offset is not None:
            found[topic, partition] = offset
    if not found:
        raise Refusal(400, "no offset is given")
    return found


async def end_transaction(visit: PageRequest, form: Mapping[str, str]) -> ChangeResult:
    """Abort a hanging transaction in one partition: write an abort marker. The form has the producer epoch and the
    coordinator epoch that the partition's leader reported.
    """
    name, index = form.get("topic", ""), number_in_form(form, "partition", -1)
    leader = leader_of(visible_topic(visit, name), index)
    marker = WritableTxnMarker(
        producer_id=number_in_form(form, "producer_id", -1, 64),
        producer_epoch=number_in_form(form, "producer_epoch", -1, 16),
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[index])],
        coordinator_epoch=max(number_in_form(form, "coordinator_epoch", 0), 0),
    )
    answer = await visit.client.ask(
        WriteTxnMarkersRequest(markers=[marker]),
        WriteTxnMarkersResponse,
        broker_id=leader,
        version=1,
    )
    raise_refusal(answer.markers[0].topics[0].partitions[0].error_code)
    return ChangeResult(f"transaction of producer {marker.producer_id} in {name}-{index} aborted", "/transactions")


CHANGES: Final[Mapping[str, Change]] = {
    "/topics": create_topic,
    "/topics/{name}/delete": delete_topic,
    "/topics/{name}/setting": change_setting,
    "/topics/{name}/partitions": add_partitions,
    "/topics/{name}/produce": produce,
    "/topics/{name}/records/delete": delete_records,
    "/topics/{name}/elect": elect_leaders,
    "/topics/{name}/move": move_partitions,
    "/groups/{id}/offsets": change_offsets,
    "/transactions/end": end_transaction,
}
"""The function that makes each change, by the path to which its form is sent."""
