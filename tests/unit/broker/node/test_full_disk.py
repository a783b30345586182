"""A disk that fills up while the node serves: what is refused, what goes on, and that it resumes by itself."""

from __future__ import annotations

import asyncio

import pytest

from moldau.broker.metadata.refusals import failed_write_response
from moldau.broker.replicas.log_directories import FullDisks
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.testing.simulation.disk import SimulatedDisk
from tests.support.node import Client, Node, batch, serve_and

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
PLENTY = 1 << 40


def fill(node: Node, room: int = 0) -> None:
    node.host.disk.faults.capacity_bytes = node.host.disk.used_bytes + room


def make_room(node: Node) -> None:
    node.host.disk.faults.capacity_bytes = PLENTY


@pytest.mark.parametrize("flush_messages", [1, 1 << 62])
def test_produce_is_refused_reads_go_on_and_all_resumes_by_itself(flush_messages: int) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", flush_messages=flush_messages)
        assert (await client.produce("t", batch("a"))).base_offset == 0
        fill(node, room=100)
        for _ in range(3):
            refused = await client.produce("t", batch("refused" * 20))
            assert (refused.error_code, refused.base_offset) == (STORAGE, -1)
            assert "No space left" in (refused.error_message or "")
        assert (await client.fetch("t")).high_watermark == 1
        assert node.broker.logs.full_disks.full == ("/data",) and not node.broker.logs.offline
        assert node.broker.readiness.not_ready() == [] and node.broker.readiness.impairments() == [
            "log directory /data is full"
        ]
        await asyncio.sleep(5)
        assert node.host.is_up and node.broker.readiness.not_ready() == []
        make_room(node)
        assert (await client.produce("t", batch("b"))).base_offset == 1
        await asyncio.sleep(3)
        assert node.broker.readiness.impairments() == []
        node.host.crash()
        node.boot()
        client = await node.connect()
        if flush_messages == 1:
            assert (await client.fetch("t")).high_watermark == 2

    serve_and(story)


def test_what_is_said_of_a_full_disk_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        fill(node)
        caplog.clear()
        caplog.set_level("INFO", "moldau.logs")
        for _ in range(20):
            await client.produce("t", batch("a"))
            await asyncio.sleep(0.3)
        make_room(node)
        await asyncio.sleep(4)
        texts = [record.getMessage() for record in caplog.records if record.name == "moldau.logs"]
        assert len(texts) == 2 and "is full" in texts[0] and "has space again" in texts[1], texts

    serve_and(story)


async def everything_of_the_controller(client: Client) -> list[tuple[int, str | None]]:
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    created = (await client.ask(CreateTopicsRequest(topics=[topic]), 7)).topics[0]
    grow = CreatePartitionsTopic(name="t", count=3, assignments=None)
    grown = (await client.ask(CreatePartitionsRequest(topics=[grow], timeout_ms=1, validate_only=False), 3)).results[0]
    change = AlterableConfig(name="retention.ms", config_operation=0, value="5000")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    asked = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    changed = (await client.ask(asked, 1)).responses[0]
    deleted = (await client.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1), 5)).responses[0]
    return [(each.error_code, each.error_message) for each in (created, grown, changed, deleted)]


def test_the_controller_refuses_and_the_node_lives() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.create("gone")
        fill(node)
        before = node.broker.image
        for _ in range(2):
            for error, message in await everything_of_the_controller(client):
                assert error == STORAGE and "No space left" in (message or "")
        assert (await client.produce("t", batch("a"))).error_code == STORAGE
        await asyncio.sleep(30)
        assert node.host.is_up and node.broker.readiness.not_ready() == [], "it does not even miss a heartbeat"
        assert node.broker.image.topics == before.topics and node.broker.image.configs == before.configs
        make_room(node)
        assert [error for error, _ in await everything_of_the_controller(client)] == [0, 0, 0, 0]
        await asyncio.sleep(0.1)
        for index in range(3):
            assert (await client.produce("t", batch("a"), partition=index)).error_code == 0

    serve_and(story)


def test_offsets_are_refused_and_committed_again_when_there_is_room() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        node.broker.topics.create_internal(node.broker.coordinators.groups.topic)
        await asyncio.sleep(1)

        async def commit(offset: int) -> int:
            partition = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_metadata="m" * 200
            )
            topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
            request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)
            error: int = (await client.ask(request, 8)).topics[0].partitions[0].error_code
            return error

        assert await commit(1) == 0
        fill(node)
        assert await commit(2) == NOT_COORDINATOR
        assert await commit(3) == NOT_COORDINATOR
        wanted = OffsetFetchRequestGroup(
            group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        )
        asked = OffsetFetchRequest(groups=[wanted])

        async def committed() -> int:
            offset: int = (await client.ask(asked, 8)).groups[0].topics[0].partitions[0].committed_offset
            return offset

        assert await committed() == 1, "what was refused did not happen"
        make_room(node)
        assert await commit(4) == 0
        assert await committed() == 4

    serve_and(story)


