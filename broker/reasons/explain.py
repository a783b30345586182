"""Derives the findings about a group from its facts. A finding is a sentence with a symptom, what is known of its
cause, and the next step.

A sentence claims no more than is known. Causes that cannot be told apart are named together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.broker.reasons.facts import DEAD_GROUP_STATE, GroupFacts, History, MemberFacts, PartitionFacts
from moldau.broker.reasons.words import count_with_noun, duration_text, names_text, times_text
from moldau.coordinator.group.history import Cause, GroupEvent

HISTORY_WINDOW_MS: Final = 3_600_000
"""The time (ms) before the present from which events are considered: an hour."""
NO_COMMIT_MS_MIN: Final = 60_000
"""The time (ms) without a commit after which a member with lag is reported as stuck or busy."""
REBALANCES_MIN: Final = 3
"""The least number of rebalances in the last hour that is reported. Rebalances for a new member are not counted."""
FORCED_REMOVAL_CAUSES: Final = (
    Cause.SESSION_EXPIRED,
    Cause.JOIN_TIMED_OUT,
    Cause.SYNC_TIMED_OUT,
    Cause.REVOKE_TIMED_OUT,
)
"""The causes for which the coordinator removes a member that has not asked to leave."""
REMOVAL_CAUSES: Final = (Cause.LEFT, Cause.LEFT_FOR_A_WHILE, *FORCED_REMOVAL_CAUSES)
POLL_TIMEOUT_REASON: Final = "poll timeout"
"""A part of the reason to leave that clients give if the time between two polls was too long."""
JOIN_REASONS: Final = {
    "need to re-join with the given member-id": "",
    "cached metadata has changed": ", because topics that it reads were created, deleted or got partitions",
}
"""The meaning of the reasons to join that Kafka's Java client gives, by the beginning of the reason. Every new member
gives the first one.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about a group."""

    symptom: str
    """The symptom as a word for programs; `docs/groups.md` lists them."""
    text: str
    advice: str = ""
    """The next command or setting to try; empty if there is nothing to do."""
    is_problem: bool = True


def explain_group(facts: GroupFacts) -> list[Finding]:
    """Return the findings about a group, losses of records first. If the group has no problem, one finding says so."""
    explainer = _Explainer(facts)
    found = [each for source in FINDING_FUNCTIONS for each in source(explainer)]
    if not found:
        found.append(explainer.all_is_well())
    if facts.history is None:
        text = "only what is seen now is told: the broker keeps no history of groups, or the user may not describe the "
        text += "group's settings"
        found.append(Finding("no-history", text, is_problem=False))
    return found


@dataclass(slots=True)
class _Explainer:
    facts: GroupFacts

    # What is read more than once

    @property
    def history(self) -> History:
        return self.facts.history or History(0, 0)

    def recent(self, *causes: Cause) -> list[GroupEvent]:
        """The events of the last hour with one of these causes, the oldest first."""
        first_ms = self.history.now_ms - HISTORY_WINDOW_MS
        return [each for each in self.history.events if each.cause in causes and each.last_ms >= first_ms]

    def ago(self, time_ms: int) -> str:
        return f"{duration_text(max(0, self.history.now_ms - time_ms))} ago"

    def member(self, member_id: str | None) -> MemberFacts | None:
        return next((each for each in self.facts.members if each.member_id == member_id), None)

    def who(self, event: GroupEvent) -> str:
        """Describe the member of an event: the name of its client, and its host."""
        member = self.member(event.member_id)
        name = member.name if member is not None else event.client_id or event.member_id
        host = event.client_host.removeprefix("/")
        return f"member {name} at {host}" if host else f"member {name}"

    @property
    def span(self) -> str:
        """The time that the history covers, in words; at most an hour."""
        known_ms = self.history.now_ms - self.history.since_ms
        return (
            "in the last hour"
            if known_ms >= HISTORY_WINDOW_MS
            else f"in the last {duration_text(max(known_ms, 1_000))}"
        )

    def of_member(self, member_id: str | None) -> list[PartitionFacts]:
        return [each for each in self.facts.partitions if each.member_id == member_id]

    # Records that the group does not get

    def gone(self) -> Iterator[Finding]:
        if self.facts.state == DEAD_GROUP_STATE:
            deleted = self.recent(Cause.DELETED)
            how = f": a request deleted it {self.ago(deleted[-1].last_ms)}" if deleted else ""
            yield Finding("gone", f"there is no group of this name now, without members and offsets there is none{how}")

    def offline(self) -> Iterator[Finding]:
        names = [each.name for each in self.facts.partitions if each.is_offline]
        if names:
            text = f"{names_text(names)}: no leader tells its offsets, so the lag is not known"
            yield Finding("offline", text, "moldau cluster-status")

    def lost_records(self) -> Iterator[Finding]:
        for each in self.facts.partitions:
            if (
                each.committed_offset is not None
                and each.log_start_offset is not None
                and each.committed_offset < each.log_start_offset
            ):
                count = each.log_start_offset - each.committed_offset
                yield Finding(
                    "records-lost",
                    f"{each.name}: up to {count_with_noun(count, 'record')} from offset {each.committed_offset} "
                    f"to {each.log_start_offset - 1} "
                    "are gone before the group read them: retention or a deletion of records overtook it. The consumer "
                    "goes on where auto.offset.reset says",
                    f"moldau config get topic {each.topic} retention.ms --all",
                )

    def lost_before(self) -> Iterator[Finding]:
        for each in self.recent(Cause.RECORDS_LOST):
            yield Finding(
                "records-lost",
                f"{each.detail}: up to {count_with_noun(each.number, 'record')} were gone before the commit of "
                f"{self.ago(each.last_ms)} went past them: retention or a deletion of records had overtaken the group. "
                "If it had not read them by then, it lost them, and its consumer went on as auto.offset.reset says",
                f"moldau config get topic {each.detail.rpartition('-')[0]} retention.ms --all",
            )

    def beyond_the_end(self) -> Iterator[Finding]:
        for each in self.facts.partitions:
            if (
                each.committed_offset is not None
                and each.high_watermark is not None
                and each.committed_offset > each.high_watermark
            ):
                yield Finding(
                    "offset-beyond-end",
                    f"{each.name}: the committed offset {each.committed_offset} is beyond the end "
                    f"{each.high_watermark}: the topic was "
                    "deleted and made again under its name, or the log lost its end. The consumer goes on where "
                    "auto.offset.reset says",
                    f"moldau group reset {self.facts.name} --topic {each.topic}:{each.partition} --to earliest",
                )

    def offsets_gone(self) -> Iterator[Finding]:
        for each in self.recent(Cause.OFFSETS_EXPIRED):
            yield Finding(
                "offsets-expired",
                f"{count_with_noun(each.number, 'offset')} of the group expired {self.ago(each.last_ms)}: it "
                "was without "
                "members, or did not read these topics, for offsets.retention.minutes. A consumer begins where "
                "auto.offset.reset says",
                "moldau config get brokers offsets.retention.minutes --all",
            )
        for each in self.recent(Cause.OFFSETS_DELETED):
            text = (
                f"{count_with_noun(each.number, 'offset')} of the group were deleted by a request "
                f"{self.ago(each.last_ms)}"
            )
            yield Finding("offsets-deleted", text)
        for each in self.recent(Cause.OFFSETS_SET):
            yield Finding(
                "offsets-set",
                f"the start offsets of {count_with_noun(each.number, 'partition')} were set by a request "
                f"{self.ago(each.last_ms)}: records before them are not delivered any more, and those after them are "
                "delivered again",
            )
        ahead = self.recent(Cause.OFFSETS_SET_AHEAD)
        if ahead:
            most = max(ahead, key=lambda each: each.number)
            partitions = len({each.detail for each in ahead})
            moved = count_with_noun(most.number, "offset")
            named = (
                most.detail
                if partitions == 1
                else f"{count_with_noun(partitions, 'partition')}, {most.detail} the furthest,"
            )
            yield Finding(
                "offsets-set",
                f"a commit of {self.ago(ahead[-1].last_ms)}, while the group had no members, set {named} ahead by "
                f"{moved}: a reset by an administrator, or a consumer that does not join the group. The group does not "
                "get the records between",
            )
        for each in self.recent(Cause.TOPIC_DELETED):
            yield Finding(
                "topic-deleted",
                f"the topic {each.detail} was deleted {self.ago(each.last_ms)}, and "
                f"{count_with_noun(each.number, 'offset')} of "
                "the group with it. If there is a topic of this name again, the group begins where auto.offset.reset "
                "says",
            )

    def went_back(self) -> Iterator[Finding]:
        for each in self.recent(Cause.COMMIT_WENT_BACK):
            yield Finding(
                "commit-went-back",
                f"a commit of {self.ago(each.last_ms)} set {each.detail} back by "
                f"{count_with_noun(each.number, 'offset')}: a "
                "reset, a seek, or a second consumer that reads the partition without the group. These records are "
                "delivered again",
            )

    # Members that do not go on

    def without_members(self) -> Iterator[Finding]:
        if self.facts.members or not self.total_lag:
            return
        gone = self.recent(*REMOVAL_CAUSES)
        last = ""
        if gone:
            last = f": {self.who(gone[-1])} was the last one, {self.ago(gone[-1].last_ms)}, and {_how(gone[-1])}"
        yield Finding("no-members", f"the group has no members{last}. It lags by {self.total_text}")

    def unread(self) -> Iterator[Finding]:
        if not self.facts.members or self.facts.kind == "share":
            return
        names = [each.name for each in self.facts.partitions if each.member_id is None and each.lag]
        if names:
            text = f"{names_text(names)}: no member reads it now, and it has lag"
            yield Finding("unread", text, f"moldau group describe {self.facts.name} --members")

    def standing_still(self) -> Iterator[Finding]:
        for member in self.facts.members:
            behind = [each for each in self.of_member(member.member_id) if each.lag and not each.is_held_by_transaction]
            if not behind:
                continue
            lag = sum(each.lag for each in behind)
            ages = [each.lag_ms for each in behind if each.lag_ms is not None]
            late = f", {duration_text(max(ages))}" if ages else ""
            names = names_text([each.name for each in behind])
            about = f"{names} {'lags' if len(behind) == 1 else 'lag'} by {count_with_noun(lag, 'record')}{late}"
            where = f"member {member.name} at {member.host.removeprefix('/')}"
            commits = [each.committed_at_ms for each in behind if each.committed_at_ms is not None]
            never = [each for each in behind if each.committed_offset is None]
            if self.facts.history is None or (not commits and not never):
                yield Finding("lags", f"{about}: {where} reads it")
            elif commits and self.history.now_ms - max(commits) < NO_COMMIT_MS_MIN:
                yield Finding(
                    "slow",
                    f"{about}: {where} committed {self.ago(max(commits))}, so it goes on and is behind",
                    "more partitions and members, or less work for each record",
                )
            else:
                done = f"committed last {self.ago(max(commits))}" if commits else "has committed nothing"
                yield Finding(
                    "stands-still",
                    f"{about}: {where} {done} and {self._heard(member)}: it is busy with the records that it has, "
                    "stands still, or does not commit",
                    f"look at the process at {member.host.removeprefix('/')}: its log, a dump of its threads",
                )

    def _heard(self, member: MemberFacts) -> str:
        heard_ms = (self.history.last_request_ms or {}).get(member.member_id)
        return "sends heartbeats" if heard_ms is None else f"was heard of {self.ago(heard_ms)}"

    def not_committed(self) -> Iterator[Finding]:
        for member in self.facts.members:
            new = [
                each for each in self.of_member(member.member_id) if each.committed_offset is None and each.has_records
            ]
            if new:
                text = (
                    f"member {member.name} reads {names_text([each.name for each in new])} and has committed "
                    "no offset: it "
                )
                text += "has not come to its first commit, or does not commit"
                yield Finding("not-committed", text)

    def held_by_transaction(self) -> Iterator[Finding]:
        for each in self.facts.partitions:
            if each.is_held_by_transaction and each.high_watermark is not None and each.last_stable_offset is not None:
                yield Finding(
                    "held-by-transaction",
                    f"{each.name}: an open transaction holds readers with isolation.level=read_committed at offset "
                    f"{each.last_stable_offset}, for {duration_text(each.lag_ms or 0)}: they do not get the "
                    f"{count_with_noun(each.high_watermark - each.last_stable_offset, 'offset')} after it",
                    f"kafka-transactions.sh describe-producers --topic {each.topic} --partition {each.partition}",
                )

    # Rebalances and refusals

    def rebalancing(self) -> Iterator[Finding]:
        if self.facts.state not in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
            return
        began = self.recent(Cause.REBALANCE_BEGAN)
        since = ""
        if began:
            since = f", for {duration_text(self.history.now_ms - began[-1].last_ms)}: {self._because(began[-1])}"
        yield Finding("rebalancing", f"the group rebalances now{since}")

    def rebalances(self) -> Iterator[Finding]:
        began = self.recent(Cause.REBALANCE_BEGAN)
        total = sum(each.times for each in began)
        if not _are_often(began):
            return
        reasons: Counter[str] = Counter()
        causes: Counter[str] = Counter()
        for each in began:
            reasons[self._because(each)] += each.times
            causes[each.detail] += each.times
        said = [f"{times_text(count)} because {reason}" for reason, count in reasons.most_common(3)]
        more = total - sum(count for _, count in reasons.most_common(3))
        if more:
            said.append(f"{times_text(more)} for other reasons")
        text = f"the group rebalanced {times_text(total)} {self.span}: {', '.join(said)}"
        yield Finding("rebalances", text, ADVICE.get(causes.most_common(1)[0][0], ""))

    def _because(self, began: GroupEvent) -> str:
        """Explain in words why a rebalance began. The event of the rebalance names the cause. The details are in an
        earlier event: the last one with this cause and the same member.
        """
        cause = next((each for each in Cause if each.value == began.detail), None)
        events = self.history.events
        before = events[: events.index(began)]
        told = next(
            (each for each in reversed(before) if each.cause is cause and each.member_id == began.member_id), None
        )
        if told is None:
            return began.detail.replace("-", " ")
        if cause in REMOVAL_CAUSES:
            return f"{self.who(told)} {_how(told)}"
        if cause in (Cause.JOINED, Cause.JOINED_AGAIN, Cause.RETURNED):
            again = "" if cause is Cause.JOINED else " again"
            known = next((said for start, said in JOIN_REASONS.items() if told.detail.startswith(start)), None)
            reason = f" ({told.detail!r})" if told.detail and cause is not Cause.RETURNED else ""
            return f"{self.who(told)} joined{again}{reason if known is None else known}"
        if cause is Cause.SUBSCRIPTION_CHANGED:
            return f"{self.who(told)} changed its subscription"
        return told.text

    def commits_refused(self) -> Iterator[Finding]:
        for each in self.recent(Cause.COMMIT_REFUSED):
            yield Finding(
                "commits-refused",
                f"{self.who(each)} had its commit refused {times_text(each.times)}, last "
                f"{self.ago(each.last_ms)}, with "
                f"{each.detail}: {REFUSED_COMMITS.get(each.detail, 'see the error')}",
                ADVICE.get(each.detail, ""),
            )

    def removed(self) -> Iterator[Finding]:
        """Findings about members that were removed, or left because they did not poll in time. There are none if the
        group has many rebalances or no members, because `rebalances` and `without_members` report these members then.
        """
        began = self.recent(Cause.REBALANCE_BEGAN)
        if not self.facts.members or _are_often(began):
            return
        for each in self.recent(*FORCED_REMOVAL_CAUSES, Cause.LEFT):
            if each.cause is not Cause.LEFT or POLL_TIMEOUT_REASON in each.detail:
                advice = ADVICE.get("left" if each.cause is Cause.LEFT else each.cause.value, "")
                yield Finding("removed", f"{self.who(each)} {_how(each)}, {self.ago(each.last_ms)}", advice)

    def replaced(self) -> Iterator[Finding]:
        counts: Counter[str] = Counter()
        for each in self.recent(Cause.RETURNED):
            counts[each.detail] += each.times
        for instance_id, count in counts.items():
            if count >= REBALANCES_MIN:
                text = (
                    f"the static member {instance_id} was taken over {times_text(count)} {self.span}: it "
                    "restarts again "
                )
                text += "and again, or two processes use one group.instance.id"
                yield Finding("taken-over", text, ADVICE["FENCED_INSTANCE_ID"])

    def refused(self) -> Iterator[Finding]:
        removed = {each.member_id for each in self.recent(*FORCED_REMOVAL_CAUSES)}
        for each in self.recent(Cause.REFUSED, Cause.FENCED):
            if each.member_id in removed and each.detail == "UNKNOWN_MEMBER_ID":
                continue  # It heard of its removal, which is told.
            word = "may not join" if each.cause is Cause.REFUSED else "is fenced"
            yield Finding(
                "refused" if each.cause is Cause.REFUSED else "fenced",
                f"{self.who(each)} {word}, {times_text(each.times)}, last {self.ago(each.last_ms)}, with "
                f"{each.detail}: "
                f"{REFUSALS.get(each.detail, 'see the error')}",
                ADVICE.get(each.detail, ""),
            )

    # Nothing of that

    @property
    def total_lag(self) -> int:
        return sum(each.lag for each in self.facts.partitions)

    @property
    def total_text(self) -> str:
        ages = [each.lag_ms for each in self.facts.partitions if each.lag_ms is not None and each.lag]
        late = f", {duration_text(max(ages))}" if ages else ""
        return f"{count_with_noun(self.total_lag, 'record')}{late}"

    def all_is_well(self) -> Finding:
        members, partitions = len(self.facts.members), len(self.facts.partitions)
        if not members:
            return Finding("idle", "the group has no members and no lag", is_problem=False)
        behind = f"lags by {self.total_text}" if self.total_lag else "has no lag"
        has = f"{count_with_noun(members, 'member')} and {count_with_noun(partitions, 'partition')}"
        text = f"the group is {self.facts.state} with {has}, and {behind}"
        return Finding("well", text, is_problem=False)


# Share groups: any member may have any of the records


def _redelivered(of: _Explainer) -> Iterator[Finding]:
    """Findings about records that were delivered more than once: how many in each partition, and the largest number of
    deliveries.
    """
    for partition in of.facts.partitions:
        for is_given_up in (False, True):
            found = [each for each in partition.redelivered if each.is_given_up is is_given_up]
            if not found:
                continue
            worst = max(found, key=lambda each: each.delivery_count)
            count = sum(each.last_offset - each.first_offset + 1 for each in found)
            said, them, are = (f"{count:,} records were", "them", "are")
            if count == 1:
                said, them, are = ("1 record was", "it", "is")
            how = f"came back: a consumer released {them}, or did not acknowledge {them} in time"
            if is_given_up:
                how = f"{are} given up: a consumer rejected {them}, or share.delivery.count.limit was reached"
                if of.facts.dead_letters:
                    how += f" (dead letters go to the topic {of.facts.dead_letters})"
            most = f"{worst.offsets} {times_text(worst.delivery_count)}"
            yield Finding(
                "given-up" if is_given_up else "redelivered",
                f"{partition.name}: {said} delivered more than once and {how}; most often {most}",
                f"moldau consume {partition.topic}:{partition.partition} --from {worst.first_offset} -n 1",
            )


def _share_lag(of: _Explainer) -> Iterator[Finding]:
    """The finding about the lag of a share group. It is about the group as a whole, because any member may get any
    record.
    """
    if of.facts.kind != "share" or not of.facts.members:
        return
    readers = count_with_noun(len(of.facts.members), "member")
    shares = "reads" if len(of.facts.members) == 1 else "share"
    behind = [each for each in of.facts.partitions if each.lag and not each.is_held_by_transaction]
    if behind:
        names = names_text([each.name for each in behind])
        verb = "lags" if len(behind) == 1 else "lag"
        yield Finding("lags", f"{names} {verb} by {of.total_text}: {readers} of the group {shares} it")
    new = [each.name for each in of.facts.partitions if each.committed_offset is None and each.has_records]
    if new:
        text = f"the group, of {readers}, has acknowledged nothing of {names_text(new)}"
        yield Finding("not-committed", text)


def _are_often(began: Sequence[GroupEvent]) -> bool:
    return sum(each.times for each in began if each.detail != Cause.JOINED.value) >= REBALANCES_MIN


def _how(event: GroupEvent) -> str:
    """Say how a member left the group: a clause without its subject, which is the member."""
    limit = duration_text(event.number)
    if event.cause is Cause.LEFT and POLL_TIMEOUT_REASON in event.detail:
        return "left because it did not poll within max.poll.interval.ms"
    if event.cause is Cause.LEFT:
        reason = (
            f" ({event.detail!r})" if event.detail else ": it was closed, or did not poll within max.poll.interval.ms"
        )
        return f"left{reason}"
    return {
        Cause.LEFT_FOR_A_WHILE: "left, and its place is kept until its session ends",
        Cause.SESSION_EXPIRED: f"was not heard of for its session of {limit}: its process ended, stood still, or could "
        "not reach this broker",
        Cause.JOIN_TIMED_OUT: f"did not join again within {limit} (max.poll.interval.ms): it was busy with its records",
        Cause.SYNC_TIMED_OUT: f"joined and did not ask for its assignment within {limit}",
        Cause.REVOKE_TIMED_OUT: f"did not give up its partitions within {limit} (max.poll.interval.ms): it was busy "
        "with its records",
    }[event.cause]


FINDING_FUNCTIONS: Final[Sequence[Callable[[_Explainer], Iterator[Finding]]]] = (
    _Explainer.gone,
    _Explainer.lost_records,
    _Explainer.lost_before,
    _Explainer.beyond_the_end,
    _Explainer.offsets_gone,
    _Explainer.went_back,
    _redelivered,
    _Explainer.offline,
    _Explainer.without_members,
    _Explainer.rebalancing,
    _share_lag,
    _Explainer.standing_still,
    _Explainer.unread,
    _Explainer.not_committed,
    _Explainer.held_by_transaction,
    _Explainer.rebalances,
    _Explainer.removed,
    _Explainer.replaced,
    _Explainer.commits_refused,
    _Explainer.refused,
)
"""The functions that find problems, in the order in which findings are reported."""
REFUSED_COMMITS: Final = {
    "ILLEGAL_GENERATION": "the group had rebalanced before it; records that it had read are delivered again to the "
    "members that have the partitions now",
    "UNKNOWN_MEMBER_ID": "the group had removed the member; records that it had read are delivered again",
    "STALE_MEMBER_EPOCH": "the group had given the partition away; records that it had read are delivered again",
    "FENCED_INSTANCE_ID": "another process has taken its group.instance.id",
    "REBALANCE_IN_PROGRESS": "the group was rebalancing; the member joins and commits again",
    "FENCED_MEMBER_EPOCH": "the group had fenced the member",
    "OFFSET_METADATA_TOO_LARGE": "the text beside the offset is longer than offset.metadata.max.bytes",
}
REFUSALS: Final = {
    "INCONSISTENT_GROUP_PROTOCOL": "the members of the group speak another protocol or have no assignor in common with "
    "it: two applications use one group id, or settings differ between their versions",
    "GROUP_MAX_SIZE_REACHED": "the group has all the members that it may have",
    "FENCED_INSTANCE_ID": "two processes use one group.instance.id",
    "UNRELEASED_INSTANCE_ID": "two processes use one group.instance.id",
    "INVALID_SESSION_TIMEOUT": "its session.timeout.ms is outside of the broker's bounds",
    "FENCED_MEMBER_EPOCH": "it was away while the group went on: it gives up its partitions and joins again",
    "UNKNOWN_MEMBER_ID": "the group had removed it: it joins again",
    "GROUP_ID_NOT_FOUND": "a group of another kind has the id",
    "INVALID_REGULAR_EXPRESSION": "its expression is not one of RE2",
    "UNSUPPORTED_ASSIGNOR": "the broker does not have its assignor",
}
_BUSY: Final = "max.poll.records lower, max.poll.interval.ms higher, or less work between two polls"
ADVICE: Final = {
    "session-expired": "look at the process: pauses of its collector, its network; then session.timeout.ms",
    "join-timed-out": _BUSY,
    "revoke-timed-out": _BUSY,
    "left": f"if it is not closed on purpose: {_BUSY}",
    "ILLEGAL_GENERATION": _BUSY,
    "UNKNOWN_MEMBER_ID": _BUSY,
    "STALE_MEMBER_EPOCH": _BUSY,
    "FENCED_INSTANCE_ID": "give each process a group.instance.id of its own",
    "UNRELEASED_INSTANCE_ID": "give each process a group.instance.id of its own",
    "INCONSISTENT_GROUP_PROTOCOL": "give each application a group.id of its own, or one partition.assignment.strategy",
    "GROUP_MAX_SIZE_REACHED": "moldau config get brokers --all",
}
"""The next step to advise, by the most frequent cause, or by the error."""
