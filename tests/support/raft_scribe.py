"""Runs the commands of a Raft transcript: the machine's effects wait until disk and peers are told to do their work.

> start [epoch=4 leader=2 voted=2] [log=1:10,4:12] [voters=1,2,3] [kraft_version=0] [announces] [observer] [moved]
        [joins] [disk=7]
                                  the process begins; `log` gives the end offset of each epoch in it
> saved                           quorum-state is durable as it was last asked for
> write 3                         the controller appends so many records
> flushed [12]                    the log is durable up to this offset, or its end
> tick 1000                       so much time passes, and a tick comes
> wait                            time passes up to the machine's next deadline
> vote from=2 epoch=5 log=4:12 [pre]       a peer asks ...
> begin leader=2 epoch=5
> end leader=2 epoch=5 preferred=3,1
> fetch from=2 epoch=5 end=4:12 [hw=10]
> fetch_snapshot from=2 epoch=5 snapshot=10@4 position=0
> add 4 / remove 3 / update 2 / describe
> granted by=2 epoch=5 / refused by=2 epoch=5 [leader=3]      a peer answers a vote ...
> follows by=2 epoch=5                                        ... the leader's BeginQuorumEpoch, EndQuorumEpoch
> records from=2 epoch=5 count=2 hw=12 [record_epoch=4] [voters=1,2,3,4]
> diverging from=2 epoch=5 end=4:12
> snapshot from=2 epoch=5 id=20@4 / part from=2 epoch=5 id=20@4 position=0 size=10 of=30
> loaded 20@4                     the snapshot is in the place of the log
> versions by=4                   the new voter says which versions it speaks
> lost to=2 [refused]             nothing came back
> resign epoch=5 / stop
> raise 1                         the controller raises kraft.version
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import cast

from moldau.kraft.quorum.control_records import QuorumDescription, quorum_after
from moldau.kraft.quorum.quorum_history import QuorumHistory
from moldau.kraft.quorum.voter_set import VoterSet
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
    RaiseVersion,
    RequestReceived,
    Resign,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    ResponseReceived,
    SaveElection,
    Send,
    SnapshotLoaded,
    Started,
    Stop,
    Stopped,
    TruncateLog,
    WriteSnapshotPart,
)
from moldau.kraft.raft.raft import Raft
from moldau.kraft.raft.settings import QuorumIdentity, RaftSettings
from moldau.protocol.record_builder import Record
from moldau.protocol.schema import spec_of
from tests.simulation.raft.replicated_log import Entry, ReplicatedLog, Snapshot
from tests.support.raft_conversation import LISTENER, REQUESTS, RESPONSES, directory, parse_snapshot, voter
from tests.support.raft_telling import control_told, request_told, response_told, snapshot_told
from tests.support.transcripts import Command


class Chance(random.Random):
    """The jitter of a transcript: none."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0


