"""The log of transactions: the transactions that the driver has decided to commit, stored before it commits them.

A file for each batch of a query, `<query id>-<batch>.json`:
{"format_version": 1, "transactions": [[transactional id, producer id, epoch]]}.
It is written and synced before the first EndTxn, and read if Spark runs the batch again:

| the file of a batch | its transactions    | the driver                                             |
|---------------------|---------------------|--------------------------------------------------------|
| is not there        |                     | writes it, and commits the new transactions            |
| is there            | all are committed   | aborts the new ones: the records of the batch are there |
| is there            | all were aborted    | replaces it, and commits the new ones                  |
| is there            | some were, some not | aborts the new ones and refuses: records are lost      |
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from moldau.tables.client.transaction import ProducerIdentity
from moldau.tables.refusals import Refused

FORMAT_VERSION: Final = 1
KEPT_BATCHES: Final = 100
"""The number of batches whose files are kept. Spark repeats only the last batch."""


class TransactionLog:
    """The transaction log in a directory, which must outlive the driver."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def read(self, query: str, batch: int) -> list[ProducerIdentity] | None:
        """The transactions that the driver decided to commit for a batch; None if it has not decided.

        Raises `Refused` if the file cannot be understood, and OSError.
        """
        path = self.path_of(query, batch)
        try:
            written = json.loads(path.read_bytes())
            if written["format_version"] != FORMAT_VERSION:
                raise ValueError(f"format version {written['format_version']}")
            return [
                ProducerIdentity(str(name), int(number), int(epoch)) for name, number, epoch in written["transactions"]
            ]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as problem:
            raise Refused(f"transactionLog: {path} is not a file of transactions: {problem}") from None

    def write(self, query: str, batch: int, transactions: Sequence[ProducerIdentity]) -> None:
        """Store the transactions that the driver commits for a batch. They are durable when this method returns. Raises
        OSError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self.path_of(query, batch)
        unfinished = path.with_suffix(".tmp")
        text = json.dumps({"format_version": FORMAT_VERSION, "transactions": [list(each) for each in transactions]})
        with unfinished.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        if batch >= KEPT_BATCHES:
            self.path_of(query, batch - KEPT_BATCHES).unlink(missing_ok=True)

    def path_of(self, query: str, batch: int) -> Path:
        return self._directory / f"{query}-{batch}.json"
