"""What the producers of a run know of their transactions, and the promises about transactions that follow from it.

    aborted-read      read, though no commit was asked for, or the commit was refused
    unwritten-read    read, and no transaction has it
    lost-write, ...   of committed transactions, as `history_check` says of records outside of transactions
    torn              of a transaction in doubt a complete reading has some records and lacks others

A transaction is ABORTED until its producer asks for the commit: no reader may see one of its records before. From then
on it is IN_DOUBT until the coordinator has answered. A producer asks for the commit once all records are acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tests.support.history import History, Key, Reading, Send
from tests.support.history_check import anomalies, told


class Outcome(Enum):
    ABORTED = "aborted"
    IN_DOUBT = "in doubt"
    COMMITTED = "committed"


@dataclass(slots=True)
class Attempt:
    """One transaction of one producer."""

    name: str
    producer: str
    """The name of one incarnation of the producer."""
    outcome: Outcome = Outcome.ABORTED
    sends: list[Send] = field(default_factory=list)

    def wrote(self, key: Key, value: str) -> Send:
        """Record a send, in the order of the producer."""
        sent = Send(self.producer, key, value)
        self.sends.append(sent)
        return sent


class Ledger:
    """All transactions of one run, and all records that read_committed readers got."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.readings: list[Reading] = []
        self.complaints: list[str] = []
        self._attempts_by_value: dict[str, Attempt] = {}

    def begin(self, name: str, producer: str) -> Attempt:
        attempt = Attempt(name, producer)
        self.attempts.append(attempt)
        return attempt

    def wrote(self, attempt: Attempt, key: Key, value: str) -> Send:
        self._attempts_by_value[value] = attempt
        return attempt.wrote(key, value)

    def reading(self, reader: str, key: Key, *, is_complete: bool = False) -> Reading:
        begun = Reading(reader, key, is_complete=is_complete)
        self.readings.append(begun)
        return begun

    def read(self, reading: Reading, offset: int, value: str) -> None:
        """A read_committed reader got a record."""
        reading.got(offset, value)
        attempt = self._attempts_by_value.get(value)
        if attempt is not None and attempt.outcome is Outcome.ABORTED:
            self.complaints.append(
                f"aborted-read: {reading.reader} read {value} at {offset} of {reading.key}, and no commit of"
                f" {attempt.name} was asked for"
            )

    @property
    def committed_count(self) -> int:
        return sum(each.outcome is Outcome.COMMITTED for each in self.attempts)

    def counts(self) -> dict[str, int]:
        """The number of transactions by outcome."""
        return {outcome.value: sum(each.outcome is outcome for each in self.attempts) for outcome in Outcome}

    def problems(self) -> list[str]:
        return [*self.complaints[:5], *told(anomalies(self.history())), *self._torn()]

    def history(self) -> History:
        """The transactions as single records of which each was acknowledged, has failed, or is in doubt."""
        history = History(readings=list(self.readings))
        for attempt in self.attempts:
            for sent in attempt.sends:
                if attempt.outcome is Outcome.COMMITTED:
                    sent.acknowledge(sent.offset)
                elif attempt.outcome is Outcome.ABORTED:
                    sent.fail()
                history.sends.append(sent)
        return history

    def _torn(self) -> list[str]:
        complete = {
            reading.key: {value for _, value in reading.records} for reading in self.readings if reading.is_complete
        }
        torn = []
        for attempt in self.attempts:
            known = [sent for sent in attempt.sends if sent.key in complete]
            read = [sent for sent in known if sent.value in complete[sent.key]]
            if attempt.outcome is Outcome.IN_DOUBT and read and len(read) < len(known):
                lacking = [sent.value for sent in known if sent not in read]
                torn.append(f"torn: of {attempt.name} {read[0].value} was read, and not {lacking[:3]}")
        return torn[:5]
