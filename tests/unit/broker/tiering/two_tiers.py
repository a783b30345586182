"""Two replicas of a compacted partition and its remote log, without a broker around them: each step by hand.

Both replicas have all records. Each cleans its own log, and may know less of the remote log than is written. The one
that leads copies and cleans. What was begun may be finished late, after another replica has led.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from moldau.broker.tiering.cleaning import remote_request, remote_rules
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog
from moldau.broker.tiering.rewriting import replacement
from moldau.broker.tiering.segment_contents import copy_limit, copyable_segments, describe_segment
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.record_batch import BatchHeader
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of
from moldau.storage.compaction.cleaning import clean_segments
from moldau.storage.compaction.remote_cleaning import DownloadNeeded, GroupCleaned, clean_remote_segments
from moldau.storage.compaction.request import CleanerLimits, cleaning_request
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from moldau.storage.log_config import LogConfig
from moldau.storage.segment.transaction_index import AbortedTransaction, TransactionIndex
from moldau.storage.tiered.cleaning_plan import plan_cleaning
from moldau.storage.tiered.metadata.cleaning_groups import cleaned_lineage
from moldau.storage.tiered.metadata.leader_history import is_in_history
from moldau.storage.tiered.metadata.lineage import Lineage, read_lineage
from moldau.storage.tiered.metadata.records import RemoteChange
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment, SegmentState, SegmentUpdate
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.compaction.histories import NOW_MS, SALT, drive, part_of

PASS_DIRECTORY: Final = "/data/pass"
KEY: Final = RemotePartition("t", bytes(16), 0)


class StoredObject(NamedTuple):
    """A remote segment's records and aborted transactions."""

    data: bytes
    aborted: tuple[AbortedTransaction, ...]


class Replica:
    """A log, and what its broker has read of the remote log metadata."""

    def __init__(self, disk: SimulatedDisk, name: str, config: LogConfig) -> None:
        self.log = Log.open(disk, f"/data/{name}-0", config, now_ms=NOW_MS)
        self.followed = FollowedRemoteLog(KEY, 0)
        self.known_count = 0

    def learn(self, changes: list[RemoteChange], count: int) -> None:
        """Replay up to a number of records."""
        for change in changes[self.known_count : count]:
            self.followed.remote_log.replay(change)
        self.known_count = max(self.known_count, count)
        self.log.tiered_end_offset = self.copied_end_offset

    @property
    def copied_end_offset(self) -> int:
        return self.followed.end_offset(self.log.epochs, self.log.end_offset)

    @property
    def tombstones_end_offset(self) -> int:
        return min(self.copied_end_offset, self.followed.remote_log.cleaned_end_offset())


