"""The part of a swarm with groups of today: members of a consumer group (KIP-848), of a share group (KIP-932) and of a
Streams group (KIP-1071).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.cluster_group import GroupWatch
from tests.support.cluster_heartbeats import ConsumerMember, ShareMember, ShareWatch
from tests.support.cluster_streams import StreamsMember

if TYPE_CHECKING:
    from tests.support.cluster import Cluster
    from tests.support.cluster_clients import Bootstrap

CONSUMERS: Final = "consumers"
SHARERS: Final = "sharers"
APPLICATION: Final = "application"
SETTINGS: Final = {SHARERS: ("share.auto.offset.reset", "earliest"), APPLICATION: ("streams.num.standby.replicas", "1")}
"""The setting of each group that has one."""
GROUP_RESOURCE: Final = 32


class Heartbeats:
    """`bootstrap_of` gives each client its own way to the cluster, by its name."""

    def __init__(
        self,
        cluster: Cluster,
        members: int,
        topic: str,
        partitions: int,
        bootstrap_of: Callable[[str], Bootstrap],
        complaints: list[str],
    ) -> None:
        """`members`: of each of the three groups."""
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        watch = GroupWatch(CONSUMERS, topic, partitions, complaints)
        self._consumers = [ConsumerMember(watch, bootstrap_of(f"{CONSUMERS}-{n}"), f"c{n}") for n in range(members)]
        shared = ShareWatch(SHARERS, topic, complaints, self._epoch_of)
        self._sharers = [ShareMember(shared, bootstrap_of(f"{SHARERS}-{n}"), f"s{n}") for n in range(members)]
        applied = GroupWatch(APPLICATION, topic, partitions, complaints)
        self._instances = [StreamsMember(applied, bootstrap_of(f"{APPLICATION}-{n}"), f"i{n}") for n in range(members)]
        self._members: list[ConsumerMember | ShareMember] = [*self._consumers, *self._sharers, *self._instances]
        self._working: list[asyncio.Task[None]] = []

    def _epoch_of(self, node_id: int, index: int) -> int:
        broker = self._cluster.nodes[node_id].broker
        partition = None if broker is None else broker.replicas.get(self._topic, index)
        return -1 if partition is None else partition.leader_epoch

    async def begin(self) -> None:
        if not self._sharers:
            return
        resources = [
            AlterConfigsResource(
                resource_type=GROUP_RESOURCE,
                resource_name=group,
                configs=[AlterableConfig(name=name, config_operation=0, value=value)],
            )
            for group, (name, value) in SETTINGS.items()
        ]
        answer = await self._cluster.ask_any(
            IncrementalAlterConfigsRequest(resources=resources, validate_only=False), 1
        )
        assert not any(each.error_code for each in answer.responses), answer.responses
        loop = asyncio.get_running_loop()
        self._working = [loop.create_task(each.work()) for each in self._members]
        # An initialization that fails is repeated after half a minute: it is over before anything strikes.
        await self._cluster.until(self._has_shares, "assigned share partitions")

    def _has_shares(self) -> bool:
        return {index for each in self._sharers for index in each.assigned} == {*range(self._partitions)}

    async def end(self, patience_s: float) -> None:
        """Raises TimeoutError if a member is stuck, or a record is not delivered."""
        for each in self._members:
            each.is_ending = True
        await asyncio.wait_for(asyncio.gather(*self._working), patience_s)
        for member in (*self._consumers[:1], *self._instances[:1]):
            await asyncio.wait_for(member.verify(), patience_s)
        for sharer in self._sharers[:1]:
            for index in range(self._partitions):
                await asyncio.wait_for(sharer.finish(index), patience_s)
