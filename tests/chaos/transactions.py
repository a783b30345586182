"""Producers whose records stand in transactions: committed, aborted, or left open by a client that is gone.

outcome     what a read_committed reader may see of the transaction
committed   every record, once
aborted     no record
unknown     every record or none: the client was told nothing before it had to begin anew
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.support.history import OFFSET_UNKNOWN, Key, Send

TRANSACTIONS_TOPIC: Final = "chaos-transactions"
SETTINGS: Final[dict[str, str | int | bool]] = {
    "linger.ms": 2,
    "transaction.timeout.ms": 60_000,
    "message.timeout.ms": 60_000,
    "socket.timeout.ms": 5_000,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "log_level": 2,
}
RECORDS_MAX: Final = 20
ABORTED_SHARE: Final = 0.15
LEFT_SHARE: Final = 0.02
"""Of transactions that their client leaves open; its next incarnation, of the same transactional id, ends them."""
ATTEMPT_S: Final = 10.0
PATIENCE_S: Final = 120.0
"""For one call that the client says may be repeated."""


class MustAbort(Exception):
    """The client was told that its transaction can only be aborted."""


class MustBeginAnew(Exception):
    """The client was told an error that ends this incarnation of it."""


class Waiting:
    """What a client was told of the call that it repeats now, for the report of a client that is stuck."""

    told = ""


def repeated(waiting: Waiting, call: Callable[[float], object]) -> None:
    """A transactional call, as often as the client says that it may be repeated."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            call(ATTEMPT_S)
            waiting.told = ""
            return
        except KafkaException as told:
            error: KafkaError = told.args[0]
            waiting.told = f"{error.name()}: {error.str()}"
            if error.txn_requires_abort():
                raise MustAbort(error.str()) from told
            if not error.retriable():
                raise MustBeginAnew(f"{error.name()}: {error.str()}") from told
            if time.monotonic() > deadline:
                raise MustBeginAnew(f"stuck for {PATIENCE_S:.0f} s: {error.name()}: {error.str()}") from told


class TransactionalLoad:
    """So many transactional producers over all partitions of one topic, at so many transactions a second together."""

    def __init__(self, bootstrap: str, partitions: int, producers: int, rate: float, seed: int) -> None:
        self.keys: list[Key] = [(TRANSACTIONS_TOPIC, partition) for partition in range(partitions)]
        self._producers = [
            _Transactional(f"t{i}", bootstrap, self.keys, producers / rate, Random(f"{seed}/t{i}"))
            for i in range(producers)
        ]

    @property
    def transactional_ids(self) -> list[str]:
        return [producer.name for producer in self._producers]

    def start(self) -> None:
        for producer in self._producers:
            producer.start()

    def finish(self) -> None:
        """Begin no transaction more; wait until those under way are ended."""
        for producer in self._producers:
            producer.is_ending = True
        for producer in self._producers:
            producer.join()

    @property
    def waiting(self) -> dict[str, str]:
        """By producer, what it was told of the call that it repeats."""
        return {producer.name: producer.waiting.told for producer in self._producers}

    @property
    def commit_times(self) -> dict[str, list[float]]:
        """By producer, when each commit was acknowledged, by the monotonic clock."""
        return {producer.name: producer.commit_times for producer in self._producers}

    @property
    def transactions(self) -> list[list[Send]]:
        return [transaction for producer in self._producers for transaction in producer.transactions]

    @property
    def incarnations(self) -> int:
        """More than there are producers: clients that went, by themselves or for an error that they were told."""
        return sum(producer.incarnation for producer in self._producers)

    @property
    def errors(self) -> list[str]:
        """What ended an incarnation.

        INVALID_TXN_STATE is librdkafka's own: of a transaction whose AddPartitionsToTxn was sent and never answered it
        sends EndTxn too, which finds the transaction before, committed. Apache Kafka answers so as well.
        """
        return [error for producer in self._producers for error in producer.errors]


class _Transactional(threading.Thread):
    def __init__(self, name: str, bootstrap: str, keys: list[Key], interval_s: float, random: Random) -> None:
        super().__init__(name=name, daemon=True)
        self.transactions: list[list[Send]] = []
        self.errors: list[str] = []
        self.incarnation = 0
        self.waiting = Waiting()
        self.commit_times: list[float] = []
        self.is_ending = False
        self._settings = {**SETTINGS, "bootstrap.servers": bootstrap, "transactional.id": name}
        self._keys = keys
        self._interval_s = interval_s
        self._random = random

    def run(self) -> None:
        while not self.is_ending:
            self._live()
        self._live()  # ends what its last incarnation may have left open

    def _live(self) -> None:
        """One incarnation: until the end, until it is told that it must not go on, or until it just goes."""
        self.incarnation += 1
        client = Producer(self._settings)
        try:
            repeated(self.waiting, client.init_transactions)
            while not self.is_ending:
                transaction = self._begun(client)
                fate = self._random.random()
                if fate < LEFT_SHARE:
                    client.flush(self._random.random())
                    for sent in transaction:
                        sent.fail()
                    return
                if fate < LEFT_SHARE + ABORTED_SHARE:
                    client.flush(self._random.random())  # some of the records are in the log by now
                    self._abort(client, transaction)
                else:
                    self._commit(client, transaction)
                time.sleep(self._random.uniform(0, 2 * self._interval_s))
        except (MustAbort, MustBeginAnew) as told:
            self.errors.append(f"{self.name}.{self.incarnation}: {told}")

    def _begun(self, client: Producer) -> list[Send]:
        client.begin_transaction()
        transaction: list[Send] = []
        self.transactions.append(transaction)
        name = f"{self.name}.{self.incarnation}"
        for number in range(self._random.randint(1, RECORDS_MAX)):
            key = self._random.choice(self._keys)
            sent = Send(name, key, f"{name}/{len(self.transactions)}/{number}")
            transaction.append(sent)
            self._produce(client, sent)
        return transaction

    def _produce(self, client: Producer, sent: Send) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                sent.offset = offset

        with suppress(KafkaException):  # the transaction has failed meanwhile, which its commit will be told
            client.produce(sent.key[0], str(sent.value).encode(), partition=sent.key[1], on_delivery=delivered)

    def _commit(self, client: Producer, transaction: list[Send]) -> None:
        try:
            repeated(self.waiting, client.commit_transaction)
        except MustAbort as told:
            self.errors.append(f"{self.name}.{self.incarnation}, aborted: {told}")
            self._abort(client, transaction)
            return
        for sent in transaction:
            sent.acknowledge(max(sent.offset, OFFSET_UNKNOWN))
        self.commit_times.append(time.monotonic())

    def _abort(self, client: Producer, transaction: list[Send]) -> None:
        """Aborted is what the coordinator acknowledges; what it does not is unknown, since a commit may precede."""
        repeated(self.waiting, client.abort_transaction)
        for sent in transaction:
            sent.fail()
