"""The follower of a topic: it reads and commits in rounds until the table has all records of the topic, and then as the
topic grows.

    claim ──▶ list the ends ──▶ nothing new: wait ──▶ list again
               │
               └─▶ a round: read, decode, write files ──▶ commit ──▶ list the ends
                          │            │                      └─ a conflict: begin the round anew
                          │            └─ a record that does not fit: suspend, skip, or a row of the dead letters
                          ├─ a file of the plan was replaced or deleted: begin the round anew
                          └─ asked to stop: give the round up, end

The table is the only state. Each round begins at the offsets that the table has, so each offset is in the table once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from moldau.lake.columns import Columns
from moldau.lake.compaction import compact_files
from moldau.lake.dead_letters import DeadLetters
from moldau.lake.ledger import Ledger
from moldau.lake.reading import TopicReading
from moldau.lake.round_rows import SUSPEND, CountedMisfits, RoundRows
from moldau.lake.sink import CommitAttempt, CommitConflict, LakeTable
from moldau.lake.upsert import KeyChanges, match_changed_keys, rows_that_stay, without_older
from moldau.tables.refusals import DataLost, Refused, TopicRecreated

CONFLICTS_MAX: Final = 20
"""The most conflicts in a row. One more ends the process, because the table changes faster than a round is written."""
REPLANS_MAX: Final = 3
"""The most rounds in a row that are planned again because files of the plan were replaced or deleted."""
SWEEP_COMMITS: Final = 1_000
"""The number of commits after which the follower deletes the files that only expired snapshots have named."""


class StopRequested(Exception):
    """The process is asked to end, so the round is given up."""


@dataclass(slots=True)
class FollowProgress:
    """The figures of a follower for the metrics and the progress messages."""

    offsets: dict[int, int] = field(default_factory=dict)
    """For each partition, the offset from which the next round reads."""
    ends: dict[int, int] = field(default_factory=dict)
    """The ends of the partitions in the log, by the last listing."""
    rows_count: int = 0
    commits_count: int = 0
    misfits_count: int = 0
    conflicts_count: int = 0
    orphans_count: int = 0
    compacted_count: int = 0
    """The number of small files that were replaced by fewer files."""
    caught_up_ms: int = 0
    """The time (Unix time, ms) at which the table last had all records that could be read."""
    committed_ms: int = 0
    """The time of the last commit (Unix time, ms)."""
    is_followed: bool = True
    """Whether the topic is followed. False after it has failed."""

    @property
    def lag(self) -> int:
        """The number of offsets that the places show and that the table does not have."""
        return sum(max(0, end - self.offsets.get(partition, 0)) for partition, end in self.ends.items())


@dataclass(frozen=True, slots=True)
class FollowSettings:
    round_size: int
    """About how many bytes of segments a round reads."""
    misfits: str = SUSPEND
    """The treatment of a record that does not fit: `suspend`, `skip` or `dead-letter`."""
    has_headers: bool = False
    compact_files_min: int | None = None
    """The number of small files of a partition from which on they are joined; None disables compaction."""


@dataclass(frozen=True, slots=True)
class FollowPorts:
    """The functions of the process that the follower calls: the clock, messages, and whether the process is to end."""

    now_ms: Callable[[], int]
    say: Callable[[str], None]
    is_stopping: Callable[[], bool]


class Follower:
    """Keeps a claimed table up to date with a topic."""

    def __init__(
        self,
        reading: TopicReading,
        table: LakeTable,
        columns: Columns,
        ledger: Ledger,
        settings: FollowSettings,
        ports: FollowPorts,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self._reading = reading
        self._table = table
        self._columns = columns
        self._settings = settings
        self._ports = ports
        self._dead_letters = dead_letters
        self._ledger = ledger
        self._conflicts = 0
        self._replans = 0
        self._swept_commits = 0
        self.progress = FollowProgress(offsets=dict(ledger.offsets), caught_up_ms=ports.now_ms())

    def catch_up(self, rounds_max: int | None = None) -> bool:
        """Read and commit rounds, at most `rounds_max`, until the table has all records that could be read at the call.
        Returns whether the table is still behind; also True if the process is to end.

        Raises `ValueNotDecoded` if a record does not fit and the follower suspends; `DataLost`, `TopicRecreated`,
        `WriterReplaced` and `Refused`; `MalformedMessage` and OSError of the files; the errors of the catalog.
        """
        ends = self._reading.ends(self._ledger.offsets, self._ledger.topic_id)
        listed_ms = self._ports.now_ms()
        self.progress.ends = dict(ends)
        self.progress.offsets |= {each: self._next_offset(each) for each in ends}
        rounds = count() if rounds_max is None else range(rounds_max)
        for _ in rounds:
            if self._ports.is_stopping() or not self._is_behind(ends):
                break
            try:
                self._round(ends)
            except StopRequested:
                return True
            except CommitConflict as conflict:
                self._note_conflict(conflict)
            except TopicRecreated:
                raise
            except DataLost as lost:
                self._note_outdated_plan(lost)
        is_behind = self._is_behind(ends)
        if not is_behind:
            self.progress.caught_up_ms = listed_ms
        self._compact()
        if self.progress.commits_count >= self._swept_commits + SWEEP_COMMITS:
            self._swept_commits = self.progress.commits_count
            self.progress.orphans_count += len(self._table.sweep())
        return is_behind

    def _compact(self) -> None:
        if self._settings.compact_files_min is None:
            return
        joined = compact_files(self._table, self._settings.compact_files_min, self._ports.is_stopping)
        self.progress.compacted_count += joined
        if joined:
            self._ports.say(f"{joined:,} small files were joined")

    def _is_behind(self, ends: Mapping[int, int]) -> bool:
        return any(end > self._next_offset(each) for each, end in ends.items())

    def _next_offset(self, partition: int) -> int:
        """The next offset that the table takes of a partition. For a partition that the table does not have yet it is
        the log start offset."""
        known = self._ledger.offsets.get(partition)
        return self._reading.log_start(partition) if known is None else known

    def _round(self, ends: Mapping[int, int]) -> None:
        attempt = self._table.begin()
        reached, tasks = self._reading.plan_round(attempt.ledger.offsets, ends, self._settings.round_size)
        misfits = CountedMisfits(
            self._reading.topic, self._settings.misfits, self._dead_letters, attempt.ledger.offsets
        )
        round_rows = RoundRows(self._columns, misfits, attempt.evolve)
        changes = KeyChanges() if attempt.ledger.mode == "upsert" else None
        try:
            if not attempt.has(self._columns.schema):
                attempt.evolve(self._columns)
            for batch in self._reading.batches(tasks, self._columns.read_names):
                if self._ports.is_stopping():
                    raise StopRequested
                if changes is None:
                    attempt.add(round_rows.rows(batch))
                else:
                    round_rows.collect(changes, batch)
            if changes is not None:
                self._apply(attempt, changes)
            misfits.commit(reached)
        except BaseException:
            attempt.discard()
            raise
        self._ledger = attempt.commit(reached, misfits.taken)
        self._note_commit(attempt, misfits)

    def _apply(self, attempt: CommitAttempt, changes: KeyChanges) -> None:
        """Apply the changes of a round to a table by key: files with a row of a changed key are rewritten."""
        metadata, io, target = attempt.metadata, attempt.table.io, attempt.files.schema
        rows, keys = changes.rows_and_keys(target)
        stored = match_changed_keys(metadata, io, attempt.table.scan().plan_files(), target, keys)
        rows, keys = without_older(rows, keys, stored.older, target)
        for batch in rows.to_batches():
            attempt.add(batch)
        for task in stored.files:
            if self._ports.is_stopping():
                raise StopRequested
            attempt.replace(task.file)
            for stays in rows_that_stay(metadata, io, task, target, keys):
                attempt.add(stays)

    def _note_commit(self, attempt: CommitAttempt, misfits: CountedMisfits) -> None:
        progress, self._conflicts, self._replans = self.progress, 0, 0
        progress.offsets = dict(self._ledger.offsets)
        progress.rows_count += attempt.files.rows_count
        progress.misfits_count += misfits.count
        progress.commits_count += 1
        progress.committed_ms = self._ports.now_ms()
        named = f", {misfits.count:,} that do not fit" if misfits.count else ""
        self._ports.say(
            f"commit {progress.commits_count}: {counted_rows(attempt.files.rows_count)}{named}; "
            f"{progress.lag:,} offsets behind"
        )

    def _note_conflict(self, conflict: CommitConflict) -> None:
        self._conflicts += 1
        self.progress.conflicts_count += 1
        self._ports.say(f"conflict, the round is made anew: {conflict}")
        if self._conflicts > CONFLICTS_MAX:
            raise Refused(f"{conflict}; the commits of other programs leave this one no room") from None

    def _note_outdated_plan(self, lost: DataLost) -> None:
        """A segment that compaction replaces or retention deletes while a round is read is not a loss: the next plan
        has other files, and raises `DataLost` itself if offsets are missing."""
        self._replans += 1
        if self._replans > REPLANS_MAX:
            raise lost
        self._ports.say(f"the round is made anew: {lost}")


def counted_rows(number: int) -> str:
    """A number of rows as text, with the noun."""
    return f"{number:,} row" if number == 1 else f"{number:,} rows"
