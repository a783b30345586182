"""The state of a replay in a directory: what is replayed, how much of it is done, and which transactions are decided.

    <state>/replay.json         the offsets and the target; written once, before the first record
    <state>/done.json           the rounds that are done, and the records written in them
    <state>/<id>-<round>.json   the transactions of a round that the driver has decided to commit (`TransactionLog`)
    <state>/lock                held while a replay runs

| round  | its decision | its transactions    | a run that begins here                                     |
|--------|--------------|---------------------|------------------------------------------------------------|
| done   |              |                     | goes on with the next                                      |
| open   | is not there |                     | writes the round; new producers abort what was left open   |
| open   | is there     | can be committed    | commits them, and goes on with the next                    |
| open   | is there     | all were aborted    | writes the round again                                     |
| open   | is there     | some were, some not | refuses: records are lost for readers with read_committed  |
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from moldau.spark_jobs.writing.commit import TransactionsLost, commit_all, text_of_lost
from moldau.spark_jobs.writing.transaction_log import TransactionLog
from moldau.tables.client.transaction import ProducerIdentity, TransactionOutcome
from moldau.tables.refusals import Refused, TopicRecreated

FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The offsets of a replay, and its target. A run that continues a replay has the plan of the first run."""

    replay_id: str
    topic: str
    cluster_id: str | None
    target: str
    target_cluster_id: str | None
    choices: Mapping[str, str]
    """The options that have chosen the offsets and the form of the records, as the user gave them."""
    ranges: Mapping[int, tuple[int, int]]
    """The replayed offsets [start, end) by partition."""
    rounds: int
    topic_id: str | None = None
    target_topic_id: str | None = None

    @property
    def offsets_count(self) -> int:
        """The upper bound on the number of replayed records."""
        return sum(end - start for start, end in self.ranges.values())

    def round_ranges(self, number: int) -> dict[int, tuple[int, int]]:
        """Return the [start, end) offsets of each partition in a round. All rounds have about equal shares of a
        partition.
        """
        found = {}
        for partition, (start, end) in self.ranges.items():
            first = start + (end - start) * number // self.rounds
            found[partition] = first, start + (end - start) * (number + 1) // self.rounds
        return found

    def differences(self, other: ReplayPlan) -> list[str]:
        """Return the names of the fields and options in which this plan differs from another one."""
        mine, its = asdict(self), asdict(other)
        names = ("topic", "cluster_id", "target", "target_cluster_id")
        differing = [name for name in names if None not in (mine[name], its[name]) and mine[name] != its[name]]
        options = sorted({*self.choices, *other.choices})
        return differing + [name for name in options if self.choices.get(name) != other.choices.get(name)]


def check_topics(state: str, known: ReplayPlan, topic_id: str | None, target_topic_id: str | None) -> None:
    """Raise `TopicRecreated` if the topic that is read or the topic that is written is not the one of the first run."""
    for topic, before, now, what in (
        (known.topic, known.topic_id, topic_id, "its offsets mean other records"),
        (known.target, known.target_topic_id, target_topic_id, "the records that were written to it are gone"),
    ):
        if None not in (before, now) and before != now:
            raise TopicRecreated(
                f"{state} has the state of a replay with {topic} of the id {before}, which was deleted; the topic of "
                f"this name now has the id {now}, and {what}. --anew forgets the state, and replays from the beginning"
            )


class DoneRounds(NamedTuple):
    """The number of complete rounds (parts of a replay), and their records."""

    rounds: int
    records: int
    """The number of records that were written in the complete rounds."""
    pending: int
    """The number of records of the next round, if the decision to commit it is stored; otherwise it has no meaning."""


class ReplayState:
    """The state of a replay in a directory of the driver that outlives the driver."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory).absolute()
        self.log = TransactionLog(str(self.directory))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the directory, so that no other run of the replay can begin. Raises `Refused` if another run
        holds it, and OSError.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(f"{self.directory}: another run of this replay is under way") from None
            yield

    def read_plan(self) -> ReplayPlan | None:
        """Read the plan that the first run stored in `replay.json`. Returns None if the file does not exist. Raises
        `Refused` if it is invalid, and OSError.
        """
        read = self._read("replay.json")
        if read is None:
            return None
        try:
            if read.pop("format_version") != FORMAT_VERSION:
                raise ValueError("another format version")
            ranges = {int(partition): (int(start), int(end)) for partition, (start, end) in read.pop("ranges").items()}
            return ReplayPlan(ranges=ranges, **read)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise Refused(f"{self.directory}/replay.json is not the plan of a replay: {problem}") from None

    def write_plan(self, plan: ReplayPlan) -> None:
        self._write("replay.json", {"format_version": FORMAT_VERSION, **asdict(plan)})

    def discard(self) -> None:
        """Forget the replay: the next run begins anew. The plan is removed last, so that no other plan finds rounds of
        this replay done. Raises OSError."""
        for left in sorted(self.directory.glob("*.json"), key=lambda path: (path.name == "replay.json", path.name)):
            left.unlink()

    def done(self) -> DoneRounds:
        """Read from `done.json` how many rounds (parts of the replay) are complete, how many records they wrote, and
        how many the next round has decided to commit. All are 0 if the file does not exist. Raises `Refused` if it is
        invalid, and OSError.
        """
        read = self._read("done.json")
        if read is None:
            return DoneRounds(0, 0, 0)
        try:
            return DoneRounds(int(read["rounds"]), int(read["records"]), int(read["pending"]))
        except (ValueError, KeyError, TypeError) as problem:
            raise Refused(f"{self.directory}/done.json does not say which rounds are done: {problem}") from None

    def note_done(self, done: DoneRounds) -> None:
        self._write("done.json", done._asdict())

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.directory / name
        try:
            read = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as problem:
            raise Refused(f"{path} cannot be read: {problem}") from None
        if not isinstance(read, dict):
            raise Refused(f"{path} is not a JSON object")
        return read

    def _write(self, name: str, document: Mapping[str, object]) -> None:
        """Replace a file of the state in one step. The file is durable when this method returns."""
        self.directory.mkdir(parents=True, exist_ok=True)
        unfinished = self.directory / f"{name}.tmp"
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(json.dumps(document) + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.directory / name)
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def commit_decided(
    replay_id: str,
    number: int,
    decided: Sequence[ProducerIdentity] | None,
    end: Callable[[ProducerIdentity, bool], TransactionOutcome],
) -> bool:
    """Commit the transactions of a round if an earlier run has decided to commit them. Returns False if the round must
    be written: there is no decision, or all transactions were aborted.

    Raises `TransactionsLost` if only some of them could be committed.
    """
    if decided is None:
        return False
    lost = commit_all(decided, end)
    if not lost:
        return True
    if len(lost) == len(decided):
        return False
    raise TransactionsLost(text_of_lost(replay_id, number, lost, len(decided)))
