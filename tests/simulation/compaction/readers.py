"""Consumers whose replies hold a part of a file while the log cleaner, retention and truncation replace it.

A broker plans a read, and sends the bytes from the file later. Whatever became of the segment meanwhile, the bytes can
be read; unless the log was truncated, they are those that were planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from moldau.replication.partition import Partition
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from tests.simulation.compaction.rules import Violation

HELD_MAX: Final = 8
HOLDS: Final = 0.5
"""How often a reply begins to hold a part of a file."""
SENDS: Final = 0.1
"""How often a reply that holds one is sent."""
SIZE: Final = 400


class HeldSlice(NamedTuple):
    """A part of a file that a reply holds."""

    log: Log
    truncation_count: int
    offset: int
    place: FileSlice
    planned: bytes


class Readers:
    """The replies of one process. They draw from their own source of chance, and take no time."""

    def __init__(self, random: Random) -> None:
        self.held: list[HeldSlice] = []
        self._random = random

    def step(self, partitions: Sequence[Partition]) -> None:
        """Plan a read, send the bytes of others. Raises `Violation`."""
        random = self._random
        if random.random() < HOLDS and len(self.held) < HELD_MAX:
            self._hold(random.choice(partitions).log)
        sent = [each for each in self.held if random.random() < SENDS]
        self.held = [each for each in self.held if each not in sent]
        for each in sent:
            self._send(each)

    def _hold(self, log: Log) -> None:
        if log.failure is not None or log.log_start_offset >= log.end_offset:
            return
        offset = self._random.choice([each.base_offset for each in log.segments])
        read = log.read(max(offset, log.log_start_offset), SIZE, end_offset=log.end_offset, at_least_one=True)
        if isinstance(read, LogRead) and read.slice is not None:
            place = read.slice
            self.held.append(HeldSlice(log, log.truncation_count, offset, place, place.read()))

    @staticmethod
    def _send(held: HeldSlice) -> None:
        told = f"{held.log.topic}, a reply that holds {len(held.place)} bytes at offset {held.offset}"
        try:
            found = held.place.read()
        except OSError as error:
            raise Violation(f"{told}: {error}") from error
        if found != held.planned and held.log.truncation_count == held.truncation_count:
            raise Violation(f"{told}: it sends others than it planned")