class RaftScribe:
    """Node 1 is the machine; the others are what the transcript says of them."""

    def __init__(self) -> None:
        self.raft: Raft
        self.log = ReplicatedLog()
        self.now_ms = 0
        self.unsaved: list[ElectionState] = []
        self.sent: dict[str, Send] = {}
        """By host: the last request to it that was not answered."""

    def respond(self, command: Command) -> Iterator[str]:
        if command.name == "start":
            self.start(command)
            yield from self.feed(Started())
        elif command.name in ("tick", "wait"):
            yield from self.pass_time(command)
        else:
            refusal = self.raft.refusal_of_version(int(command.arguments[0])) if command.name == "raise" else None
            yield from self.feed(self.event(command)) if refusal is None else [refusal]
        role = type(self.raft.role).__name__.removesuffix("Role").lower()
        hw = self.raft.high_watermark
        yield f"{role} epoch={self.raft.epoch} leader={self.raft.leader_id} end={self.log.end_offset} hw={hw}"

    def start(self, command: Command) -> None:
        self.unsaved.clear()
        self.sent.clear()
        options = command.options
        self.log = ReplicatedLog()
        for part in options.get("log", "").split(",") if "log" in options else ():
            epoch, end_offset = map(int, part.split(":"))
            self.log.append([Entry(epoch, None)] * (end_offset - self.log.end_offset))
        self.log.durable_end_offset = self.log.end_offset
        version = command.int("kraft_version", 1)
        voters = VoterSet.from_voters(voter(int(each)) for each in options.get("voters", "1").split(","))
        offset = -1 if "announces" in command.arguments else 0
        described = [(offset, QuorumDescription(1, voters))] if version == 1 else []
        voted = command.int("voted", -1)
        voted_directory = directory(voted) if voted >= 0 and version else bytes(16)
        election = ElectionState(command.int("epoch", 0), command.int("leader", -1), voted, voted_directory)
        self.raft = Raft(
            QuorumIdentity(
                1,
                "cluster",
                directory(command.int("disk", 1)),
                {LISTENER: ("h11" if "moved" in command.arguments else "h1", 9093)},
                LISTENER,
            ),
            RaftSettings(
                bootstrap_servers=(("h2", 9093),) if len(voters.ids) > 1 or "observer" in command.arguments else (),
                auto_join="joins" in command.arguments,
            ),
            self.log,
            QuorumHistory(voters, described),
            election,
            Chance(),
        )

    def pass_time(self, command: Command) -> Iterator[str]:
        deadline_ms = self.raft.next_deadline_ms()
        if command.name == "wait":
            assert deadline_ms is not None, "nothing to wait for"
            waited_ms = max(0, deadline_ms - self.now_ms)
            yield f"after {waited_ms} ms"
        else:
            waited_ms = int(command.arguments[0])
        self.now_ms += waited_ms
        yield from self.feed(DeadlineReached())

    # Events

    def event(self, command: Command) -> Event:
        match command.name:
            case "saved":
                return ElectionSaved(self.unsaved.pop(0))
            case "write":
                self.log.append([Entry(self.raft.epoch, None)] * int(command.arguments[0]))
                return LogAppended(self.log.end_offset)
            case "flushed":
                self.log.durable_end_offset = int((command.arguments or [str(self.log.end_offset)])[0])
                return LogFlushed(self.log.durable_end_offset)
            case "loaded":
                snapshot_id = parse_snapshot(command.arguments[0])
                self.log.load_snapshot(snapshot_id, Snapshot((), self.raft.quorum))
                return SnapshotLoaded(snapshot_id, self.raft.quorum)
            case "lost":
                send = self.sent.pop("h" + command.options["to"])
                return ResponseReceived(send.to, send.request, None, is_refused="refused" in command.arguments)
            case "resign":
                return Resign(command.int("epoch"))
            case "raise":
                return RaiseVersion(self.raft.epoch, int(command.arguments[0]))
            case "stop":
                return Stop(5000)
        request = REQUESTS.get(command.name)
        if request is not None:
            made = request(command)
            version = command.int("version", spec_of(type(made)).versions.last)
            return RequestReceived(command.text, made, version, LISTENER)
        host = "h" + command.options.get("by", command.options.get("from", ""))
        send = self.sent.pop(host)
        return ResponseReceived(send.to, send.request, RESPONSES[command.name](command, send.request))

    def feed(self, event: Event) -> Iterator[str]:
        for effect in self.raft.step(event, self.now_ms, 1000):
            yield self.told(effect)
            match effect:
                case SaveElection(election):
                    self.unsaved.append(election)
                case Send():
                    self.sent[effect.to.host] = effect
                case Append(epoch, records):
                    yield from self.feed(self.appended([Entry(epoch, None) for _ in records], records))
                case AppendFetched(fetched, _):
                    yield from self.feed(self.appended(cast("list[Entry]", fetched), ()))
                case TruncateLog(end_offset):
                    self.log.truncate(end_offset)
                    yield from self.feed(LogTruncated(end_offset))
                case _:
                    pass

    def appended(self, entries: list[Entry], records: object) -> LogAppended:
        before = described = self.raft.quorum
        for record in cast("tuple[Record, ...]", records):
            described = quorum_after(record, described)
        if described != before:
            entries = [entries[0]._replace(description=described), *entries[1:]]
        descriptions = self.log.append(entries)
        return LogAppended(self.log.end_offset, descriptions)

    # Effects

    def told(self, effect: Effect) -> str:
        match effect:
            case SaveElection(election):
                directory = f"/{election.voted_directory_id[-1]:02x}" if any(election.voted_directory_id) else ""
                return f"save epoch={election.epoch} voted={election.voted_id}{directory} leader={election.leader_id}"
            case Append(epoch, records):
                return f"append at {self.log.end_offset} in epoch {epoch}: {', '.join(map(control_told, records))}"
            case AppendFetched(records, _):
                return f"append {len(records)} fetched records at {self.log.end_offset}"
            case TruncateLog(end_offset):
                return f"truncate to {end_offset}"
            case Send(to, request, _):
                return f"to {to.host}: {request_told(request)}"
            case Respond(_, response):
                return f"reply {response_told(response)}"
            case RespondWithRecords(_, response, offset, _):
                return f"reply {response_told(response)} with records from {offset} to {self.log.end_offset}"
            case RespondWithSnapshot(_, response, snapshot_id, position, _):
                return f"reply {response_told(response)} with {snapshot_told(snapshot_id)} from {position}"
            case WriteSnapshotPart(snapshot_id, position, data):
                return f"write {len(data)} bytes of {snapshot_told(snapshot_id)} at {position}"
            case CompleteSnapshot(snapshot_id):
                return f"load {snapshot_told(snapshot_id)}"
            case Lead(epoch):
                return f"lead in epoch {epoch}"
            case Follow(epoch, leader_id):
                return f"follow {leader_id if leader_id >= 0 else 'no leader'} in epoch {epoch}"
            case Commit(high_watermark):
                return f"commit up to {high_watermark}"
            case Stopped():
                return "stopped"
