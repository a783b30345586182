"""The action `moldau consume`: fetches partitions from their leaders, and prints the records that pass the filters."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Final

from moldau.broker.cli.daily.client import EARLIEST, EARLIEST_LOCAL, LATEST, Client, Partition
from moldau.broker.cli.daily.failures import Failure, WrongArguments, raise_wrong_arguments
from moldau.broker.cli.daily.groups.changes import EMPTY_STATES, commit
from moldau.broker.cli.daily.groups.listing import CLASSIC, SHARE, Group, all_groups, committed_offsets
from moldau.broker.cli.daily.placement.named import named_partitions
from moldau.broker.cli.daily.records.fetching import bytes_of, fetch_from_leaders, records_from
from moldau.broker.cli.daily.records.printing import CSV_COLUMNS, FieldsSeen, Place, filter_of, formatter_of
from moldau.broker.cli.daily.session import Session
from moldau.broker.cli.daily.times import is_offset, time_ms
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import PartitionData
from moldau.tables.client.cluster import TransientError

WAIT_MS: Final = 500
COMMIT_S: Final = 5.0
"""The time (s) between two commits, which is the default of auto.commit.interval.ms in Kafka's consumers."""
ENDS: Final = {"earliest": EARLIEST, "latest": LATEST, "beginning": EARLIEST, "end": LATEST}
"""The ends of a partition by Kafka's names and by those of kcat."""
PLACES: Final = "earliest, latest, an offset, -N or "
"""The values of `--from` that are not times, as a message lists them."""


def consume(session: Session) -> int:
    """Print records until all partitions are read to their ends, or `--count` records are printed (`consume`)."""
    given, client = session.arguments, session.client
    if given.until_end and given.until is not None:
        raise_wrong_arguments("give --until-end or --until, not both")
    if given.count is not None and given.count < 1:
        raise_wrong_arguments(f"--count {given.count}: it is at least 1")
    form = "json" if given.json else given.format
    printing = Printing(session, form)
    keys = list(named_partitions(client, given.topics))
    group = _group(session)
    reading = Reading(session, _begin(session, keys, group), _ends(session, keys))
    commits = None if group is None else Commits(client, group.name, printing.reached)
    try:
        if form == "csv":
            printing.write((",".join(CSV_COLUMNS) + "\n").encode())
        while reading.positions and not printing.is_done:
            reading.fetch_round(printing)
            if commits is not None and commits.are_due:
                commits.commit_reached()
            if reading.is_at_end and reading.positions:
                reading.tell_of_nothing(printing, "; waiting for the first one (Ctrl-C stops it)")
        reading.tell_of_nothing(printing)
        printing.seen.tell(session)
    finally:
        if commits is not None:
            commits.commit_reached()
    return 0


class Commits:
    """Commits offsets for a group, from time to time and at the end: those up to which partitions were printed."""

    def __init__(self, client: Client, group: str, reached: Mapping[Partition, int]) -> None:
        self._client = client
        self._group = group
        self._reached = reached
        self._committed: dict[Partition, int] = {}
        self._last_s = time.monotonic()

    @property
    def are_due(self) -> bool:
        return time.monotonic() - self._last_s >= COMMIT_S

    def commit_reached(self) -> None:
        """Commit the offsets that were reached since the last commit. Raises `Failure`."""
        self._last_s = time.monotonic()
        new = {key: offset for key, offset in self._reached.items() if self._committed.get(key) != offset}
        if new:
            commit(self._client, self._group, new)
            self._committed |= new


class Printing:
    """Prints records until `--count` is reached, and keeps the offset up to which each partition is printed."""

    def __init__(self, session: Session, form: str) -> None:
        given = session.arguments
        self._show = formatter_of(form)
        self.seen = FieldsSeen()
        self._passes = filter_of(given.key, given.grep, given.header, given.where, self.seen)
        self._left: int | None = given.count
        stream = session.invocation.out.stream
        self._out = getattr(stream, "buffer", None)
        self._text = stream
        self.reached: dict[Partition, int] = {}
        """The offset up to which each partition is printed or left out."""
        self.has_records = False
        """Whether there was a record, printed or left out."""

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def write(self, data: bytes) -> None:
        """Write bytes to standard output, without buffering."""
        if self._out is None:
            self._text.write(data.decode("utf-8", "replace"))
            return
        self._out.write(data)
        self._out.flush()

    def records(
        self, key: Partition, fetched: PartitionData, start: int, end: int | None, *, is_committed: bool
    ) -> None:
        """Print the records in a fetched part of a partition, from offset `start` to `end` (exclusive), until enough
        records are printed. A record counts as reached once it is printed: a group commits no further.
        """
        shown: list[bytes] = []
        reached: int | None = None
        try:
            for record in records_from(fetched, start, is_committed=is_committed):
                if (end is not None and record.offset >= end) or self.is_done:
                    break
                if self._passes(record):
                    shown.append(self._show(Place(*key, record)))
                    if self._left is not None:
                        self._left -= 1
                reached = record.offset + 1
        finally:
            if shown:
                self.write(b"".join(shown))
            if reached is not None:
                self.reached[key] = reached
                self.has_records = True


