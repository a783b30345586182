"""The ends of partitions that ListOffsets told, by whichever leader: a later leader may not tell an earlier end.

A leader that was deposed and does not know it yet may tell what was true in its epoch; in that epoch too no end goes
back.
"""

from __future__ import annotations

from tests.support.history import Key


class ToldEnds:
    """The reported ends.

    `before`: those known when a client sends its request; `told`: one that a response reported.
    """

    def __init__(self, complaints: list[str]) -> None:
        self._complaints = complaints
        self._ends: dict[Key, dict[int, int]] = {}
        """The highest reported end by leader epoch."""

    def before(self, key: Key) -> dict[int, int]:
        return dict(self._ends.get(key, {}))

    def told(self, key: Key, leader_epoch: int, end_offset: int, before: dict[int, int]) -> None:
        ends = self._ends.setdefault(key, {})
        ends[leader_epoch] = max(end_offset, ends.get(leader_epoch, -1))
        furthest = max((offset for epoch, offset in before.items() if epoch <= leader_epoch), default=-1)
        if end_offset < furthest:
            text = f"the leader of epoch {leader_epoch} says that it ends at {end_offset}, after {furthest} was told"
            self._complaints.append(f"{key[0]}-{key[1]}: {text}")
