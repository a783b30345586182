"""Adds the metrics of storage to a page: partitions and their logs, the log cleaner, tiered storage."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from moldau.broker.metrics.exposition import Page, Summary
from moldau.broker.tiering.traffic import RemoteCount

if TYPE_CHECKING:
    from moldau.broker.metrics.observed import Observed
    from moldau.broker.replicas.log_cleaner import LogCleaner
    from moldau.broker.tiering.tiering import Tiering
    from moldau.replication.partition import Partition

PARTITIONS_PER_TURN: Final = 200
"""The number of partitions after which a scrape yields to the event loop, so that requests are not delayed."""
LATE_TRANSACTION_MS: Final = 5 * 60_000
"""An open transaction counts as late if it got no record for longer than transaction.max.timeout.ms and this time (ms)
together.
"""
REPLICAS: Final = "kafka_server_replicamanager_"
TOPICS: Final = "kafka_server_brokertopicmetrics_"
LOG: Final = "kafka_log_log_"
CLEANER: Final = "kafka_log_logcleaner_"
CLEANER_MANAGER: Final = "kafka_log_logcleanermanager_"
REMOTE_MANAGER: Final = "kafka_log_remote_remotelogmanager_"
REMOTE_READERS: Final = "kafka_log_remote_remotestoragethreadpool_"
REMOTE_THROTTLE: Final = "kafka_server_remotelogmanager_remote_"
REMOTE_GAUGES: Final = (
    "remotecopylagbytes",
    "remotecopylagsegments",
    "remotedeletelagbytes",
    "remotedeletelagsegments",
    "remotelogsizebytes",
    "remotelogmetadatacount",
    "remotelogsizecomputationtime",
)
TRAFFIC: Final = ("messagesin_total", "bytesin_total", "bytesout_total")


class PartitionSums:
    """Sums over the partitions that were added."""

    def __init__(self, late_before_ms: int) -> None:
        """`late_before_ms`: an open transaction counts as late if its producer's last record has an earlier timestamp
        (ms).
        """
        self._late_before_ms = late_before_ms
        self.replicas: Counter[str] = Counter()
        self.size = 0
        self.segments = 0
        self.producers = 0
        self.late_transactions = 0
        self.topics: dict[str, list[int]] = {}
        """The numbers of records appended, bytes appended and bytes read, by topic."""

    def add(self, node: Observed, partition: Partition) -> None:
        log = partition.log
        self.size += log.size
        self.segments += len(log.segments)
        self.producers += len(log.producers.entries)
        self.late_transactions += log.producers.oldest_transaction_timestamp() < self._late_before_ms
        traffic = self.topics.setdefault(partition.topic, [0, 0, 0])
        for index, count in enumerate((partition.messages_in, partition.bytes_in, partition.bytes_out)):
            traffic[index] += count
        replicas = self.replicas
        replicas["partitioncount"] += 1
        if partition.leader_id != node.config.node_id:
            return
        topic = node.cluster.image.topics.by_id.get(partition.topic_id)
        assigned = topic.partitions.get(partition.index) if topic is not None else None
        in_sync, wanted = len(partition.isr), len(assigned.replicas) if assigned is not None else 0
        replicas["leadercount"] += 1
        replicas["reassigningpartitions"] += assigned is not None and bool(
            assigned.adding_replicas or assigned.removing_replicas
        )
        replicas["underreplicatedpartitions"] += in_sync < wanted
        replicas["underminisrpartitioncount"] += in_sync < partition.min_insync_replicas
        replicas["atminisrpartitioncount"] += in_sync == partition.min_insync_replicas


async def collect_partitions(page: Page, node: Observed, series_max: int) -> int:
    """Add the metrics of replicas, logs and log directories to a page.

    Returns the number of topics and of partitions above `series_max`, which have no series of their own.
    """
    late_ms = node.config.integer("transaction.max.timeout.ms") + LATE_TRANSACTION_MS
    sums = PartitionSums(node.environment.wall_ms() - late_ms)
    partitions = tuple(node.replicas)
    for number, partition in enumerate(partitions):
        sums.add(node, partition)
        if number < series_max:
            _collect_one(page, partition)
        if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
            await asyncio.sleep(0)
    for name in ("partitioncount", "leadercount", "underreplicatedpartitions", "underminisrpartitioncount"):
        page.add(REPLICAS + name, sums.replicas[name])
    page.add(f"{REPLICAS}atminisrpartitioncount", sums.replicas["atminisrpartitioncount"])
    page.add(f"{REPLICAS}produceridcount", sums.producers)
    page.add(f"{REPLICAS}partitionswithlatetransactionscount", sums.late_transactions)
    page.add(f"{REPLICAS}reassigningpartitions", sums.replicas["reassigningpartitions"])
    changes = node.in_sync_changes
    page.add(f"{REPLICAS}isrshrinks_total", changes.shrink_count)
    page.add(f"{REPLICAS}isrexpands_total", changes.expand_count)
    page.add(f"{REPLICAS}failedisrupdates_total", changes.failure_count)
    lag = max((each.lag_behind_leader for each in partitions), default=0)
    page.add("moldau_replica_lag_max", lag)
    page.add(f"{REPLICAS}offlinereplicacount", node.replicas.offline_count)
    now_ms = node.environment.monotonic_ms()
    page.add("kafka_server_leaderreplication_byte_rate", node.throttles.leader.rate(now_ms))
    page.add("kafka_server_followerreplication_byte_rate", node.throttles.follower.rate(now_ms))
    page.add("moldau_damaged_replicas", len(node.damaged))
    page.add("moldau_damaged_replicas_found_total", node.damaged.found_count)
    page.add("moldau_damaged_replicas_repaired_total", node.damaged.repaired_count)
    page.add("kafka_log_logmanager_offlinelogdirectorycount", len(node.logs.offline))
    page.add("moldau_log_directories_full", len(node.logs.full_disks.full))
    page.add("moldau_disk_full_refusals_total", node.logs.full_disks.refusals)
    page.add("moldau_file_descriptor_refusals_total", node.logs.full_disks.descriptor_refusals)
    open_files = node.environment.fs.open_files
    page.add("moldau_open_files", len(open_files))
    page.add("moldau_open_files_max", open_files.count_max)
    page.add("moldau_open_files_given_back_total", open_files.closed_for_limit_count)
    for path in node.config.log_dirs:
        is_offline = path in node.logs.offline
        page.add("kafka_log_logmanager_logdirectoryoffline", is_offline, (("logDirectory", path),))
    page.add("moldau_log_size_bytes", sums.size)
    page.add("moldau_log_segments", sums.segments)
    page.add("moldau_log_segments_deleted_total", node.log_jobs.segments_deleted)
    gone = node.replicas.gone
    for index, name in enumerate(TRAFFIC):
        of_gone = (gone.messages_in, gone.bytes_in, gone.bytes_out)[index]
        page.add(TOPICS + name, of_gone + sum(traffic[index] for traffic in sums.topics.values()))
        for topic, traffic in list(sums.topics.items())[:series_max]:
            page.add(TOPICS + name, traffic[index], (("topic", topic),))
    return max(0, len(partitions) - series_max) + max(0, len(sums.topics) - series_max)


def _collect_one(page: Page, partition: Partition) -> None:
    labels = (("topic", partition.topic), ("partition", str(partition.index)))
    log = partition.log
    page.add(f"{LOG}size", log.size, labels)
    page.add(f"{LOG}logstartoffset", log.log_start_offset, labels)
    page.add(f"{LOG}logendoffset", log.end_offset, labels)
    page.add(f"{LOG}numlogsegments", len(log.segments), labels)


def collect_cleaner(page: Page, cleaner: LogCleaner, log_directories: Sequence[str], now_ms: int) -> None:
    """Add the metrics of the log cleaner to a page. `now_ms` is the time of the monotonic clock."""
    totals = cleaner.totals
    recopied = 100 * totals.bytes_written / totals.bytes_read if totals.bytes_read else 0
    page.add(f"{CLEANER}cleaner_recopy_percent", recopied)
    page.add(f"{CLEANER}max_buffer_utilization_percent", 100 * totals.buffer_share_max)
    page.add(f"{CLEANER}max_clean_time_secs", totals.clean_time_ms_max / 1000)
    page.add(f"{CLEANER}max_compaction_delay_secs", totals.compaction_delay_ms_max / 1000)
    page.add(f"{CLEANER_MANAGER}max_dirty_percent", 100 * totals.dirty_share_max)
    page.add(f"{CLEANER_MANAGER}time_since_last_run_ms", now_ms - totals.last_run_ms)
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for its_log in cleaner.uncleanable:
        directory = its_log.directory.rpartition("/")[0]
        counts[directory] += 1
        sizes[directory] += its_log.size
    for directory in log_directories:
        labels = (("logDirectory", directory),)
        page.add(f"{CLEANER_MANAGER}uncleanable_partitions_count", counts[directory], labels)
        page.add(f"{CLEANER_MANAGER}uncleanable_bytes", sizes[directory], labels)
    page.add("moldau_log_cleaner_read_bytes_total", totals.bytes_read)
    page.add("moldau_log_cleaner_written_bytes_total", totals.bytes_written)
    page.add("moldau_log_cleaner_cleanings_total", totals.logs_cleaned)
    page.add("moldau_log_cleaner_failures_total", totals.failures)


async def collect_tiering(page: Page, tiering: Tiering, now_ms: int, series_max: int) -> None:
    """Add the metrics of tiered storage to a page.

    `now_ms` is the time of the monotonic clock. The first `series_max` topics have series of their own.
    """
    total, topics, memory_size = await _remote_logs(tiering)
    traffic = tiering.traffic
    shown = sorted({*topics, *traffic.topics})[:series_max]
    for what in RemoteCount:
        name = f"{TOPICS}{what.value.lower()}_total"
        page.add(name, traffic.total[what])
        for topic in shown:
            page.add(name, traffic.topics[topic][what] if topic in traffic.topics else 0, (("topic", topic),))
    for gauge in REMOTE_GAUGES:
        page.add(TOPICS + gauge, total[gauge])
        for topic in shown:
            page.add(TOPICS + gauge, topics[topic][gauge] if topic in topics else 0, (("topic", topic),))
    page.add(f"{REMOTE_MANAGER}remotelogmanagertasksavgidlepercent", tiering.copier.idle_share)
    reads = Summary()
    reads.count, reads.sum = tiering.source.reads_ended, tiering.source.read_ms
    page.add_summary(f"{REMOTE_MANAGER}remotelogreaderfetchrateandtimems", reads)
    page.add(f"{REMOTE_READERS}remotelogreadertaskqueuesize", tiering.source.waiting_count)
    page.add(f"{REMOTE_READERS}remotelogreaderavgidlepercent", tiering.source.idle_share)
    for direction, quota in (("copy", tiering.copy_quota), ("fetch", tiering.fetch_quota)):
        page.add(f"{REMOTE_THROTTLE}{direction}_throttle_time_avg", quota.throttle_times.mean(now_ms))
        page.add(f"{REMOTE_THROTTLE}{direction}_throttle_time_max", quota.throttle_times.longest(now_ms))
    indexes = tiering.source.indexes
    page.add("moldau_remote_index_cache_bytes", indexes.size)
    page.add("moldau_remote_index_cache_hits_total", indexes.hit_count)
    page.add("moldau_remote_index_cache_misses_total", indexes.miss_count)
    page.add("moldau_remote_log_metadata_memory_bytes", memory_size)
    page.add("moldau_remote_log_metadata_unreadable_total", tiering.reader.unreadable_count)


async def _remote_logs(tiering: Tiering) -> tuple[Counter[str], dict[str, Counter[str]], int]:
    """The gauges of tiered storage for the partitions that this broker leads, in total and by topic, and the memory
    (bytes) of the metadata of all remote logs.
    """
    total: Counter[str] = Counter()
    topics: dict[str, Counter[str]] = {}
    memory_size = 0
    for number, (followed, log) in enumerate(tiering.followed_logs()):
        if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
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
        counted = dict(zip(REMOTE_GAUGES, values, strict=True))
        total.update(counted)
        topics.setdefault(followed.key.topic, Counter()).update(counted)
    return total, topics, memory_size
