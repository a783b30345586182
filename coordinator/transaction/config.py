"""The settings of the transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Kafka's settings of transactions, with the defaults of 4.3.1."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    id_cleanup_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
    abort_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    state_topic_num_partitions: int = 50
    """transaction.state.log.num.partitions"""
    state_topic_replication_factor: int = 3
    """transaction.state.log.replication.factor"""
    state_topic_min_isr: int = 2
    """transaction.state.log.min.isr"""
    state_topic_segment_bytes: int = 104_857_600
    """transaction.state.log.segment.bytes"""
    load_buffer_size: int = 5_242_880
    """transaction.state.log.load.buffer.size"""
    commit_timeout_ms: int = 5_000
    """The time (ms) that a client waits for the commit of a record.

    Apache Kafka waits for the timeout of the transaction.
    """
