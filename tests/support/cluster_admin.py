"""An administrator of a simulated cluster: it creates, deletes, extends and reconfigures topics, and checks the result.

Names are used again, so that a topic may have another id while its name is the same. What was asked and not answered
may still be done, to the next topic of that name too: such a name is not used any more, and nothing is promised of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.cluster_clients import Bootstrap, NotAsked, Told, believed
from tests.support.node import Closed

TIMEOUT_MS: Final = 3000
KEPT_SHARE: Final = 0.3
"""The share of topics that are never deleted, so that the end shows whether they still exist."""
REUSED_SHARE: Final = 0.8
"""The probability that a free name is used again."""
PAUSE_S: Final = 0.8
SWITCHES: Final = ("remote.storage.enable",)
"""Settings that are switched off and on, of topics with remote storage."""


class Made(NamedTuple):
    """A topic that was created."""

    name: str
    id: bytes


@dataclass(slots=True)
class Promised:
    """The expected state of one topic. A `count` of 0: it must not exist."""

    count: int
    settings: dict[str, str] = field(default_factory=dict)


async def written_by_nobody(made: Made) -> None:
    """Topics without records."""


class Administrator:
    def __init__(
        self,
        bootstrap: Bootstrap,
        complaints: list[str],
        prefix: str = "churn",
        *,
        told: Told = believed,
        write: Callable[[Made], Awaitable[None]] = written_by_nobody,
        pause_s: float = PAUSE_S,
        tiered: Mapping[str, str] = {},
        disabled: set[str] | None = None,
    ) -> None:
        """`write`: gives a topic records, as far as the cluster takes them. `pause_s`: at most, between two acts.
        `tiered`: the settings of a topic with remote storage, if topics have it; then it is switched off and on.
        `disabled`: gets the name of each topic before it is switched off.
        """
        self._settings = {"retention.ms": "-1", **tiered}
        self._disabled = set() if disabled is None else disabled
        self._pause_s = pause_s
        self._bootstrap = bootstrap
        self._prefix = prefix
        """The prefix of the names of its topics."""
        self._complaints = complaints
        self._told = told
        self._write = write
        self._promised: dict[str, Promised] = {}
        self._made: dict[str, Made] = {}
        """The topic that has a name, by name."""
        self._free: list[str] = []
        """The names of topics whose deletion is certain."""
        self._number = 0

    async def work(self, is_ended: Callable[[], bool]) -> None:
        while not is_ended():
            name = self._next_name()
            for act in (self._create, self._fill, self._alter, self._grow, self._fill, self._alter, self._delete):
                await self._do(act, name, is_ended)
                await asyncio.sleep(self._bootstrap.random.random() * self._pause_s)
                if is_ended():
                    return

    async def _do(self, act: Callable[[str], Awaitable[None]], name: str, is_ended: Callable[[], bool]) -> None:
        """Repeat a request until a node is asked."""
        while not is_ended():
            try:
                await act(name)
                return
            except NotAsked:
                await self._bootstrap.back_off()
            except Closed:
                self._doubt(name)
                await self._bootstrap.back_off()
                return

    def _next_name(self) -> str:
        self._number += 1
        if self._free and self._bootstrap.random.random() < REUSED_SHARE:
            return self._free.pop()
        return f"{self._prefix}-{self._number}"

    def _doubt(self, name: str) -> None:
        """The result of a request is not known: nothing is expected of this name any more."""
        self._promised.pop(name, None)
        self._made.pop(name, None)

    async def _create(self, name: str) -> None:
        configs = [CreatableTopicConfig(name=setting, value=value) for setting, value in self._settings.items()]
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=3, configs=configs)
        reply = await self._bootstrap.ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 7)
        (answer,) = reply.topics
        is_promised = name in self._promised  # The deletion is certain.
        if answer.error_code == ErrorCode.NONE:
            topic_id = answer.topic_id
            self._made[name] = Made(name, topic_id)
            self._told(self._bootstrap, f"topic {name}", lambda image: topic_id in image.topics.by_id)
        if answer.error_code == ErrorCode.NONE or (
            answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and not is_promised
        ):
            self._promised[name] = Promised(2, dict(self._settings))
        else:
            self._doubt(name)

    async def _fill(self, name: str) -> None:
        made = self._made.get(name)
        if made is not None:
            await self._write(made)

    async def _alter(self, name: str) -> None:
        random, promised = self._bootstrap.random, self._promised.get(name)
        if promised is None:
            return
        setting = random.choice(("min.insync.replicas", "segment.ms", *SWITCHES[: len(self._settings) - 1]))
        value = str(random.randint(1, 3) if setting == "min.insync.replicas" else random.randint(10**7, 10**8))
        changes = {setting: value}
        if setting == "remote.storage.enable":
            value = "false" if promised.settings.get(setting) == "true" else "true"
            changes = {setting: value, "remote.log.delete.on.disable": "true"}
            self._disabled.add(name)
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            configs=[AlterableConfig(name=each, config_operation=0, value=given) for each, given in changes.items()],
        )
        reply = await self._bootstrap.ask_any(
            IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
        )
        if reply.responses[0].error_code == ErrorCode.NONE:
            promised.settings |= changes
            self._told(
                self._bootstrap,
                f"{setting} of {name}",
                lambda image: image.configs.settings_of(ResourceType.TOPIC, name).get(setting) == value,
            )
        else:
            self._doubt(name)  # The request may still be carried out later.

    async def _grow(self, name: str) -> None:
        promised = self._promised.get(name)
        if promised is None or self._bootstrap.random.random() < 0.5:
            return
        topic = CreatePartitionsTopic(name=name, count=3, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)
        reply = await self._bootstrap.ask_any(request, 3)
        if reply.results[0].error_code == ErrorCode.NONE:
            promised.count = 3
        else:
            self._doubt(name)

    async def _delete(self, name: str) -> None:
        """Delete a topic, by its id if that is known, so that a late request deletes no later topic."""
        if self._bootstrap.random.random() < KEPT_SHARE:
            return
        promised, made = self._promised.get(name), self._made.get(name)
        if made is not None:
            state = DeleteTopicState(name=None, topic_id=made.id)
            reply = await self._bootstrap.ask_any(DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS), 6)
        else:
            reply = await self._bootstrap.ask_any(DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 5)
        self._doubt(name)
        if reply.responses[0].error_code != ErrorCode.NONE or promised is None:
            return
        self._promised[name] = Promised(0)
        if made is not None:
            self._free.append(name)
            self._told(self._bootstrap, f"that {name} is gone", lambda image: made.id not in image.topics.by_id)

    def verify(self, image: MetadataImage) -> None:
        """Check the expected states against the newest metadata, at the end."""
        for name, promised in self._promised.items():
            topic = image.topics.by_name(name)
            count = 0 if topic is None else len(topic.partitions)
            if (count == 0) != (promised.count == 0) or count < promised.count:
                self._complaints.append(f"{name} was to have {promised.count} partitions, and has {count}")
            made = self._made.get(name)
            if topic is not None and made is not None and topic.id != made.id:
                self._complaints.append(f"{name} is to be topic {made.id.hex()}, and is {topic.id.hex()}")
            settings = image.configs.settings_of(ResourceType.TOPIC, name)
            lost = {each: value for each, value in promised.settings.items() if settings.get(each) != value}
            if lost and promised.count:
                self._complaints.append(f"{name} was to have the settings {lost}, and has {dict(settings)}")