class TwoTiers:
    """The partition."""

    def __init__(self, random: Random, config: LogConfig) -> None:
        self.random = random
        self.disk = SimulatedDisk()
        self.replicas = [Replica(self.disk, "a", config), Replica(self.disk, "b", config)]
        self.leader_index = 0
        self.leader_epoch = 0
        self.now_ms = NOW_MS
        self.changes: list[RemoteChange] = []
        self.objects: dict[bytes, StoredObject] = {}
        self.late: list[Callable[[], None]] = []
        """What a leader has begun and not finished."""
        self.segment_count = 0
        self.replaced_count = 0

    @property
    def leader(self) -> Replica:
        return self.replicas[self.leader_index]

    # The log

    def append(self, data: bytes) -> int:
        """Append a batch on both replicas; its base offset."""
        origin = AppendOrigin.COORDINATOR
        result = self.leader.log.append_as_leader(bytearray(data), self.leader_epoch, NOW_MS, origin=origin)
        assert result.error == 0, result
        follower = self.replicas[1 - self.leader_index].log
        for _, batch in local_batches(self.leader.log, follower.end_offset):
            assert follower.append_as_follower(batch, self.leader_epoch, NOW_MS).error == 0
        return result.base_offset

    def change_leader(self) -> None:
        """A clean election: the new leader has all records, and reads the metadata to its end first."""
        self.leader_index = 1 - self.leader_index
        self.leader_epoch += 1
        self.leader.learn(self.changes, len(self.changes))
        self.leader.log.epochs.assign(self.leader_epoch, self.leader.log.end_offset)

    def clean_local(self, replica: Replica, limits: CleanerLimits) -> None:
        log = replica.log
        log.flush(self.now_ms)
        part = part_of(log, self.now_ms)
        if part.cleanable_bytes:
            request = cleaning_request(log, part, limits, SALT, self.now_ms, replica.tombstones_end_offset)
            drive(self.disk, log, request, clean_segments(self.disk, request), self.now_ms)

    def retain(self, replica: Replica) -> None:
        """Local retention of everything that is copied."""
        for path in replica.log.delete_old_segments(self.now_ms, replica.log.end_offset):
            self.disk.unlink(path)

    # Remote storage

    def write(self, change: RemoteChange) -> None:
        self.changes.append(change)
        self.leader.learn(self.changes, len(self.changes))

    def new_id(self) -> bytes:
        self.segment_count += 1
        return self.segment_count.to_bytes(16, "big")

    def copy(self, *, is_late: bool) -> None:
        """The leader copies its next segment."""
        log = self.leader.log
        start = max(self.leader.copied_end_offset, log.log_start_offset)
        found = copyable_segments(log, start, copy_limit(log, log.last_stable_offset(log.end_offset)))
        if found:
            source = found[0].segment
            timestamp = source.largest_timestamp()
            segment = describe_segment(log, found[0], self.new_id(), self.leader_index, self.now_ms, timestamp)
            data = source.slice(0, source.size).read() if source.size else b""
            self.objects[segment.segment_id] = StoredObject(data, tuple(source.transaction_index.entries()))
            self.write(segment)
            self._finish(segment.segment_id, is_late=is_late)

    def _finish(self, segment_id: bytes, *, is_late: bool) -> None:
        update = SegmentUpdate(segment_id, self.leader_index, self.now_ms, SegmentState.COPY_SEGMENT_FINISHED)
        if is_late:
            self.late.append(lambda: self.write(update))
        else:
            self.write(update)

    def clean_remote(self, limits: CleanerLimits, bytes_max: int, steps_max: int, *, is_late: bool) -> None:
        """A pass of the leader; its process is killed after `steps_max` events."""
        log, remote_log = self.leader.log, self.leader.followed.remote_log
        plan = plan_cleaning(log, remote_log, bytes_max, self.now_ms)
        if plan is None:
            return
        self.disk.make_directories(PASS_DIRECTORY)
        aborted = self.aborted(self.leader, log.end_offset)
        rules = remote_rules(log, plan, PASS_DIRECTORY, limits, self.leader.tombstones_end_offset, SALT, self.now_ms)
        request, downloads = remote_request(log, plan, rules, aborted)
        work = clean_remote_segments(self.disk, request)
        for _, event in zip(range(steps_max), work, strict=False):
            if isinstance(event, DownloadNeeded):
                assert not any(map(self.disk.exists, downloads)), "there is room for one downloaded segment at a time"
                self._download(event.source.path, downloads[event.source.path])
            elif isinstance(event, GroupCleaned):
                self._replace(list(plan.groups[event.number].segments), event, is_late=is_late)
        del work
        self.disk.remove_tree(PASS_DIRECTORY)

    def _download(self, path: str, segment: RemoteSegment) -> None:
        file = self.disk.open(path, create=True)
        file.truncate(0)
        if segment.size:
            file.append([self.objects[segment.segment_id].data])
        file.close()

    def _replace(self, ancestors: list[RemoteSegment], cleaned: GroupCleaned, *, is_late: bool) -> None:
        if cleaned.is_unchanged and len(ancestors) == 1:
            known = read_lineage(ancestors[0].custom_metadata) or Lineage(0, 0)
            lineage = known._replace(cleaned_end_offset=cleaned.cleaned_end_offset).encode()
            finished, segment_id = SegmentState.COPY_SEGMENT_FINISHED, ancestors[0].segment_id
            self.write(SegmentUpdate(segment_id, self.leader_index, self.now_ms, finished, lineage))
            return
        segment = replacement(ancestors, cleaned, self.new_id(), cleaned_lineage(ancestors, cleaned.cleaned_end_offset))
        index = cleaned.paths.get(".txnindex")
        aborted = tuple(TransactionIndex(self.disk, index).entries()) if index else ()
        self.objects[segment.segment_id] = StoredObject(self.disk.read(cleaned.paths[".log"]), aborted)
        assert len(self.objects[segment.segment_id].data) == segment.size
        self.write(segment)
        self.replaced_count += 1
        self._finish(segment.segment_id, is_late=is_late)

    def delete_superseded(self) -> None:
        """The grace of all superseded segments has passed."""
        for segment, _ in self.leader.followed.remote_log.superseded_copies():
            for state in (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED):
                self.write(SegmentUpdate(segment.segment_id, self.leader_index, self.now_ms, state))
            del self.objects[segment.segment_id]

    def finish_late(self) -> None:
        if self.late:
            self.late.pop(self.random.randrange(len(self.late)))()

    # Readers

    def aborted(self, replica: Replica, end_offset: int) -> tuple[AbortedTransaction, ...]:
        found = dict.fromkeys(replica.log.aborted_transactions(0, end_offset))
        for segment in replica.followed.remote_log.read_segments():
            found |= dict.fromkeys(self.objects[segment.segment_id].aborted)
        return tuple(found)

    def committed(self, replica: Replica, from_offset: int = 0) -> list[Record]:
        """What a read_committed consumer gets from a replica that knows the whole remote log."""
        log, offset = replica.log, from_offset
        end_offset = log.last_stable_offset(log.end_offset)
        seen: list[Record] = []
        while offset < min(log.local_start_offset, end_offset):
            epoch = log.epochs.epoch_of(offset)
            assert epoch is not None
            segment = replica.followed.remote_log.find_segment(epoch, offset)
            assert segment is not None, f"no segment has offset {offset}"
            assert is_in_history(segment, log.end_offset, log.epochs.entries)
            data = self.objects[segment.segment_id].data
            batches = [
                (header, data[place : place + header.size])
                for place, header in iterate_batches(data)
                if header.last_offset >= offset
            ]
            aborted = self.aborted(replica, segment.last_offset + 1)
            its_own = self.objects[segment.segment_id].aborted
            told = tuple(each for each in aborted if each in its_own or each.last_offset > segment.last_offset)
            seen += visible(batches, told, from_offset)
            offset = segment.last_offset + 1
        batches = [each for each in local_batches(log, offset) if each[0].base_offset < end_offset]
        return seen + visible(batches, tuple(log.aborted_transactions(offset, end_offset)), from_offset)


