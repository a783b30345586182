"""The search of `moldau erase`: reads any replica, applies the filters of the command, and gathers the offsets of the
records that pass.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.daily.client import EARLIEST, LATEST, Partition
from moldau.broker.cli.daily.failures import Failure, raise_wrong_arguments
from moldau.broker.cli.daily.records.fetching import bytes_of, fetch, records_from
from moldau.broker.cli.daily.records.printing import FieldsSeen, filter_of
from moldau.broker.cli.daily.times import time_ms
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.erase_orders import Run
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import PartitionData
from moldau.protocol.record_builder import Record

if TYPE_CHECKING:
    from argparse import Namespace

    from moldau.broker.cli.daily.client import Client
    from moldau.broker.cli.daily.session import Session

WAIT_MS: Final = 500
EMPTY_READS_MAX: Final = 60
"""The number of empty answers in a row, of `WAIT_MS` each, after which the read of a replica fails. A replica gives
nothing while it has not carried out an erase order.
"""
Filter = Callable[[Record], bool]


def has_filter(given: Namespace) -> bool:
    return _has_simple_filter(given) or given.sql is not None


def is_sql_alone(given: Namespace) -> bool:
    """Whether the records are chosen by the predicate of `--sql` alone, without another filter."""
    return given.sql is not None and not (_has_simple_filter(given) or given.begin or given.end)


def _has_simple_filter(given: Namespace) -> bool:
    return given.key is not None or given.grep is not None or bool(given.header or given.where)


def filter_from(session: Session, seen: FieldsSeen | None = None) -> Filter:
    """Make the filter that the records to erase must pass, from the arguments. It notes in `seen` which fields the
    values have. Raises `WrongArguments` if no filter is given, because this command does not erase all records of a
    topic.
    """
    given, now_ms = session.arguments, session.now_ms()
    if not has_filter(given):
        raise_wrong_arguments(
            "give --key, --header, --where, --grep or --sql: 'moldau topic delete' and retention remove all records"
        )
    passes = filter_of(given.key, given.grep, given.header, given.where, seen)
    begin_ms = None if given.begin is None else time_ms(given.begin, "--from", now_ms)
    end_ms = None if given.end is None else time_ms(given.end, "--to", now_ms)
    if begin_ms is not None and end_ms is not None and begin_ms >= end_ms:
        raise_wrong_arguments(f"--from {given.begin} is not before --to {given.end}")

    def chosen(record: Record) -> bool:
        is_late = begin_ms is None or record.timestamp >= begin_ms
        return is_late and (end_ms is None or record.timestamp < end_ms) and passes(record)

    return chosen


def predicate_hash(given: Namespace, salt: bytes) -> bytes:
    """SHA-256 of a salt and the filters, which identifies the filters without their text. Only the receipt has the
    salt, so a reader of the log cannot find the filters by trying many texts.
    """
    stated = {"key": given.key, "grep": given.grep, "header": given.header, "where": given.where}
    stated |= {"from": given.begin, "to": given.end}
    if given.sql is not None:
        stated |= {"sql": given.sql}
    return hashlib.sha256(salt + json.dumps(stated, sort_keys=True).encode()).digest()


def log_bounds(client: Client, keys: list[Partition]) -> dict[Partition, tuple[int, int]]:
    """The log start offset and the high watermark of each partition."""
    starts = client.offsets(dict.fromkeys(keys, EARLIEST))
    ends = client.offsets(dict.fromkeys(keys, LATEST))
    return {key: (starts[key], ends[key]) for key in keys}


def records_at(client: Client, node_id: int | None, key: Partition, start: int, end: int) -> Iterator[Record]:
    """Fetch the records of a partition from offset `start` to `end` (exclusive), from the replica on the broker
    `node_id`, or from the leader if it is None. Records of aborted transactions are included. Raises `Failure`.
    """
    where = "its leader" if node_id is None else f"broker {node_id}"
    what, position, empty_reads = f"{key[0]}-{key[1]} at {where}", start, 0
    while position < end:
        attempt = partial(_fetched, client, node_id, key, position)
        answer = client.retry(what, attempt)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # The answer does not have the log start offset.
            begin = client.offsets({key: EARLIEST})[key]
            if position < begin:
                position = begin
                continue
        client.check(answer.error_code, None, what)
        yield from (record for record in records_from(answer, position) if record.offset < end)
        batches = list(iterate_batches(bytes_of(answer)))
        if batches:
            position, empty_reads = batches[-1][1].next_offset, 0
            continue
        empty_reads += 1
        if empty_reads > EMPTY_READS_MAX:
            raise Failure(f"{what} gives nothing from offset {position} on: it has not carried out an erase order yet")


def _fetched(client: Client, node_id: int | None, key: Partition, position: int) -> PartitionData:
    broker = client.leader_of(key) if node_id is None else node_id
    answer = fetch(client, broker, {key: position}, wait_ms=WAIT_MS)[key]
    if answer.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
        client.check(answer.error_code, None, f"{key[0]}-{key[1]}")
    return answer


def runs_from(offsets: Iterable[int]) -> list[Run]:
    """Group ascending offsets into runs of consecutive offsets."""
    runs: list[Run] = []
    for offset in offsets:
        if runs and runs[-1].last == offset - 1:
            runs[-1] = Run(runs[-1].first, offset)
        else:
            runs.append(Run(offset, offset))
    return runs
