"""The machines of coordinators on stages that write down what happens, for transcripts; classic groups have their own
(tests/support/group_scribe.py). Each takes what every machine takes (tests/support/machine_scribe.py), and:

    consumer groups       beat member=m epoch=0 [topics=a,b owned=a:0,1 instance=i]      topics a=3 b=1
    share groups          beat member=m epoch=0 [topics=a,b]      topics a=3      initialized      initialization-fails
    Streams groups        beat member=m epoch=0 [sources=in owned=0,1]      topics in=3
    transactions          init [producer= epoch=]      add producer= epoch= t-0 u-1      verify …      markers
                          end producer= epoch= commit, or abort
    the share coordinator     initialize [epoch=1 start=-1]      write 0-9:0:1 [epoch= leader= start= done=]
                          (first-last:state:deliveries)      read [leader=]      delete

A group is "g" in all of them, a transactional id "tid", a share partition g of partition 0 of topic t.
"""

from __future__ import annotations

from typing import Any

from moldau.coordinator.consumer.events import ConsumerHeartbeat
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.kind_settings import ShareGroupSettings, StreamsGroupSettings
from moldau.coordinator.group.records import Change, OffsetChange, RecordChange
from moldau.coordinator.runtime.machine import Loaded
from moldau.coordinator.shard.shard import GroupShard
from moldau.coordinator.share.events import InitializeStates, ShareHeartbeat, StatesInitialized
from moldau.coordinator.share_coordinator.events import (
    DeleteState,
    InitializeState,
    ReadState,
    ShareStateConfig,
    StateAnswer,
    WriteState,
)
from moldau.coordinator.share_coordinator.records import ShareStateChange
from moldau.coordinator.share_coordinator.shard import ShareStateShard
from moldau.coordinator.share_coordinator.state import StateBatch
from moldau.coordinator.streams.events import HeartbeatReply, StreamsHeartbeat
from moldau.coordinator.transaction.events import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    ProducerIdAnswer,
    VerifyPartitions,
)
from moldau.coordinator.transaction.records import TransactionChange
from moldau.coordinator.transaction.shard import TransactionShard
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.support.consumer_stage import id_of, stage_image
from tests.support.group_stage import GroupStage
from tests.support.machine_scribe import MachineScribe, brief, names_in, told
from tests.support.share_coordinator_stage import KEY, ShareCoordinatorStage
from tests.support.streams_stage import subtopology, tasks, topology
from tests.support.transaction_stage import TID, TIMEOUT_MS, TransactionStage
from tests.support.transcripts import Command

GROUP = "g"
CLIENT = ("client", "/host")
LEFT_OUT = (
    *("client_id", "client_host", "metadata_hash", "last_assignment_configs", "error_code", "throttle_time_ms"),
    *("heartbeat_interval_ms", "acceptable_recovery_lag_legacy", "acceptable_recovery_lag", "task_offset_interval_ms"),
    *("topology_description_required", "endpoint_information_epoch", "stored_description_topology_epoch"),
    "failed_description_topology_epoch",
)
"""The fields of records and answers that say the same in every story."""


class KindScribe(MachineScribe[GroupShard], GroupStage):
    """Groups of one of the kinds that have a target."""

    settings = GroupConfig(
        initial_rebalance_delay_ms=0,
        share=ShareGroupSettings(assignment_interval_ms=0),
        streams=StreamsGroupSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0),
    )

    def __init__(self) -> None:
        super().__init__(self.settings, stage_image(1, {}, {}))
        self.step(Loaded())

    def do_topics(self, command: Command) -> None:
        counts = {name: int(count) for name, count in command.options.items()}
        self.image = stage_image(self.image.version + 1, counts, {})

    def written(self, change: Change) -> str:
        if not isinstance(change, RecordChange):
            assert isinstance(change, OffsetChange)
            return brief(change)
        kind = type(change.key).__name__.removesuffix("Key").partition("Group")[2]
        member = getattr(change.key, "member_id", "")
        value = "none" if change.value is None else told(change.value, *LEFT_OUT)
        return " ".join(filter(None, (kind, member, value)))

    def said(self, response: object) -> str:
        answer = response.response if isinstance(response, HeartbeatReply) else response
        error = ErrorCode(getattr(answer, "error_code", 0)).name
        return f"{error} {told(answer, *LEFT_OUT)}"


class ConsumerScribe(KindScribe):
    def do_beat(self, command: Command) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=command.options["member"],
            member_epoch=command.int("epoch"),
            instance_id=command.options.get("instance"),
            rebalance_timeout_ms=30_000 if command.int("epoch") == 0 else -1,
            subscribed_topic_names=names_in(command, "topics") or None,
            topic_partitions=owned_in(command),
        )
        self.step(ConsumerHeartbeat(self.waiter_of(command, 1), request, *CLIENT, f"fresh-{self.token}", object()))


class ShareScribe(KindScribe):
    def do_beat(self, command: Command) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=command.options["member"],
            member_epoch=command.int("epoch"),
            subscribed_topic_names=names_in(command, "topics") or None,
        )
        self.step(ShareHeartbeat(self.waiter_of(command, 1), request, *CLIENT))

    def perform(self, command: Any) -> None:
        self.lines.append(f"command {type(command).__name__} {brief(command)}")
        super().perform(command)

    def do_initialized(self, command: Command) -> None:
        """The share coordinator has stored what it was told last."""
        told_to = self.commands.pop()
        assert isinstance(told_to, InitializeStates)
        self.step(StatesInitialized(told_to.group_id, frozenset(each[:2] for each in told_to.offsets)))

    def do_initialization_fails(self, command: Command) -> None:
        told_to = self.commands.pop()
        assert isinstance(told_to, InitializeStates)
        failed = frozenset(each[:2] for each in told_to.offsets)
        self.step(StatesInitialized(told_to.group_id, frozenset(), failed))


