"""Metrics of tiered storage: transfers, waiting work, and the contents of remote storage."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from moldau.broker.metrics.exposition import Summary
from moldau.broker.tiering.traffic import RemoteCount

if TYPE_CHECKING:
    from moldau.broker.metrics.exposition import Page
    from moldau.broker.tiering.tiering import Tiering

TOPICS: Final = "kafka_server_brokertopicmetrics_"
MANAGER: Final = "kafka_log_remote_remotelogmanager_"
POOL: Final = "kafka_log_remote_remotestoragethreadpool_"
THROTTLE: Final = "kafka_server_remotelogmanager_remote_"
GAUGES: Final = (
    "remotecopylagbytes",
    "remotecopylagsegments",
    "remotedeletelagbytes",
    "remotedeletelagsegments",
    "remotelogsizebytes",
    "remotelogmetadatacount",
    "remotelogsizecomputationtime",
)
TURN: Final = 200
"""The number of partitions after which a scrape yields to the event loop."""


async def collect_tiering(page: Page, tiering: Tiering, now_ms: int, series_max: int) -> None:
    """Collect the metrics.

    `now_ms` is on the monotonic clock. The first `series_max` topics have metrics of their own.
    """
    total, topics, memory_size = await _remote_logs(tiering)
    traffic = tiering.traffic
    shown = sorted({*topics, *traffic.topics})[:series_max]
    for what in RemoteCount:
        name = f"{TOPICS}{what.value.lower()}_total"
        page.add(name, traffic.total[what])
        for topic in shown:
            page.add(name, traffic.topics[topic][what] if topic in traffic.topics else 0, (("topic", topic),))
    for gauge in GAUGES:
        page.add(TOPICS + gauge, total[gauge])
        for topic in shown:
            page.add(TOPICS + gauge, topics[topic][gauge] if topic in topics else 0, (("topic", topic),))
    page.add(f"{MANAGER}remotelogmanagertasksavgidlepercent", tiering.copier.idle_share)
    reads = Summary()
    reads.count, reads.sum = tiering.source.reads_ended, tiering.source.read_ms
    page.add_summary(f"{MANAGER}remotelogreaderfetchrateandtimems", reads)
    page.add(f"{POOL}remotelogreadertaskqueuesize", tiering.source.waiting_count)
    page.add(f"{POOL}remotelogreaderavgidlepercent", tiering.source.idle_share)
    for direction, quota in (("copy", tiering.copy_quota), ("fetch", tiering.fetch_quota)):
        page.add(f"{THROTTLE}{direction}_throttle_time_avg", quota.throttle_times.mean(now_ms))
        page.add(f"{THROTTLE}{direction}_throttle_time_max", quota.throttle_times.longest(now_ms))
    indexes = tiering.source.indexes
    page.add("moldau_remote_index_cache_bytes", indexes.size)
    page.add("moldau_remote_index_cache_hits_total", indexes.hit_count)
    page.add("moldau_remote_index_cache_misses_total", indexes.miss_count)
    page.add("moldau_remote_log_metadata_memory_bytes", memory_size)
    page.add("moldau_remote_log_metadata_unreadable_total", tiering.reader.unreadable_count)


async def _remote_logs(tiering: Tiering) -> tuple[Counter[str], dict[str, Counter[str]], int]:
    """Collect the gauges of the partitions that this broker leads, in total and by topic, and the memory of all remote
    logs.
    """
    total: Counter[str] = Counter()
    topics: dict[str, Counter[str]] = {}
    memory_size = 0
    for number, (followed, log) in enumerate(tiering.followed_logs()):
        if number % TURN == TURN - 1:
            await asyncio.sleep(0)
        memory_size += followed.remote_log.memory_size()
        if not followed.is_led_here or log is None:
            continue
        waiting = [each.size for each in log.segments[:-1] if each.base_offset >= log.tiered_end_offset]
        values = (
            sum(waiting),
            len(waiting),
            followed.delete_lag_bytes,
            followed.delete_lag_segments,
            followed.remote_log.size(),
            len(followed.remote_log),
            followed.retention_ms,
        )
        counted = dict(zip(GAUGES, values, strict=True))
        total.update(counted)
        topics.setdefault(followed.key.topic, Counter()).update(counted)
    return total, topics, memory_size
