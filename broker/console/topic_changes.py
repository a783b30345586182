"""The changes that users make to topics from the console: settings, partitions, records, leaders, replicas."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from moldau.broker.console.change import (
    PARTITIONS_MAX,
    TIMEOUT_MS,
    ChangePreview,
    ChangeResult,
    is_confirmed,
    number_in_form,
    raise_refusal,
)
from moldau.broker.console.page import PageRequest, Refusal, decimal, gather_results, path_to
from moldau.broker.console.partitions import EARLIEST, LATEST, ask_leaders, offsets_of, replica_sizes
from moldau.broker.console.rendering import size_text
from moldau.broker.console.topic_pages import visible_topic
from moldau.kraft.image.topics import NO_LEADER, Topic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.key_partitioner import partition_of
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.checkpoints.partition_metadata import uuid_text

TOPIC: Final = 2
"""The resource type of topics in requests about settings."""
SET, DELETE = 0, 1
"""The operations of IncrementalAlterConfigs."""
ELECTIONS: Final = {"preferred": 0, "unclean": 1}
PRODUCE_VERSION: Final = 12
"""The last version of Produce that names topics by name."""
ACKS_ALL: Final = -1
FORMS: Final = ("text", "hex")


def settings_in(text: str) -> list[tuple[str, str]]:
    """Parse the settings in a field of a form, which has one line NAME=VALUE for each. Raises `Refusal`."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, sign, value = line.partition("=")
        if not sign:
            raise Refusal(400, f"the setting {line[:80]!r} is not NAME=VALUE")
        found.append((name.strip(), value.strip()))
    return found


async def create_topic(visit: PageRequest, form: Mapping[str, str]) -> ChangeResult:
    """Create a topic. For a number that is left empty, the broker's default is used."""
    name = form.get("name", "").strip()
    partitions, replicas = number_in_form(form, "partitions", -1), number_in_form(form, "replicas", -1, 16)
    configs = [CreatableTopicConfig(name=each, value=value) for each, value in settings_in(form.get("settings", ""))]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs)
    answer = await visit.client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), CreateTopicsResponse)
    (result,) = answer.topics
    raise_refusal(result.error_code, result.error_message)
    return ChangeResult(f"topic {name} created", path_to("topics", name))


async def delete_topic(visit: PageRequest, form: Mapping[str, str]) -> ChangeResult:
    """Delete a topic. The form must repeat its name."""
    name = visit.variables["name"]
    topic = visible_topic(visit, name)
    if form.get("confirm", "") != name:
        raise Refusal(400, f"type {name} in order to delete it")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic.id)], timeout_ms=TIMEOUT_MS)
    answer = await visit.client.ask(request, DeleteTopicsResponse)
    (result,) = answer.responses
    raise_refusal(result.error_code, result.error_message)
    return ChangeResult(f"topic {name} with id {uuid_text(topic.id)} deleted", "/topics")


async def change_setting(visit: PageRequest, form: Mapping[str, str]) -> ChangeResult:
    """Set a setting of a topic. If the form says so, remove the setting instead, so that its default applies."""
    topic = visible_topic(visit, visit.variables["name"])
    name, value = form.get("setting", "").strip(), form.get("value", "")
    removes = form.get("remove") == "yes"
    change = AlterableConfig(name=name, config_operation=DELETE if removes else SET, value=None if removes else value)
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic.name, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await visit.client.ask(request, IncrementalAlterConfigsResponse)
    (result,) = answer.responses
    raise_refusal(result.error_code, result.error_message)
    what = f"{name} of topic {topic.name} removed" if removes else f"{name} of topic {topic.name} set to {value}"
    return ChangeResult(what, path_to("topics", topic.name))


