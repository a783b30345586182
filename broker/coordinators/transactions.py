"""The transaction coordinator of a broker: one state machine for each partition of `__transaction_state`, and the
settings and the topic that it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from moldau.broker.config.config import Config
from moldau.broker.config.internal_topics import TRANSACTION_STATE_TOPIC, InternalTopic
from moldau.broker.coordinators.definition import CommandReports, CoordinatorDefinition, KeyType
from moldau.broker.coordinators.shards import Shards
from moldau.coordinator.transaction.events import TransactionConfig
from moldau.protocol.compression import Codec

if TYPE_CHECKING:
    from moldau.coordinator.runtime.log_reading import RecordReader
    from moldau.coordinator.transaction.events import TransactionEvent
    from moldau.coordinator.transaction.records import TransactionChange
    from moldau.coordinator.transaction.shard import TransactionShard

    TransactionRow: TypeAlias = CoordinatorDefinition[TransactionShard, TransactionEvent, TransactionChange]
    Perform: TypeAlias = Callable[[object, CommandReports[TransactionEvent]], None]

TransactionCoordinator: TypeAlias = "Shards[TransactionShard, TransactionEvent, TransactionChange]"
"""The transaction coordinator of a broker. The `CoordinatorRegistry` tells it which partitions of `__transaction_state`
this broker begins and ceases to lead.
"""


def transaction_coordinator_definition(
    config: TransactionConfig,
    next_producer_id: Callable[[], int | None],
    transaction_version: Callable[[], int],
    perform: Perform,
) -> TransactionRow:
    """The definition of the transaction coordinator for `Shards`. `next_producer_id` gives a new producer id, or None
    while this broker has none. `transaction_version` gives the finalized level of that feature. `perform` sends the
    markers that a state machine commands.
    """

    def new_shard(high_watermark: int, leader_epoch: int) -> TransactionShard:
        """Create the state machine of a partition of `__transaction_state`.

        The modules of `TransactionShard` are imported here, because a broker that leads no partition of the topic does
        not need them.
        """
        from moldau.coordinator.transaction.shard import TransactionShard

        return TransactionShard(config, high_watermark, leader_epoch, next_producer_id, transaction_version)

    return CoordinatorDefinition(
        topic=state_topic(config),
        key_type=KeyType.TRANSACTION,
        log_name="moldau.transactions",
        new_shard=new_shard,
        new_reader=new_reader,
        load_buffer_size=config.load_buffer_size,
        codec=Codec.NONE,
        perform=perform,
    )


def state_topic(config: TransactionConfig) -> InternalTopic:
    return InternalTopic(
        TRANSACTION_STATE_TOPIC,
        config.state_topic_num_partitions,
        config.state_topic_replication_factor,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.state_topic_min_isr),
            "segment.bytes": str(config.state_topic_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


def new_reader() -> RecordReader[TransactionChange]:
    from moldau.coordinator.transaction.records import TransactionRecordReader

    return TransactionRecordReader()


def transaction_config(config: Config) -> TransactionConfig:
    """The transaction settings in a node's configuration."""
    return TransactionConfig(
        max_timeout_ms=config.integer("transaction.max.timeout.ms"),
        id_expiration_ms=config.integer("transactional.id.expiration.ms"),
        id_cleanup_interval_ms=config.integer("transaction.remove.expired.transaction.cleanup.interval.ms"),
        abort_interval_ms=config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        state_topic_num_partitions=config.integer("transaction.state.log.num.partitions"),
        state_topic_replication_factor=config.integer("transaction.state.log.replication.factor"),
        state_topic_min_isr=config.integer("transaction.state.log.min.isr"),
        state_topic_segment_bytes=config.integer("transaction.state.log.segment.bytes"),
        load_buffer_size=config.integer("transaction.state.log.load.buffer.size"),
        commit_timeout_ms=config.integer("request.timeout.ms"),
    )
