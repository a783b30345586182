"""Dead letters: the records that do not fit a table, in a table of their own, each with the reason.

The dead letters of a round (the records of one commit) are committed before the rows of the round, and only if there
are any. After a crash between the two commits the table does not have the rows of the round. The records that are dead
letters already are left out when the round is repeated, so each offset is in one of the two tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, Or

from moldau.lake.columns import TIMES_US, raw_schema, read_columns
from moldau.lake.ledger import Ledger
from moldau.lake.sink import LakeTable, NewTable

SUFFIX: Final = "_dead_letters"
"""The suffix of the name of the dead letters' table, after the name of the table of rows."""


class DeadLetters:
    """The table of dead letters, of which this process is the writer."""

    def __init__(self, table: LakeTable, *, has_headers: bool) -> None:
        self._table = table
        self.schema = raw_schema(read_columns(has_headers=has_headers)).append(pa.field("reason", pa.string()))
        self._letters: list[pa.RecordBatch] = []

    def check(self, wanted: Ledger) -> None:
        """Raise what `LakeTable.check` raises if the table of dead letters cannot be continued."""
        self._table.check(self._wanted(wanted))

    def claim(self, wanted: Ledger) -> None:
        """Become the writer of the table of dead letters, and delete its orphans. Raises what
        `LakeTable.claim` raises."""
        self._table.claim(self._wanted(wanted), NewTable(self.schema))
        self._table.sweep()

    @staticmethod
    def _wanted(ledger: Ledger) -> Ledger:
        return replace(ledger, mode="append", offsets={})

    def stored_since(self, offsets: Mapping[int, int]) -> set[tuple[int, int]]:
        """Return the partition and offset of each dead letter at or after these offsets. The table has such letters
        after a round whose rows were not committed, because of a crash or of a lost response.

        Letters that were added for a round that was given up are dropped. Raises `WriterReplaced`.
        """
        self._letters = []
        begun = self._table.begin()
        ahead = {each: offsets.get(each, 0) for each, end in begun.ledger.offsets.items() if end > offsets.get(each, 0)}
        if not ahead:
            return set()
        parts = [And(EqualTo("partition", each), GreaterThanOrEqual("offset", start)) for each, start in ahead.items()]
        condition = parts[0] if len(parts) == 1 else Or(*parts)
        found = begun.table.scan(condition, selected_fields=("partition", "offset")).to_arrow()
        return set(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))

    def add(self, rows: pa.RecordBatch, reasons: Sequence[str]) -> None:
        """Add records that do not fit, each with its reason. A timestamp outside of the years that a table can have
        becomes the first or the last possible one; the reason names it."""
        columns = [*(rows.column(each.name) for each in self.schema if each.name != "reason"), pa.array(list(reasons))]
        at = self.schema.get_field_index("timestamp")
        times_us = pc.max_element_wise(columns[at].cast(pa.int64()), TIMES_US[0])
        columns[at] = pc.min_element_wise(times_us, TIMES_US[1]).cast(columns[at].type)
        self._letters.append(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def commit(self, reached: Mapping[int, int]) -> None:
        """Commit the dead letters of a round that reads up to the offsets `reached`. Raises `CommitConflict` and
        `WriterReplaced`."""
        if not self._letters:
            return
        attempt = self._table.begin()
        for each in self._letters:
            attempt.add(each)
        attempt.commit(reached)
        self._letters = []
