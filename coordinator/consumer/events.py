"""The requests of consumer groups, and the commands to the shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class ConsumerHeartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat: a member joins, stays, or leaves. The shell has checked the rights of the client."""

    waiter: Waiter
    request: ConsumerGroupHeartbeatRequest
    client_id: str
    client_host: str
    fresh_id: str
    """A random id for a member whose request has none (versions before 1)."""
    client: object
    """The client in the form of the shell's authorizer. The machine only hands it back in `ResolveRegexes`."""

    @property
    def group_id(self) -> str:
        return self.request.group_id


class DescribeConsumerGroup(NamedTuple):
    """One group of a ConsumerGroupDescribe. The answer is a `DescribedGroup`."""

    waiter: Waiter
    group_id: str


class ResolveRegexes(NamedTuple):
    """The command to find the topics of this image that match the regular expressions of a group, and that the client
    may describe. The shell works off the event loop, and always reports `RegexesResolved`."""

    group_id: str
    regexes: frozenset[str]
    image: CoordinatorImage
    client: object


class RegexesResolved(NamedTuple):
    """The outcome of `ResolveRegexes`."""

    group_id: str
    topics: Mapping[str, frozenset[str]]
    """The topics by regular expression; empty if the resolution failed."""
    version: int
    """The version of the image that was searched."""
    resolved_ms: int
    """The time at which the search began (wall clock, ms)."""
    size: int = 0
    """The number of characters of all topic names together."""
