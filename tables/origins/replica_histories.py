"""Chooses the replica to read if the directories of several brokers have replicas of the same partition.

Replicas agree below their high watermarks, except after an unclean election, when the new leader may lack records that
other replicas have below their high watermarks. A leader epoch has one leader, so two logs that have a batch of the
same epoch at the same offset are equal up to it. So the replica is chosen in three steps:

    reference    The replica of the leader that the metadata of the cluster name, or else the replica with the latest
                 leader epoch. If a replica has a later epoch than the leader's, the metadata are outdated.
    agreement    The other replicas whose last offset below the high watermark has the same epoch in the reference.
    choice       Of these and the reference, the one with the highest high watermark.

A replica with another history is left out, with a warning. Two histories of the same epoch cannot be told apart: that
is an error.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, BatchHeader, parse_header
from moldau.storage.checkpoints.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint, TopicPartition
from moldau.storage.files.log_paths import LOG_SUFFIX, offset_name, offset_of_name
from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import FileSystem
from moldau.storage.segment.batch_scan import iterate_batch_places
from moldau.storage.segment.segment_listing import ListedSegment, locate_batch, offset_index_of
from moldau.tables.refusals import HistoriesDiffer


@dataclass(frozen=True, slots=True)
class ReplicaFiles:
    """The files of a replica, with its leader epochs and the base offsets of its segments. Its high watermark is
    checkpointed."""

    fs: FileSystem
    directory: str
    node_id: int | None
    high_watermark: int
    epochs: LeaderEpochs
    bases: Sequence[int]
    """The base offsets of its segments, in order."""

    def batch_at(self, offset: int) -> BatchHeader | None:
        """The header of the batch that contains `offset`; None if no batch does, or it cannot be read."""
        slot = bisect_right(self.bases, offset) - 1
        if slot < 0:
            return None
        try:
            place = locate_batch(self.fs, self._listed(slot), offset)
            if place is None or place.base_offset > offset:
                return None
            opened = OpenFile(self.fs.open(self._path(slot), read_only=True))
            return parse_header(opened.file.pread(HEADER_SIZE, place.position), 0, True)
        except (MalformedMessage, FileNotFoundError):
            return None

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch at `offset`, which need not have a batch yet; None if the epoch is not known."""
        batch = self.batch_at(offset)
        return batch.partition_leader_epoch if batch is not None else self.epochs.epoch_of(offset)

    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, or a later one that has begun without a batch."""
        return max(self.epochs.latest_epoch, self._last_epoch())

    def _last_epoch(self) -> int:
        for slot in range(len(self.bases) - 1, -1, -1):
            try:
                listed = self._listed(slot)
                index = offset_index_of(self.fs, listed)
                opened = OpenFile(self.fs.open(listed.path(), read_only=True))
                places = [*iterate_batch_places(opened.file, index.last_position() if index else 0, listed.size)]
                if places:
                    header = opened.file.pread(HEADER_SIZE, places[-1].position)
                    return parse_header(header, 0, True).partition_leader_epoch
            except (MalformedMessage, FileNotFoundError):
                return UNDEFINED_EPOCH
        return UNDEFINED_EPOCH

    def _listed(self, slot: int) -> ListedSegment:
        return ListedSegment(self.directory, self.bases[slot], self.fs.file_size(self._path(slot)), None)

    def _path(self, slot: int) -> str:
        return f"{self.directory}/{offset_name(self.bases[slot], LOG_SUFFIX)}"


def replica_files(
    fs: FileSystem, directory: str, node_id: int | None, high_watermark: int, *, is_only_one: bool
) -> ReplicaFiles:
    """Read the leader epochs of a replica, and the base offsets of its segments unless it is the only replica. Raises
    OSError."""
    names = () if is_only_one else fs.list_directory(directory)
    bases = sorted(offset_of_name(name) for name in names if name.endswith(LOG_SUFFIX))
    return ReplicaFiles(fs, directory, node_id, high_watermark, read_epochs(fs, directory), bases)


def read_epochs(fs: FileSystem, directory: str) -> LeaderEpochs:
    """Read the leader epochs of a log from its directory; there are none if the file is missing or damaged. Raises
    OSError."""
    try:
        return LeaderEpochs.load(fs, directory)
    except CorruptCheckpoint:
        return LeaderEpochs(fs, directory, [])


class ReplicaChoice(NamedTuple):
    """The replicas with the chosen history, of which the first is read, and the other replicas, each with a message for
    the user."""

    same: list[ReplicaFiles]
    others: list[tuple[ReplicaFiles, str]]


def choose_replicas(
    key: TopicPartition, replicas: Sequence[ReplicaFiles], leader: int | None, *, may_have_gaps: bool
) -> ReplicaChoice:
    """Choose the replica of a partition to read. `leader`: the node id of its leader, if it is known. Raises
    `HistoriesDiffer` if nothing tells which history is right, and OSError."""
    if len(replicas) < 2:
        return ReplicaChoice(list(replicas), [])
    epochs = {each.directory: each.latest_epoch() for each in replicas}
    reference = max(replicas, key=lambda each: (epochs[each.directory], each.high_watermark))
    of_leader = next((each for each in replicas if leader is not None and each.node_id == leader), None)
    reason = f"it has the latest leader epoch, {epochs[reference.directory]}"
    if of_leader is not None and epochs[of_leader.directory] == epochs[reference.directory]:
        reference = of_leader
        reason = f"the metadata of the cluster name its broker {leader} as the leader"
    same: list[ReplicaFiles] = [reference]
    others: list[ReplicaFiles] = []
    for each in replicas:
        if each is not reference:
            (same if has_same_history(key, each, reference, may_have_gaps=may_have_gaps) else others).append(each)
    same.sort(key=lambda each: -each.high_watermark)
    described = [
        (
            each,
            f"{key[0]}-{key[1]}: {each.directory} has another history than {reference.directory} from offset "
            f"{first_difference(each, reference)} on, below its high watermark {each.high_watermark}; "
            f"{same[0].directory} is read: {reason}",
        )
        for each in others
    ]
    return ReplicaChoice(same, described)


def has_same_history(
    key: TopicPartition, replica: ReplicaFiles, reference: ReplicaFiles, *, may_have_gaps: bool
) -> bool:
    """Whether a replica has the history of the reference replica below its own high watermark. Raises `HistoriesDiffer`
    if the two have different batches of one leader epoch."""
    offset = replica.high_watermark - 1
    if offset < 0:
        return True
    own, its = replica.batch_at(offset), reference.batch_at(offset)
    epoch, expected = replica.epoch_at(offset), reference.epoch_at(offset)
    if epoch is None or expected is None:
        return True
    if epoch != expected:
        return False
    if own is None or its is None or may_have_gaps:
        return True
    if (own.base_offset, own.last_offset, own.crc) != (its.base_offset, its.last_offset, its.crc):
        raise HistoriesDiffer(
            f"{key[0]}-{key[1]}: {replica.directory} and {reference.directory} have different batches of leader epoch "
            f"{epoch} at offset {offset}, below a high watermark: name one of the two in `path`"
        )
    return True


def first_difference(one: ReplicaFiles, other: ReplicaFiles) -> int:
    """The first offset below the high watermark of `one` at which the epoch checkpoints of the two replicas name
    different leader epochs. If there is none, the last offset below that high watermark.
    """
    starts = sorted({each.start_offset for each in (*one.epochs.entries, *other.epochs.entries)})
    for start, _ in pairwise([*starts, one.high_watermark]):
        if start < one.high_watermark and one.epochs.epoch_of(start) != other.epochs.epoch_of(start):
            return start
    return one.high_watermark - 1
