"""Subscriptions by regular expression (RE2, in linear time): decides when the expressions are resolved into topics, and
applies the result.

The coordinator resolves all regular expressions of a group at once, off the event loop, with the rights of the member
whose heartbeat caused the resolution. A resolution is due:

* when a member subscribes to a new expression, or an expression is not resolved yet,
* when topics were created or deleted since the last resolution,
* when the last resolution is older than `group.consumer.regex.refresh.interval.ms`,

but not while a resolution of the group runs, and not within 10 s of the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from moldau.coordinator.consumer.events import RegexesResolved, ResolveRegexes
from moldau.coordinator.consumer.group import ConsumerGroup, ConsumerTimer
from moldau.coordinator.consumer.member import ConsumerMember, pattern_of
from moldau.coordinator.consumer.records import epoch_change, regex_change
from moldau.coordinator.group.group import Group, GroupStep, TimerKey
from moldau.coordinator.group.history import Cause
from moldau.coordinator.group.metadata_hash import hash_of_topics
from moldau.coordinator.group.records import Change

REFRESH_INTERVAL_MIN_MS: Final = 10_000
"""The shortest time (ms) between two resolutions of a group."""
RESOLUTION_MAX_MS: Final = 60_000
"""The longest time (ms) for which the outcome of a resolution is awaited. After that another one may begin."""
REMEMBERED_FAULTS_MAX: Final = 64
"""The number of regular expressions for which the result of `regex_fault` is cached."""
NO_TOPICS: Final[frozenset[str]] = frozenset()


def compile_regex(regex: str) -> Any:
    """Compile a regular expression with RE2. Raises `ValueError` if it is not valid, or if RE2 is not installed."""
    try:
        import re2  # here, because most nodes have no regular expressions, and the library holds 2.6 MB
    except ImportError:
        raise ValueError("regular expressions need the package google-re2, which is not installed here") from None

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as fault:
        raise ValueError(fault.args[0].decode()) from None


@lru_cache(REMEMBERED_FAULTS_MAX)
def regex_fault(regex: str) -> str | None:
    """Describe what is wrong with a regular expression; None if it is valid. The result is cached. A short expression
    may take a second to compile, so the broker calls this in a thread before a member subscribes to the expression.

    DIVERGES: Apache Kafka 4.3.1 takes an expression of any memory; here one that repeats repetitions more than 1,000
    times, or whose compiled form is larger than 8 MB, is refused, as RE2 does.
    """
    try:
        compile_regex(regex)
    except ValueError as fault:
        return f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {fault}."
    return None


def matching_topics(regexes: Iterable[str], topics: Iterable[str]) -> dict[str, frozenset[str]]:
    """The topics whose whole name matches each regular expression. The search may take long, so the broker calls this
    in a thread."""
    names = [*topics]
    matches: dict[str, frozenset[str]] = {}
    for regex in regexes:
        try:
            pattern = compile_regex(regex)
        except ValueError:  # a log that another release wrote has it
            matches[regex] = NO_TOPICS
            continue
        matches[regex] = frozenset(name for name in names if pattern.fullmatch(name))
    return matches


def resolve_if_due(
    step: GroupStep, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember, client: object
) -> None:
    """Command a resolution of the group's regular expressions if it is due, by the rules in this module's docstring."""
    new = pattern_of(updated)
    is_new = new is not None and new != pattern_of(member) and new not in group.subscriptions.regexes
    if not is_new and not group.subscriptions.regexes:
        return
    key = TimerKey(ConsumerTimer.RESOLUTION, group.group_id)
    resolved = next(iter(group.resolved.values()), None)
    if step.timers.has(key):
        return
    if resolved is not None and step.wall_ms <= resolved.resolved_ms + REFRESH_INTERVAL_MIN_MS:
        return
    regexes = group.subscriptions_with(member, updated).regexes
    is_due = (
        is_new
        or resolved is None
        or len(regexes) != len(group.resolved)
        or resolved.version < step.image.topics_changed_at
        or step.wall_ms > resolved.resolved_ms + step.config.consumer.regex_refresh_interval_ms
    )
    if is_due and regexes:
        step.timers.schedule(key, step.now_ms + RESOLUTION_MAX_MS)
        step.command(ResolveRegexes(group.group_id, frozenset(regexes), step.image, client))


def on_regexes_resolved(step: GroupStep, group: Group | None, event: RegexesResolved) -> None:
    """Store the topics of the resolved expressions that members still use. Raise the group epoch if the topics changed.

    Nothing is stored if the names of the topics have more than `member_metadata_bytes_max` characters in all. The
    resolution timer then continues to run, so that the next resolution does not begin too soon.
    """
    if event.size > step.config.member_metadata_bytes_max:
        step.notes.append(f"group {event.group_id!r}: its regular expressions match too many topics to be stored")
        return
    step.timers.cancel(TimerKey(ConsumerTimer.RESOLUTION, event.group_id))
    if not isinstance(group, ConsumerGroup):
        return
    changes, raises_epoch, by_regex = _resolutions(group, event.topics, event.version, event.resolved_ms)
    metadata_hash = hash_of_topics({*group.subscriptions.by_name, *by_regex}, step.image)
    if raises_epoch or metadata_hash != group.metadata_hash:
        epoch = group.epoch + 1
        changes.append(epoch_change(group.group_id, epoch, metadata_hash))
        step.add_rebalance_to_history(
            group.group_id, step.add_to_history(group.group_id, Cause.EXPRESSION_CHANGED), epoch
        )
        group.note_seen(step.image, epoch)
    step.write(*changes)


def _resolutions(
    group: ConsumerGroup, resolved: Mapping[str, frozenset[str]], version: int, resolved_ms: int
) -> tuple[list[Change], bool, set[str]]:
    """The records of the resolved expressions, whether the topics of any expression changed, and the topics that all
    expressions match afterwards.

    DIVERGES: the first resolution of an expression that matches no topic counts as a change. In Apache Kafka the
    partitions that its member gave up with its former subscription have no owner until the group's next epoch.
    """
    changes: list[Change] = []
    raises_epoch = False
    topics_by_regex = {regex: former.topics for regex, former in group.resolved.items()}
    for regex, topics in sorted(resolved.items()):
        if regex not in group.subscriptions.regexes:
            continue
        raises_epoch |= topics_by_regex.get(regex) != topics
        topics_by_regex[regex] = topics
        changes.append(regex_change(group.group_id, regex, topics, version, resolved_ms))
    return changes, raises_epoch, {topic for topics in topics_by_regex.values() for topic in topics}
