"""A shard of the share coordinator on a stage."""

from __future__ import annotations

from collections.abc import Callable

from moldau.coordinator.runtime.machine import Effects, Loaded
from moldau.coordinator.share_coordinator.events import (
    InitializeState,
    ReadState,
    ShareStateConfig,
    StateAnswer,
    WriteState,
)
from moldau.coordinator.share_coordinator.records import ShareStateChange, ShareStateRecordReader, change_of
from moldau.coordinator.share_coordinator.shard import ShareStateShard
from moldau.coordinator.share_coordinator.state import ShareKey, ShareState, StateBatch
from tests.support.machine_stage import MachineStage

KEY = ShareKey("g", b"t" * 16, 0)


class ShareCoordinatorStage(MachineStage[ShareStateShard]):
    def __init__(self, config: ShareStateConfig, partition_count: Callable[[bytes], int | None]) -> None:
        """`partition_count`: the number of partitions of a topic by its id, None if there is no such topic."""
        self.config = config
        self.partition_count = partition_count
        super().__init__()
        self.step(Loaded())

    def new_shard(self, committed_end_offset: int) -> ShareStateShard:
        return ShareStateShard(self.config, committed_end_offset, self.partition_count)

    def new_reader(self) -> ShareStateRecordReader:
        return ShareStateRecordReader()

    def changes_of(self, effects: Effects) -> list[ShareStateChange]:
        return [change for change in map(change_of, effects.records) if change is not None]

    def states(self) -> dict[ShareKey, ShareState]:
        return dict(self.shard.states())

    # Requests

    def initialize(self, key: ShareKey = KEY, state_epoch: int = 1, start_offset: int = -1) -> StateAnswer | None:
        return self._answer(InitializeState(self.waiter(), key, state_epoch, start_offset))

    def write(
        self,
        batches: tuple[StateBatch, ...] = (),
        key: ShareKey = KEY,
        state_epoch: int = 1,
        leader_epoch: int = -1,
        start_offset: int = -1,
        complete_count: int = 0,
    ) -> StateAnswer | None:
        waiter = self.waiter()
        return self._answer(WriteState(waiter, key, state_epoch, leader_epoch, start_offset, complete_count, batches))

    def read(self, leader_epoch: int = -1, key: ShareKey = KEY) -> StateAnswer | None:
        return self._answer(ReadState(self.waiter(), key, leader_epoch))

    def _answer(self, event: object) -> StateAnswer | None:
        answer = self.ask(event)
        assert answer is None or isinstance(answer, StateAnswer)
        return answer