async def add_partitions(visit: PageRequest, form: Mapping[str, str]) -> ChangeResult:
    """Raise the number of a topic's partitions."""
    topic = visible_topic(visit, visit.variables["name"])
    count = number_in_form(form, "count", -1)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic.name, count=count, assignments=None)],
        timeout_ms=TIMEOUT_MS,
        validate_only=False,
    )
    answer = await visit.client.ask(request, CreatePartitionsResponse)
    (result,) = answer.results
    raise_refusal(result.error_code, result.error_message)
    before = len(topic.partitions)
    return ChangeResult(f"topic {topic.name} has {count} partitions, {before} before", path_to("topics", topic.name))


# Records


async def produce(visit: PageRequest, form: Mapping[str, str]) -> ChangeResult:
    """Write one record. If the form names no partition, it is chosen by the key, like Java's producer does, or at
    random if the key is null.
    """
    topic = visible_topic(visit, visit.variables["name"])
    key, value = _bytes_of(form, "key"), _bytes_of(form, "value")
    count = len(topic.partitions)
    chosen = visit.ports.environment.random.randrange(count) if key is None else partition_of(key, count)
    index = number_in_form(form, "partition", chosen)
    leader = leader_of(topic, index)
    lines = [each.partition(":") for each in form.get("headers", "").splitlines() if each.strip()]
    headers = tuple((name.strip(), text.strip().encode()) for name, _, text in lines)
    record = Record(key=key, value=value, timestamp=visit.ports.environment.wall_ms(), headers=headers)
    data = PartitionProduceData(index=index, records=bytearray(build_batch([record])))
    request = ProduceRequest(
        acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic.name, partition_data=[data])]
    )
    answer = await visit.client.ask(request, ProduceResponse, broker_id=leader, version=PRODUCE_VERSION)
    (result,) = answer.responses[0].partition_responses
    raise_refusal(result.error_code, result.error_message)
    page = f"{path_to('topics', topic.name, 'records')}?partition={index}&begin=offset&at={result.base_offset}"
    return ChangeResult(f"a record written to {topic.name}-{index} at offset {result.base_offset}", page)


def leader_of(topic: Topic, index: int) -> int:
    """The node id of a partition's leader. Raises `Refusal`."""
    if index not in topic.partitions:
        raise Refusal(404, f"topic {topic.name} has no partition {index}")
    leader = topic.partitions[index].leader
    if leader == NO_LEADER:
        raise Refusal(503, f"{topic.name}-{index} has no leader")
    return leader


def _bytes_of(form: Mapping[str, str], name: str) -> bytes | None:
    """The key or the value in a form (`name`); None if it is null. Raises `Refusal`."""
    if form.get(f"{name}_null") == "yes":
        return None
    text = form.get(name, "")
    if form.get("form", FORMS[0]) != "hex":
        return text.encode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Refusal(400, f"the {name} is not hexadecimal") from None


async def delete_records(visit: PageRequest, form: Mapping[str, str]) -> ChangeResult | ChangePreview:
    """Delete the records before an offset, in one partition or in all. If the form names no offset, all records below
    the high watermark are deleted. The first form is answered with a preview.
    """
    topic = visible_topic(visit, visit.variables["name"])
    keys = [(topic.name, index) for index in _indexes(topic, form)]
    starts, ends = await gather_results(
        offsets_of(visit.client, keys, EARLIEST), offsets_of(visit.client, keys, LATEST)
    )
    if not is_confirmed(form):
        wanted = number_in_form(form, "offset", -1, 64)
        rows: list[list[str | int | None]] = []
        fields = {}
        for key in keys:
            start, end = starts.get(key), ends.get(key)
            if start is not None and end is not None:
                before = end if wanted < 0 else min(max(wanted, start), end)
                rows.append([key[1], start, end, before, before - start])
                fields[f"before:{key[1]}"] = str(before)
        return ChangePreview(
            f"Delete records of {topic.name}",
            path_to("topics", topic.name, "records", "delete"),
            path_to("topics", topic.name),
            "Delete these records",
            ["Partition", "First offset", "High watermark", "First offset then", "Offsets deleted"],
            rows,
            fields,
            "Deleted records cannot be restored.",
        )
    offsets = {index: int(text) for index, text in _numbered(form, "before", r"\d{1,18}").items()}
    deleted: set[int] = set()

    async def ask(leader: int, named: Mapping[str, list[int]]) -> None:
        partitions = [DeleteRecordsPartition(partition_index=each, offset=offsets[each]) for each in named[topic.name]]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic.name, partitions=partitions)], timeout_ms=TIMEOUT_MS
        )
        answer = await visit.client.ask(request, DeleteRecordsResponse, broker_id=leader)
        for each in answer.topics[0].partitions:
            raise_refusal(each.error_code)
            deleted.add(each.partition_index)

    await ask_leaders(visit.client, [(topic.name, index) for index in offsets], ask)
    if deleted != set(offsets):
        raise Refusal(503, f"no leader answered for partitions {sorted(set(offsets) - deleted)}")
    return ChangeResult(f"records of {topic.name} deleted before {offsets} by partition", path_to("topics", topic.name))


