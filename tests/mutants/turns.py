"""Bugs in the turns of connections (`broker/network/turns.py`, `connection.py`): each gives one client the time of
others.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

TURNS: Final = "broker/network/turns.py"
CONNECTION: Final = "broker/network/connection.py"

TURN_MUTANTS: Final = (
    Mutant(
        551,
        "strangers that pipeline are served first, and nodes last",
        TURNS,
        "        for rank, queue in enumerate(queues):\n",
        "        for rank, queue in reversed([*enumerate(queues)]):\n",
        Hunt.TURNS,
    ),
    Mutant(
        552,
        "all connections have one rank",
        TURNS,
        "        self._queues[rank].append(connection)\n",
        "        self._queues[0].append(connection)\n",
        Hunt.TURNS,
    ),
    Mutant(
        553,
        "an iteration serves each connection that waits, however long that takes",
        TURNS,
        "                if now_ns >= end_ns:\n",
        "                if False:\n",
        Hunt.TURNS,
    ),
    Mutant(
        554,
        "the last connection that waits has the first turn",
        TURNS,
        "                queue.popleft().take_turn(",
        "                queue.pop().take_turn(",
        Hunt.TURNS,
    ),
    Mutant(
        555,
        "a client with one request at a time waits with those that pipeline",
        CONNECTION,
        "is_single=has_just_arrived and partial.size == partial.wanted)",
        "is_single=False)",
        Hunt.TURNS,
    ),
    Mutant(
        556,
        "before a login a client has the rank of those that have logged in",
        CONNECTION,
        "        rank = ConnectionRank.LOGIN if is_single else ConnectionRank.LOGIN_BACKLOG\n",
        "        rank = ConnectionRank.SINGLE if is_single else ConnectionRank.BACKLOG\n",
        Hunt.TURNS,
    ),
    Mutant(
        557,
        "a turn ends when all received requests are handled",
        CONNECTION,
        "                if clock.latest_ns >= until_ns or output.size > UNSENT_SIZE_MAX",
        "                if output.size > UNSENT_SIZE_MAX",
        Hunt.TURNS,
    ),
)
