"""The resolution of a group's regular expressions: a search in a thread, then the ACLs of the client that asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from moldau.broker.coordinators.row import Reports
from moldau.broker.runtime.environment import Environment
from moldau.coordinator.consumer.events import RegexesResolved, ResolveRegexes
from moldau.coordinator.consumer.regular_expressions import matching_topics
from moldau.security.access import Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.coordinator.group.events import ShardRequest

CHECKED_AT_ONCE: Final = 500
"""Topics whose ACLs are asked before other tasks of the event loop run."""


async def resolve(environment: Environment, command: ResolveRegexes, reports: Reports[ShardRequest]) -> None:
    """Find the topics that match and that the client may describe, and report them."""
    begun_ms = environment.wall_ms()
    image = command.image
    found = await environment.offload(lambda: matching_topics(sorted(command.regexes), image.topic_names()))
    hidden = await _hidden(cast("Access", command.client), sorted({name for names in found.values() for name in names}))
    topics = {regex: names - hidden for regex, names in found.items()}
    if reports.is_open:
        reports.report(RegexesResolved(command.group_id, topics, image.version, begun_ms))


async def _hidden(access: Access, names: list[str]) -> frozenset[str]:
    """Those of the topics that the client may not describe. The client does not use them: no line of the audit log."""
    if access.is_unrestricted:
        return frozenset()
    hidden = []
    for place, name in enumerate(names):
        if place % CHECKED_AT_ONCE == 0:
            await asyncio.sleep(0)
        allowed = access.allows(AclOperation.DESCRIBE, ResourceKind.TOPIC, name, logs_allowed=False, logs_denied=False)
        if not allowed:
            hidden.append(name)
    return frozenset(hidden)
