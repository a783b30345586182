"""Faults of remote storage, as one broker or all of them meet them, and an operator who switches copies off and on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final

from moldau.kraft.image.configs import ResourceType
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.testing.simulation.storage import StorageFaults
from tests.simulation.cluster.plan import Fault, Plan
from tests.support.node import Closed

if TYPE_CHECKING:
    from tests.support.cluster import Cluster, ClusterNode

SECONDS: Final = (0.5, 2.0, 6.0, 15.0)
"""How long a fault lasts."""
ADMIN_S: Final = 5.0
SET: Final = 0


class StorageStrikes:
    """Each strike lasts some seconds; `mend_storage` ends it."""

    def __init__(self, cluster: Cluster, plan: Plan, random: Random) -> None:
        self._cluster = cluster
        self._plan = plan
        self._random = random
        self._asking: set[asyncio.Task[None]] = set()

    def table(self) -> dict[Fault, Callable[[], Awaitable[None]]]:
        return {
            Fault.STORAGE_ERRORS: lambda: self._strike(self._errors),
            Fault.STORAGE_SLOW: lambda: self._strike(self._slow),
            Fault.STORAGE_AWAY: lambda: self._strike(self._away),
            Fault.STORAGE_EXPIRED: lambda: self._strike(self._expired),
            Fault.STORAGE_FULL: lambda: self._strike(self._full),
            Fault.STORAGE_LAG: lambda: self._strike(self._lag),
            Fault.SWITCH_COPIES: self._switch,
        }

    async def _strike(self, change: Callable[[StorageFaults], None]) -> None:
        nodes = list(self._cluster.nodes.values())
        struck = nodes if self._random.random() < 0.6 else [self._random.choice(nodes)]
        for node in struck:
            change(node.host.storage_faults)

        def mend() -> None:
            for node in struck:
                mend_storage(node)

        asyncio.get_running_loop().call_later(self._random.choice(SECONDS), mend)

    def _errors(self, faults: StorageFaults) -> None:
        faults.timeout_s = 1.0
        faults.refuses = self._random.choice((0.0, 0.3))
        faults.loses_answer = self._random.choice((0.0, 0.3))
        faults.loses_request = self._random.choice((0.0, 0.2))
        faults.cut_upload = self._random.choice((0.0, 0.5))

    def _slow(self, faults: StorageFaults) -> None:
        faults.delay_s, faults.slow, faults.slow_s = 0.3, 0.2, self._random.choice((1.0, 4.0))

    def _away(self, faults: StorageFaults) -> None:
        faults.timeout_s = 1.0
        faults.is_unreachable = self._random.random() < 0.5
        faults.is_away = not faults.is_unreachable

    def _expired(self, faults: StorageFaults) -> None:
        faults.credentials_end_s = 0.0

    def _full(self, faults: StorageFaults) -> None:
        (bucket,) = self._cluster.world.buckets.values()
        used = sum(len(each.data) for each in bucket.objects.values())
        faults.capacity_bytes = used + self._random.choice((0, 500, 3000))

    def _lag(self, faults: StorageFaults) -> None:
        faults.list_lag_s = 10.0

    async def _switch(self) -> None:
        switching = switch_copies(self._cluster, self._plan, is_on=self._random.random() < 0.5)
        task = asyncio.get_running_loop().create_task(switching)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)


def mend_storage(node: ClusterNode) -> None:
    """The storage serves this node as it should."""
    faults = node.host.storage_faults
    for name in StorageFaults.__slots__:
        setattr(faults, name, getattr(StorageFaults(), name))


async def switch_copies(cluster: Cluster, plan: Plan, *, is_on: bool) -> None:
    """Set `remote.log.copy.disable` of all tiered topics; switching on is repeated until a broker has done it."""
    if not plan.is_tiered:
        return
    settings = {
        "remote.log.copy.disable": "false" if is_on else "true",
        "local.retention.bytes": str(plan.local_retention_bytes) if is_on else "-2",
    }
    configs = [AlterableConfig(name=name, config_operation=SET, value=value) for name, value in settings.items()]
    while True:
        images = [node.broker.image for node in cluster.nodes.values() if node.is_up and node.broker is not None]
        image = max(images, key=lambda each: each.provenance.end_offset, default=None)
        resources = [
            AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name=resource.name, configs=configs)
            for resource, given in (image.configs.by_resource.items() if image is not None else ())
            if given.get("remote.storage.enable") == "true"
        ]
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
        with suppress(OSError, AssertionError, TimeoutError, Closed):
            reply = await cluster.ask_any(request, 1, ADMIN_S)
            if not any(each.error_code for each in reply.responses):
                return
        if not is_on:
            return
        await asyncio.sleep(1)
