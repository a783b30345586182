"""An administrator of a simulated cluster: topics come and go, grow and are set otherwise, and stay as promised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kraft.image.configs import ResourceType
from kraft.image.metadata_image import MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.cluster_clients import Bootstrap
from tests.support.node import Closed

TIMEOUT_MS: Final = 3000
KEPT_SHARE: Final = 0.3
"""Of the topics: they stay, so that the end shows whether they did."""


@dataclass(slots=True)
class Promised:
    """Of one topic. A `count` of 0: it is to be gone. What was asked and not answered is dropped: nobody knows."""

    count: int
    settings: dict[str, str] = field(default_factory=dict)


class Administrator:
    def __init__(self, bootstrap: Bootstrap, complaints: list[str], prefix: str = "churn") -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        """Of the names of its topics."""
        self._complaints = complaints
        self._promised: dict[str, Promised] = {}
        self._number = 0

    async def work(self, is_ended: Callable[[], bool]) -> None:
        while not is_ended():
            self._number += 1
            name = f"{self._prefix}-{self._number}"
            for act in (self._create, self._alter, self._grow, self._alter, self._delete):
                try:
                    await act(name)
                except Closed:
                    self._promised.pop(name, None)  # nobody knows
                    await self._bootstrap.back_off()
                await asyncio.sleep(self._bootstrap.random.random() * 0.8)
                if is_ended():
                    return

    async def _create(self, name: str) -> None:
        configs = [CreatableTopicConfig(name="retention.ms", value="-1")]
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=3, configs=configs)
        reply = await self._bootstrap.ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 7)
        if reply.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._promised[name] = Promised(2, {"retention.ms": "-1"})

    async def _alter(self, name: str) -> None:
        random, promised = self._bootstrap.random, self._promised.get(name)
        if promised is None:
            return
        setting = random.choice(("min.insync.replicas", "segment.ms"))
        value = str(random.randint(1, 3) if setting == "min.insync.replicas" else random.randint(10**7, 10**8))
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            configs=[AlterableConfig(name=setting, config_operation=0, value=value)],
        )
        reply = await self._bootstrap.ask_any(
            IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
        )
        if reply.responses[0].error_code == ErrorCode.NONE:
            promised.settings[setting] = value
        else:
            del self._promised[name]  # it may be done later still

    async def _grow(self, name: str) -> None:
        promised = self._promised.get(name)
        if promised is None or self._bootstrap.random.random() < 0.5:
            return
        topic = CreatePartitionsTopic(name=name, count=3, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)
        reply = await self._bootstrap.ask_any(request, 3)
        if reply.results[0].error_code == ErrorCode.NONE:
            promised.count = 3

    async def _delete(self, name: str) -> None:
        if self._bootstrap.random.random() < KEPT_SHARE:
            return
        promised = self._promised.pop(name, None)
        reply = await self._bootstrap.ask_any(DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 5)
        if reply.responses[0].error_code == ErrorCode.NONE and promised is not None:
            self._promised[name] = Promised(0)

    def verify(self, image: MetadataImage) -> None:
        """At the end, of the newest metadata of a whole cluster."""
        for name, promised in self._promised.items():
            topic = image.topics.by_name(name)
            count = 0 if topic is None else len(topic.partitions)
            if (count == 0) != (promised.count == 0) or count < promised.count:
                self._complaints.append(f"{name} was to have {promised.count} partitions, and has {count}")
            settings = image.configs.of(ResourceType.TOPIC, name)
            lost = {each: value for each, value in promised.settings.items() if settings.get(each) != value}
            if lost and promised.count:
                self._complaints.append(f"{name} was to have the settings {lost}, and has {dict(settings)}")
