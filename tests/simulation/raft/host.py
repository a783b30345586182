"""One node of the simulated quorum: the machine, its log and its quorum-state, and how they survive a crash."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from moldau.kraft.quorum.control_records import QuorumDescription, quorum_after
from moldau.kraft.quorum.quorum_history import QuorumHistory
from moldau.kraft.quorum.voter_set import VoterNode, VoterSet
from moldau.kraft.raft.election_state import ElectionState
from moldau.kraft.raft.events import (
    Append,
    AppendFetched,
    Commit,
    CompleteSnapshot,
    DeadlineReached,
    Effect,
    ElectionSaved,
    Event,
    Follow,
    Lead,
    LogAppended,
    LogFlushed,
    LogTruncated,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    SaveElection,
    Send,
    SnapshotLoaded,
    Started,
    Stopped,
    TruncateLog,
    WriteSnapshotPart,
)
from moldau.kraft.raft.raft import Raft
from moldau.kraft.raft.settings import QuorumIdentity, RaftSettings
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.messages.api_versions import ApiVersionsResponse, SupportedFeatureKey
from moldau.protocol.record_builder import Record
from tests.simulation.raft.replicated_log import Entry, ReplicatedLog, Snapshot

if TYPE_CHECKING:
    from tests.simulation.raft.world import World

READ_COUNT_MAX = 20
SNAPSHOT_PART_COUNT = 7
LISTENER = "CONTROLLER"


def directory_of(node_id: int) -> bytes:
    return node_id.to_bytes(16, "big")


def voter_of(node_id: int) -> VoterNode:
    return VoterNode(node_id, directory_of(node_id), ((LISTENER, (str(node_id), 9093)),))


class Host:
    """`incarnation` counts its starts: what an earlier one began is not heard of any more."""

    def __init__(self, world: World, node_id: int, static_voters: VoterSet, initial: QuorumDescription | None) -> None:
        self.world = world
        self.node_id = node_id
        self.directory_id = directory_of(node_id)
        """Of the disk that it has now."""
        self.former_disks: dict[bytes, ReplicatedLog] = {}
        self.log = ReplicatedLog()
        self.election = ElectionState()
        """As quorum-state holds it."""
        self.initial = initial
        """What the bootstrap checkpoint says; None with static voters."""
        self.static_voters = static_voters
        self.incarnation = 0
        self.is_up = False
        self.is_paused = False
        self.is_leading = False
        self.disk_delay_ms = 3
        self.high_watermark = -1
        self.raft: Raft
        self._parts: list[Entry] = []
        self._tick_ms = -1
        self._saving: ElectionState | None = None

    # Life

    def start(self) -> None:
        assert not self.is_up
        self.is_up, self.is_leading, self.high_watermark = True, False, -1
        self.incarnation += 1
        self._tick_ms = -1
        self._saving = None
        history = QuorumHistory(self.static_voters, self._described())
        identity = QuorumIdentity(
            self.node_id, "cluster", self.directory_id, {LISTENER: (str(self.node_id), 9093)}, LISTENER
        )
        settings = RaftSettings(bootstrap_servers=tuple((str(each), 9093) for each in self.world.bootstrap))
        seeded = random.Random(self.world.random.getrandbits(64))
        self.raft = Raft(identity, settings, self.log, history, self.election, seeded)
        self.feed(Started())

    def _described(self) -> list[tuple[int, QuorumDescription]]:
        log = self.log
        found = [] if self.initial is None else [(-1, self.initial)]
        if log.latest_snapshot is not None:
            found = [(log.start_offset - 1, log.snapshots[log.latest_snapshot].quorum)]
        entries = enumerate(log.entries, log.start_offset)
        return found + [(offset, entry.description) for offset, entry in entries if entry.description is not None]

    def described_by_log(self) -> QuorumDescription:
        return QuorumHistory(self.static_voters, self._described()).description

    def crash(self) -> None:
        """A power cut: of what was not synced some may have reached the disk."""
        if self.is_up:
            seeded = self.world.random
            self.is_up, self.is_leading = False, False
            self.incarnation += 1
            self.log.lose_unsynced(seeded.randint(self.log.durable_end_offset, self.log.end_offset))
            if self._saving is not None and seeded.random() < 0.5:
                self.election = self._saving
            self.world.network.reset(self)

    def lose_disk(self) -> None:
        """What was committed is gone too."""
        assert not self.is_up
        self.log, self.election = ReplicatedLog(), ElectionState()

    def replace_disk(self) -> None:
        """As `lose_disk`, and the new disk says so: what was promised under the name of the old one binds no more, and
        the node is no voter."""
        self.former_disks[self.directory_id] = self.log
        self.lose_disk()
        self.directory_id = b"replaced" + self.directory_id[8:]
        self.initial = None

    @property
    def is_saving(self) -> bool:
        """An election is on its way to the disk."""
        return self._saving is not None

    # Events

    def feed(self, event: Event) -> None:
        if not self.is_up:
            return
        now_ms = self.world.now_ms
        for effect in self.raft.step(event, now_ms, now_ms + 1_000_000):
            self.perform(effect)
        self.world.invariants.stepped(self)
        self.arm()

    def arm(self) -> None:
        deadline_ms = self.raft.next_deadline_ms()
        if deadline_ms is None:
            return
        at_ms = max(deadline_ms, self.world.now_ms)
        if self._tick_ms < self.world.now_ms or at_ms < self._tick_ms:
            self._tick_ms = at_ms
            self.world.at(at_ms, self, lambda: self._ticked(at_ms))

    def _ticked(self, at_ms: int) -> None:
        """Unless an earlier time was asked for since."""
        if self._tick_ms == at_ms:
            self._tick_ms = -1
            self.world.count_tick(self)
            self.feed(DeadlineReached())

    def append(self, value: object) -> None:
        """As the controller would."""
        self._append([Entry(self.raft.epoch, value)])

    # Effects

    def perform(self, effect: Effect) -> None:
        world = self.world
        world.told(self, effect)
        match effect:
            case SaveElection(election):
                assert self._saving is None, "one at a time"
                self._saving = election
                world.after(self.disk_delay(), self, lambda: self._saved(election))
            case Append(epoch, records):
                self._append(self._control(epoch, records))
            case AppendFetched(records, _):
                self._append(cast("Sequence[Entry]", records))
            case TruncateLog(end_offset):
                self.log.truncate(end_offset)
                self.feed(LogTruncated(end_offset))
                world.invariants.described(self)
            case Send():
                world.network.send(self, effect)
            case Respond(token, response):
                world.network.reply(token, response)
            case RespondWithRecords(token, response, offset, _):
                entries = self.log.read(offset, READ_COUNT_MAX)
                response.responses[0].partitions[0].records = cast("bytes", entries)
                world.network.reply(token, response)
            case RespondWithSnapshot(token, answer, snapshot_id, position, _):
                part = self.log.snapshots[snapshot_id].entries[position : position + SNAPSHOT_PART_COUNT]
                answer.topics[0].partitions[0].unaligned_records = cast("bytes", part)
                world.network.reply(token, answer)
            case WriteSnapshotPart(_, position, data):
                del self._parts[position:]
                assert len(self._parts) == position
                self._parts += cast("Sequence[Entry]", data)
            case CompleteSnapshot(snapshot_id):
                world.after(self.disk_delay(), self, lambda: self._load(snapshot_id))
            case Lead(epoch):
                self.is_leading = True
                world.invariants.leads(self, epoch)
            case Follow():
                self.is_leading = False
            case Commit(high_watermark):
                self.high_watermark = high_watermark
                world.invariants.committed(self, high_watermark)
            case Stopped():
                self.is_up, self.is_leading = False, False
                self.incarnation += 1

    def disk_delay(self) -> int:
        return self.world.random.randint(0, self.disk_delay_ms)

    def _saved(self, election: ElectionState) -> None:
        self.world.invariants.saved(self, election)
        self.election = election
        self._saving = None
        self.feed(ElectionSaved(election))

    def _append(self, entries: Sequence[Entry]) -> None:
        base_offset = self.log.end_offset
        self.world.invariants.appended(self, base_offset, entries)
        descriptions = self.log.append(entries)
        end_offset, truncations = self.log.end_offset, self.log.truncations
        self.world.after(self.disk_delay(), self, lambda: self._synced(end_offset, truncations))
        self.feed(LogAppended(end_offset, descriptions))

    def _synced(self, end_offset: int, truncations: int) -> None:
        log = self.log
        if truncations == log.truncations:
            log.durable_end_offset = max(log.durable_end_offset, end_offset)
        self.feed(LogFlushed(log.durable_end_offset))

    def _control(self, epoch: int, records: Sequence[Record]) -> list[Entry]:
        """What a batch of control records says of the quorum stands at its first one."""
        before = described = self.raft.quorum
        for record in records:
            described = quorum_after(record, described)
        is_said = len(records) > 1 or described != before
        tokens = [("control", epoch, self.world.unique()) for _ in records]
        return [
            Entry(epoch, token, described if is_said and index == 0 else None) for index, token in enumerate(tokens)
        ]

    def _load(self, snapshot_id: SnapshotId) -> None:
        known = next(
            (
                host.log.snapshots[snapshot_id].quorum
                for host in self.world.hosts.values()
                if snapshot_id in host.log.snapshots
            ),
            self.raft.quorum,
        )
        snapshot = Snapshot(tuple(self._parts), known)
        self.log.load_snapshot(snapshot_id, snapshot)
        self.world.invariants.loaded(self, snapshot)
        self.feed(SnapshotLoaded(snapshot_id, known))
        self.world.invariants.described(self)

    def take_snapshot(self) -> None:
        log = self.log
        end_offset = min(self.high_watermark, log.end_offset)
        if end_offset > log.start_offset:
            log.take_snapshot(end_offset, self.raft.member.history.description_at(end_offset))
            self.raft.member.history.forget(end_offset)

    def api_versions(self) -> ApiVersionsResponse:
        feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
        return ApiVersionsResponse(supported_features=[feature])
