"""The lag of a group is the number of records that a consumer of it still receives."""

from __future__ import annotations

import asyncio

import pytest

from moldau.broker.console import group_pages
from moldau.broker.console.decoding.counting import OffsetSet, RecordCount, count_batches
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import AbortedTransaction
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.record_builder import Record, build_batch
from tests.support.console_client import SETTINGS, get, json_of
from tests.support.coordinators import until_coordinated
from tests.support.node import Client, Node, batch, serve_and
from tests.support.transactional_producer import GROUP, read, started
from tests.support.transactional_producer import SETTINGS as TRANSACTIONS


async def commit(client: Client, offset: int, topic: str = "t") -> None:
    """Commit an offset of partition 0, as a consumer without a group's protocol does."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="here")
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    for _ in range(100):
        reply = await client.ask(request, 8)
        if reply.topics[0].partitions[0].error_code == ErrorCode.NONE:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(reply)


def test_the_lag_counts_what_a_read_committed_consumer_receives_and_no_marker() -> None:
    async def story(node: Node) -> None:
        producer = await started(node)
        client = producer.client
        for values, commits in (((b"a", b"b"), True), ((b"x", b"y", b"z"), False), ((b"c",), True)):
            await producer.send("t", *values)
            assert await producer.end(commits=commits) == ErrorCode.NONE
            await asyncio.sleep(0.1)
        assert await read(client) == [b"a", b"b", b"c"]
        for offset, expected in ((0, 3), (1, 2), (2, 1), (3, 1), (5, 1), (7, 1), (8, 0), (9, 0)):
            await commit(client, offset)
            (partition,) = (await json_of(f"/groups/{GROUP}"))["partitions"]
            assert (partition["records"], partition["is_exact"]) == (expected, True), offset
            assert partition["metadata"] == "here"
            assert (partition["behind_ms"] == 0) == (expected == 0), offset
            (row,) = (await json_of("/groups"))["groups"]["rows"]
            assert (row["records"], row["is_exact"]) == (expected, True), offset

    serve_and(story, **SETTINGS, **TRANSACTIONS)


def test_an_open_transaction_is_not_behind_the_group_and_is_listed_with_its_age() -> None:
    async def story(node: Node) -> None:
        producer = await started(node)
        await producer.send("t", b"a")
        await producer.end(commits=True)
        await asyncio.sleep(0.1)
        await commit(producer.client, 2)
        await producer.send("t", b"b")
        await asyncio.sleep(5)
        (partition,) = (await json_of(f"/groups/{GROUP}"))["partitions"]
        assert (partition["end"], partition["records"], partition["behind_ms"]) == (2, 0, 0)
        page = await json_of("/transactions")
        assert page["is_searched"] and page["hanging"] == []
        (row,) = page["transactions"]["rows"]
        assert (row["id"], row["state"], row["partitions"]) == ("payments", "Ongoing", ["t-0"])
        assert 4_500 < row["open_ms"] < 10_000
        assert (await get("/transactions"))[0] == 200
        page = await json_of("/topics/t/0/producers")
        assert [each["transaction_offset"] for each in page["producers"]] == [2]
        assert (await get("/topics/t/0/producers"))[0] == 200

    serve_and(story, **SETTINGS, **TRANSACTIONS)


def test_the_lag_in_time_is_the_age_of_the_first_record_that_is_not_read() -> None:
    async def story(node: Node) -> None:
        client = (await started(node)).client
        now_ms = node.broker.environment.wall_ms()
        for age_ms in (60_000, 20_000):
            await client.produce("t", build_batch([Record(value=b"v", timestamp=now_ms - age_ms)]))
        for offset, age_ms in ((0, 60_000), (1, 20_000)):
            await commit(client, offset)
            page = await json_of(f"/groups/{GROUP}")
            assert age_ms <= page["behind_ms"] < age_ms + 10_000
            (reason,) = page["reasons"]
            assert reason["symptom"] == "no-members"
            assert reason["text"] in (await get(f"/groups/{GROUP}"))[2]
        await commit(client, 0)
        assert [each["symptom"] for each in (await json_of(f"/groups/{GROUP}"))["reasons"]] == [
            "commit-went-back",
            "no-members",
        ]

    serve_and(story, **SETTINGS, **TRANSACTIONS)


def test_what_the_budget_leaves_out_is_an_upper_bound_that_says_so() -> None:
    async def story(node: Node) -> None:
        client = (await started(node)).client
        value = "x" * 60_000
        for _ in range(60):
            await client.produce("t", batch(value))
        await commit(client, 0)
        page = await json_of(f"/groups/{GROUP}")
        assert (page["records"], page["is_exact"]) == (60, False)
        assert "at most 60" in (await get(f"/groups/{GROUP}"))[2]

    serve_and(story, **SETTINGS, **TRANSACTIONS)


@pytest.mark.parametrize(("begin", "expected"), [(0, 4), (2, 2), (3, 1), (5, 1), (6, 0)])
def test_a_compacted_batch_counts_the_records_that_are_left(begin: int, expected: int) -> None:
    records = [Record(value=b"v", timestamp=10 + at, offset=at) for at in (0, 1, 2, 5)]
    batch = bytearray(build_batch(records, base_offset=0))
    counted = RecordCount(begin, 10)
    count_batches(counted, bytes(batch), [])
    assert counted.records == expected


@pytest.mark.parametrize("offsets", [(0, 1, 2, 3, 4, 5), (0, 1, 3, 5)])
def test_only_offsets_that_a_share_group_receives_are_counted(offsets: tuple[int, ...]) -> None:
    records = [Record(value=b"v", timestamp=10 + at, offset=at) for at in offsets]
    batch = build_batch(records, base_offset=0)
    finished = OffsetSet([(0, 1), (2, 3), (3, 4)])
    for begin, end in ((0, 6), (0, 4), (1, 5), (2, 4), (3, 6)):
        counted = RecordCount(begin, end, finished)
        count_batches(counted, batch, [])
        left = [at for at in offsets if begin <= at < end and at not in (0, 2, 3)]
        assert counted.records == len(left), (begin, end)
        assert counted.first_ms == (10 + left[0] if left else None)


def test_offsets_are_counted_in_ranges() -> None:
    some = OffsetSet([(2, 4), (4, 5), (8, 10)])
    members = {2, 3, 4, 8, 9}
    assert {each for each in range(-1, 12) if each in some} == members
    for begin in range(-1, 12):
        for end in range(begin, 12):
            assert some.count(begin, end) == len(members & set(range(begin, end)))


def test_of_two_aborted_transactions_of_a_producer_each_ends_with_its_marker() -> None:
    def sent(offset: int) -> bytes:
        return build_batch(
            [Record(value=b"v", timestamp=1)],
            base_offset=offset,
            producer_id=7,
            producer_epoch=0,
            base_sequence=offset,
            is_transactional=True,
        )

    def marker(offset: int, *, commits: bool) -> bytes:
        return end_transaction_marker(
            commits=commits, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=offset
        )

    log = b"".join(
        (
            sent(0),
            marker(1, commits=False),
            sent(2),
            marker(3, commits=True),
            sent(4),
            marker(5, commits=False),
        )
    )
    aborted = [AbortedTransaction(producer_id=7, first_offset=first) for first in (4, 0)]
    counted = RecordCount(0, 6)
    count_batches(counted, log, aborted)
    assert (counted.records, counted.offset) == (1, 6)


def test_a_committed_offset_past_the_end_is_said() -> None:
    async def story(node: Node) -> None:
        client = (await started(node)).client
        await client.produce("t", batch("a"))
        for offset, is_past in ((1, False), (2, True)):
            await commit(client, offset)
            (partition,) = (await json_of(f"/groups/{GROUP}"))["partitions"]
            assert (partition["records"], partition["is_past_end"]) == (0, is_past)
            assert ("past the end" in (await get(f"/groups/{GROUP}"))[2]) is is_past

    serve_and(story, **SETTINGS, **TRANSACTIONS)


def test_groups_in_the_order_of_their_lag_have_further_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        client = (await started(node)).client
        await client.produce("t", batch(*"abcdefg"))
        for offset in range(7):
            name = f"group-{offset}"
            await until_coordinated(client.ask, name)
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
            request = OffsetCommitRequest(group_id=name, generation_id_or_member_epoch=-1, member_id="", topics=topics)
            while (await client.ask(request, 8)).topics[0].partitions[0].error_code:
                await asyncio.sleep(0.1)
        seen: list[str] = []
        pages = 0
        link = "/groups"
        while link:
            page = await json_of(link)
            seen += (each["id"] for each in page["groups"]["rows"])
            pages += 1
            link = page["groups"]["next_page"]
        assert seen == [f"group-{offset}" for offset in range(7)]
        assert pages == expected

    monkeypatch.setattr(group_pages, "ROWS_MAX", 2)
    expected = 4
    serve_and(story, **SETTINGS, **TRANSACTIONS)
    expected = 5
    monkeypatch.setattr(group_pages, "SORTED_MAX", 3)  # The first three groups by name are compared, then the others.
    serve_and(story, **SETTINGS, **TRANSACTIONS)