class Reading:
    """Reads partitions, each from its position on, up to its end offset if one is given."""

    def __init__(self, session: Session, positions: dict[Partition, int], ends: Mapping[Partition, int]) -> None:
        self._session = session
        self._client = session.client
        self._is_committed = bool(session.arguments.read_committed)
        self._ends = ends
        self._has_told = False
        """Whether a line on standard error says why nothing is printed."""
        self.is_at_end = False
        """Whether the last fetches found every partition read to its end."""
        self._tell_of_late(positions)
        self.positions = {key: offset for key, offset in positions.items() if not self._is_over(key, offset)}

    def _tell_of_late(self, positions: Mapping[Partition, int]) -> None:
        """Say that partitions end before the offset at which their reading would begin. Without an end to the reading,
        the broker's answer tells."""
        late = [key for key, offset in positions.items() if offset > self._ends.get(key, offset)]
        if late and self._session.arguments.until is None:
            topic, partition = key = late[0]
            others = f", and {len(late) - 1} more partitions end before their offsets" if len(late) > 1 else ""
            told = f"{topic}-{partition}: offset {positions[key]} is past the end, which is {self._ends[key]}{others}"
            self._tell(told)

    def _tell(self, text: str) -> None:
        self._session.note(text, "yellow")
        self._has_told = True

    def tell_of_nothing(self, printing: Printing, rest: str = "") -> None:
        """Write a line to standard error that there was no record to read, unless an earlier line says so, or why.
        `rest` is added to the sentence.
        """
        given = self._session.arguments
        if printing.has_records or self._has_told:
            return
        which = f" from {given.begin} on" if given.begin else ""
        if given.group is not None:
            which = f" that group {given.group} has not read"
        record = "committed record" if self._is_committed else "record"
        self._tell(f"there is no {record} in {', '.join(given.topics)}{which}{rest}")

    def _is_over(self, key: Partition, offset: int) -> bool:
        end = self._ends.get(key)
        return end is not None and offset >= end

    def fetch_round(self, printing: Printing) -> None:
        """Fetch once from each leader, and print the records that arrive."""
        client = self._client
        self.is_at_end = True
        by_leader = client.retry("the leaders", partial(client.grouped_by_leader, self.positions))
        wait_ms = WAIT_MS // len(by_leader)
        for keys in by_leader.values():
            part = {key: self.positions[key] for key in keys}
            for key, answer in sorted(self._fetched(part, wait_ms).items(), key=lambda each: each[0]):
                if not printing.is_done:
                    self._take(key, answer, printing)

    def _fetched(self, part: dict[Partition, int], wait_ms: int) -> dict[Partition, PartitionData]:
        """Fetch partitions of one leader, and return its answer for each partition. A partition whose next batch is not
        in the response, because it did not fit or is still read from remote storage, is fetched again alone.
        """
        client, what = self._client, "the records"

        def attempt(wanted: dict[Partition, int], wait: int) -> dict[Partition, PartitionData]:
            answers = fetch_from_leaders(client, wanted, wait_ms=wait, is_committed=self._is_committed)
            for (topic, partition), answer in answers.items():
                if answer.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    client.check(answer.error_code, None, f"{topic}-{partition}")
            return answers

        def attempt_alone(key: Partition, position: int, wait: int) -> dict[Partition, PartitionData]:
            answers = attempt({key: position}, wait)
            if self._is_cut(answers[key], position) and position < client.offsets({key: EARLIEST_LOCAL})[key]:
                raise TransientError(f"remote storage has not given offset {position} of {key[0]}-{key[1]}")
            return answers

        if len(part) == 1:
            ((key, position),) = part.items()
            return client.retry(what, partial(attempt_alone, key, position, wait_ms))
        fetched = client.retry(what, partial(attempt, part, wait_ms))
        for key, answer in list(fetched.items()):
            if self._is_cut(answer, part[key]):
                fetched |= client.retry(what, partial(attempt_alone, key, part[key], 0))
        return fetched

    def _is_cut(self, answer: PartitionData, position: int) -> bool:
        """Whether an answer has no batch although `position` is before the end."""
        has_batch = next(iterate_batches(bytes_of(answer)), None) is not None
        return not (answer.error_code or has_batch) and position < self._end_of(answer)

    def _end_of(self, answer: PartitionData) -> int:
        return answer.last_stable_offset if self._is_committed else answer.high_watermark

    def _take(self, key: Partition, answer: PartitionData, printing: Printing) -> None:
        position = begin = self.positions[key]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.is_at_end = False
            self._move(key, position)
            return
        printing.records(key, answer, position, self._ends.get(key), is_committed=self._is_committed)
        batches = list(iterate_batches(bytes_of(answer)))
        # Without a batch, compaction has left none before the end: remote storage has none of these offsets.
        position = max(position, batches[-1][1].last_offset + 1 if batches else self._end_of(answer))
        self.positions[key] = position
        if position > begin and not printing.is_done:  # A group commits markers and gaps too, as Java's consumer does.
            printing.reached[key] = min(position, self._ends.get(key, position))
        self.is_at_end &= position >= self._end_of(answer)
        if self._is_over(key, position):
            del self.positions[key]

    def _move(self, key: Partition, position: int) -> None:
        """Move the position of a partition that lies outside the log: to the log start offset if the records there were
        deleted, or to the end if the log was truncated.
        """
        start, end = (self._client.offsets({key: which})[key] for which in (EARLIEST, LATEST))
        self.positions[key] = start if position < start else end
        told = f"offset {position} is past the end: the reading goes on from {end}"
        if position < start:
            told = f"offsets {position} to {start} are gone"
        self._tell(f"{key[0]}-{key[1]}: {told}")
        if self._is_over(key, self.positions[key]):
            del self.positions[key]


