"""What must hold at every moment of tiered storage: one rule a file, all of them over one model of the metadata."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Protocol

from moldau.testing.simulation.storage import SimulatedBucket
from tests.simulation.invariants.observation import Observation
from tests.simulation.tiering.counted_once import CountedOnce
from tests.simulation.tiering.followed_metadata import FollowedMetadata
from tests.simulation.tiering.local_starts import LocalStarts
from tests.simulation.tiering.remote_metadata import RemoteMetadata
from tests.simulation.tiering.retained_enough import RetainedEnough
from tests.simulation.tiering.stable_copies import StableCopies
from tests.simulation.tiering.tiered_tables import TieredTables
from tests.simulation.tiering.whole_copies import WholeCopies


class Rule(Protocol):
    def check(self, seen: Observation, metadata: RemoteMetadata) -> None:
        """Raises `Violation`."""


def all_rules(bucket: SimulatedBucket, trimmed: Set[str] = frozenset()) -> Iterator[Rule]:
    """`trimmed`: topics of which clients delete records."""
    yield LocalStarts(trimmed)
    yield FollowedMetadata()
    yield WholeCopies(bucket)
    yield StableCopies()
    yield CountedOnce()
    yield RetainedEnough(trimmed)
    yield TieredTables(bucket)


class TieringRules:
    """All rules, as an invariant of a cluster."""

    def __init__(self, bucket: SimulatedBucket, trimmed: Set[str] = frozenset()) -> None:
        self.metadata = RemoteMetadata()
        self._rules = tuple(all_rules(bucket, trimmed))

    def check(self, seen: Observation) -> None:
        self.metadata.learn(seen)
        for rule in self._rules:
            rule.check(seen, self.metadata)
