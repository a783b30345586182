"""Scenarios of consumer groups: members come, go and return, and each record is seen once."""

from __future__ import annotations

from tests.conformance.client import Client
from tests.conformance.member import Member
from tests.conformance.outcome import Failed, Refused, Unavailable
from tests.conformance.record import Json, Record
from tests.conformance.scenario import Scenario
from tests.conformance.session import Session, expect

PARTITIONS = 4


class Crowd:
    """The members of one group over one topic with four partitions, and what they have read together."""

    def __init__(self, session: Session, strategy: str) -> None:
        session.needs(f"strategy {strategy}")
        self.session = session
        self.strategy = strategy
        self.topic = session.topic(PARTITIONS)
        self.group = session.name("g")
        self.members: dict[str, Member] = {}
        self.sent: list[bytes] = []
        self._left: list[Record] = []

    def join(
        self,
        name: str,
        instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
        client: Client | None = None,
        strategy: str = "",
    ) -> Member:
        """`strategy`: of this member, if it is not that of the group; `consumer` for a member with the consumer
        protocol (KIP-848).
        """
        full_name = self.session.name(name)
        member = self.members[name] = Member(
            client or self.session.client,
            full_name,
            self.group,
            self.topic,
            strategy=strategy or self.strategy,
            instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
        )
        return member

    def leave(self, name: str) -> None:
        member = self.members.pop(name)
        member.look()
        member.close()
        self._left += member.records

    def forget(self, name: str) -> None:
        """What a member that died has read counts as seen; nobody asks it again."""
        self._left += self.members.pop(name).records

    def send(self, count: int) -> None:
        values = [b"%d" % (len(self.sent) + index) for index in range(count)]
        records = [Record(value, partition=index % PARTITIONS) for index, value in enumerate(values)]
        self.session.client.produce(self.topic, records)
        self.sent += values

    def seen(self) -> list[bytes | None]:
        for member in self.members.values():
            member.look()
        records = self._left + [record for member in self.members.values() for record in member.records]
        return [record.value for record in records]

    def until_shares(self, **shares: int) -> None:
        """Waits until each member holds so many partitions, every partition held once."""

        def shared() -> bool:
            for member in self.members.values():
                member.look()
            held = [pair for name in shares for pair in self.members[name].assignment]
            sizes = {name: len(self.members[name].assignment) for name in shares}
            return sizes == shares and len(set(held)) == len(held)

        self.session.until(f"assignments of {shares}", shared, self.state)

    def until_all_seen(self) -> None:
        wanted = set(self.sent)
        self.session.until(f"{len(wanted)} records seen", lambda: wanted <= set(self.seen()), self.state)

    def state(self) -> str:
        """What each member holds, and what the broker says of the group: for whoever looks into a failure."""
        told = [
            f"{name} holds {sorted(part for _, part in member.assignment)} after {member.rebalances} rebalances, "
            f"read {len(member.records)} records"
            for name, member in self.members.items()
        ]
        try:
            described: object = self.session.client.describe_group(self.group)
        except (Failed, Refused, Unavailable) as error:
            described = error
        return "; ".join([*told, f"{len(self.sent)} were sent; the broker says: {described}"])

    def expect_once(self) -> None:
        seen = self.seen()
        twice = len(seen) - len(set(seen))
        if self.session.can("exactly once on rebalance"):
            expect(twice == 0, f"{twice} records were seen twice")
        expect(set(seen) == set(self.sent), "records were seen that nobody sent, or some are missing")


def come_and_go(session: Session, strategy: str) -> Crowd:
    crowd = Crowd(session, strategy)
    crowd.send(80)
    crowd.join("a")
    crowd.until_shares(a=4)
    crowd.until_all_seen()
    crowd.join("b")
    crowd.until_shares(a=2, b=2)
    crowd.send(80)
    crowd.until_all_seen()
    return crowd


def eager_strategy(session: Session) -> str:
    return "range" if session.can("strategy range") else "roundrobin"


def eager(session: Session) -> None:
    crowd = come_and_go(session, eager_strategy(session))
    crowd.leave("b")
    crowd.until_shares(a=4)
    crowd.send(40)
    crowd.until_all_seen()
    crowd.leave("a")
    crowd.expect_once()


