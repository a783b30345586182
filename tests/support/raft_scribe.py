"""Runs the commands of a Raft transcript: the machine's effects wait until the disk is told to do its work.

> start epoch=4 end_offset=10 [last_epoch=4] [kraft_version=1] [announces]     the process begins
> saved                           quorum-state is durable as it was last asked for
> append 3                        the controller appends so many records
> flushed 12                      the log is durable up to this offset
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.raft.control_records import QuorumDescription, described_by
from kraft.raft.election import Election
from kraft.raft.events import (
    Append,
    Appended,
    Commit,
    Effect,
    ElectionSaved,
    Event,
    Flushed,
    Lead,
    SaveElection,
    Started,
)
from kraft.raft.quorum import Quorum
from kraft.raft.raft import Raft
from kraft.raft.voters import Voter, Voters
from protocol.compiler import decode
from protocol.control_records import ControlRecordType, control_record_type
from protocol.record_builder import Record
from protocol.records.control import LeaderChangeMessage
from tests.support.transcripts import Command

DIRECTORY_ID = bytes(15) + b"\xaa"


class RaftScribe:
    def __init__(self) -> None:
        self.raft: Raft
        self.end_offset = 0
        self.unsaved: list[Election] = []

    def respond(self, command: Command) -> Iterator[str]:
        match command.name:
            case "start":
                self.start(command)
                yield from self.feed(Started())
            case "saved":
                yield from self.feed(ElectionSaved(self.unsaved.pop(0)))
            case "append":
                self.end_offset += int(command.arguments[0])
                yield from self.feed(Appended(self.end_offset))
            case "flushed":
                yield from self.feed(Flushed(int(command.arguments[0])))
        yield f"{type(self.raft.role).__name__.lower()} epoch={self.raft.epoch} leader={self.raft.leader_id}"

    def start(self, command: Command) -> None:
        self.unsaved.clear()
        self.end_offset = command.int("end_offset", self.end_offset)
        epoch = command.int("epoch", 0)
        voters = Voters.of([Voter(1, DIRECTORY_ID, (("CONTROLLER", ("h", 9093)),))])
        quorum = Quorum(
            1, DIRECTORY_ID, command.int("kraft_version", 1), voters, announces_voters="announces" in command.arguments
        )
        leader_id = command.int("leader", -1)
        self.raft = Raft(quorum, Election(epoch, leader_id), self.end_offset, command.int("last_epoch", epoch))

    def feed(self, event: Event) -> Iterator[str]:
        for effect in self.raft.step(event, now_ms=1000):
            yield self.told(effect)
            if isinstance(effect, Append):
                self.end_offset += len(effect.records)
                yield from self.feed(Appended(self.end_offset))

    def told(self, effect: Effect) -> str:
        match effect:
            case SaveElection(election):
                self.unsaved.append(election)
                directory = f"/{election.voted_directory_id[-1]:02x}" if any(election.voted_directory_id) else ""
                return f"save epoch={election.epoch} voted={election.voted_id}{directory} leader={election.leader_id}"
            case Append(epoch, records):
                return f"append at {self.end_offset} in epoch {epoch}: {', '.join(map(control_told, records))}"
            case Lead(epoch):
                return f"lead in epoch {epoch}"
            case Commit(high_watermark):
                return f"commit up to {high_watermark}"
            case _:
                raise AssertionError(f"{effect} of a quorum of one")


def control_told(record: Record) -> str:
    kind = control_record_type(record.key)
    if kind is ControlRecordType.LEADER_CHANGE:
        assert record.value is not None
        message = decode(LeaderChangeMessage, record.value, 0)
        granting = [voter.voter_id for voter in message.granting_voters]
        return f"leader change to {message.leader_id}, voted for by {granting}"
    described = described_by(record, QuorumDescription())
    if described.voters is not None:
        return f"voters {list(described.voters.ids)}"
    return f"kraft.version {described.kraft_version}"
