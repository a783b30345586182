"""A shard of the group coordinator with share groups: a log in memory, a clock, topics, and a share coordinator."""

from __future__ import annotations

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.events import ShardRequest
from moldau.coordinator.group.kind_settings import ShareGroupSettings
from moldau.coordinator.group.target import ComputeTarget
from moldau.coordinator.runtime.machine import Effects, Waiter
from moldau.coordinator.share.events import DescribeShareGroup, InitializeStates, ShareHeartbeat, StatesInitialized
from moldau.coordinator.share.group import ShareGroup
from moldau.protocol.messages.share_group_describe import DescribedGroup
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.support.streams_stage import StreamsStage, image

GROUP = "share"
CLIENT = Waiter("client", 1)


class ShareGroupStage(StreamsStage):
    """Topics by name with their partitions. Commands are carried out at once, unless `stores` is False."""

    def __init__(self, topics: dict[str, int], config: ShareGroupSettings | None = None) -> None:
        self.commands: list[InitializeStates] = []
        self.targets: list[ComputeTarget] = []
        """Commands to compute a target, which a test carries out."""
        self.stores = True
        super().__init__(topics)
        self.config = GroupConfig(share=config or ShareGroupSettings(assignment_interval_ms=0))
        self.shard = self._new_shard()

    def _act(self, effects: Effects) -> list[tuple[object, object]]:
        commands: list[object] = []
        step = self.shard.step

        def noted(*arguments: object) -> Effects:
            result = step(*arguments)  # type: ignore[arg-type]
            commands.extend(result.commands)
            return result

        self.shard.step = noted  # type: ignore[assignment, method-assign]
        replies = super()._act(effects)
        self.shard.step = step  # type: ignore[method-assign]
        for command in [*effects.commands, *commands]:
            if isinstance(command, ComputeTarget):
                self.targets.append(command)
                continue
            assert isinstance(command, InitializeStates)
            self.commands.append(command)
            if self.stores:
                done = frozenset((each.topic_id, each.partition) for each in command.offsets)
                self.tell(StatesInitialized(command.group_id, done))
        return replies

    def tell(self, event: ShardRequest) -> None:
        self._act(self.shard.step(event, self.now_ms, self.wall_ms))

    def beat(self, member_id: str, epoch: int, *topics: str, rack_id: str | None = None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack_id,
            subscribed_topic_names=list(topics) or None,
        )
        reply = self.ask(ShareHeartbeat(CLIENT, request, "cli", "/127.0.0.1"))
        assert isinstance(reply, ShareGroupHeartbeatResponse)
        return reply

    def described(self, group_id: str = GROUP) -> DescribedGroup:
        reply = self.ask(DescribeShareGroup(CLIENT, group_id))
        assert isinstance(reply, DescribedGroup)
        return reply

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


def topic_id(name: str) -> bytes:
    found = image({name: 1}, {}).topic_of_name(name)
    assert found is not None
    assert isinstance(found.id, bytes)
    return found.id