def round_robin(session: Session) -> None:
    crowd = come_and_go(session, "roundrobin")
    crowd.leave("a")
    crowd.until_shares(b=4)
    crowd.leave("b")
    crowd.expect_once()


def cooperative(session: Session) -> None:
    crowd = come_and_go(session, "cooperative")
    revoked = len(set(crowd.members["a"].revoked))
    expect(revoked == 2, f"the first member gave up {revoked} of 4 partitions where 2 had to move")
    crowd.leave("b")
    crowd.until_shares(a=4)
    crowd.send(40)
    crowd.until_all_seen()
    crowd.leave("a")
    crowd.expect_once()


def resume(session: Session) -> None:
    crowd = Crowd(session, eager_strategy(session))
    crowd.send(40)
    crowd.join("a")
    crowd.until_all_seen()
    crowd.leave("a")
    crowd.send(40)
    second = crowd.join("b")
    crowd.until_all_seen()
    expect(len(second.records) == 40, f"the second consumer read {len(second.records)} records instead of the 40 new")
    crowd.leave("b")
    crowd.expect_once()


def dies(session: Session) -> None:
    crowd = Crowd(session, eager_strategy(session))
    crowd.join("a", session_timeout_ms=6_000)
    crowd.until_shares(a=4)
    other = session.another_client()
    try:
        crowd.join("b", session_timeout_ms=6_000, client=other)
        crowd.until_shares(a=2, b=2)
    finally:
        other.close()
    crowd.forget("b")
    crowd.send(40)
    crowd.until_shares(a=4)
    crowd.until_all_seen()
    crowd.leave("a")


def static(session: Session) -> None:
    session.needs("static members")
    crowd = Crowd(session, eager_strategy(session))
    crowd.join("a", instance_id="first", session_timeout_ms=30_000)
    crowd.until_shares(a=4)
    crowd.join("b", instance_id="second", session_timeout_ms=30_000)
    crowd.until_shares(a=2, b=2)
    held, rebalances = crowd.members["a"].assignment, crowd.members["b"].rebalances
    crowd.leave("a")
    crowd.send(40)
    again = crowd.join("a", instance_id="first", session_timeout_ms=30_000)
    crowd.until_shares(a=2, b=2)
    crowd.until_all_seen()
    expect(again.assignment == held, "the returning member got other partitions")
    moved = crowd.members["b"].rebalances - rebalances
    expect(moved == 0, f"the other member went through {moved} rebalances")
    crowd.leave("a")
    crowd.leave("b")
    crowd.expect_once()


def described(session: Session) -> None:
    crowd = Crowd(session, eager_strategy(session))
    crowd.send(8)
    crowd.join("a")
    crowd.join("b")
    crowd.until_shares(a=2, b=2)
    stable = session.client.describe_group(crowd.group)
    session.observe("while two are in", {**stable, "members": _shares(stable["members"])})
    expect(crowd.group in session.client.list_groups(), "the group is not listed")
    session.refusal("delete a group with members", lambda: session.client.delete_group(crowd.group))
    crowd.leave("a")
    crowd.leave("b")
    session.until("the group is empty", lambda: not session.client.describe_group(crowd.group)["members"])
    session.observe("after both left", session.client.describe_group(crowd.group))
    session.client.delete_group(crowd.group)
    expect(crowd.group not in session.client.list_groups(), "a deleted group is still listed")
    session.refusal("delete it again", lambda: session.client.delete_group(crowd.group))


def _shares(members: Json) -> list[Json]:
    assert isinstance(members, list)
    return sorted(members, key=str)


SCENARIOS = (
    Scenario("group-eager", "two members share, one leaves, every record once (range)", eager),
    Scenario("group-round-robin", "the first member leaves, the second takes all (roundrobin)", round_robin),
    Scenario("group-cooperative", "only the partitions that move are revoked", cooperative),
    Scenario("group-resume", "a new consumer goes on from the committed offsets", resume),
    Scenario("group-member-dies", "a killed member's partitions move when its session ends", dies, in_bounded=False),
    Scenario("group-static", "a static member returns to its partitions without a rebalance", static),
    Scenario("group-describe", "list, describe and delete groups", described),
)
