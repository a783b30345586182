"""Random clients against one shard: whatever they do, each request is answered once, and the log tells the truth."""

from __future__ import annotations

from random import Random

import pytest

from moldau.coordinator.classic.group import GroupState
from moldau.coordinator.offsets.offset_fetch import AllOffsets
from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from tests.support.group_scribe import GroupScribe
from tests.support.group_stage import classic_groups
from tests.support.transcripts import Command

pytestmark = pytest.mark.slow

STEPS = 120
GROUPS = ("g", "h")
LONG_MS = 3_600_000


class Walk:
    """Random commands, of which some make sense: members use the ids and generations that they were told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scribe = GroupScribe()
        self.transcript: list[str] = []
        self.members: list[tuple[str, str]] = []
        """Group and member id, as far as anybody was told one."""
        self.owed: dict[str, str] = {}
        """Questions without an answer."""
        self.asked = 0
        self.log_refuses = seed % 3 == 0

    def run(self) -> None:
        self.do("config initial_rebalance_delay_ms=1000 max_size=4")
        for _ in range(STEPS):
            self.do(self.command())
        self.do("release")

    def do(self, text: str) -> None:
        self.transcript.append(f"> {text}")
        command = Command(text)
        token = command.options.get("as")
        if token is not None:
            self.owed[token] = text
        for line in self.scribe.respond(command):
            self.transcript.append(line)
            self.hear(line.strip())

    def hear(self, line: str) -> None:
        """Take note of an answer: each request is answered once."""
        if not line.startswith("tell "):
            return
        token, _, answer = line.removeprefix("tell ").partition(": ")
        question = self.owed.pop(token)
        if question.startswith("join"):
            member = next(word for word in answer.split() if word.startswith("member=")).removeprefix("member=")
            if member:
                self.members.append((question.split()[1], member))

    def command(self) -> str:
        choose = self.random.choice
        self.asked += 1
        token = f"as=q{self.asked}"
        group, member = choose(self.members[-6:]) if self.members and self.random.random() < 0.9 else ("g", "nobody")
        shard_group = classic_groups(self.scribe.shard).get(group)
        generation = shard_group.generation if shard_group is not None and self.random.random() < 0.9 else 1
        protocols = choose(["range", "range,sticky", "sticky,range", "sticky"])
        everybody = ",".join(f"{name}:w" for name in (shard_group.members if shard_group is not None else ()))
        leader = (shard_group.leader_id if shard_group is not None else None) or member
        instance = choose(["red", "blue"])
        return choose(
            [
                f"join {choose(GROUPS)} client=c {token} protocols={protocols} v={choose([0, 3, 4, 9])}",
                f"join {choose(GROUPS)} client=c {token} protocols={protocols} instance={instance} v={choose([5, 9])}",
                f"join {group} member={member} {token} protocols={protocols}",
                f"join {group} member={member} {token} protocols={protocols}",
                f"sync {group} member={leader} generation={generation} protocol= {token} plan={everybody}",
                f"sync {group} member={member} generation={generation} protocol= {token} plan={everybody}",
                f"heartbeat {group} member={member} generation={generation} {token}",
                f"leave {group} members={member} {token}",
                f"leave {group} instances={instance} {token}",
                f"commit {group} member={member} generation={generation} t-0={self.asked} {token}",
                f"commit simple t-{choose('012')}={self.asked} {token}",
                f"txn-commit {group} producer={choose('78')} t-{choose('01')}={self.asked} {token}",
                f"txn-commit simple producer={choose('78')} t-{choose('012')}={self.asked} {token}",
                f"end-txn producer={choose('78')} {choose(['commit', 'abort'])} {token}",
                f"fetch {group} stable=1 {token}",
                f"delete-offsets simple topics=t-1 {token}",
                f"delete {choose(['g', 'h', 'simple'])} {token}",
                f"wait {choose([0, 100, 1000, 4000, 9000, 40000])}",
                f"wait {choose([0, 1000])}",
                choose(["hold", "release", "release", "topic-deleted t", self.trouble()]),
            ]
        ).replace(
            " protocol= ", " protocol=" + (shard_group.protocol_name or "range" if shard_group else "range") + " "
        )

    def trouble(self) -> str:
        return "refuse NOT_ENOUGH_REPLICAS" if self.log_refuses else "release"

    def reloaded(self) -> GroupShard:
        """A shard that knows only the log."""
        before = self.scribe.shard
        list(self.scribe.respond(Command("reload")))
        after, self.scribe.shard = self.scribe.shard, before
        return after


@pytest.mark.parametrize("seed", range(150))
def test_everybody_is_answered_once_and_the_log_tells_the_truth(seed: int) -> None:
    walk = Walk(seed)
    try:
        walk.run()
        check_shard_against_its_log(walk)
        walk.do(f"wait {LONG_MS}")
        assert not walk.owed, "a request was never answered"
        states = {group.state for group in classic_groups(walk.scribe.shard).values()}
        assert states <= {GroupState.EMPTY}, "a group without living members is empty in the end"
        check_shard_against_its_log(walk)
    except Exception as error:
        error.add_note(f"seed {seed}:\n" + "\n".join(walk.transcript))
        raise


def check_shard_against_its_log(walk: Walk) -> None:
    """What a new coordinator would read is what this one has."""
    shard, again = walk.scribe.shard, walk.reloaded()
    for name in ("g", "h", "simple"):
        everything = OffsetFetchRequestGroup(group_id=name, topics=None)
        ours, theirs = shard.offsets(everything), again.offsets(everything)
        assert isinstance(ours, AllOffsets) and isinstance(theirs, AllOffsets)
        assert ours.whole() == theirs.whole()
        assert pending_in(shard, name) == pending_in(again, name)
        group = classic_groups(shard).get(name)
        if group is None or group.visible_from is None:
            assert name not in classic_groups(again)
            continue
        # If the log refused to hear that a group is empty, its last members come back, and time out again.
        if group.state is GroupState.STABLE or (group.state is GroupState.EMPTY and not walk.log_refuses):
            stored = classic_groups(again)[name]
            if group.state is GroupState.STABLE:
                assert stored.generation == group.generation
                assert stored.leader_id == group.leader_id
            assert {key: member.assignment for key, member in stored.members.items()} == {
                key: member.assignment for key, member in group.members.items()
            }


def pending_in(shard: GroupShard, group_id: str) -> object:
    """The offsets of open transactions, in the order of their records."""
    pending = shard._offsets.committed_offsets(group_id).pending
    return {key: list(values.items()) for key, values in pending.items()}


def test_the_walks_reach_every_state() -> None:
    told = "".join(line for seed in range(60) for line in transcript_of(seed))
    for word in (
        "joined",
        "share=(w)",
        "REBALANCE_IN_PROGRESS",
        "FENCED_INSTANCE_ID",
        "GROUP_MAX_SIZE_REACHED",
        "skip",
        "UNSTABLE_OFFSET_COMMIT",
    ):
        assert word in told, f"no walk comes to {word}"


def transcript_of(seed: int) -> list[str]:
    walk = Walk(seed)
    walk.run()
    return walk.transcript
