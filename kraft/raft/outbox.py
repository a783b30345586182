"""The outbox holds messages to other nodes until the epoch and the vote in which they are sent are durable.

    save(epoch 5, vote for 2)      SaveElection
    put(Respond: granted)          held
    saved(epoch 5, vote for 2)     Respond

Raft (figure 2) demands it: a node that crashed after a vote that was not durable could grant a second vote in the same
epoch. Effects that concern this node alone (its log, its controller) promise nothing to other nodes, and leave at once.
The leader's id is saved as a hint for the next start; no message waits for it.
"""

from __future__ import annotations

from collections import deque

from moldau.kraft.raft.election_state import ElectionState
from moldau.kraft.raft.events import (
    Effect,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    SaveElection,
    Send,
    Stopped,
)

SENT_TO_PEERS = (Send, Respond, RespondWithRecords, RespondWithSnapshot, Stopped)


class Outbox:
    """The effects of the current step, and the messages to other nodes that wait for a durable election state."""

    def __init__(self, durable: ElectionState) -> None:
        self._effects: list[Effect] = []
        self._held: deque[tuple[int, Effect]] = deque()
        """The messages that wait, each with the number of the promise that must be durable before it is sent."""
        self._durable = self._wanted = durable
        self._saving: ElectionState | None = None
        """The election state that is being written to the disk; None if none is."""
        self._promised = self._saving_promise = self._durable_promise = 0
        """The number of the latest promise. Each new epoch and each vote is a promise to the other voters."""

    def save(self, election: ElectionState) -> None:
        """Make the election durable, in this step or, if an election is being written, after that election."""
        if election.promise != self._wanted.promise:
            self._promised += 1
        self._wanted = election

    def on_election_saved(self, election: ElectionState) -> None:
        assert election == self._saving, "another election was saved"
        self._durable, self._durable_promise = election, self._saving_promise
        self._saving = None
        while self._held and self._held[0][0] <= self._durable_promise:
            self._effects.append(self._held.popleft()[1])

    def put(self, effect: Effect) -> None:
        if self._durable_promise < self._promised and isinstance(effect, SENT_TO_PEERS):
            self._held.append((self._promised, effect))
        else:
            self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """Return the effects of the step. If the election changed several times in the step, only the last one is
        saved."""
        effects, self._effects = self._effects, []
        if self._saving is None and self._wanted != self._durable:
            self._saving, self._saving_promise = self._wanted, self._promised
            effects.insert(0, SaveElection(self._wanted))
        return effects