def test_a_partition_for_which_there_was_no_room_is_made_when_there_is_some() -> None:
    """The metadata has it: the metadata log is on another disk."""

    async def story(node: Node) -> None:
        client = await node.connect()
        disk = node.host.disk
        make = disk.make_directories

        def refuse(path: str) -> None:
            if path.startswith("/data"):
                raise OSError(28, "No space left on device", path)
            make(path)

        disk.make_directories = refuse  # type: ignore[method-assign]
        await client.create("t", 2)
        assert (await client.produce("t", batch("a"))).error_code == STORAGE
        assert (await client.fetch("t")).error_code == STORAGE
        disk.make_directories = make  # type: ignore[method-assign]
        await asyncio.sleep(2)
        for index in range(2):
            assert (await client.produce("t", batch("a"), partition=index)).base_offset == 0

    serve_and(story, metadata_log_dir="/metadata")


@pytest.mark.parametrize("room", range(0, 400, 40))
def test_a_partition_that_was_half_made_leaves_nothing_behind(room: int) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        fill(node, room)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        created = (await client.ask(CreateTopicsRequest(topics=[topic]), 7)).topics[0]
        make_room(node)
        await asyncio.sleep(2)
        names = [name for name in node.host.disk.list_directory("/data") if name.startswith("t-")]
        assert names == ([] if created.error_code else ["t-0"])
        if not created.error_code:
            assert (await client.produce("t", batch("a"))).base_offset == 0

    serve_and(story)


def test_retention_makes_room_on_a_full_disk() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", segment_bytes=1 << 20, retention_bytes=1 << 20, file_delete_delay_ms=0)
        fill(node, room=4 << 20)
        taken = 0
        while (await client.produce("t", batch("x" * 200_000))).error_code == 0:
            taken += 1
        assert taken > 5
        await asyncio.sleep(3)
        assert (await client.produce("t", batch("x" * 200_000))).base_offset == taken
        assert node.host.is_up and not node.broker.logs.offline

    serve_and(story, log_retention_check_interval_ms=1000, log_initial_task_delay_ms=1000)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_stop_on_a_full_disk_loses_nothing(is_clean: bool) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", flush_messages=1)
        for value in ("a", "b"):
            await client.produce("t", batch(value))
        fill(node)
        assert (await client.produce("t", batch("c"))).error_code == STORAGE
        if is_clean:
            node.stop()
            while node.host.is_up:
                await asyncio.sleep(0.1)
        else:
            node.host.crash()
        make_room(node)
        node.boot()
        client = await node.connect()
        assert (await client.fetch("t")).high_watermark == 2
        assert (await client.produce("t", batch("c"))).base_offset == 2

    serve_and(story)


@pytest.mark.parametrize("room", range(0, 400, 40))
def test_a_start_without_room_ends_and_sets_nothing_aside(room: int) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.produce("t", batch("a"))
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
        fill(node, room)
        node.boot()
        await asyncio.sleep(10)
        if node.host.is_up:
            node.host.kill()
        make_room(node)
        node.boot()
        client = await node.connect()
        assert (await client.fetch("t")).high_watermark == 1

    serve_and(story, may_halt=True)


def test_a_disk_has_room_again_when_it_says_so_and_refuses_no_more() -> None:
    disk = SimulatedDisk()
    disks = FullDisks(disk)
    full = OSError(28, "No space left on device")
    disks.on_transient_error("/a", full)
    disks.check_full_disks()
    disks.check_full_disks()
    assert not disks.full
    disks.on_transient_error("/a", full)
    for _ in range(3):
        disks.on_transient_error("/a", full)
        disks.check_full_disks()
        assert list(disks.full) == ["/a"], "it refused since the last look"
    disk.faults.capacity_bytes = 0
    disks.check_full_disks()
    assert list(disks.full) == ["/a"], "it has no room"
    disks.on_transient_error("/b", OSError(24, "Too many open files"))
    assert (list(disks.full), disks.refusals, disks.descriptor_refusals) == (["/a"], 5, 1)


def test_what_was_refused_already_keeps_its_reason() -> None:
    was = AlterConfigsResourceResponse(error_code=40, error_message="why", resource_type=2, resource_name="t")
    good = AlterConfigsResourceResponse(resource_type=2, resource_name="u", error_message=None)
    failed_write_response(AlterConfigsResponse(responses=[was, good]), ErrorCode.KAFKA_STORAGE_ERROR, "full")
    assert (was.error_code, was.error_message, good.error_code, good.error_message) == (40, "why", STORAGE, "full")
