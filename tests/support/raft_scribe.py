"""Runs the commands of a Raft transcript: the machine's effects wait until disk and peers are told to do their work.

> start [epoch=4 leader=2 voted=2] [log=1:10,4:12] [voters=1,2,3] [kraft_version=0] [announces] [observer]
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
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import cast

from kraft.raft.control_records import QuorumDescription, described_by
from kraft.raft.election import Election
from kraft.raft.events import (
    Answered,
    Append,
    Appended,
    AppendFetched,
    Commit,
    Effect,
    ElectionSaved,
    Event,
    Flushed,
    Follow,
    Lead,
    QuorumRequest,
    QuorumResponse,
    Received,
    Reply,
    ReplyRecords,
    ReplySnapshot,
    Resign,
    SaveElection,
    Send,
    SentRequest,
    SentResponse,
    SnapshotFetched,
    SnapshotLoaded,
    SnapshotPart,
    Started,
    Stop,
    Stopped,
    Tick,
    Truncate,
    Truncated,
)
from kraft.raft.quorum_history import QuorumHistory
from kraft.raft.raft import Raft
from kraft.raft.settings import Identity, RaftSettings
from kraft.raft.voters import Voter, Voters
from kraft.snapshot.names import SnapshotId
from protocol.compiler import decode
from protocol.control_records import ControlRecordType, control_record_type
from protocol.errors import ErrorCode
from protocol.messages import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from protocol.record_builder import Record
from protocol.records.control import LeaderChangeMessage
from protocol.schema import spec_of
from tests.simulation.raft.replicated_log import Entry, ReplicatedLog, Snapshot
from tests.support.transcripts import Command

TOPIC = "__cluster_metadata"
TOPIC_ID = bytes(15) + b"\x01"
LISTENER = "CONTROLLER"


def directory(node_id: int) -> bytes:
    return bytes(15) + bytes([0xA0 + node_id])


def voter(node_id: int) -> Voter:
    return Voter(node_id, directory(node_id), ((LISTENER, (f"h{node_id}", 9093)),))


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
        self.unsaved: list[Election] = []
        self.sent: dict[str, Send] = {}
        """By host: the last request to it that was not answered."""

    def respond(self, command: Command) -> Iterator[str]:
        if command.name == "start":
            self.start(command)
            yield from self.feed(Started())
        elif command.name in ("tick", "wait"):
            yield from self.pass_time(command)
        else:
            yield from self.feed(self.event(command))
        role = type(self.raft.role).__name__.lower()
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
        voters = Voters.of(voter(int(each)) for each in options.get("voters", "1").split(","))
        offset = -1 if "announces" in command.arguments else 0
        described = [(offset, QuorumDescription(1, voters))] if version == 1 else []
        voted = command.int("voted", -1)
        voted_directory = directory(voted) if voted >= 0 and version else bytes(16)
        election = Election(command.int("epoch", 0), command.int("leader", -1), voted, voted_directory)
        self.raft = Raft(
            Identity(1, "cluster", directory(1), {LISTENER: ("h1", 9093)}, LISTENER),
            RaftSettings(
                bootstrap_servers=(("h2", 9093),) if len(voters.ids) > 1 or "observer" in command.arguments else ()
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
        yield from self.feed(Tick())

    # Events

    def event(self, command: Command) -> Event:
        match command.name:
            case "saved":
                return ElectionSaved(self.unsaved.pop(0))
            case "write":
                self.log.append([Entry(self.raft.epoch, None)] * int(command.arguments[0]))
                return Appended(self.log.end_offset)
            case "flushed":
                self.log.durable_end_offset = int((command.arguments or [str(self.log.end_offset)])[0])
                return Flushed(self.log.durable_end_offset)
            case "loaded":
                snapshot_id = parse_snapshot(command.arguments[0])
                self.log.load_snapshot(snapshot_id, Snapshot((), self.raft.quorum))
                return SnapshotLoaded(snapshot_id, self.raft.quorum)
            case "lost":
                send = self.sent.pop("h" + command.options["to"])
                return Answered(send.to, send.request, None, is_refused="refused" in command.arguments)
            case "resign":
                return Resign(command.int("epoch"))
            case "stop":
                return Stop(5000)
        request = REQUESTS.get(command.name)
        if request is not None:
            made = request(command)
            version = command.int("version", spec_of(type(made)).versions.last)
            return Received(command.text, made, version, LISTENER)
        host = "h" + command.options.get("by", command.options.get("from", ""))
        send = self.sent.pop(host)
        return Answered(send.to, send.request, RESPONSES[command.name](command, send.request))

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
                case Truncate(end_offset):
                    self.log.truncate(end_offset)
                    yield from self.feed(Truncated(end_offset))
                case _:
                    pass

    def appended(self, entries: list[Entry], records: object) -> Appended:
        before = described = self.raft.quorum
        for record in cast("tuple[Record, ...]", records):
            described = described_by(record, described)
        if described != before:
            entries = [entries[0]._replace(description=described), *entries[1:]]
        descriptions = self.log.append(entries)
        return Appended(self.log.end_offset, descriptions)

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
            case Truncate(end_offset):
                return f"truncate to {end_offset}"
            case Send(to, request, _):
                return f"to {to.host}: {request_told(request)}"
            case Reply(_, response):
                return f"reply {response_told(response)}"
            case ReplyRecords(_, response, offset, _):
                return f"reply {response_told(response)} with records from {offset} to {self.log.end_offset}"
            case ReplySnapshot(_, response, snapshot_id, position, _):
                return f"reply {response_told(response)} with {snapshot_told(snapshot_id)} from {position}"
            case SnapshotPart(snapshot_id, position, data):
                return f"write {len(data)} bytes of {snapshot_told(snapshot_id)} at {position}"
            case SnapshotFetched(snapshot_id):
                return f"load {snapshot_told(snapshot_id)}"
            case Lead(epoch):
                return f"lead in epoch {epoch}"
            case Follow(epoch, leader_id):
                return f"follow {leader_id if leader_id >= 0 else 'nobody'} in epoch {epoch}"
            case Commit(high_watermark):
                return f"commit up to {high_watermark}"
            case Stopped():
                return "stopped"


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


def request_told(request: SentRequest) -> str:
    match request:
        case vote.VoteRequest():
            (asked,) = request.topics[0].partitions
            kind = "pre-vote" if asked.pre_vote else "vote"
            return f"{kind} in epoch {asked.replica_epoch}, log ends {asked.last_offset_epoch}:{asked.last_offset}"
        case begin_quorum_epoch.BeginQuorumEpochRequest():
            return f"begin epoch {request.topics[0].partitions[0].leader_epoch}"
        case end_quorum_epoch.EndQuorumEpochRequest():
            (ended,) = request.topics[0].partitions
            preferred = [each.candidate_id for each in ended.preferred_candidates]
            return f"end epoch {ended.leader_epoch}, next should be {preferred}"
        case fetch.FetchRequest():
            (part,) = request.topics[0].partitions
            end = f"{part.last_fetched_epoch}:{part.fetch_offset}"
            return f"fetch in epoch {part.current_leader_epoch}, log ends {end}, hw={part.high_watermark}"
        case fetch_snapshot.FetchSnapshotRequest():
            (piece,) = request.topics[0].partitions
            return f"fetch snapshot {piece.snapshot_id.end_offset}@{piece.snapshot_id.epoch} from {piece.position}"
    return type(request).__name__


def response_told(response: QuorumResponse) -> str:
    match response:
        case vote.VoteResponse() if response.topics:
            (voted,) = response.topics[0].partitions
            granted = "granted" if voted.vote_granted else "refused"
            return f"{granted} {error_told(voted.error_code)}epoch={voted.leader_epoch} leader={voted.leader_id}"
        case begin_quorum_epoch.BeginQuorumEpochResponse() | end_quorum_epoch.EndQuorumEpochResponse() if (
            response.topics
        ):
            (told,) = response.topics[0].partitions
            return f"{error_told(told.error_code)}epoch={told.leader_epoch} leader={told.leader_id}"
        case fetch.FetchResponse() if response.responses:
            (part,) = response.responses[0].partitions
            leader = part.current_leader
            assert leader is not None
            text = f"{error_told(part.error_code)}epoch={leader.leader_epoch} leader={leader.leader_id}"
            if part.diverging_epoch is not None:
                text += f" diverging {part.diverging_epoch.epoch}:{part.diverging_epoch.end_offset}"
            if part.snapshot_id is not None:
                text += f" snapshot {part.snapshot_id.end_offset}@{part.snapshot_id.epoch}"
            return f"{text} hw={part.high_watermark}"
        case fetch_snapshot.FetchSnapshotResponse() if response.topics:
            (piece,) = response.topics[0].partitions
            return f"{error_told(piece.error_code)}size={piece.size}"
        case describe_quorum.DescribeQuorumResponse() if response.topics:
            (state,) = response.topics[0].partitions
            voters = {each.replica_id: each.log_end_offset for each in state.current_voters}
            observers = {each.replica_id: each.log_end_offset for each in state.observers}
            return f"leader={state.leader_id} hw={state.high_watermark} voters={voters} observers={observers}"
        case add_raft_voter.AddRaftVoterResponse() | remove_raft_voter.RemoveRaftVoterResponse():
            return f"{error_told(response.error_code)}{response.error_message or ''}"
    return error_told(response.error_code)


def error_told(code: int) -> str:
    return f"{ErrorCode(code).name} "


def snapshot_told(snapshot_id: SnapshotId) -> str:
    return f"snapshot {snapshot_id.end_offset}@{snapshot_id.epoch}"


def parse_snapshot(text: str) -> SnapshotId:
    end_offset, epoch = map(int, text.split("@"))
    return SnapshotId(end_offset, epoch)


def parse_end(text: str) -> tuple[int, int]:
    epoch, offset = map(int, text.split(":"))
    return epoch, offset


# What peers and clients ask


def vote_asked(command: Command) -> QuorumRequest:
    epoch, offset = parse_end(command.options.get("log", "0:0"))
    partition = vote.PartitionData(
        partition_index=0,
        replica_epoch=command.int("epoch"),
        replica_id=command.int("from"),
        replica_directory_id=directory(command.int("from")),
        voter_directory_id=directory(command.int("to_directory", 1)),
        last_offset_epoch=epoch,
        last_offset=offset,
        pre_vote="pre" in command.arguments,
    )
    topic = vote.TopicData(topic_name=TOPIC, partitions=[partition])
    return vote.VoteRequest(cluster_id=command.options.get("cluster", "cluster"), voter_id=1, topics=[topic])


def begin_asked(command: Command) -> QuorumRequest:
    leader_id = command.int("leader")
    partition = begin_quorum_epoch.PartitionData(
        partition_index=0,
        voter_directory_id=directory(command.int("to_directory", 1)),
        leader_id=leader_id,
        leader_epoch=command.int("epoch"),
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id="cluster",
        voter_id=1,
        topics=[begin_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[begin_quorum_epoch.LeaderEndpoint(name=LISTENER, host=f"h{leader_id}", port=9093)],
    )


def end_asked(command: Command) -> QuorumRequest:
    leader_id = command.int("leader")
    preferred = [int(each) for each in command.options.get("preferred", "1").split(",")]
    partition = end_quorum_epoch.PartitionData(
        partition_index=0,
        leader_id=leader_id,
        leader_epoch=command.int("epoch"),
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(candidate_id=each, candidate_directory_id=directory(each))
            for each in preferred
        ],
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id="cluster",
        topics=[end_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[end_quorum_epoch.LeaderEndpoint(name=LISTENER, host=f"h{leader_id}", port=9093)],
    )


def fetch_asked(command: Command) -> QuorumRequest:
    epoch, offset = parse_end(command.options["end"])
    replica_id = command.int("from")
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=command.int("epoch"),
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        partition_max_bytes=1000,
        replica_directory_id=directory(command.int("directory", replica_id)),
        high_watermark=command.int("hw", 1 << 60),
    )
    return fetch.FetchRequest(
        cluster_id="cluster",
        replica_state=fetch.ReplicaState(replica_id=replica_id),
        max_wait_ms=command.int("wait", 500),
        min_bytes=0,
        topics=[fetch.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
    )


def fetch_snapshot_asked(command: Command) -> QuorumRequest:
    snapshot_id = parse_snapshot(command.options["snapshot"])
    partition = fetch_snapshot.PartitionSnapshot(
        partition=0,
        current_leader_epoch=command.int("epoch"),
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        position=command.int("position", 0),
        replica_directory_id=directory(command.int("from")),
    )
    topic = fetch_snapshot.TopicSnapshot(name=TOPIC, partitions=[partition])
    return fetch_snapshot.FetchSnapshotRequest(cluster_id="cluster", replica_id=command.int("from"), topics=[topic])


def add_asked(command: Command) -> QuorumRequest:
    node_id = int(command.arguments[0])
    listener = command.options.get("listener", LISTENER)
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id="cluster",
        timeout_ms=3000,
        voter_id=node_id,
        voter_directory_id=directory(node_id),
        listeners=[add_raft_voter.Listener(name=listener, host=f"h{node_id}", port=9093)],
        ack_when_committed="at_once" not in command.arguments,
    )


def remove_asked(command: Command) -> QuorumRequest:
    node_id = int(command.arguments[0])
    return remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id="cluster", voter_id=node_id, voter_directory_id=directory(command.int("directory", node_id))
    )


def update_asked(command: Command) -> QuorumRequest:
    node_id = int(command.arguments[0])
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id="cluster",
        current_leader_epoch=command.int("epoch"),
        voter_id=node_id,
        voter_directory_id=directory(node_id),
        listeners=[
            update_raft_voter.Listener(name=LISTENER, host=command.options.get("host", f"h{node_id}"), port=9093)
        ],
        k_raft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=command.int("max", 1)
        ),
    )


def describe_asked(_: Command) -> QuorumRequest:
    partition = describe_quorum.PartitionData(partition_index=0)
    return describe_quorum.DescribeQuorumRequest(
        topics=[describe_quorum.TopicData(topic_name=TOPIC, partitions=[partition])]
    )


REQUESTS = {
    "vote": vote_asked,
    "begin": begin_asked,
    "end": end_asked,
    "fetch": fetch_asked,
    "fetch_snapshot": fetch_snapshot_asked,
    "add": add_asked,
    "remove": remove_asked,
    "update": update_asked,
    "describe": describe_asked,
}

# What peers answer


def vote_answered(command: Command, _: SentRequest) -> SentResponse:
    leader_id = command.int("leader", -1)
    partition = vote.ResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode[command.options.get("error", "NONE")],
        leader_id=leader_id,
        leader_epoch=command.int("epoch"),
        vote_granted=command.name == "granted",
    )
    return vote.VoteResponse(
        topics=[vote.ResponseTopicData(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=[vote.NodeEndpoint(node_id=leader_id, host=f"h{leader_id}", port=9093)],
    )


def followed(command: Command, request: SentRequest) -> SentResponse:
    module = end_quorum_epoch if isinstance(request, end_quorum_epoch.EndQuorumEpochRequest) else begin_quorum_epoch
    partition = module.ResponsePartitionData(
        partition_index=0, leader_id=command.int("leader", 1), leader_epoch=command.int("epoch")
    )
    topic = module.ResponseTopicData(topic_name=TOPIC, partitions=[partition])
    if module is end_quorum_epoch:
        return end_quorum_epoch.EndQuorumEpochResponse(topics=[topic])
    return begin_quorum_epoch.BeginQuorumEpochResponse(topics=[topic])


def fetched(command: Command, request: SentRequest) -> SentResponse:
    leader_id = command.int("leader", command.int("from"))
    epoch = command.int("epoch")
    count = command.int("count", 0)
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=ErrorCode[command.options.get("error", "NONE")],
        high_watermark=command.int("hw", -1),
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
        records=cast("bytes", fetched_entries(command, count)),
    )
    if command.name == "diverging":
        end_epoch, end_offset = parse_end(command.options["end"])
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=end_epoch, end_offset=end_offset)
    if command.name == "snapshot":
        snapshot_id = parse_snapshot(command.options["id"])
        partition.snapshot_id = fetch.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch)
    topic = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    endpoint = fetch.NodeEndpoint(node_id=leader_id, host=f"h{leader_id}", port=9093)
    return fetch.FetchResponse(responses=[topic], node_endpoints=[endpoint] if leader_id >= 0 else [])


def fetched_entries(command: Command, count: int) -> list[Entry]:
    entries = [Entry(command.int("record_epoch", command.int("epoch")), None) for _ in range(count)]
    if "voters" in command.options:
        voters = Voters.of(voter(int(each)) for each in command.options["voters"].split(","))
        entries[0] = entries[0]._replace(description=QuorumDescription(1, voters))
    return entries


def part_fetched(command: Command, _: SentRequest) -> SentResponse:
    snapshot_id = parse_snapshot(command.options["id"])
    leader_id = command.int("from")
    partition = fetch_snapshot.ResponsePartitionSnapshot(
        index=0,
        error_code=ErrorCode[command.options.get("error", "NONE")],
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=command.int("epoch")),
        size=command.int("of", 0),
        position=command.int("position", 0),
        unaligned_records=bytes(command.int("size", 0)),
    )
    topic = fetch_snapshot.ResponseTopicSnapshot(name=TOPIC, partitions=[partition])
    return fetch_snapshot.FetchSnapshotResponse(topics=[topic])


def versions_told(command: Command, _: SentRequest) -> SentResponse:
    feature = api_versions.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=command.int("max", 1))
    return api_versions.ApiVersionsResponse(supported_features=[feature])


RESPONSES = {
    "granted": vote_answered,
    "refused": vote_answered,
    "follows": followed,
    "records": fetched,
    "diverging": fetched,
    "snapshot": fetched,
    "part": part_fetched,
    "versions": versions_told,
}
