"""Scenarios of `moldau group explain`: members in Java provoke a cause, and what is said names it and nothing else.

A story ends with what must be said, now or once its members have been quiet for longer than a minute: `Stage.tells` and
`Stage.tells_later`. The members of a story are its own.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.conformance.client import Client
from tests.conformance.clients import driver_of
from tests.conformance.member import Member
from tests.conformance.outcome import Failed, Refused, Unavailable
from tests.conformance.reader import Reader
from tests.conformance.record import Record
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.scenarios.share_groups import RELEASE_WITH_QUEUES
from tests.conformance.session import expect
from tests.conformance.toolchain import Missing
from tests.conformance.transactor import Transactor
from tests.support.daily_command import DailyCommand
from tests.support.daily_members import client_of

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
WITH_OFFSETS: Final = (CLASSIC, CONSUMER, STREAMS)
ALL: Final = (*WITH_OFFSETS, SHARE)
DEAD_LETTERS: Final = "dlq.reasons"
SESSION_S: Final = 6
MEMBERS_MAX: Final = 3
QUIET_S: Final = 65
"""A member that has not committed for a minute stands still."""
PATIENCE_S: Final = 60
SETTINGS: Final = (
    "offsets.retention.minutes=1",
    "offsets.retention.check.interval.ms=1000",
    f"group.max.size={MEMBERS_MAX}",
    *(f"group.{kind}.max.size={MEMBERS_MAX}" for kind in (CONSUMER, SHARE, STREAMS)),
    *(
        f"group.{kind}.{setting}"
        for kind in (CONSUMER, SHARE, STREAMS)
        for setting in (
            "min.session.timeout.ms=1000",
            f"session.timeout.ms={SESSION_S}000",
            "min.heartbeat.interval.ms=500",
            "heartbeat.interval.ms=500",
        )
    ),
    "group.share.min.record.lock.duration.ms=1000",
    "group.share.record.lock.duration.ms=15000",
)
Said = dict[str, str]
"""For each symptom, in no order, a part of what is said."""


class Stage:
    """A node of ours, and the groups of one kind."""

    def __init__(self, work: Workshop, bootstrap: str, kind: str, stack: ExitStack) -> None:
        self.kind = kind
        self.run = DailyCommand(bootstrap)
        self._work = work
        self.bootstrap = bootstrap
        self._stack = stack
        self._story = ""
        self._readers = 0
        self._later: list[tuple[str, str, Said, float]] = []
        self.driver = self.another_driver()

    def another_driver(self) -> Client:
        """A process of its own; `close` kills it."""
        log = self._work.directory / "java.log"
        driver = driver_of("java", self._work.toolchain, self.bootstrap, log)
        self._stack.callback(driver.close)
        return driver

    def begin(self, story: str) -> None:
        self._story = f"{self.kind}-{story}"
        self._readers = 0

    @property
    def group(self) -> str:
        return f"{self._story}-group"

    @property
    def topic(self) -> str:
        return f"{self._story}-topic"

    def fill(self, count: int = 10, topic: str = "") -> str:
        """The topic of the story with more records: their values are numbers."""
        topic = topic or self.topic
        if topic not in self.driver.list_topics():
            self.driver.create_topic(topic)
            if self.kind == SHARE:
                self.run.done("config", "set", "group", self.group, "share.auto.offset.reset=earliest")
        self.driver.produce(topic, [Record(value=str(number).encode()) for number in range(count)])
        return topic

    def reader(self, topic: str = "", driver: Client | None = None, kind: str = "", **settings: str) -> Reader:
        """A member, which has not polled yet; `max_poll_records="1"` stands for `max.poll.records=1`."""
        self._readers += 1
        name = f"{self._story}-{self._readers}"
        given = {each.replace("_", "."): value for each, value in settings.items()}
        given["state.dir"] = str(self._work.directory / name)
        kind = kind or self.kind
        if kind == CLASSIC:
            given = {"session.timeout.ms": f"{SESSION_S}000", "heartbeat.interval.ms": "500", **given}
        return Reader(driver or self.driver, name, kind, self.group, topic or self.topic, given)

    def read(self, count: int = 3, driver: Client | None = None, **settings: str) -> Reader:
        """A member that has read and committed, or acknowledged, so many records, and gets no more by itself."""
        reader = self.reader(driver=driver, **settings)
        got = reader.poll(count)
        expect(len(got) >= count, f"{reader.name} got {got}")
        self.done(reader, count)
        return reader

    def done(self, reader: Reader, offset: int) -> None:
        """Commits, or acknowledges what was polled last. An application commits by itself."""
        if self.kind == SHARE:
            reader.acknowledge("ACCEPT")
        elif self.kind == STREAMS:
            self.until(f"{self.group} has committed {offset}", lambda: self.committed() == offset)
        else:
            reader.commit(offset)

    def committed(self) -> int | None:
        (group,) = self.run.rows("group", "describe", self.group)
        return next((row["committed"] for row in group["offsets"] if row["topic"] == self.topic), None)

    def said(self, group: str = "") -> Said:
        """What is told now; nothing, too, at the moment when a group vanishes between two requests."""
        found: Said = {}
        for row in self.run("group", "explain", group or self.group, "--json").rows:
            found[row["symptom"]] = f"{found.get(row['symptom'], '')}{row['text']}\n"
        return found

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline:
                raise Failed(f"{self._story}: not within {PATIENCE_S} s: {what}; said is {self.said()}")
            time.sleep(0.3)

    def tells(self, **said: str) -> None:
        """Within a while exactly these symptoms are told; `no_members` stands for `no-members`."""
        wanted = {symptom.replace("_", "-"): part for symptom, part in said.items()}
        self.until(f"told is {wanted}", lambda: self._is_said(self.group, wanted))

    def or_gone(self, **said: str) -> Said:
        """A share group stays without offsets, the others go with them."""
        return said if self.kind == SHARE else {**said, "gone": "there is no group of this name now"}

    def tells_later(self, **said: str) -> None:
        wanted = {symptom.replace("_", "-"): part for symptom, part in said.items()}
        self._later.append((self._story, self.group, wanted, time.monotonic() + QUIET_S))

    def _is_said(self, group: str, wanted: Said) -> bool:
        found = self.said(group)
        return found.keys() == wanted.keys() and all(part in found[symptom] for symptom, part in wanted.items())

    def await_later(self) -> None:
        for story, group, wanted, at in self._later:
            self._story = story
            time.sleep(max(0, at - time.monotonic()))
            self.until(f"told is {wanted}", lambda group=group, wanted=wanted: self._is_said(group, wanted))  # type: ignore[misc]


# Members that do not go on


def stands_still(stage: Stage) -> None:
    stage.fill(3)
    stage.read(3, max_poll_interval_ms="600000")
    stage.fill(7)
    stage.tells_later(stands_still="it is busy with the records that it has, stands still, or does not commit")


def is_slow(stage: Stage) -> None:
    stage.fill(3)
    stage.read(3)
    stage.fill(7)
    stage.tells(slow="so it goes on and is behind")


def holds_back(stage: Stage) -> None:
    """A member of a share group that has records and says nothing of them."""
    stage.fill(10)
    stage.reader(max_poll_records="10").poll()
    stage.tells(not_committed="has acknowledged nothing of")


def has_no_members(stage: Stage) -> None:
    stage.fill(3)
    reader = stage.read(3)
    reader.close()
    stage.fill(7)
    stage.tells(no_members="left")


def is_killed(stage: Stage) -> None:
    stage.fill(3)
    driver = stage.another_driver()
    stage.read(3, driver=driver)
    driver.close()
    stage.fill(7)
    stage.tells(
        no_members="was not heard of for its session of 6 s: its process ended, stood still, or could not reach"
    )


def polls_too_late(stage: Stage) -> None:
    stage.fill(3)
    stage.read(3, max_poll_interval_ms="3000")
    stage.fill(7)
    limit = "max.poll.interval.ms"
    stage.tells(
        no_members=f"left because it did not poll within {limit}"
        if stage.kind == CLASSIC
        else f"or did not poll within {limit}"
    )


def commits_nothing(stage: Stage) -> None:
    stage.fill(3)
    reader = stage.reader(commit_interval_ms="600000") if stage.kind == STREAMS else stage.reader()
    reader.poll(3)
    stage.tells(not_committed="has committed no offset")


# Records that the group does not get


def deletes_records(stage: Stage) -> None:
    stage.fill(3)
    stage.read(3)
    stage.fill(7)
    stage.driver.delete_records(stage.topic, 0, 7)
    if stage.kind == SHARE:
        stage.tells(records_lost="are gone before the group read them", lags="lags by 3 records")
    else:
        stage.tells(records_lost="up to 4 records from offset 3 to 6 are gone", slow="lags by 3 records")


def skips(stage: Stage) -> None:
    stage.fill(3)
    stage.read(3).close()
    stage.fill(7)
    stage.driver.delete_records(stage.topic, 0, 7)
    reader = stage.reader()
    expect(len(reader.poll(3)) == 3, "it gets what is left")
    stage.done(reader, 10)
    stage.tells(records_lost="up to 4 records were gone before the commit of")


def is_made_again(stage: Stage) -> None:
    """The topic goes, and with it the offsets of a group without members."""
    stage.fill(10)
    stage.read(10).close()
    stage.driver.delete_topic(stage.topic)
    stage.until("the topic is gone", lambda: stage.topic not in stage.driver.list_topics())
    stage.fill(4)
    stage.tells(**stage.or_gone(topic_deleted=f"the topic {stage.topic} was deleted"))


def expires(stage: Stage) -> None:
    stage.fill(3)
    stage.read(3).close()
    stage.tells_later(offsets_expired="1 offset of the group expired", gone="")


def is_deleted_by_request(stage: Stage) -> None:
    stage.fill(3)
    stage.read(3).close()
    stage.run.done("group", "delete-offsets", stage.group, "--topic", stage.topic, "--execute")
    stage.tells(**stage.or_gone(offsets_deleted="were deleted by a request"))


def goes_back(stage: Stage) -> None:
    stage.fill(10)
    stage.read(10).close()
    stage.run.done("group", "reset", stage.group, "--topic", stage.topic, "--to", "earliest", "--execute")
    if stage.kind == SHARE:
        stage.tells(offsets_set="were set by a request", no_members="left")
    else:
        stage.tells(commit_went_back="back by 10 offsets", no_members="left")


def is_set_ahead(stage: Stage) -> None:
    """An administrator skips records."""
    stage.fill(3)
    stage.read(3).close()
    stage.fill(7)
    stage.run.done("group", "reset", stage.group, "--topic", stage.topic, "--to", "latest", "--execute")
    stage.tells(offsets_set=f"while the group had no members, set {stage.topic}-0 ahead by 7 offsets")


def is_beyond_the_end(stage: Stage) -> None:
    stage.fill(3)
    reader = stage.read(3)
    reader.commit(9)
    stage.tells(offset_beyond_end="the committed offset 9 is beyond the end 3")


def reads_another_topic(stage: Stage) -> None:
    """The members read another topic now, and the offsets of the former one stay."""
    stage.fill(3)
    stage.read(3).close()
    stage.fill(4)
    other = stage.fill(3, f"{stage.topic}-2")
    reader = stage.reader(other)
    expect(len(reader.poll(3)) == 3, "it reads the other topic")
    reader.commit(3, other)
    stage.tells(unread=f"{stage.topic}-0: no member reads it now, and it has lag")


def waits_for_a_member(stage: Stage) -> None:
    """A member sends heartbeats and does not poll, while another one wants to join."""
    stage.driver.create_topic(stage.topic, 2)
    stage.fill(3)
    reader = stage.reader()
    reader.poll(1, 5)
    reader.commit(3)
    with suppress(Refused):
        stage.reader(driver=stage.another_driver()).poll(1, 3)
    stage.tells(rebalancing="joined")


def seeks_back(stage: Stage) -> None:
    stage.fill(10)
    reader = stage.read(10)
    reader.commit(4)
    stage.tells(commit_went_back="back by 6 offsets", slow="lags by 6 records")


def is_released(stage: Stage) -> None:
    """Records come back, and one of them is rejected: its dead letter goes to a topic."""
    stage.fill(3)
    stage.driver.create_topic(DEAD_LETTERS, configs={"errors.deadletterqueue.group.enable": "true"})
    stage.run.done("config", "set", "group", stage.group, f"errors.deadletterqueue.topic.name={DEAD_LETTERS}")
    reader = stage.reader()
    for verdict in ("RELEASE", "RELEASE", "REJECT"):
        expect(len(reader.poll(3)) == 3, "it gets all three")
        reader.acknowledge(verdict, 1)
        reader.acknowledge("RELEASE")
    stage.tells(
        redelivered="2 records were delivered more than once and came back",
        given_up=f"1 record was delivered more than once and is given up: a consumer rejected it, or "
        f"share.delivery.count.limit was reached (dead letters go to the topic {DEAD_LETTERS}); most often the record "
        "at offset 1 3 times",
        lags="lags by 2 records",
    )
    letters = stage.driver.consume(DEAD_LETTERS, count=1)
    expect(len(letters) == 1, "the dead letter is there")


def is_held_by_a_transaction(stage: Stage) -> None:
    stage.fill(3)
    if stage.kind == SHARE:
        stage.run.done("config", "set", "group", stage.group, "share.isolation.level=read_committed")
        stage.read(3)
    else:
        stage.read(3, isolation_level="read_committed")
    transactor = Transactor(stage.driver, stage.group, stage.group, timeout_ms=600_000)
    transactor.begin()
    transactor.send(stage.topic, [Record(value=b"0")] * 4)
    stage.tells_later(
        held_by_transaction="an open transaction holds readers with isolation.level=read_committed at offset 3"
    )


# Rebalances and refusals

_GROWN = "topics that the group reads were created, deleted or got partitions"
GROWN: Final = {
    CLASSIC: "member classic-grows-1 at 127.0.0.1 joined again, because topics that it reads were created, deleted or",
    CONSUMER: _GROWN,
    SHARE: _GROWN,
    STREAMS: _GROWN,
}


def grows(stage: Stage) -> None:
    stage.fill(3)
    reader = stage.read(3, metadata_max_age_ms="500")
    for total in (2, 3, 4):
        stage.driver.create_partitions(stage.topic, total)

        def is_assigned(total: int = total) -> bool:
            reader.poll(1, 0.5)
            (group,) = stage.run.rows("group", "describe", stage.group, "--members")
            return [len(each["assigned_partitions"].get(stage.topic, ())) for each in group["members"]] == [total]

        stage.until(f"{total} partitions", is_assigned)
    stage.tells(rebalances=f"3 times because {GROWN[stage.kind]}")


def matches_more(stage: Stage) -> None:
    prefix = stage.topic
    stage.fill(3, f"{prefix}.1")
    reader = stage.reader(f"/{prefix}\\..*/", metadata_max_age_ms="500")
    expect(len(reader.poll(3)) == 3, "it reads")
    reader.commit(3, f"{prefix}.1")
    for number in (2, 3, 4):
        stage.fill(3, f"{prefix}.{number}")
        expect(len(reader.poll(3)) == 3, f"it reads topic {number}")
        reader.commit(3, f"{prefix}.{number}")
    because = "member classic-matches-more-1 at 127.0.0.1 joined again"
    if stage.kind == CONSUMER:
        because = "an expression of its members matches other topics"
    stage.tells(rebalances=f"times because {because}")


def joins_often(stage: Stage) -> None:
    """It is started and closed three times."""
    stage.fill(3)
    stage.read(3).close()
    for _ in range(2):
        driver = stage.another_driver()
        reader = stage.reader(driver=driver)

        def is_member(reader: Reader = reader) -> bool:
            reader.poll(1, 0.3)
            (group,) = stage.run.rows("group", "describe", stage.group, "--members")
            return [each["client"].startswith(reader.name) for each in group["members"]] == [True]

        stage.until(f"{reader.name} is a member", is_member)
        reader.close()
        driver.close()
    stage.tells(rebalances="left")


def has_another_assignor(stage: Stage) -> None:
    stage.fill(3)
    stage.read(3)
    if stage.kind == CLASSIC:
        other = {"partition_assignment_strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor"}
        said = "have no assignor in common"
    else:
        other, said = {"group_remote_assignor": "best"}, "the broker does not have its assignor"
    intruder = stage.reader("", None, "", **other)
    with suppress(Refused):
        intruder.poll(1, 5)
    stage.tells(refused=said)


def has_another_kind(stage: Stage) -> None:
    """Two groups of one name with different protocols."""
    stage.fill(3)
    stage.read(3)
    other = {CLASSIC: SHARE, CONSUMER: SHARE, SHARE: CONSUMER, STREAMS: CONSUMER}[stage.kind]
    intruder = stage.reader(kind=other)
    with suppress(Refused):
        intruder.poll(1, 5)
    stage.tells(refused="")


def has_too_many(stage: Stage) -> None:
    stage.fill(3)
    reader = stage.read(3)
    if stage.kind in (SHARE, STREAMS):
        for _ in range(MEMBERS_MAX):
            with suppress(Refused):
                stage.reader().poll(1, 3)
        stage.tells(refused="the group has all the members that it may have")
        return
    strategy = CONSUMER if stage.kind == CONSUMER else "range"
    for name in ("second", "third"):
        Member(stage.another_driver(), name, stage.group, stage.topic, strategy=strategy)

    def is_full() -> bool:
        reader.poll(1, 0.3)
        (group,) = stage.run.rows("group", "describe", stage.group)
        return len(group["members"]) == MEMBERS_MAX and group["state"] == "Stable"

    stage.until("the group is full", is_full)
    with suppress(Refused):
        stage.reader().poll(1, 3)
    stage.tells(refused="the group has all the members that it may have")


def comes_back(stage: Stage) -> None:
    stage.fill(3)
    for number in range(4):
        reader = stage.reader(group_instance_id="till-1")
        reader.poll(3 if number == 0 else 1, 3)
        if number == 0:
            stage.done(reader, 3)
        if number < 3:
            reader.close()
    stage.tells(taken_over="the static member till-1 was taken over 3 times")


def has_twins(stage: Stage) -> None:
    stage.fill(3)
    first = stage.read(3, group_instance_id="till-1")
    second = stage.reader(driver=stage.another_driver(), group_instance_id="till-1")
    for each in (second, first):
        with suppress(Refused):
            each.poll(1, 3)
    stage.tells(**{"fenced" if stage.kind == CLASSIC else "refused": "two processes use one group.instance.id"})


def commits_too_late(stage: Stage) -> None:
    """An administrator removes a member, which hears of it when it commits."""
    stage.fill(3)
    reader = stage.read(3, session_timeout_ms="60000", heartbeat_interval_ms="50000")
    (group,) = stage.run.rows("group", "describe", stage.group)
    leaving = MemberIdentity(member_id=group["members"][0]["member"], reason="member was removed by an admin")
    with client_of(stage.bootstrap) as client:
        client.ask_coordinator(
            stage.group, LeaveGroupRequest(group_id=stage.group, members=[leaving]), LeaveGroupResponse
        )
    with suppress(Refused):
        reader.commit(3)
    stage.tells(commits_refused="with UNKNOWN_MEMBER_ID: the group had removed the member; records that it had read")


def is_paused(stage: Stage) -> None:
    """A process that is stopped for longer than its session, and goes on."""
    stage.fill(3)
    driver = stage.another_driver()
    reader = stage.read(3, driver=driver)
    driver.signal(signal.SIGSTOP)
    time.sleep(SESSION_S + 2)
    driver.signal(signal.SIGCONT)
    reader.poll(1, 3)
    stage.tells(removed="was not heard of for its session of 6 s: its process ended, stood still, or could not reach")


class Story(NamedTuple):
    """A cause, and the kinds of groups that know it."""

    run: Callable[[Stage], None]
    kinds: tuple[str, ...] = ALL

    @property
    def name(self) -> str:
        return self.run.__name__.replace("_", "-")


STORIES: Final = (
    Story(stands_still, WITH_OFFSETS),
    Story(is_slow, WITH_OFFSETS),
    Story(holds_back, (SHARE,)),
    Story(has_no_members),
    Story(is_killed),
    Story(polls_too_late),
    Story(commits_nothing, WITH_OFFSETS),
    Story(deletes_records),
    Story(skips, WITH_OFFSETS),
    Story(is_made_again),
    Story(expires, WITH_OFFSETS),
    Story(is_deleted_by_request),
    Story(goes_back),
    Story(is_set_ahead, WITH_OFFSETS),
    Story(is_beyond_the_end, (CLASSIC, CONSUMER)),
    Story(reads_another_topic, (CLASSIC, CONSUMER)),
    Story(waits_for_a_member, (CLASSIC, CONSUMER)),
    Story(seeks_back, (CLASSIC, CONSUMER)),
    Story(is_released, (SHARE,)),
    Story(is_held_by_a_transaction),
    Story(grows),
    Story(matches_more, (CLASSIC, CONSUMER)),
    Story(joins_often),
    Story(has_another_assignor, (CLASSIC, CONSUMER)),
    Story(has_another_kind),
    Story(has_too_many),
    Story(comes_back, (CLASSIC, CONSUMER)),
    Story(has_twins, (CLASSIC, CONSUMER)),
    Story(commits_too_late, (CLASSIC,)),
    Story(is_paused),
)


def of_kind(kind: str) -> Callable[[Workshop], None]:
    def tell(work: Workshop) -> None:
        broker = work.moldau(*SETTINGS)
        broker.release = RELEASE_WITH_QUEUES
        broker.format_words = ("--release-version", RELEASE_WITH_QUEUES)
        broker.format()
        with work.running(broker), ExitStack() as stack:
            try:
                stage = Stage(work, broker.bootstrap, kind, stack)
            except Missing as missing:
                raise Unavailable(str(missing)) from None
            for story in STORIES:
                if kind in story.kinds:
                    stage.begin(story.name)
                    story.run(stage)
            stage.await_later()

    return tell


REASON_SCENARIOS: Final = tuple(
    DirectoryScenario(f"reasons-{kind}", f"moldau group explain names the cause: {kind} groups", of_kind(kind))
    for kind in ALL
)
