"""Makes the rows of a round from its records: rows to add, or changes of keys. Records that do not fit are handled as
the user has chosen.

A round has the records of one commit of the follower, or those that a live table reads after the last commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from moldau.lake.columns import Columns, Misfit, TableRows, undated_misfits, without_misfits
from moldau.lake.keys import KEY
from moldau.lake.ledger import RecordDigests
from moldau.lake.offset_runs import OffsetDigest, add_digests, digests_by_partition
from moldau.lake.upsert import KeyChanges
from moldau.tables.values.registry import ValueNotDecoded

SUSPEND, SKIP, DEAD_LETTER = "suspend", "skip", "dead-letter"


class DeadLetterTable(Protocol):
    """A table that stores the records that do not fit."""

    def stored_since(self, offsets: Mapping[int, int]) -> set[tuple[int, int]]:
        """The partition and offset of each stored record at or after these offsets."""

    def add(self, rows: pa.RecordBatch, reasons: Sequence[str]) -> None:
        """Add records that do not fit, each with its reason."""

    def commit(self, reached: Mapping[int, int]) -> None:
        """Commit the added records of a round that reads up to the offsets `reached`."""


class Misfits:
    """Handles the records of a round that do not fit, as the user has chosen."""

    def __init__(self, topic: str, action: str) -> None:
        self._topic = topic
        self._action = action
        self.count = 0

    def begin(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Begin a batch of the round. Returns those of its records that are to be decoded."""
        return batch

    def take(self, batch: pa.RecordBatch, misfits: Sequence[Misfit]) -> None:
        """Handle the records of a batch that do not fit (`misfits`). Raises `ValueNotDecoded` if the follower
        suspends.
        """
        if not misfits:
            return
        self.count += len(misfits)
        if self._action == SUSPEND:
            row, reason = misfits[0]
            place = f"{self._topic}-{batch.column('partition')[row]}, offset {batch.column('offset')[row]}"
            raise ValueNotDecoded(f"{place}: {reason}; --misfits skip and --misfits dead-letter go on")
        self._left_out(batch.take(pa.array([each.row for each in misfits])), misfits)

    def _left_out(self, rows: pa.RecordBatch, misfits: Sequence[Misfit]) -> None:
        """Note records that are left out of the table. This class does nothing with them."""


class CountedMisfits(Misfits):
    """Handles the misfits of a round that will be committed. All records that are read are counted, and misfits may
    become dead letters."""

    def __init__(self, topic: str, action: str, letters: DeadLetterTable | None, offsets: Mapping[int, int]) -> None:
        super().__init__(topic, action)
        self._letters = letters
        self._stored = set() if letters is None else letters.stored_since(offsets)
        self._read: dict[int, OffsetDigest] = {}
        self._unfit: dict[int, OffsetDigest] = {}

    @property
    def taken(self) -> dict[int, RecordDigests]:
        """The records of each partition that were read in the round, as digests."""
        return {each: RecordDigests(read, self._unfit.get(each, OffsetDigest())) for each, read in self._read.items()}

    def begin(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Count the records of a batch. Returns the records that are not yet dead letters: after a crash between the
        two commits of a round some already are."""
        self._read = add_digests(self._read, digests_by_partition(batch))
        if not self._stored:
            return batch
        places = zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
        is_new = pa.array([place not in self._stored for place in places], pa.bool_())
        self._unfit = add_digests(self._unfit, digests_by_partition(batch.filter(pc.invert(is_new))))
        return batch.filter(is_new)

    def _left_out(self, rows: pa.RecordBatch, misfits: Sequence[Misfit]) -> None:
        self._unfit = add_digests(self._unfit, digests_by_partition(rows))
        if self._letters is not None:
            self._letters.add(rows, [each.reason for each in misfits])

    def commit(self, reached: Mapping[int, int]) -> None:
        """Commit the dead letters of the round, before the table has the offsets of the round."""
        if self._letters is not None:
            self._letters.commit(reached)


class RoundRows:
    def __init__(self, columns: Columns, misfits: Misfits, grown: Callable[[Columns], None] = lambda _: None) -> None:
        """`grown`: called with the columns if a value needs further columns, before its rows are returned."""
        self._columns = columns
        self._misfits = misfits
        self._grown = grown

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for the records of a batch that fit. Raises `ValueNotDecoded` if the follower suspends, and
        what `DecodedColumns.rows` raises."""
        return self._rows(self._dated(batch)).batch

    def collect(self, changes: KeyChanges, batch: pa.RecordBatch) -> None:
        """Add the records of a batch to the changes of keys. A record is a misfit if its key is missing or decodes to
        null. A misfit does not count among the records of its key. Raises what `rows` raises."""
        found = self._rows(self._kept(self._dated(batch), without_key), is_by_key=True)
        changes.add(found.batch, found.deletes)

    def _dated(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._kept(self._misfits.begin(batch), undated_misfits)

    def _kept(self, batch: pa.RecordBatch, find: Callable[[pa.RecordBatch], Sequence[Misfit]]) -> pa.RecordBatch:
        """Return the records of a batch without the misfits that `find` finds."""
        found = find(batch)
        self._misfits.take(batch, found)
        return without_misfits(batch, found)

    def _rows(self, batch: pa.RecordBatch, *, is_by_key: bool = False) -> TableRows:
        before = self._columns.schema
        rows = self._columns.rows(batch, is_by_key=is_by_key)
        self._misfits.take(batch, rows.misfits)
        if not self._columns.schema.equals(before):
            self._grown(self._columns)
        return rows


def without_key(batch: pa.RecordBatch) -> Sequence[Misfit]:
    """Find the records that have no key, and so no row in a table by key."""
    keys = batch.column(KEY)
    rows = pc.indices_nonzero(keys.is_null()).to_pylist() if keys.null_count else ()
    return [Misfit(row, "the record has no key") for row in rows]
