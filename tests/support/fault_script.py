"""A script of faults with seeds, and the part of a timeline that one client's requests determine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

RECORDS: Final = 30
"""Records that a client sends, each after the answer to the one before."""
SEEDS: Final = (7, 11, 13)
OTHER_SEEDS: Final = (8, 12, 14)
SCRIPT: Final = """\
faults:
  - name: the leader moves
    scope: {{api: Produce}}
    when: {{probability: 0.3, seed: {}}}
    do: {{error: NOT_LEADER_OR_FOLLOWER}}
  - name: the answer is lost
    scope: {{api: Produce}}
    when: {{probability: 0.2, seed: {}}}
    do: {{lose_answer: true}}
  - name: the connection ends
    scope: {{api: Produce}}
    when: {{probability: 0.1, seed: {}}}
    do: {{reset: true}}
"""


def story(entries: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What the produce requests of a client met, in order. Its other requests, such as Metadata, come at times of their
    own, and are left out.
    """
    told = [(each["what"], each["text"]) for each in entries]
    return [(what, text) for what, text in told if what in ("request", "fault meets") and "Produce of client" in text]
