"""Remote cleaning in a cluster: leaders die in the midst of it, and whichever replica leads sees the same table."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.storage.tiered.layout import parse_key
from tests.support.cluster import Cluster
from tests.support.node import Closed
from tests.support.tiered_node import TIERED, TOPIC_SETTINGS, URL
from tests.unit.broker.tiering.test_cleaning import CLEANER, COMPACTED, records_in
from tests.unit.broker.tiering.test_clusters import broker, followed

pytestmark = pytest.mark.slow

PROPERTIES: dict[str, Any] = TIERED | CLEANER | {"rlmm_config_remote_log_metadata_topic_replication_factor": 3}
TIME = 1_767_225_600_000
KEYS = 5


async def write(cluster: Cluster, table: dict[bytes, bytes | None], rounds: range) -> None:
    """Each round writes each key again, or deletes it."""
    coming = [(number, key) for number in rounds for key in range(KEYS)]
    while coming:
        try:
            client = await cluster.connect(await cluster.led("t"))
            while coming:
                number, key = coming[0]
                name = f"k{key}".encode()
                value = None if (number + key) % 7 == 0 else f"value {number}".encode()
                data = build_batch([Record(name, value, TIME)])
                answer = await asyncio.wait_for(client.produce("t", data), 10)
                if answer.error_code:
                    break
                table[name] = value
                coming.pop(0)
        except (OSError, Closed, TimeoutError):
            pass
        await asyncio.sleep(0.1)


async def table_of(cluster: Cluster) -> dict[bytes, bytes]:
    """What a consumer from the beginning gets from the present leader."""
    latest: dict[bytes, bytes] = {}
    offset = 0
    while True:
        try:
            leader_id = await cluster.led("t")
            client = await cluster.connect(leader_id)
            answer = await asyncio.wait_for(client.fetch("t", offset, max_wait_ms=500), 10)
        except (OSError, Closed, TimeoutError):
            continue
        if answer.error_code:
            await asyncio.sleep(0.2)
            continue
        data = records_in(answer)
        for place, header in iterate_batches(data):
            for record in records_of(data, place, header):
                if record.offset >= offset and record.key is not None:
                    latest.pop(record.key, None)
                    if record.value is not None:
                        latest[record.key] = bytes(record.value)
            offset = max(offset, header.next_offset)
        if not data and offset >= answer.high_watermark:
            return latest


@pytest.mark.parametrize("seed", range(2))
def test_each_leader_has_the_table_after_others_cleaned_and_died(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", **(TOPIC_SETTINGS | COMPACTED))
        written: dict[bytes, bytes | None] = {}
        replaced = 0
        for number in range(5):
            await write(cluster, written, range(10 * number, 10 * number + 10))
            await asyncio.sleep(2 + 0.7 * ((seed + number) % 4))
            leader_id = await cluster.led("t")
            node = cluster.nodes[leader_id]
            if node.broker is not None and node.broker.tiering is not None:
                replaced += node.broker.tiering.cleaner.segments_replaced
            expected = {key: value for key, value in written.items() if value is not None}
            assert await table_of(cluster) == expected
            if number % 2:
                node.crash()
            else:
                node.kill()
            await asyncio.sleep(1)
            assert await table_of(cluster) == expected
            node.boot()
            await cluster.settled()
        assert replaced

        def is_settled() -> bool:
            found = [each for node_id in cluster.nodes if (each := followed(cluster, node_id)) is not None]
            return bool(found) and not any(
                each.remote_log.unfinished_copies()
                or each.remote_log.superseded_copies()
                or each.remote_log.segments_in_deletion()
                for each in found
            )

        await cluster.until(is_settled, "remains and superseded segments are gone", limit_s=120)
        found = followed(cluster, await cluster.led("t"))
        assert found is not None
        known = {each.segment_id for each in found.remote_log.segments()}
        named = [parse_key(key) for key in cluster.world.buckets[URL].contents()]
        assert {each.segment_id for each in named if each is not None} <= known
        assert broker(cluster, await cluster.led("t")).tiering is not None

    with Cluster(seed, nodes=3, **PROPERTIES) as cluster:
        cluster.live(story, limit_s=1200)
