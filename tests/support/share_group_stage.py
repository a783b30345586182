"""A shard of the group coordinator with share groups on a stage, topics, and a share coordinator that stores states."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.description import GroupDescription
from moldau.coordinator.group.kind_settings import ShareGroupSettings
from moldau.coordinator.group.target import ComputeTarget
from moldau.coordinator.runtime.machine import Loaded
from moldau.coordinator.share.events import DescribeShareGroup, InitializeStates, ShareHeartbeat, StatesInitialized
from moldau.coordinator.share.group import ShareGroup
from moldau.protocol.messages.share_group_describe import DescribedGroup
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.support.group_stage import GroupStage
from tests.support.topics_image import image_of_topics

GROUP = "share"


class ShareGroupStage(GroupStage):
    """Topics by name with their partitions. States are initialized at once, unless `stores` is False."""

    def __init__(self, topics: Mapping[str, int], config: ShareGroupSettings | None = None) -> None:
        self.targets: list[ComputeTarget] = []
        """Commands to compute a target, which a test carries out."""
        self.stores = True
        self._to_store: list[InitializeStates] = []
        settings = config or ShareGroupSettings(assignment_interval_ms=0)
        super().__init__(GroupConfig(share=settings), image_of_topics(topics, {}))
        self.step(Loaded())

    def perform(self, command: ComputeTarget | InitializeStates) -> None:
        if isinstance(command, ComputeTarget):
            self.targets.append(command)
        else:
            super().perform(command)
            self._to_store.append(command)

    def settled(self, event: object) -> None:
        """The share coordinator answers after the step that commands it."""
        while self.stores and self._to_store:
            command = self._to_store.pop(0)
            self.step(StatesInitialized(command.group_id, frozenset(each[:2] for each in command.offsets)))

    def beat(self, member_id: str, epoch: int, *topics: str, rack_id: str | None = None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack_id,
            subscribed_topic_names=list(topics) or None,
        )
        reply = self.ask(ShareHeartbeat(self.waiter(1), request, "cli", "/127.0.0.1"))
        assert isinstance(reply, ShareGroupHeartbeatResponse)
        return reply

    def described(self, group_id: str = GROUP) -> DescribedGroup:
        reply = self.ask(DescribeShareGroup(self.waiter(1), group_id))
        whole = reply.whole() if isinstance(reply, GroupDescription) else reply
        assert isinstance(whole, DescribedGroup)
        return whole

    @property
    def share_group(self) -> ShareGroup:
        group = self.shard.group(GROUP)
        assert isinstance(group, ShareGroup)
        return group

    def settle(self, *member_ids: str, rounds: int = 4) -> dict[str, int]:
        """Heartbeats until all members are at their targets. Returns their epochs."""
        for _ in range(rounds):
            for member_id in member_ids:
                self.beat(member_id, self.share_group.members[member_id].epoch)
        return {member_id: self.share_group.members[member_id].epoch for member_id in member_ids}
