"""Backups, restores and captures without a cluster: logs grow while they are backed up from files, and a run may be
killed at any read. Then the last backup is restored, at its moment or at an earlier time, and a window is captured.

bytes        a backup has each log up to the end that was asked for, and so has each older one that is kept
taken over   a run reads nothing again that a killed run has noted
kept         old backups go, and nothing that a backup or a killed run names
whole        in the restored logs each transaction has all its records or none, and none has read one that is gone;
             nothing else of a log changes, and both replicas are equal
ended        no transaction is open; a producer whose transaction was aborted, and the next leader, have new epochs
positions    each group stands where it stood, or at the end of the restored log if that is earlier, under the new name
             of a renamed topic; so do share groups
loaded       a node that starts on the restored files after a loss of power has each log as it was written
captured     no captured record has a masked value; each transaction is whole, or aborted if it had not ended; groups
             stand where they stood at the begin of the window; there are no users; it can be restored
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final
from unittest.mock import patch

from moldau.backup import log_writing, taking
from moldau.backup.capture.changes import MaskFunctions
from moldau.backup.capture.taking import CaptureRules, CaptureShell, NothingToCapture, take_capture
from moldau.backup.cluster_image import RestorePlacement
from moldau.backup.manifest import BackupManifest, PartitionBackup, PartitionKey
from moldau.backup.reading import read_batches, read_metadata
from moldau.backup.restoring import RestoreRefused, RestoreRequest, RestoreTarget, restore_backup
from moldau.backup.retention import remove_all_but_newest
from moldau.backup.sources import log_files
from moldau.backup.sources.order import TRANSACTIONS_TOPIC
from moldau.backup.store import BackupStore, object_keys_of
from moldau.backup.taking import SMALL_PIECES_MAX, take_backup
from moldau.coordinator.group.records import read_offset
from moldau.coordinator.share_coordinator.records import change_of as share_change_of
from moldau.coordinator.share_coordinator.state import ShareState
from moldau.coordinator.transaction.records import change_of
from moldau.coordinator.transaction.transaction import ONGOING, Transaction
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.snapshot.batches import load_snapshot
from moldau.kraft.snapshot.names import SnapshotId, snapshots_in
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_reader import records_of
from moldau.storage.checkpoints.text_checkpoint import HIGH_WATERMARK_CHECKPOINT, read_offsets
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.directory.previous_run import UNKNOWN_BROKER_EPOCH
from moldau.storage.files.memory_files import MemoryFiles
from moldau.storage.log_config import INT64_MAX, LogConfig
from moldau.storage.producers.producer_state import read_transaction_marker
from moldau.testing.simulation.storage import SimulatedBucket
from tests.simulation.backups.history import EVENTS, SECRET, SHARES, Asked, FileLog, History
from tests.support.drawn_steps import Violation
from tests.support.transaction_histories import DATA, OFFSETS, SKEW_MS, START_MS, STATES, TopicPartition, Truth
from tests.unit.backup.logs import NODES, offloaded, shell_of, store_of

Position = tuple[str, str, int]
"""A group, a topic and a partition."""
DIRECTORY: Final = "/restored"
READ_SIZE: Final = 700
PIECE_SIZE: Final = 2_000
KILLS: Final = 0.4
SEGMENT_SIZE: Final = 600
"""The size limit of a restored segment: a log has several, with gaps between them."""
READS_MAX: Final = 60
"""A run that is killed reads at most so often before."""
CAPTURES: Final = 3
MASKS: Final = ("events:key=hash", "events:value.name=replace", "in:value=hash")
FAR_FUTURE_MS: Final = 1 << 45
"""The time of a removal of old backups: nothing is too young to be removed."""


class Killed(BaseException):
    """The run of a backup is killed."""


@contextmanager
def small_reads() -> Iterator[None]:
    """Logs of some kilobytes are read, noted and restored as large ones are."""
    with (
        patch.object(log_files, "READ_SIZE", READ_SIZE),
        patch.object(taking, "PIECE_SIZE", PIECE_SIZE),
        patch.object(log_writing, "SEGMENT_BYTES_MAX", SEGMENT_SIZE),
        patch.object(taking, "UNFINISHED_MANIFEST_BYTES_MIN", 1),
        patch.object(taking, "UNFINISHED_MANIFEST_DIVISOR", 0),
    ):
        yield


@dataclass(slots=True)
class LogView:
    """The batches of a log, as a consumer and a coordinator of groups read them."""

    outcomes: dict[int, bool] = field(default_factory=dict)
    """By the first offset of a transaction: whether it is committed."""
    open: dict[int, int] = field(default_factory=dict)
    """By producer: the first offset of its transaction that has not ended."""
    producer_epochs: dict[int, int] = field(default_factory=dict)
    leader_epoch: int = -1
    end_offset: int = 0
    positions: dict[Position, tuple[int, int]] = field(default_factory=dict)
    """The committed offsets and the times of their records, if the log is of `__consumer_offsets`."""
    _pending: dict[int, list[bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, batches: Iterable[bytes], *, has_positions: bool = False) -> LogView:
        view = cls()
        for batch in batches:
            view._take(batch, has_positions=has_positions)
        return view

    def _take(self, batch: bytes, *, has_positions: bool) -> None:
        header = parse_header(batch)
        if header.base_offset < self.end_offset:
            raise Violation(f"a batch at offset {header.base_offset} follows offset {self.end_offset}")
        self.end_offset = header.next_offset
        self.leader_epoch = max(self.leader_epoch, header.partition_leader_epoch)
        if header.producer_id >= 0:
            known = self.producer_epochs.get(header.producer_id, -1)
            self.producer_epochs[header.producer_id] = max(known, header.producer_epoch)
        marker = read_transaction_marker(batch) if header.is_control else None
        if marker is not None:
            first = self.open.pop(header.producer_id, None)
            if first is not None:
                self.outcomes[first] = marker.is_commit
            pending = self._pending.pop(header.producer_id, [])
            for each in pending if marker.is_commit else ():
                self._commit(each)
        elif header.is_transactional:
            self.open.setdefault(header.producer_id, header.base_offset)
            if has_positions:
                self._pending.setdefault(header.producer_id, []).append(batch)
        elif has_positions:
            self._commit(batch)

    def _commit(self, batch: bytes) -> None:
        for record in records_of(batch):
            group, topic, partition, committed, _ = read_offset(record)
            if committed is None:
                self.positions.pop((group, topic, partition), None)
            else:
                self.positions[group, topic, partition] = (committed.offset, record.timestamp)


@dataclass(frozen=True, slots=True)
class Taken:
    """A backup, and what it has to have."""

    manifest: BackupManifest
    asked: Asked


class Swarm:
    """One seed. `run` raises `Violation`, or what the product raises."""

    def __init__(self, seed: int) -> None:
        random = self.random = Random(f"{seed}/backups")
        self.skew_ms = random.choice((0, SKEW_MS))
        self.client_skew_ms = random.choice((0, 0, 3_000))
        self.history = History(
            random,
            seed,
            skew_ms=self.skew_ms,
            client_skew_ms=self.client_skew_ms,
            asks_first=random.random() < 0.5,
        )
        self._is_hasty = random.random() < 0.3
        """Whether several backups begin within a second."""
        self.pause = 0 if self._is_hasty else random.choice((0, 3, 12, 40))
        self.bucket = SimulatedBucket()
        self.store = store_of(self.bucket)
        self.taken: list[Taken] = []
        self.kills = self.restores = self.captured = 0
        self._renames: dict[str, str] = {}
        self._reads: dict[PartitionKey, int] = {}
        self._reads_left: int | None = None

    def run(self) -> None:
        with small_reads():
            for number in range(self.random.randint(1, 6 if self._is_hasty else 3)):
                steps = (0, 3) if self._is_hasty and number else (20, 120)
                self.history.run(self.random.randint(*steps))
                self._back_up()
            for time_ms in (None, self.random.randint(START_MS, self.taken[-1].manifest.began_ms)):
                self._renames = self.random.choice(({}, {"events": "events.before"}))
                self._restore(self.taken[-1], time_ms)
            for _ in range(CAPTURES):
                self._capture()

    # Backups

    def _on_read(self, key: PartitionKey, offset: int) -> None:
        self._reads.setdefault(key, offset)
        if self._reads_left is not None:
            if not self._reads_left:
                raise Killed
            self._reads_left -= 1

    def _back_up(self) -> None:
        """Take a backup; the run may be killed, and then the next one goes on."""
        noted: dict[PartitionKey, PartitionBackup] = {}
        losses = self.history.losses
        while True:
            self._reads = {}
            self._reads_left = self.random.randint(0, READS_MAX) if self.random.random() < KILLS else None
            asked = self.history.ask(self.pause, self._on_read)
            shell = shell_of(now_ms=self.history.now_ms)
            try:
                taken = asyncio.run(take_backup(self.store, asked, shell, piece_size=PIECE_SIZE))
            except Killed:
                self.kills += 1
                self._remove_old()
                noted = self._noted()
                losses = self.history.losses
                self.history.run(self.random.randint(0, 20))
                continue
            break
        self._check_taken_over(noted, losses)
        self.taken.append(Taken(taken.manifest, asked))
        self._check_ids()
        self._check_bytes(self.taken[-1])
        if self.random.random() < 0.5:
            self._remove_old()

    def _check_taken_over(self, noted: dict[PartitionKey, PartitionBackup], losses: int) -> None:
        """`losses`: how often `events` had lost its end when the last run was killed."""
        known = [*noted.items(), *(each for taken in self.taken for each in taken.manifest.partitions())]
        read_again = {key for key, part in known if len(part.pieces) >= SMALL_PIECES_MAX}
        for key, part in noted.items():
            is_same = key.topic != EVENTS[0] or losses == self.history.losses
            begun = self._reads.get(key, INT64_MAX)
            if is_same and key not in read_again and begun < part.end_offset:
                raise Violation(f"{key} was read from offset {begun} on, and a killed run had noted {part.end_offset}")

    def _noted(self) -> dict[PartitionKey, PartitionBackup]:
        """What the killed runs have noted."""
        noted: dict[PartitionKey, PartitionBackup] = {}
        for run in asyncio.run(self.store.unfinished_runs()):
            for key, part in run.manifest.partitions():
                if part.pieces and (key not in noted or noted[key].end_offset < part.end_offset):
                    noted[key] = part
        return noted

    def _remove_old(self) -> None:
        count = self.random.randint(1, 2)
        named = {key for run in asyncio.run(self.store.unfinished_runs()) for key in object_keys_of(run.manifest)}
        asyncio.run(remove_all_but_newest(self.store, count, FAR_FUTURE_MS))
        if gone := sorted(named - self.bucket.objects.keys()):
            raise Violation(f"a killed run has noted {gone[0]}, which was removed with old backups")
        self.taken = self.taken[-count:]
        self._check_ids()
        for each in self.taken:
            self._check_bytes(each)

    def _check_ids(self) -> None:
        if asyncio.run(self.store.backup_ids()) != [each.manifest.backup_id for each in self.taken]:
            raise Violation("other backups are there than the newest, or in another order")

    def _check_bytes(self, taken: Taken) -> None:
        for key, part in taken.manifest.partitions():
            log = taken.asked.logs[key.topic, key.partition]
            found = asyncio.run(collected(self.store, key, part))
            if found != log.asked or part.end_offset != log.end_offset:
                raise Violation(f"{key}: the backup has other batches than the log had up to offset {log.end_offset}")

    # The restore

    def _restore(self, taken: Taken, time_ms: int | None) -> None:
        manifest, files = taken.manifest, MemoryFiles(lambda: 0)
        target = RestoreTarget(files, DIRECTORY, Random(7).randbytes)
        request = RestoreRequest(time_ms, RestorePlacement(renames=self._renames))
        work = restore_backup(self.store.storage, manifest, request, target, manifest.ended_ms)
        try:
            asyncio.run(work)
        except RestoreRefused:
            if time_ms is None:
                raise
            return  # Nothing is as old.
        self.restores += 1
        logs = {key: self._restored_log(files, key) for key in taken.asked.logs}
        ends = {key: cut_end(log.asked, log.end_offset, time_ms) for key, log in taken.asked.logs.items()}
        views = {key: LogView.of(batches) for key, batches in logs.items() if key != OFFSETS}
        views[OFFSETS] = LogView.of(logs[OFFSETS], has_positions=True)
        for key in (EVENTS, *DATA, OFFSETS):
            self._check_unchanged(key, taken.asked.logs[key].asked, logs[key], ends[key])
        committed = self._check_whole(views, {key: ends[key] for key in (*DATA, OFFSETS)})
        self._check_decided(taken, committed, time_ms)
        self._check_ended(taken, views, logs, files, time_ms)
        self._check_positions(logs[OFFSETS], views, ends[OFFSETS])
        self._check_shares(taken.asked.logs[SHARES], logs[SHARES], views[EVENTS].end_offset, ends[SHARES])
        self._check_loaded(files)

    def _restored_log(self, files: MemoryFiles, key: TopicPartition) -> list[bytes]:
        name, index = self._renames.get(key[0], key[0]), key[1]
        found = [batches_in(files, f"{DIRECTORY}/{node}/{name}-{index}") for node in NODES]
        if any(each != found[0] for each in found):
            raise Violation(f"{key}: the replicas differ")
        for node in NODES:
            end = read_offsets(files, f"{DIRECTORY}/{node}", HIGH_WATERMARK_CHECKPOINT)[name, index]
            if end != (parse_header(found[0][-1]).next_offset if found[0] else 0):
                raise Violation(f"{key}: the checkpoint of node {node} says that the log ends at {end}")
        return found[0]

    def _check_loaded(self, files: MemoryFiles) -> None:
        """Start on the restored logs, as a node of a machine that has lost its power does."""
        directory = f"{DIRECTORY}/{NODES[0]}"
        ends = read_offsets(files, directory, HIGH_WATERMARK_CHECKPOINT)
        written = {key: batches_in(files, f"{directory}/{key[0]}-{key[1]}") for key in ends}
        node = LogDirectory.open(files, directory, lambda _: None)
        for key, end in ends.items():
            config = replace(LogConfig(), cleanup_policy=(self.random.choice(("compact", "delete")),))
            log = node.load_log(*key, config, self.history.now_ms, lambda _: None)
            if log.end_offset != end or batches_in(files, f"{directory}/{key[0]}-{key[1]}") != written[key]:
                raise Violation(f"{key}: a node that starts has the log up to {log.end_offset}, and {end} was written")
        node.close_after_failure()

    def _check_unchanged(self, key: TopicPartition, before: list[bytes], after: list[bytes], end: int) -> None:
        kept = below(before, end)
        for old, new in zip(kept, after, strict=False):
            if new != old and not is_turned(old, new):
                raise Violation(f"{key}: the batch at offset {parse_header(old).base_offset} is another one")
        added = [header for each in after[len(kept) :] if (header := parse_header(each)).records_count]
        if len(after) < len(kept) or any(not header.is_control for header in added if key != OFFSETS):
            raise Violation(f"{key}: {len(after)} batches of {len(kept)} are there")

    def _check_whole(self, views: dict[TopicPartition, LogView], ends: dict[TopicPartition, int]) -> set[Truth]:
        """The committed transactions."""
        committed = set()
        for truth in self.history.world.truths:
            found = set()
            for key, offsets in truth.records.items():
                outcome = views[key].outcomes.get(offsets[0], False)
                if outcome and not all(offset < ends[key] for offset in offsets):
                    raise Violation(f"transaction {truth.number} is committed without its records in {key}")
                found.add(outcome)
            if len(found) > 1:
                raise Violation(f"transaction {truth.number} is committed in one log and not in another")
            if True in found:
                committed.add(truth)
        for truth in committed:
            if not truth.is_commit:
                raise Violation(f"transaction {truth.number} is committed, and was not")
            if gone := [each.number for each in truth.rests_on if each.records and each not in committed]:
                raise Violation(f"transaction {truth.number} rests on {gone}, which are gone")
        return committed

    def _check_decided(self, taken: Taken, committed: set[Truth], time_ms: int | None) -> None:
        """What was decided before the moment stays."""
        if not self.history.asks_first:
            return
        is_exact = time_ms is not None and not self.skew_ms and not self.client_skew_ms
        for truth in self.history.world.truths:
            if not truth.is_commit or not truth.records or truth.decided_ms is None:
                continue
            moment_ms = taken.manifest.began_ms if time_ms is None else time_ms
            if (time_ms is None or is_exact) and truth.decided_ms <= moment_ms and truth not in committed:
                raise Violation(f"transaction {truth.number} was decided before the moment, and is gone")
            if is_exact and truth.decided_ms > moment_ms and truth in committed:
                raise Violation(f"transaction {truth.number} was decided after the moment, and is there")

    def _check_ended(
        self,
        taken: Taken,
        views: dict[TopicPartition, LogView],
        logs: dict[TopicPartition, list[bytes]],
        files: MemoryFiles,
        time_ms: int | None,
    ) -> None:
        image = image_in(files)
        epochs: dict[int, int] = {}
        for (topic, index), view in views.items():
            if view.open:
                raise Violation(f"{topic}-{index}: transactions are open at {sorted(view.open.values())}")
            for producer_id, epoch in view.producer_epochs.items():
                epochs[producer_id] = max(epochs.get(producer_id, -1), epoch)
            partition = image.topics.partition(self._renames.get(topic, topic), index)
            if partition is None or partition.leader_epoch < view.leader_epoch:
                raise Violation(f"{topic}-{index}: a leader gets an epoch that batches have: {partition}")
        if any(not each.fenced or each.epoch != UNKNOWN_BROKER_EPOCH for each in image.cluster.brokers.values()):
            raise Violation("a broker that starts has not the registration of one that lost nothing")
        if image.next_producer_id <= max(epochs, default=-1):
            raise Violation(f"the producer id {image.next_producer_id} is given again")
        for index in STATES:
            key = TRANSACTIONS_TOPIC, index
            log = taken.asked.logs[key]
            decided = taken.manifest.transaction_log_ends.get(index, log.end_offset)
            known = states_in(below(log.asked, cut_end(log.asked, decided, time_ms)))
            for name, state in states_in(logs[key]).items():
                if state.is_prepared or state.state is ONGOING:
                    raise Violation(f"{name} is left in the state {state}")
                if known[name].state is ONGOING and state.producer_epoch <= known[name].producer_epoch:
                    raise Violation(f"the producer of {name} goes on with a transaction that was aborted")
                if state.producer_epoch < epochs.get(state.producer_id, -1):
                    raise Violation(f"{name} gets the epoch {state.producer_epoch}, which is an old one")

    def _check_positions(self, batches: list[bytes], views: dict[TopicPartition, LogView], end: int) -> None:
        """What the restore has appended is behind `end`: markers, and corrections without a transaction."""
        headers = [(parse_header(each), each) for each in batches]
        stored = [each for header, each in headers if header.is_control or header.base_offset < end]
        before = LogView.of(stored, has_positions=True).positions
        after = {key: offset for key, (offset, _) in views[OFFSETS].positions.items()}
        expected = {
            (group, self._renames.get(topic, topic), index): min(offset, views[topic, index].end_offset)
            for (group, topic, index), (offset, _) in before.items()
        }
        if after != expected:
            raise Violation(f"groups stand at {sorted({*after.items()} ^ {*expected.items()})}")

    def _check_shares(self, before: FileLog, after: list[bytes], events_end: int, end: int) -> None:
        known, state = share_state_in(below(before.asked, end)), share_state_in(after)
        if known is None or state is None:
            if known is not state:
                raise Violation(f"the share group had {known}, and has {state}")
            return
        goes_beyond = known.start_offset > events_end or any(each.last_offset >= events_end for each in known.batches)
        if not goes_beyond and state != known:
            raise Violation(f"the share group had {known}, and has {state}")
        is_beyond = state.start_offset > events_end or any(each.last_offset >= events_end for each in state.batches)
        if is_beyond or state.start_offset < min(known.start_offset, events_end):
            raise Violation(f"the share group stands at {state}, it stood at {known}, and the log ends at {events_end}")

    # The capture

    def _capture(self) -> None:
        asked = self.history.ask(self.pause, lambda key, offset: None)
        from_ms = self.random.randint(START_MS, self.history.now_ms)
        stamps = [parse_header(each).max_timestamp for key in DATA for each in asked.logs[key].asked]
        drawn_ms = self.random.randint(from_ms, self.history.now_ms + 5_000)
        # Often amid the transactions: of equally likely times few are between a record and its marker.
        to_ms = self.random.choice((drawn_ms, *(each for each in stamps if each >= from_ms)))
        changes = MaskFunctions(bytes(32))
        rules = CaptureRules(
            topics=["events", "in", "out"],
            from_ms=from_ms,
            to_ms=to_ms,
            sample_ratio=self.random.choice((1.0, 0.3)),
            masks=[changes.parse_rule(each) for each in MASKS],
            mask_texts=MASKS,
        )
        store = store_of(SimulatedBucket())
        shell = CaptureShell(lambda: self.history.now_ms, offloaded, lambda read, written: None)
        try:
            captured = asyncio.run(take_capture(store, asked, rules, shell))
        except NothingToCapture:
            return
        self.captured += captured.record_count
        positions = LogView()
        for key, part in captured.manifest.partitions():
            place = key.topic, key.partition
            found = asyncio.run(collected(store, key, part))
            if key.topic == OFFSETS[0]:
                positions = LogView.of(found, has_positions=True)
            else:
                self._check_captured(place, found, asked.logs[place].asked)
        self._check_begin(positions, asked.logs[OFFSETS].asked, from_ms)
        data, metadata = asyncio.run(read_metadata(store.storage, captured.manifest)), captured.manifest.metadata
        image = load_snapshot(data, SnapshotId(metadata.end_offset, metadata.epoch)).replay.image
        if [*image.scram.snapshot_records()]:
            raise Violation("users were captured")
        files = MemoryFiles(lambda: 0)
        target = RestoreTarget(files, DIRECTORY, Random(7).randbytes)
        request = RestoreRequest(None, RestorePlacement(single_node=NODES[0]))
        asyncio.run(restore_backup(store.storage, captured.manifest, request, target, captured.manifest.ended_ms))
        self._check_loaded(files)

    def _check_captured(self, place: TopicPartition, found: list[bytes], asked: list[bytes]) -> None:
        original, view = LogView.of(asked), LogView.of(found)
        if view.open:
            raise Violation(f"{place}: captured transactions are open: {view.open}")
        writers = self.history.world.writers
        outcomes = {writers[place, first]: is_commit for first, is_commit in original.outcomes.items()}
        for first, outcome in view.outcomes.items():
            if outcome is not outcomes.get(writers[place, first], False):
                raise Violation(f"{place}: the transaction at offset {first} was captured as committed: {outcome}")
        data = {record.offset: record for each in asked for record in records_of(each)}
        for batch in found:
            if parse_header(batch).is_control:
                continue
            for record in records_of(batch):
                is_secret = SECRET in (record.value or b"") + (record.key or b"")
                if is_secret or (place[0] == "in" and record.value == data[record.offset].value):
                    raise Violation(f"{place}: the record at offset {record.offset} is not masked")

    def _check_begin(self, positions: LogView, asked: list[bytes], from_ms: int) -> None:
        """Groups stand at their last commits before the window."""
        expected = before_time(asked, from_ms)
        found = {key: offset for key, (offset, _) in positions.positions.items()}
        if found != expected:
            raise Violation(f"captured groups stand at {sorted({*found.items()} ^ {*expected.items()})}")


async def collected(store: BackupStore, key: PartitionKey, part: PartitionBackup) -> list[bytes]:
    return [bytes(data) async for _, data in read_batches(store.storage, key, part)]


def below(batches: Iterable[bytes], end: int) -> list[bytes]:
    return [each for each in batches if parse_header(each).next_offset <= end]


def is_turned(old: bytes, new: bytes) -> bool:
    """Whether a batch is a marker that committed a transaction, and now aborts it."""
    before, after = parse_header(old), parse_header(new)
    if not before.is_control or not after.is_control or before.base_offset != after.base_offset:
        return False
    was, is_now = read_transaction_marker(old), read_transaction_marker(new)
    return was is not None and was.is_commit and is_now is not None and not is_now.is_commit


def cut_end(batches: Sequence[bytes], end: int, time_ms: int | None) -> int:
    """The end of a log that is taken back to a time."""
    headers = map(parse_header, batches)
    later = (each.base_offset for each in headers if time_ms is not None and each.max_timestamp > time_ms)
    return min(end, next(later, end))


def batches_in(files: MemoryFiles, directory: str) -> list[bytes]:
    found = []
    for name in files.list_directory(directory):
        if name.endswith(".log"):
            data = files.read(f"{directory}/{name}")
            found += [data[at : at + header.size] for at, header in iterate_batches(data)]
    return found


def image_in(files: MemoryFiles) -> MetadataImage:
    directory = f"{DIRECTORY}/{NODES[0]}/__cluster_metadata-0"
    (name,) = files.list_directory(directory)
    (snapshot_id,) = snapshots_in([name])
    return load_snapshot(files.read(f"{directory}/{name}"), snapshot_id).replay.image


def share_state_in(batches: Iterable[bytes]) -> ShareState | None:
    """The last state of the share group: each record is a snapshot."""
    state: ShareState | None = None
    for batch in batches:
        for record in records_of(batch):
            change = share_change_of(record)
            assert change is not None and isinstance(change.value, ShareState)
            state = change.value
    return state


def states_in(batches: Iterable[bytes]) -> dict[str, Transaction]:
    """The state of each transactional id that a coordinator loads."""
    states: dict[str, Transaction] = {}
    for batch in batches:
        for record in records_of(batch):
            change = change_of(record)
            assert change is not None and change.value is not None
            states[change.transactional_id] = change.value
    return states


def before_time(batches: Iterable[bytes], time_ms: int) -> dict[Position, int]:
    """The offsets that were committed by records before a time."""
    positions: dict[Position, int] = {}
    pending: dict[int, list[bytes]] = {}
    for batch in batches:
        header = parse_header(batch)
        marker = read_transaction_marker(batch) if header.is_control else None
        if marker is None and header.is_transactional:
            pending.setdefault(header.producer_id, []).append(batch)
            continue
        ended = pending.pop(header.producer_id, []) if marker is not None else [batch]
        for each in ended if marker is None or marker.is_commit else ():
            for record in records_of(each):
                if record.timestamp < time_ms:
                    group, topic, partition, committed, _ = read_offset(record)
                    assert committed is not None
                    positions[group, topic, partition] = committed.offset
    return positions
