"""The part of a swarm with groups of today: members of a consumer group (KIP-848) and of a share group (KIP-932)."""

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

if TYPE_CHECKING:
    from tests.support.cluster import Cluster
    from tests.support.cluster_clients import Bootstrap

CONSUMERS: Final = "consumers"
SHARERS: Final = "sharers"
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
        """`members`: of each of the two groups."""
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        watch = GroupWatch(CONSUMERS, topic, partitions, complaints)
        self._consumers = [ConsumerMember(watch, bootstrap_of(f"{CONSUMERS}-{n}"), f"c{n}") for n in range(members)]
        shared = ShareWatch(SHARERS, topic, complaints, self._epoch_of)
        self._sharers = [ShareMember(shared, bootstrap_of(f"{SHARERS}-{n}"), f"s{n}") for n in range(members)]
        self._members: list[ConsumerMember | ShareMember] = [*self._consumers, *self._sharers]
        self._working: list[asyncio.Task[None]] = []

    def _epoch_of(self, node_id: int, index: int) -> int:
        broker = self._cluster.nodes[node_id].broker
        partition = None if broker is None else broker.replicas.get(self._topic, index)
        return -1 if partition is None else partition.leader_epoch

    async def begin(self) -> None:
        if not self._sharers:
            return
        reset = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=SHARERS, configs=[reset])
        answer = await self._cluster.ask_any(
            IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
        )
        assert not answer.responses[0].error_code, answer.responses[0].error_message
        loop = asyncio.get_running_loop()
        self._working = [loop.create_task(each.work()) for each in self._members]
        # An initialization that fails is repeated after half a minute: it is over before anything strikes.
        await self._cluster.until(self._has_shares, "assigned share partitions")

    def _has_shares(self) -> bool:
        return {index for each in self._sharers for index in each.assigned} == {*range(self._partitions)}

    async def end(self, patience_s: float) -> None:
        """Raises TimeoutError where a member is stuck, or a record is not delivered."""
        for each in self._members:
            each.is_ending = True
        await asyncio.wait_for(asyncio.gather(*self._working), patience_s)
        for member in self._consumers[:1]:
            await asyncio.wait_for(member.verify(), patience_s)
        for sharer in self._sharers[:1]:
            for index in range(self._partitions):
                await asyncio.wait_for(sharer.finish(index), patience_s)