# Leaders and replicas


async def elect_leaders(visit: PageRequest, form: Mapping[str, str]) -> ChangeResult | ChangePreview:
    """Elect the preferred leaders of partitions, or make an unclean election, which elects any live replica for a
    partition without a leader. The first form for an unclean election is answered with a warning.
    """
    topic = visible_topic(visit, visit.variables["name"])
    kind = form.get("kind", "preferred")
    if kind not in ELECTIONS:
        raise Refusal(400, f"kind must be one of {', '.join(ELECTIONS)}")
    indexes = _indexes(topic, form)
    if kind == "unclean" and not is_confirmed(form):
        rows: list[list[str | int | None]] = [
            [index, ", ".join(map(str, each.replicas)), ", ".join(map(str, each.isr))]
            for index in indexes
            if (each := topic.partitions[index]).leader == NO_LEADER
        ]
        return ChangePreview(
            f"Unclean election for {topic.name}",
            path_to("topics", topic.name, "elect"),
            path_to("topics", topic.name),
            "Elect leaders that may lack records",
            ["Partition without a leader", "Replicas", "Last in sync"],
            rows,
            {"kind": kind, "partition": form.get("partition", "")},
            "Acknowledged records that only the lost in-sync replicas have are lost permanently.",
        )
    request = ElectLeadersRequest(
        election_type=ELECTIONS[kind],
        topic_partitions=[TopicPartitions(topic=topic.name, partitions=indexes)],
        timeout_ms=TIMEOUT_MS,
    )
    answer = await visit.client.ask(request, ElectLeadersResponse)
    raise_refusal(answer.error_code)
    results = [each for topic_result in answer.replica_election_results for each in topic_result.partition_result]
    for result in results:
        if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
            raise_refusal(result.error_code, result.error_message)
    elected = [result.partition_id for result in results if not result.error_code]
    return ChangeResult(
        f"{kind} leaders of {topic.name} elected for partitions {elected} of the {len(results)} that were asked for",
        path_to("topics", topic.name),
    )