def local_batches(log: Log, offset: int) -> list[tuple[BatchHeader, bytes]]:
    found: list[tuple[BatchHeader, bytes]] = []
    while offset < log.end_offset:
        read = log.read(offset, 1 << 20, end_offset=log.end_offset, at_least_one=True)
        assert isinstance(read, LogRead), read
        if read.slice is None:
            break
        data = read.slice.read()
        for place, header in iterate_batches(data):
            if header.last_offset >= offset:
                found.append((header, data[place : place + header.size]))
                offset = header.next_offset
    return found


def visible(
    batches: list[tuple[BatchHeader, bytes]], aborted: tuple[AbortedTransaction, ...], from_offset: int
) -> list[Record]:
    """What a client in read_committed takes of some batches: it goes by the aborted transactions that it is told of."""
    first_offset = batches[0][0].base_offset if batches else 0
    coming = sorted((each for each in aborted if each.last_offset >= first_offset), key=lambda each: each.first_offset)
    skipped: set[int] = set()
    seen: list[Record] = []
    for header, data in batches:
        while coming and coming[0].first_offset <= header.last_offset:
            skipped.add(coming.pop(0).producer_id)
        records = list(records_of(data))
        if header.is_control:
            if any(control_record_type(record.key) is ControlRecordType.ABORT for record in records):
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            seen += [record for record in records if record.offset >= from_offset]
    return seen
