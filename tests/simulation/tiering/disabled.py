"""Scripted stories of a topic whose tiering is switched off and on again: what was only remote is deleted with it, and
what was local stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from moldau.kraft.image.configs import ResourceType
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.storage.tiered.layout import parse_key
from tests.simulation.tiering.scripts import Stage, expected, told

SET: Final = 0
ALTER_VERSION: Final = 1
DISABLED: Final = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
ENABLED: Final = {"remote.storage.enable": "true"}
LOCAL_BYTES: Final = 1000
SETTLED_S: Final = 5.0
DEAD_S: Final = 15.0
"""Longer than the session of a broker."""
REMOVED_S: Final = 60.0
SLOW_S: Final = 1.0
"""Of one object."""


async def alter(stage: Stage, settings: Mapping[str, str]) -> None:
    """Change settings of the topic, and wait until every broker has them."""
    configs = [AlterableConfig(name=name, config_operation=SET, value=value) for name, value in settings.items()]
    resource = AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name="t", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = (await stage.cluster.ask_any(request, ALTER_VERSION)).responses[0]
    assert answer.error_code == ErrorCode.NONE, answer.error_message

    def is_known() -> bool:
        images = [stage.broker(each).image for each in stage.cluster.nodes]
        return all(
            dict(image.configs.settings_of(ResourceType.TOPIC, "t")).items() >= dict(settings).items()
            for image in images
        )

    await stage.cluster.until(is_known, "the settings are known", 60)


async def removed(stage: Stage) -> None:
    """Wait until nothing of the topic is in the bucket, and no broker follows its metadata."""

    def is_removed() -> bool:
        followed = [
            each for node in stage.cluster.nodes for each in stage.tiering(node).reader if each.key.topic == "t"
        ]
        return not followed and not any(parse_key(key) for key in stage.bucket.objects)

    await stage.cluster.until(is_removed, "the remote segments are deleted", REMOVED_S)


def what_is_local_stays_when_tiering_is_switched_off_and_on(seed: int) -> None:
    """All is copied, and all is still local. The copies are deleted with the tiering of the topic; switched on again,
    everything is copied anew before local retention deletes it."""

    async def story(stage: Stage) -> None:
        await stage.fill(20)
        await stage.copied()
        await alter(stage, DISABLED)
        await removed(stage)
        await stage.fill(2)
        assert await stage.read() == expected(stage.count)
        await alter(stage, ENABLED | {"local.retention.bytes": "1"})
        await stage.cluster.until(lambda: all(map(stage.follows, stage.cluster.nodes)), "all follow", 60)
        await stage.fill(10)
        await stage.copied()
        log = stage.leader().log
        await stage.cluster.until(lambda: log.segments == [log.active], "local segments are deleted", 60)
        assert await stage.read() == expected(stage.count)

    told(seed, story, local_retention_bytes=1_000_000)


def what_is_only_remote_goes_with_the_tiering(seed: int) -> None:
    """Tiering is switched off, and on again while the remote segments are being deleted: the log begins where its local
    part began, and everything from there on is read and copied."""

    async def story(stage: Stage) -> None:
        local_start_offset = await begin_removal(stage)
        await alter(stage, ENABLED | {"local.retention.bytes": "1"})
        await copied_anew(stage)
        start_offset = stage.leader().log.log_start_offset
        assert start_offset == local_start_offset, f"local was {local_start_offset}, the log begins at {start_offset}"
        assert await stage.read(start_offset) == expected(stage.count)[start_offset:]

    told(seed, story, keeps_all=False, local_retention_bytes=LOCAL_BYTES)


def a_removal_outlives_its_broker(seed: int) -> None:
    """The topic is tiered again, and the broker that deletes the remote segments ends: another broker finishes the
    deletion, and everything is copied anew."""

    async def story(stage: Stage) -> None:
        await begin_removal(stage)
        node = stage.cluster.nodes[stage.leader_id()]
        await alter(stage, ENABLED)
        node.kill()
        await asyncio.sleep(DEAD_S)
        node.boot()
        await stage.cluster.settled()
        await copied_anew(stage)
        start_offset = stage.leader().log.log_start_offset
        assert await stage.read(start_offset) == expected(stage.count)[start_offset:]

    told(seed, story, keeps_all=False, local_retention_bytes=LOCAL_BYTES)


async def begin_removal(stage: Stage) -> int:
    """Copy some segments, and switch tiering off; the storage is slow. Returns where the local log of the leader begins
    then."""
    await stage.fill(20)
    await stage.copied()
    await stage.cluster.until(lambda: stage.leader().log.local_start_offset > 0, "local segments are deleted", 60)
    await asyncio.sleep(SETTLED_S)
    local_start_offset = stage.leader().log.local_start_offset
    for faults in stage.faults():
        faults.slow, faults.slow_s = 1.0, SLOW_S
    await alter(stage, DISABLED)
    followed = stage.followed(stage.leader_id())
    await stage.cluster.until(lambda: followed.is_being_removed, "the deletion begins", 60)
    return local_start_offset


async def copied_anew(stage: Stage) -> None:
    """Write more, and wait until the storage has what it should have."""
    await stage.fill(10)
    await asyncio.sleep(10 * SLOW_S)
    for faults in stage.faults():
        faults.slow = 0.0
    await stage.cluster.until(lambda: all(map(stage.follows, stage.cluster.nodes)), "all follow", 60)
    await stage.copied()


ALL: Final[tuple[Callable[[int], None], ...]] = (
    what_is_local_stays_when_tiering_is_switched_off_and_on,
    what_is_only_remote_goes_with_the_tiering,
    a_removal_outlives_its_broker,
)
