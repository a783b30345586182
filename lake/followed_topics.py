"""The topics that one process follows. They take turns after each round (the records of one commit), so that one round
at a time is in memory, and no topic waits for the backlog of another.

If a topic fails, a message says why, and the process continues with the other topics. A failure of a place or of the
catalog may pass: the topic is opened again in the next pass. A topic that is refused ends. If the tables of two topics
have the same name, the second topic waits until the first has ended, because the table may belong to the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from sqlalchemy.exc import SQLAlchemyError

from moldau.lake.follower import Follower, FollowProgress
from moldau.lake.metrics import FollowerMetrics
from moldau.lake.opening import CATALOG_ERRORS, FollowChoices, identifier_of
from moldau.lake.sink import CommitConflict, LakeTable
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint
from moldau.storage.files.port import FileSystem
from moldau.storage.tiered.port import RemoteStorageError
from moldau.tables.client.cluster import BrokersUnavailable
from moldau.tables.options.read_options import parse_options
from moldau.tables.planning.planner import Planner, matching_partitions
from moldau.tables.refusals import PlaceUnavailable, Refused, SegmentReplaced
from moldau.tables.values.registry import RegistryNotReached


class NameTaken(Refused):
    """The table of another followed topic has the same name."""


TRANSIENT_ERRORS: Final = (
    NameTaken,
    CommitConflict,
    SegmentReplaced,
    BrokersUnavailable,
    OSError,
    RegistryNotReached,
    RemoteStorageError,
    SQLAlchemyError,
    *CATALOG_ERRORS,
)
"""The errors after which a topic is tried again, because their cause is outside of the topic."""
FAILURES: Final = (Refused, CorruptCheckpoint, MalformedMessage, *TRANSIENT_ERRORS)
Opened: TypeAlias = tuple[Follower, LakeTable]


class FollowedTopic:
    """A followed topic, with its follower and its table once they are opened."""

    def __init__(self, choices: FollowChoices) -> None:
        self.choices = choices
        self.table_name = ".".join(identifier_of(choices))
        self.opened: Opened | None = None
        self.failure: str | None = None
        self.is_ended = False
        """Whether the topic has ended, and is not tried again."""
        self.was_opened = False
        """Whether its places could be read once."""
        self._unopened = FollowProgress(is_followed=False)

    @property
    def name(self) -> str:
        return self.choices.topic

    @property
    def progress(self) -> FollowProgress:
        """The progress of the follower that was opened last."""
        return self._unopened if self.opened is None else self.opened[0].progress

    def closed(self) -> None:
        """Drop the follower, and keep its progress."""
        self._unopened = replace(self.progress, is_followed=False)
        self.opened = None


class FollowedTopics:
    """All topics that one process follows."""

    def __init__(
        self,
        choices: FollowChoices,
        open_one: Callable[[FollowChoices], Opened],
        say: Callable[[str, str], None],
        is_stopping: Callable[[], bool],
        *,
        is_one: bool,
    ) -> None:
        """`open_one`: opens the follower and the table of a topic. `say`: called with the name of a topic and the
        reason of its failure. `is_one`: there is only one topic, and its failure is raised instead."""
        self._choices = choices
        self._open = open_one
        self._say = say
        self._is_stopping = is_stopping
        self._is_one = is_one
        self.topics: dict[str, FollowedTopic] = {}

    @property
    def has_failed(self) -> bool:
        return any(each.failure is not None for each in self.topics.values())

    @property
    def is_over(self) -> bool:
        """Whether all topics have ended."""
        return bool(self.topics) and all(each.is_ended for each in self.topics.values())

    def add(self, names: Iterable[str]) -> None:
        """Follow further topics. Raises `Refused` for an invalid name of a table."""
        for name in names:
            if name in self.topics:
                continue
            self.topics[name] = FollowedTopic(replace(self._choices, topic=name))

    def catch_up(self) -> None:
        """Run rounds for each topic until its table has all records that can be read now, or the topic fails. If there
        is only one topic, raises what its follower raises."""
        waiting = [each for each in self.topics.values() if not each.is_ended]
        while waiting and not self._is_stopping():
            waiting = [each for each in waiting if not self._is_stopping() and self._is_behind_after_a_round(each)]

    def measured(self) -> list[FollowerMetrics]:
        """The progress of each topic with its labels, for the metrics."""
        return [FollowerMetrics(each.progress, each.table_name, each.name) for each in list(self.topics.values())]

    def _is_behind_after_a_round(self, topic: FollowedTopic) -> bool:
        try:
            if topic.opened is None:
                self._check_name(topic)
                topic.opened = self._open(topic.choices)
                topic.was_opened = True
            is_behind = topic.opened[0].catch_up(None if self._is_one else 1)
        except FAILURES as problem:
            if self._is_one:
                raise
            self._fail(topic, problem)
            return False
        topic.failure = None
        return is_behind

    def _check_name(self, topic: FollowedTopic) -> None:
        """Raise `NameTaken` if the table of an earlier topic has the name of this topic's table."""
        for each in self.topics.values():
            if each is topic:
                return
            # Engines do not distinguish names by case.
            if not each.is_ended and each.table_name.casefold() == topic.table_name.casefold():
                raise NameTaken(f"its table {topic.table_name} is that of the topic {each.name}")

    def _fail(self, topic: FollowedTopic, problem: Exception) -> None:
        said = str(problem) if isinstance(problem, (Refused, OSError)) else f"{type(problem).__name__}: {problem}"
        if said != topic.failure:
            self._say(topic.name, said)
        may_pass = isinstance(problem, TRANSIENT_ERRORS)
        if isinstance(problem, PlaceUnavailable):
            may_pass = topic.was_opened  # If not, the place was misspelt rather than lost.
        topic.failure, topic.is_ended = said, not may_pass
        topic.closed()


def topics_like(fs: FileSystem, options: Mapping[str, str], pattern: str) -> list[str]:
    """The topics, in the places that the options name, whose whole name matches a regular expression. Raises `Refused`
    and OSError."""
    parsed = parse_options({**options, "subscribePattern": pattern, "startingOffsets": "earliest"}, "stream")
    found = {key for origin in Planner(fs, parsed).origins for key in origin.partitions()}
    return sorted({topic for topic, _ in matching_partitions(found, parsed.subscription)})
