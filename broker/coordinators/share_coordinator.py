"""The share coordinator of a broker: one state machine for each partition of `__share_group_state`, and the settings
and the topic that it uses.
"""

from __future__ import annotations

import asyncio
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from moldau.broker.config.config import Config, object_of_settings
from moldau.broker.config.internal_topics import SHARE_GROUP_STATE_TOPIC, InternalTopic
from moldau.broker.coordinators.definition import CommandReports, CoordinatorDefinition, KeyType
from moldau.broker.coordinators.shards import Shards
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.share_coordinator.events import (
    LogPruned,
    PruneLog,
    ShareStateConfig,
    ShareStateEvent,
    TopicsDeleted,
)
from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.coordinators.shard_runner import ShardRunner
    from moldau.coordinator.runtime.log_reading import RecordReader
    from moldau.coordinator.share_coordinator.records import ShareStateChange
    from moldau.coordinator.share_coordinator.shard import ShareStateShard

    ShareStateRow: TypeAlias = CoordinatorDefinition[ShareStateShard, ShareStateEvent, ShareStateChange]
    ShareStateRunner: TypeAlias = ShardRunner[ShareStateShard, ShareStateEvent, ShareStateChange]


SHARE_KEY_END: Final = re.compile(r":[A-Za-z0-9_-]{22}:[+-]?[0-9]{1,10}")
"""Matches the end of a share partition's key: its topic id and its partition."""


class ShareCoordinator:
    """The share coordinator, which stores the state of share partitions.

    The `CoordinatorRegistry` tells its `shards` which partitions of `__share_group_state` this broker begins and ceases
    to lead.
    """

    def __init__(
        self,
        config: ShareStateConfig,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
        partitions_count: Callable[[str], int | None],
        current_image: Callable[[], CoordinatorImage],
    ) -> None:
        row = share_coordinator_definition(config, current_image)
        self.shards = Shards(row, environment, loop, spawn, partitions_count)

    def runner_of(self, key: ShareKey) -> ShareStateRunner | ErrorCode:
        """The `ShardRunner` that has the state of a share partition, or the error with which requests about it are
        refused.
        """
        return self.shards.runner_of(coordinator_key(key))

    def partition_of(self, key: ShareKey) -> int:
        """The partition of `__share_group_state` that keeps the state of a share partition."""
        return self.shards.partition_of(coordinator_key(key))

    def on_topics_deleted(self, topic_ids: Iterable[bytes]) -> None:
        """Delete the state of the share partitions of deleted topics."""
        event = TopicsDeleted(frozenset(topic_ids))
        for runner in self.shards.runners:
            runner.report(event)


def coordinator_key(key: ShareKey) -> str:
    """The key of a share partition in FindCoordinator: `group:topic id:partition`."""
    topic_id = urlsafe_b64encode(key.topic_id).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


def is_share_key(key: str) -> bool:
    """Whether a text has the form of `coordinator_key`. Group ids may contain colons, so the text is read from its
    end.
    """
    group_id, _, rest = key.rpartition(":")[0].rpartition(":")
    return bool(group_id.strip()) and SHARE_KEY_END.fullmatch(key[len(group_id) :]) is not None and bool(rest)


def share_coordinator_definition(
    config: ShareStateConfig, current_image: Callable[[], CoordinatorImage]
) -> ShareStateRow:
    def partition_count(topic_id: bytes) -> int | None:
        topic = current_image().topic_of_id(topic_id)
        return None if topic is None else topic.partitions_count

    def new_shard(high_watermark: int, leader_epoch: int) -> ShareStateShard:
        """Create the state machine of a partition of `__share_group_state`.

        The modules of `ShareStateShard` are imported here, because a broker that leads no partition of the topic does
        not need them.
        """
        from moldau.coordinator.share_coordinator.shard import ShareStateShard

        return ShareStateShard(config, high_watermark, partition_count)

    return CoordinatorDefinition(
        topic=state_topic(config),
        key_type=KeyType.SHARE,
        log_name="moldau.share",
        new_shard=new_shard,
        new_reader=new_reader,
        load_buffer_size=config.load_buffer_size,
        codec=Codec(config.state_topic_compression_codec),
        perform=prune_log,
    )


def state_topic(config: ShareStateConfig) -> InternalTopic:
    return InternalTopic(
        SHARE_GROUP_STATE_TOPIC,
        config.state_topic_num_partitions,
        config.state_topic_replication_factor,
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(config.state_topic_min_isr),
            "retention.ms": "-1",
            "segment.bytes": str(config.state_topic_segment_bytes),
        },
    )


def new_reader() -> RecordReader[ShareStateChange]:
    from moldau.coordinator.share_coordinator.records import ShareStateRecordReader

    return ShareStateRecordReader()


def prune_log(command: object, reports: CommandReports[ShareStateEvent]) -> None:
    """Delete the redundant records at the start of a partition of `__share_group_state`, and report that to the state
    machine. If the log refuses, the state machine gives the command again later.
    """
    assert isinstance(command, PruneLog)
    if reports.is_open and reports.partition_log.delete_before(command.offset) is ErrorCode.NONE:
        reports.report(LogPruned(command.offset))


def share_state_config(config: Config) -> ShareStateConfig:
    """The settings of the share coordinator in a node's configuration."""
    return object_of_settings(
        ShareStateConfig,
        config.settings,
        "share.coordinator.",
        updates_per_snapshot=config.integer("share.coordinator.snapshot.update.records.per.snapshot"),
        prune_interval_ms=config.integer("share.coordinator.state.topic.prune.interval.ms"),
        cold_snapshot_interval_ms=config.integer("share.coordinator.cold.partition.snapshot.interval.ms"),
    )
