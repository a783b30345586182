"""Adds the metrics of the cluster and of groups to a page: metadata, quorum, controller, coordinators."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.broker.config.internal_topics import SHARE_GROUP_STATE_TOPIC
from moldau.broker.metrics.exposition import Page, Summary
from moldau.broker.metrics.storage import PARTITIONS_PER_TURN
from moldau.coordinator.transaction.transaction import NAMES
from moldau.kraft.image.topics import NO_LEADER

if TYPE_CHECKING:
    from moldau.broker.metrics.exposition import Labels
    from moldau.broker.metrics.observed import Observed
    from moldau.broker.runtime.flusher import Flusher
    from moldau.broker.share_partitions.runner import SharePartitionRunner

CONTROLLER: Final = "kafka_controller_kafkacontroller_"
RAFT: Final = "kafka_server_raft_metrics_"
GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager_"
COORDINATOR: Final = "kafka_server_group_coordinator_metrics_"
SHARE_GROUPS: Final = "kafka_server_sharegroupmetrics_"
SHARE_PARTITIONS: Final = "kafka_server_sharepartitionmetrics_"
SHARE_COORDINATOR: Final = "kafka_server_share_coordinator_metrics_"
ACKNOWLEDGE_TYPES: Final = {1: "Accept", 2: "Release", 3: "Reject", 4: "Renew"}
CLASSIC: Final = "classic"
STATES: Final = {
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    "share": ("Empty", "Stable", "Dead"),
    "streams": ("Empty", "Assigning", "Reconciling", "Stable", "Dead", "NotReady"),
}
"""The group states for which Apache Kafka has metrics, by the kind of group."""


async def collect_cluster(page: Page, node: Observed) -> None:
    quorum, image = node.quorum, node.cluster.image
    brokers = image.cluster.brokers.values()
    fenced = sum(each.fenced for each in brokers)
    page.add(f"{CONTROLLER}activecontrollercount", quorum.leader_id == node.config.node_id)
    page.add(f"{CONTROLLER}activebrokercount", len(brokers) - fenced)
    page.add(f"{CONTROLLER}fencedbrokercount", fenced)
    page.add(f"{CONTROLLER}globaltopiccount", len(image.topics.ids))
    count = without_leader = 0
    for _, _, partition in image.topics.partitions():
        count += 1
        without_leader += partition.leader == NO_LEADER
        if count % (10 * PARTITIONS_PER_TURN) == 0:
            await asyncio.sleep(0)  # The image is immutable, so it cannot change during the loop.
    page.add(f"{CONTROLLER}globalpartitioncount", count)
    page.add(f"{CONTROLLER}offlinepartitionscount", without_leader)
    page.add("kafka_server_broker_metadata_metrics_last_applied_record_offset", image.provenance.end_offset - 1)
    page.add(f"{RAFT}current_leader", quorum.leader_id)
    page.add(f"{RAFT}current_epoch", quorum.leader_epoch)
    page.add(f"{RAFT}high_watermark", quorum.high_watermark)
    page.add(f"{RAFT}log_end_offset", quorum.log_end_offset)
    age_ms = node.environment.monotonic_ms() - quorum.snapshot_begun_ms
    page.add("kafka_server_snapshotemitter_latestsnapshotgeneratedagems", age_ms)


def collect_flushes(page: Page, *flushers: Flusher) -> None:
    both = Summary()
    for flusher in flushers:
        both.count += flusher.sync_count
        both.sum += flusher.sync_ms
    page.add_summary("kafka_log_logflushstats_logflushrateandtimems", both)


def collect_groups(page: Page, node: Observed) -> None:
    states: Counter[tuple[str, str]] = Counter()
    begun: Counter[str] = Counter()
    members = offsets = rebalances = commits = 0
    for runner in node.coordinators.groups.runners:
        counts = runner.shard.group_counts()
        states.update(counts.states)
        members += counts.members
        offsets += counts.offsets
        rebalances += runner.shard.completed_rebalances
        begun.update(runner.shard.begun_rebalances)
        commits += runner.shard.committed_offsets
    kinds: Counter[str] = Counter()
    for (kind, _), count in states.items():
        kinds[kind] += count
    page.add(f"{GROUPS}numgroups", kinds[CLASSIC])
    for state in ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"):
        page.add(f"{GROUPS}numgroups{state.lower()}", states[CLASSIC, state])
    for kind in (CLASSIC, *STATES):
        page.add(f"{COORDINATOR}group_count", kinds[kind], (("protocol", kind),))
    for kind, names in STATES.items():
        for state in names:
            page.add(f"{COORDINATOR}{kind}_group_count", states[kind, state], (("state", state),))
        page.add(f"{COORDINATOR}{kind}_group_rebalance_count", begun[kind])
    page.add(f"{GROUPS}numoffsets", offsets)
    page.add("moldau_group_members", members)
    page.add(f"{COORDINATOR}group_completed_rebalance_count", rebalances)
    page.add(f"{COORDINATOR}offset_commit_count", commits)


def collect_sharing(page: Page, node: Observed, series_max: int) -> int:
    """Add the metrics of share groups and share partitions on this broker, and of the share coordinator.

    Returns the number of groups and share partitions above `series_max`, which are counted together.

    DIVERGES: Apache Kafka also measures how long fetches wait for one another, and the latency of writes; here a fetch
    leaves out what another one reads, and `moldau_request_wait_ms` has the waits for coordinators.
    """
    counts = node.share_partitions.counts
    for type_id, name in ACKNOWLEDGE_TYPES.items():
        page.add(f"{SHARE_GROUPS}recordacknowledgements_total", counts.acknowledged[type_id], (("ackType", name),))
    loading = Summary()
    loading.count, loading.sum = counts.loaded, counts.loading_ms
    page.add_summary(f"{SHARE_GROUPS}partitionloadtimems", loading)
    letters = node.share_partitions.dead_letter_counts
    others = 0
    for name, by_group in (
        ("recordcount", letters.records),
        ("totalproducerequests_total", letters.requests),
        ("failedproducerequests_total", letters.failures),
    ):
        of_groups = (((("group", group_id),), count) for group_id, count in by_group.items())
        others = max(others, page.add_chosen(f"{SHARE_GROUPS}deadletterqueue{name}", of_groups, series_max))
    page.add("kafka_server_sharesessioncache_sharesessionscount", len(node.share_sessions))
    page.add("kafka_server_sharesessioncache_sharepartitionscount", node.share_sessions.partitions_count)
    shares = [(_labels_of(shared), shared) for shared in node.share_partitions]
    counted: tuple[tuple[str, Callable[[SharePartitionRunner], int]], ...] = (
        ("inflightmessagecount", lambda shared: shared.machine.records_count),
        ("inflightbatchcount", lambda shared: len(shared.machine.batches)),
        ("acquisitionlocktimeout_total", lambda shared: shared.expired_locks),
    )
    folded = 0
    for name, count_of in counted:
        counts_of_shares = [(labels, count_of(shared)) for labels, shared in shares]
        folded = page.add_chosen(f"{SHARE_PARTITIONS}{name}", counts_of_shares, series_max)
    others += folded
    writes = 0
    for runner in node.coordinators.share_coordinator.shards.runners:
        writes += runner.shard.writes
        if runner.shard.pruned_offset:
            partition = (("topic", SHARE_GROUP_STATE_TOPIC), ("partition", str(runner.index)))
            page.add(f"{SHARE_COORDINATOR}last_pruned_offset", runner.shard.pruned_offset, partition)
    page.add(f"{SHARE_COORDINATOR}write_total", writes)
    return others


def _labels_of(shared: SharePartitionRunner) -> Labels:
    partition = (("topic", shared.partition.topic), ("partition", str(shared.key.partition)))
    return ("group", shared.key.group_id), *partition


def collect_transactions(page: Page, node: Observed) -> None:
    states: Counter[str] = Counter()
    for runner in node.coordinators.transactions.runners:
        states.update(runner.shard.counts_by_state())
    for state in NAMES.values():
        page.add("moldau_transactional_ids", states[state], (("state", state),))
