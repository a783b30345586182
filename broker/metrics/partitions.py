"""Metrics of this broker's partitions: sums over all of them, and single ones up to a limit."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from moldau.broker.metrics.exposition import Page

if TYPE_CHECKING:
    from moldau.broker.metrics.observed import Observed
    from moldau.replication.partition import Partition

TURN: Final = 200
"""The number of partitions after which a scrape yields to the event loop, so that requests do not wait for it."""
LATE_TRANSACTION_MS: Final = 5 * 60_000
"""The time (ms) without a record after which an open transaction counts as hanging: it is longer than the longest
timeout.
"""
REPLICAS: Final = "kafka_server_replicamanager_"
TOPICS: Final = "kafka_server_brokertopicmetrics_"
LOG: Final = "kafka_log_log_"
TRAFFIC: Final = ("messagesin_total", "bytesin_total", "bytesout_total")


class PartitionSums:
    """Sums over all partitions, collected one by one."""

    def __init__(self, late_before_ms: int) -> None:
        """A transaction counts as late if its producer has sent nothing since this timestamp."""
        self._late_before_ms = late_before_ms
        self.replicas: Counter[str] = Counter()
        self.size = 0
        self.segments = 0
        self.producers = 0
        self.late_transactions = 0
        self.topics: dict[str, list[int]] = {}
        """Messages in, bytes in and bytes out by topic."""

    def take(self, node: Observed, partition: Partition) -> None:
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
    """Collect the metrics.

    Returns the number of topics and of partitions above the limit, which have no metrics of their own.
    """
    late_ms = node.config.integer("transaction.max.timeout.ms") + LATE_TRANSACTION_MS
    sums = PartitionSums(node.environment.wall_ms() - late_ms)
    partitions = tuple(node.replicas)
    for number, partition in enumerate(partitions):
        sums.take(node, partition)
        if number < series_max:
            _collect_one(page, partition)
        if number % TURN == TURN - 1:
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
    lag = max((each.lag for each in partitions), default=0)
    page.add("moldau_replica_lag_max", lag)
    page.add(f"{REPLICAS}offlinereplicacount", node.replicas.offline_count)
    now_ms = node.environment.monotonic_ms()
    page.add("kafka_server_leaderreplication_byte_rate", node.throttles.leader.rate(now_ms))
    page.add("kafka_server_followerreplication_byte_rate", node.throttles.follower.rate(now_ms))
    page.add("moldau_damaged_replicas", len(node.damaged))
    page.add("moldau_damaged_replicas_found_total", node.damaged.found_count)
    page.add("moldau_damaged_replicas_repaired_total", node.damaged.repaired_count)
    page.add("kafka_log_logmanager_offlinelogdirectorycount", len(node.logs.offline))
    page.add("moldau_log_directories_full", len(node.logs.space.full))
    page.add("moldau_disk_full_refusals_total", node.logs.space.refusals)
    page.add("moldau_file_descriptor_refusals_total", node.logs.space.descriptor_refusals)
    open_files = node.environment.fs.open_files
    page.add("moldau_open_files", len(open_files))
    page.add("moldau_open_files_max", open_files.count_max)
    page.add("moldau_open_files_given_back_total", open_files.given_back_count)
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
