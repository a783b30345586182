"""Producers that send what is not acknowledged in any order, so that the leader alone keeps it in sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.protocol.record_builder import Record, build_batch

IN_FLIGHT_MAX: Final = 5


class SequencedProducer:
    def __init__(self, producer_id: int) -> None:
        self.id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.unacknowledged: dict[int, bytes] = {}
        """Batches by their first sequences."""
        self.is_known = False
        """Something of it was acknowledged: a leader knows where its sequences go on."""
        self.late: list[bytes] = []
        """Batches that may still arrive, or once more."""
        self.sequences: list[int] = []
        """Of the batches of this epoch."""

    @property
    def may_send_more(self) -> bool:
        """Five batches are under way at the most, from the first that is not acknowledged on; one at first, because
        a leader takes any sequence of a producer of which it knows nothing.
        """
        if not self.is_known:
            return not self.unacknowledged
        first = min(self.unacknowledged, default=self.sequence)
        return sum(each >= first for each in self.sequences[-IN_FLIGHT_MAX:]) < IN_FLIGHT_MAX

    def add(self, values: Sequence[bytes], now_ms: int, *, is_transactional: bool = False) -> int:
        """Make the next batch. Returns its first sequence."""
        sequence, self.sequence = self.sequence, self.sequence + len(values)
        self.sequences.append(sequence)
        self.unacknowledged[sequence] = build_batch(
            [Record(value=value, timestamp=now_ms) for value in values],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        return sequence
