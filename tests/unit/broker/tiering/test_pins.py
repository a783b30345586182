"""A pin holds the objects of segments that retention or a cleaning gives up, until it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moldau.broker.tiering import copying
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.storage.tiered.layout import ObjectKind, parse_key
from moldau.storage.tiered.metadata.remote_segment import SegmentState
from moldau.storage.tiered.pins import pin_current_segments, pinned_segments, remove_pin
from tests.support.node import Node
from tests.support.tiered_node import URL, copied, fill, followed_of, serve_tiered, tiered_topic, tiering_of, until


def stored(node: Node, kind: ObjectKind) -> set[bytes]:
    named = [parse_key(key) for key in node.world.buckets[URL].contents()]
    return {each.segment_id for each in named if each is not None and each.kind is kind}


def test_pinned_segments_stay_through_retention_until_the_reader_is_done() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, local_retention_bytes=1, retention_bytes=900)
        await fill(client, count=6)
        await until(lambda: copied(node), "segments are copied")
        opened, key = tiering_of(node).opened, followed_of(node).key
        now_ms = node.host.wall_ms()
        plan = await pin_current_segments(
            opened.storage, opened.cluster_id, key, "job", now_ms=now_ms, lifetime_ms=3_600_000
        )
        pinned = {each.segment_id for each in plan}
        assert pinned
        await fill(client, count=60)
        await until(lambda: tiering_of(node).copier.segments_deleted > 5, "others are deleted")
        assert pinned <= stored(node, ObjectKind.LOG)
        await remove_pin(opened.storage, key, "job")
        await until(lambda: not pinned & stored(node, ObjectKind.LOG), "they go once the reader is done")

    serve_tiered(story)


def test_a_round_lists_the_pins_once_for_all_segments_that_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"rounds": 0, "lists": 0}

    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, local_retention_bytes=1)
        await fill(client, count=20)
        await until(lambda: len(copied(node)) > 3, "segments are copied")
        copier, followed = tiering_of(node).copier, followed_of(node)
        opened = tiering_of(node).opened
        await pin_current_segments(
            opened.storage, opened.cluster_id, followed.key, "job", now_ms=node.host.wall_ms(), lifetime_ms=3_600_000
        )
        reply = await client.ask(
            IncrementalAlterConfigsRequest(resources=[shorter_retention()], validate_only=False), 1
        )
        assert reply.responses[0].error_code == 0
        delete_some, listed = copier._delete_some, pinned_segments

        def count_round(*given: Any) -> Any:
            counts["rounds"] += 1
            return delete_some(*given)

        def count_list(*given: Any) -> Any:
            counts["lists"] += 1
            return listed(*given)

        monkeypatch.setattr(copier, "_delete_some", count_round)
        monkeypatch.setattr(copying, "pinned_segments", count_list)
        await until(lambda: followed.delete_lag_segments > 3 and counts["rounds"] > 3, "rounds with pinned segments")

    serve_tiered(story)
    assert 0 < counts["lists"] <= counts["rounds"]


def shorter_retention() -> AlterConfigsResource:
    config = AlterableConfig(name="retention.bytes", config_operation=0, value="1")
    return AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])


def test_a_pin_that_expires_holds_nothing_any_more() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, local_retention_bytes=1, retention_bytes=900)
        await fill(client, count=6)
        await until(lambda: copied(node), "segments are copied")
        opened, key = tiering_of(node).opened, followed_of(node).key
        plan = await pin_current_segments(
            opened.storage, opened.cluster_id, key, "job", now_ms=node.host.wall_ms(), lifetime_ms=20_000
        )
        await fill(client, count=60)
        await asyncio.sleep(10)
        assert {each.segment_id for each in plan} <= stored(node, ObjectKind.LOG)
        await until(lambda: not {each.segment_id for each in plan} & stored(node, ObjectKind.LOG), "it expires")

    serve_tiered(story)


def test_a_deletion_that_was_begun_before_the_pin_keeps_the_records() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, local_retention_bytes=1)
        await fill(client)
        await until(lambda: len(copied(node)) > 3, "segments are copied")
        tiering, followed = tiering_of(node), followed_of(node)
        opened, segment = tiering.opened, copied(node)[0]
        await pin_current_segments(
            opened.storage, opened.cluster_id, followed.key, "job", now_ms=node.host.wall_ms(), lifetime_ms=60_000
        )
        seen: list[bool] = []

        async def unseen_at_first(*_: object) -> set[bytes]:
            seen.append(len(seen) > 0)
            return {segment.segment_id} if seen[-1] else set()

        seen_always = tiering.copier._pinned
        tiering.copier._pinned = unseen_at_first  # type: ignore[method-assign, assignment]
        assert not await tiering.copier.remove(followed, segment, honours_pins=True)
        assert segment.segment_id not in stored(node, ObjectKind.MANIFEST)
        assert segment.segment_id in stored(node, ObjectKind.LOG)
        (left,) = followed.remote_log.segments_in_deletion()
        assert left.state is SegmentState.DELETE_SEGMENT_STARTED
        tiering.copier._pinned = seen_always  # type: ignore[method-assign]
        await asyncio.sleep(5)
        assert segment.segment_id in stored(node, ObjectKind.LOG), "the next rounds see the pin"
        await until(lambda: segment.segment_id not in stored(node, ObjectKind.LOG), "the pin has expired")

    serve_tiered(story)
