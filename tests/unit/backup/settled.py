"""Settled logs, as a node reads them: for the tests of settling and of restoring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.backup.observed import LogObserver, RestoreMoment, TransactionStateObserver
from moldau.backup.settled_log import appended_markers, restored_batch
from moldau.backup.settling import MarkerChanges, TransactionRepairs, find_transaction_repairs
from moldau.coordinator.transaction.transaction import Transaction
from moldau.protocol.record_batch import parse_header
from moldau.storage.producers.producer_state import ProducerStates, read_transaction_marker
from tests.support.transaction_histories import OFFSETS, Truth, Vector, World, batches_below, compacted

TopicPartition = tuple[str, int]


class Restored:
    """The logs after a settlement, as a node reads them."""

    def __init__(self, world: World, vector: Vector, moment: RestoreMoment, compacted_below: Mapping[int, int]) -> None:
        self.world = world
        self.logs = {
            key: observed(LogObserver(end, moment, has_commits=key == OFFSETS), batches_below(world.logs[key], end))
            for key, end in vector.ends.items()
        }
        self.states = {
            index: observed_states(
                TransactionStateObserver(index, end, vector.decided[index], moment),
                list(compacted(world.states[index], compacted_below.get(index, 0))),
            )
            for index, end in vector.states.items()
        }
        self.settlement: TransactionRepairs = find_transaction_repairs(self.logs, self.states, moment.time_ms)
        self.outcomes: dict[TopicPartition, dict[Truth, bool]] = {}
        """By partition: whether each transaction with records there is committed in the restored log."""
        self.producers: dict[TopicPartition, ProducerStates] = {}
        self.batches: dict[TopicPartition, list[bytes]] = {}
        for key in self.logs:
            self._read(key, moment)

    def _read(self, key: TopicPartition, moment: RestoreMoment) -> None:
        log, changes = self.logs[key], self.settlement.marker_changes_by_log.get(key, MarkerChanges())
        below = batches_below(self.world.logs[key], log.end_offset)
        batches = [bytes(restored_batch(parse_header(batch), batch, changes)) for batch in below]
        batches += appended_markers(log, changes, moment.time_ms)
        self.batches[key] = batches
        producers = self.producers[key] = ProducerStates()
        outcomes = self.outcomes[key] = {}
        following = 0
        for batch in batches:
            header = parse_header(batch)
            assert header.base_offset == following
            following = header.next_offset
            ended = producers.replay(header, read_transaction_marker(batch) if header.is_control else None)
            if ended is not None:
                truth = self.world.writers[key, ended.first_offset]
                assert truth not in outcomes, "a transaction ends once"
                outcomes[truth] = not ended.is_aborted
        assert producers.first_unstable_offset() in (
            None,
            *(each.first_offset for each in producers.undecided_transactions.values()),
        )

    def committed(self, truth: Truth) -> bool:
        """Whether a transaction is committed in all logs in which it has records; fails if it is in some."""
        found = set()
        for key, offsets in truth.records.items():
            outcome = self.outcomes[key].get(truth, False)
            end = self.logs[key].end_offset
            assert not outcome or all(offset < end for offset in offsets), "a committed transaction is whole"
            found.add(outcome)
        assert len(found) <= 1, f"transaction {truth.number} is committed in one log and not in another"
        return True in found

    def final_states(self) -> dict[str, Transaction]:
        """The states that a coordinator loads."""
        final: dict[str, Transaction] = {}
        for index, states in self.states.items():
            final |= {name: known.transaction for name, known in states.state_by_transactional_id.items()}
            final |= {
                change.transactional_id: change.value
                for change in self.settlement.state_changes_by_partition.get(index, [])
                if change.value is not None
            }
        return final


def observed(log: LogObserver, batches: Iterable[bytes]) -> LogObserver:
    for batch in batches:
        if not log.observe_batch(parse_header(batch), batch):
            break
    log.finish_log()
    return log


def observed_states(states: TransactionStateObserver, batches: Iterable[bytes]) -> TransactionStateObserver:
    for batch in batches:
        header = parse_header(batch)
        if header.next_offset <= states.end_offset:
            states.observe_batch(header, batch)
    return states