async def move_partitions(visit: PageRequest, form: Mapping[str, str]) -> ChangeResult | ChangePreview:
    """Move replicas to other brokers, or cancel moves. The first form for a move is answered with a preview."""
    topic = visible_topic(visit, visit.variables["name"])
    if form.get("cancel") == "yes":
        moving = [index for index, each in topic.partitions.items() if each.adding_replicas or each.removing_replicas]
        await _reassign(visit, topic, dict.fromkeys(moving))
        return ChangeResult(f"moves of {topic.name} cancelled for partitions {moving}", path_to("topics", topic.name))
    if is_confirmed(form):
        moves = {
            index: [int(each) for each in text.split(",")]
            for index, text in _numbered(form, "move", r"\d{1,9}(,\d{1,9})*").items()
        }
        await _reassign(visit, topic, moves)
        return ChangeResult(f"partitions of {topic.name} move to {moves}", path_to("topics", topic.name))
    indexes = _indexes(topic, form)
    brokers = _brokers(visit, form)
    is_single = bool(form.get("partition", "").strip())
    plan = {
        index: brokers if is_single else choose_brokers(brokers, index, len(topic.partitions[index].replicas))
        for index in indexes
    }
    shown = Topic(topic.name, topic.id, {index: topic.partitions[index] for index in indexes})
    sizes = await replica_sizes(visit.client, [shown])
    rows: list[list[str | int | None]] = []
    fields = {}
    copied = 0
    for index, replicas in plan.items():
        now = topic.partitions[index]
        if list(now.replicas) == list(replicas):
            continue
        added = [each for each in replicas if each not in now.replicas]
        size = sizes.get((topic.name, index, now.leader), 0) * len(added)
        copied += size
        removed = [each for each in now.replicas if each not in replicas]
        texts = [", ".join(map(str, each)) for each in (now.replicas, replicas, added, removed)]
        rows.append([index, *texts, size_text(size)])
        fields[f"move:{index}"] = ",".join(map(str, replicas))
    return ChangePreview(
        f"Move partitions of {topic.name}",
        path_to("topics", topic.name, "move"),
        path_to("topics", topic.name),
        f"Move {len(rows)} partitions",
        ["Partition", "Replicas", "Then", "Added", "Removed", "To copy"],
        rows,
        fields,
        notes=[f"About {size_text(copied)} are copied between brokers in all."],
    )


async def _reassign(visit: PageRequest, topic: Topic, moves: Mapping[int, list[int] | None]) -> None:
    """Change the replicas of partitions. None cancels the move of a partition. Raises `Refusal`."""
    partitions = [ReassignablePartition(partition_index=index, replicas=each) for index, each in moves.items()]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic.name, partitions=partitions)], timeout_ms=TIMEOUT_MS
    )
    answer = await visit.client.ask(request, AlterPartitionReassignmentsResponse)
    raise_refusal(answer.error_code, answer.error_message)
    for result in answer.responses:
        for each in result.partitions:
            raise_refusal(each.error_code, each.error_message)


def choose_brokers(brokers: Sequence[int], index: int, count: int) -> list[int]:
    """Choose `count` brokers for the replicas of partition `index`, or all brokers if there are fewer. The first broker
    differs from index to index (round-robin).
    """
    return [brokers[(index + each) % len(brokers)] for each in range(min(count, len(brokers)))]


def _brokers(visit: PageRequest, form: Mapping[str, str]) -> list[int]:
    """The node ids of the brokers that a form names. Raises `Refusal`."""
    texts = form.get("brokers", "").replace(",", " ").split()
    known = visit.ports.cluster.image.cluster.brokers
    found = [broker_id for each in texts if (broker_id := decimal(each)) is not None and broker_id in known]
    if not found or len(found) != len(texts) or len(set(found)) != len(found):
        raise Refusal(400, "brokers must be different ids of brokers, such as 1, 2, 3")
    return found


def _indexes(topic: Topic, form: Mapping[str, str]) -> list[int]:
    """The index of the partition that a form names, or all indexes if it names none. Raises `Refusal`."""
    if not form.get("partition", "").strip():
        if len(topic.partitions) > PARTITIONS_MAX:
            raise Refusal(400, f"the topic has more than {PARTITIONS_MAX} partitions: name one")
        return sorted(topic.partitions)
    index = number_in_form(form, "partition", -1)
    if index not in topic.partitions:
        raise Refusal(404, f"topic {topic.name} has no partition {index}")
    return [index]


def _numbered(form: Mapping[str, str], kind: str, pattern: str) -> dict[int, str]:
    """The values of the form fields `KIND:PARTITION`, by partition. Values that do not match `pattern` are left out.
    Raises `Refusal` if no value is left.
    """
    found = {}
    for name, text in form.items():
        before, _, index = name.partition(":")
        partition = decimal(index)
        if before == kind and partition is not None and re.fullmatch(pattern, text, re.ASCII):
            found[partition] = text
    if not found:
        raise Refusal(400, "nothing to change is given")
    return found
