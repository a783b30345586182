"""Resolves the regular expressions to which members of consumer groups subscribe. They are compiled and matched in a
thread. Then the ACLs decide which of the topics the subscribed client may describe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from moldau.broker.coordinators.definition import CommandReports
from moldau.broker.runtime.environment import Environment
from moldau.coordinator.consumer.events import RegexesResolved, ResolveRegexes
from moldau.coordinator.consumer.regular_expressions import matching_topics, regex_fault
from moldau.security.access import Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.coordinator.group.events import ShardRequest

LOOKED_AT_ONCE: Final = 64
"""The number of topics after which a resolution lets other tasks of the event loop run."""


async def resolve_regexes(
    environment: Environment, command: ResolveRegexes, reports: CommandReports[ShardRequest]
) -> None:
    """Find the topics that match the expressions of a group and that the client may describe, and report them to the
    group's state machine. The hashes of all matched topics, which the state machine needs, are computed before the
    report.
    """
    begun_ms = environment.wall_ms()
    image, access = command.image, cast("Access", command.client)

    def search() -> tuple[dict[str, frozenset[str]], list[str]]:
        """The topics that match each expression, and the names of all of them in order."""
        found = matching_topics(sorted(command.regexes), image.topic_names())
        return found, sorted(frozenset[str]().union(*found.values()))

    found, names = await environment.offload(search)
    hidden = set()
    for place, name in enumerate(names):
        if place % LOOKED_AT_ONCE == 0:
            await asyncio.sleep(0)
        topic = image.topic_of_name(name)
        assert topic is not None, "its name is one of the image"
        image.topic_hash(topic)
        if not _may_describe(access, name):
            hidden.add(name)

    def outcome() -> RegexesResolved:
        topics = {regex: matched - hidden for regex, matched in found.items()}
        size = sum(len(name) for matched in topics.values() for name in matched)
        return RegexesResolved(command.group_id, topics, image.version, begun_ms, size)

    if reports.is_open:
        reports.report(await environment.offload(outcome))


def _may_describe(access: Access, name: str) -> bool:
    """Whether the client may describe a topic. The decision is not written to the audit log, because the client does
    not use the topic yet.
    """
    return access.is_unrestricted or access.allows(
        AclOperation.DESCRIBE, ResourceKind.TOPIC, name, logs_allowed=False, logs_denied=False
    )


async def compile_regex(environment: Environment, regex: str, then: Callable[[], None]) -> None:
    """Compile a regular expression in a thread, then call `then`. The result is remembered, so that the state machine
    of the group does not compile it again.
    """
    await environment.offload(lambda: regex_fault(regex))
    then()
