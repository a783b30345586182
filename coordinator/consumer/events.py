"""The requests of consumer groups, and the commands of the group coordinator's machine to the broker that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class ConsumerHeartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat: a member joins, stays, or leaves. The broker has authorized the request."""

    waiter: Waiter
    request: ConsumerGroupHeartbeatRequest
    client_id: str
    client_host: str
    fresh_id: str
    """A random id for a member whose request has none (versions before 1)."""
    client: object
    """The client as the broker's authorizer knows it. The machine only passes it on in `ResolveRegexes`."""

    @property
    def group_id(self) -> str:
        return self.request.group_id


class DescribeConsumerGroup(NamedTuple):
    """One group of a ConsumerGroupDescribe. The answer is a `DescribedGroup`."""

    waiter: Waiter
    group_id: str


class ResolveRegexes(NamedTuple):
    """The command to find the topics of `image` that match the regular expressions of a group, and that the client may
    describe. The broker searches on an executor thread, and always reports the result with `RegexesResolved`."""

    group_id: str
    regexes: frozenset[str]
    image: CoordinatorImage
    client: object


class RegexesResolved(NamedTuple):
    """The outcome of `ResolveRegexes`."""

    group_id: str
    topics: Mapping[str, frozenset[str]]
    """The names of the matching topics by regular expression; empty if the resolution failed."""
    version: int
    """The version of the metadata image that was searched."""
    resolved_ms: int
    """The time at which the search began (wall clock, ms)."""
    size: int = 0
    """The number of characters of all names in `topics` together."""