def _group(session: Session) -> Group | None:
    """The group in `--group`, whose committed offsets are read and which commits; None if none is named. Raises
    `Failure` if it has members.
    """
    name = session.arguments.group
    if name is None:
        return None
    group = all_groups(session.client).get(name, Group(name, CLASSIC, "Dead", "", -1))
    if group.kind == SHARE:
        raise Failure(f"group {name} is a share group, whose records are acknowledged one by one: leave out --group")
    if group.state not in EMPTY_STATES:
        raise Failure(f"group {name} is {group.state}: --group reads without joining; stop its members first")
    return group


def _begin(session: Session, keys: list[Partition], group: Group | None) -> dict[Partition, int]:
    """The offset at which the reading of each partition begins."""
    committed: dict[Partition, int] = {}
    if group is not None and group.coordinator >= 0:
        committed = {key: at for key, at in committed_offsets(session.client, group).items() if key in keys}
    left = [key for key in keys if key not in committed]
    return {**_offsets_at(session, session.arguments.begin or "earliest", "--from", left), **committed}


def _ends(session: Session, keys: list[Partition]) -> dict[Partition, int]:
    """The offset at which the reading of each partition stops. Empty if the reading has no end."""
    given, client = session.arguments, session.client
    if given.until_end:
        return client.offsets(dict.fromkeys(keys, LATEST), is_committed=given.read_committed)
    if given.until is None:
        return {}
    if (
        not is_offset(given.until)
        and time_ms(given.until, "--until", session.now_ms(), "an offset or ") > session.now_ms()
    ):
        raise WrongArguments(f"--until {given.until} is in the future: end by Ctrl-C or -n")
    return _offsets_at(session, given.until, "--until", keys)


def _offsets_at(session: Session, where: str, option: str, keys: list[Partition]) -> dict[Partition, int]:
    """The offset of each partition that `where` means: an offset, `earliest`, `latest`, -N, or a time. Only an explicit
    offset may lie outside the partition. `option` names the argument in messages.
    """
    client: Client = session.client
    if where in ENDS:
        return client.offsets(dict.fromkeys(keys, ENDS[where]))
    if is_offset(where):
        return dict.fromkeys(keys, int(where))
    if where.startswith("-") and where[1:].isdecimal():
        starts, ends = (client.offsets(dict.fromkeys(keys, which)) for which in (EARLIEST, LATEST))
        return {key: max(starts[key], ends[key] - int(where[1:])) for key in keys}
    found = client.offsets(dict.fromkeys(keys, time_ms(where, option, session.now_ms(), PLACES)))
    late = client.offsets(dict.fromkeys((key for key in keys if found[key] < 0), LATEST))
    return {**found, **late}
