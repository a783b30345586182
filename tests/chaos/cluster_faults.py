"""What is done to which of three nodes in one round, for how long, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import product
from random import Random
from typing import NamedTuple


class Deed(Enum):
    KILL = "kill -9"
    PAUSE = "SIGSTOP"
    CUT = "cut off"
    TERM = "SIGTERM"
    UPGRADE = "SIGTERM, then one metadata.version up"


class Role(Enum):
    """Whom it strikes, as of the moment."""

    LEADER = "a partition's leader"
    CONTROLLER = "the controller"
    FOLLOWER = "a follower"
    COORDINATOR = "the group's coordinator"
    TRANSACTION_COORDINATOR = "a transaction's coordinator"
    EACH = "each node in turn"


class ClusterRound(NamedTuple):
    number: int
    deed: Deed
    role: Role
    after_s: float
    """Under load, once the load flows again."""
    for_s: float
    """How long the node stays so."""


STRUCK = (Role.LEADER, Role.CONTROLLER, Role.FOLLOWER, Role.COORDINATOR)
KINDS = (*product((Deed.KILL, Deed.PAUSE, Deed.CUT), STRUCK), (Deed.TERM, Role.EACH))
"""Every kind of round once."""
KILLS = tuple(product((Deed.KILL,), STRUCK))
TRANSACTION_KILLS = tuple(product((Deed.KILL,), (*STRUCK, Role.TRANSACTION_COORDINATOR)))
"""Beside transactional producers: what they depend on is killed as well."""
UPGRADES = ((Deed.UPGRADE, Role.EACH), (Deed.KILL, Role.LEADER), (Deed.KILL, Role.CONTROLLER))
"""Of a cluster that was formatted for an older release: every node restarts, the level goes up, nodes die beside it."""


def cluster_rounds(count: int, seed: int, kinds: Sequence[tuple[Deed, Role]] = KINDS) -> Iterator[ClusterRound]:
    """All kinds in turn, each turn in an order of its own, as the seed says."""
    random = Random(f"{seed}/cluster")
    order: list[tuple[Deed, Role]] = []
    for number in range(1, count + 1):
        if not order:
            order = random.sample(kinds, len(kinds))
        deed, role = order.pop()
        # Half of the faults are over before anybody can be fenced for them.
        for_s = random.uniform(0.0, 1.5) if random.random() < 0.5 else random.uniform(1.5, 6.0)
        yield ClusterRound(number, deed, role, random.uniform(0.1, 1.5), for_s)