class StreamsScribe(KindScribe):
    def do_beat(self, command: Command) -> None:
        is_new = command.int("epoch") == 0
        owned = [int(each) for each in names_in(command, "owned")]
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=command.options["member"],
            member_epoch=command.int("epoch"),
            endpoint_information_epoch=0,
            shutdown_application=False,
            rebalance_timeout_ms=30_000 if is_new else -1,
            topology=topology(subtopology("0", names_in(command, "sources") or ["in"])) if is_new else None,
            process_id=f"process-{command.options['member']}" if is_new else None,
            active_tasks=tasks(*owned),
            standby_tasks=[],
            warmup_tasks=[],
        )
        self.step(StreamsHeartbeat(self.waiter_of(command, 0), request, *CLIENT))


def owned_in(command: Command) -> list[TopicPartitions] | None:
    """`owned=a:0,1`; none is said by `owned=`."""
    if "owned" not in command.options:
        return [] if command.int("epoch") == 0 else None
    topic, _, partitions = command.options["owned"].partition(":")
    return [TopicPartitions(topic_id=id_of(topic), partitions=[*map(int, partitions.split(","))])] if topic else []


class TransactionScribe(MachineScribe[TransactionShard], TransactionStage):
    def written(self, change: TransactionChange) -> str:  # type: ignore[override]
        if change.value is None:
            return f"{change.transactional_id} none"
        value = change.value
        ids = f"producer={value.producer_id} epoch={value.producer_epoch}"
        return f"{change.transactional_id} {value.state.name} {ids} {parts(value.partitions)}".rstrip()

    def said(self, response: object) -> str:
        if isinstance(response, ErrorCode):
            return response.name
        if isinstance(response, dict):
            return " ".join(f"{topic}-{index}:{error.name}" for (topic, index), error in response.items())
        assert isinstance(response, ProducerIdAnswer)
        return f"{response.error.name} producer={response.producer_id} epoch={response.producer_epoch}"

    def perform(self, command: Any) -> None:
        outcome = "commit" if command.is_commit else "abort"
        ids = f"producer={command.producer_id} epoch={command.producer_epoch}"
        self.lines.append(f"send markers: {outcome} {ids} {parts(command.partitions)}")
        super().perform(command)

    def ids(self, command: Command) -> tuple[int, int]:
        return command.int("producer", -1), command.int("epoch", -1)

    def do_init(self, command: Command) -> None:
        waiter = self.waiter_of(command, 0)
        self.step(InitProducerId(waiter, TID, TIMEOUT_MS, *self.ids(command), self.transaction_version))

    def do_add(self, command: Command) -> None:
        self.step(AddPartitions(self.waiter_of(command, 0), TID, *self.ids(command), partitions_of(command), 2))

    def do_verify(self, command: Command) -> None:
        self.step(VerifyPartitions(self.waiter_of(command, 0), TID, *self.ids(command), partitions_of(command)))

    def do_end(self, command: Command) -> None:
        commits = command.arguments == ["commit"]
        self.step(EndTransaction(self.waiter_of(command, 0), TID, *self.ids(command), commits, 2))

    def do_markers(self, command: Command) -> None:
        """Every partition has its marker."""
        sent = self.commands.pop()
        self.step(MarkersWritten(sent, frozenset(sent.partitions)))


def partitions_of(command: Command) -> tuple[tuple[str, int], ...]:
    return tuple((topic, int(index)) for topic, _, index in (each.partition("-") for each in command.arguments))


def parts(partitions: Any) -> str:
    return " ".join(f"{topic}-{index}" for topic, index in sorted(partitions))


class ShareCoordinatorScribe(MachineScribe[ShareStateShard], ShareCoordinatorStage):
    def __init__(self) -> None:
        super().__init__(ShareStateConfig(updates_per_snapshot=3), lambda _: 1)

    def written(self, change: ShareStateChange) -> str:
        value = change.value
        if value is None:
            return "none"
        kind = "snapshot" if hasattr(value, "state_epoch") else "update"
        said = f"{kind} {value.snapshot_epoch}: leader={value.leader_epoch} start={value.start_offset}"
        return f"{said} {brief(value.batches)}"

    def said(self, response: object) -> str:
        assert isinstance(response, StateAnswer)
        if response.error:
            return response.error.name
        state = f"epoch={response.state_epoch} leader={response.leader_epoch} start={response.start_offset}"
        return f"NONE {state} {brief(response.batches)}"

    def perform(self, command: Any) -> None:
        self.lines.append(f"command {type(command).__name__} {brief(command)}")
        super().perform(command)

    def do_initialize(self, command: Command) -> None:
        waiter = self.waiter_of(command, 0)
        self.step(InitializeState(waiter, KEY, command.int("epoch", 1), command.int("start", -1)))

    def do_write(self, command: Command) -> None:
        batches = []
        for text in command.arguments:
            offsets, state, count = text.split(":")
            first, _, last = offsets.partition("-")
            batches.append(StateBatch(int(first), int(last), int(state), int(count)))
        self.step(
            WriteState(
                self.waiter_of(command, 0),
                KEY,
                state_epoch=command.int("epoch", 1),
                leader_epoch=command.int("leader", 0),
                start_offset=command.int("start", -1),
                delivery_complete_count=command.int("done", 0),
                batches=tuple(batches),
            )
        )

    def do_read(self, command: Command) -> None:
        self.step(ReadState(self.waiter_of(command, 0), KEY, command.int("leader", 0)))

    def do_delete(self, command: Command) -> None:
        self.step(DeleteState(self.waiter_of(command, 0), KEY))
