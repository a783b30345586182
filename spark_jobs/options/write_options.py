"""The options of a query that writes to topics: those of Spark's Kafka connector, and the delivery guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from moldau.tables.options.option_values import checked_word, client_settings, is_client_setting, names_in, positive
from moldau.tables.refusals import Refused, warn

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
BATCH_SIZE: Final = 256 << 10
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The longest transaction timeout that a broker allows by default (transaction.max.timeout.ms)."""
_KNOWN: Final = (
    "kafka.bootstrap.servers",
    "topic",
    "delivery",
    "transactionLog",
    "checkpointLocation",
    "kafka.compression.type",
    "kafka.batch.size",
    "kafka.transaction.timeout.ms",
    "kafka.acks",
    "kafka.enable.idempotence",
)
_OF_SPARK: Final = ("queryname", "outputmode", "includeheaders")
_WHY_NOT: Final = {
    "kafka.key.serializer": "keys are strings or binary; DataFrame operations encode them",
    "kafka.value.serializer": "values are strings or binary; DataFrame operations encode them",
    "kafka.interceptor.classes": "an interceptor may change records",
    "kafka.partitioner.class": "the column partition chooses the partition, else the hash of the key",
    "kafka.transactional.id": "delivery=exactly-once gives each attempt of a task an id of its own",
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The parsed options of a query that writes to topics."""

    brokers: tuple[str, ...]
    client: tuple[tuple[str, str], ...] = ()
    topic: str | None = None
    """The topic of all rows. It takes precedence over the column `topic`."""
    is_exactly_once: bool = False
    transaction_log: str | None = None
    """The directory of the transaction log. None if the query is not a streaming query, or does not
    write exactly once."""
    codec: str = "none"
    batch_size: int = BATCH_SIZE
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS


def parse_write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Parse the options of a write. Upper and lower case in their names do not matter. Raises `Refused`."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    brokers = names_in(given.get("kafka.bootstrap.servers", ""))
    if not brokers:
        raise Refused("kafka.bootstrap.servers is not given: the brokers to write to")
    if given.get("kafka.acks", "all").strip() not in ("all", "-1"):
        raise Refused(f"kafka.acks: {given['kafka.acks']} is not all: a record that was acknowledged is not lost")
    if given.get("kafka.enable.idempotence", "true").strip().lower() != "true":
        raise Refused("kafka.enable.idempotence: the writer is always idempotent")
    delivery = checked_word("delivery", given.get("delivery", AT_LEAST_ONCE), (AT_LEAST_ONCE, EXACTLY_ONCE))
    topic = given.get("topic", "").strip()
    return WriteOptions(
        brokers=brokers,
        client=client_settings(given),
        topic=topic or None,
        is_exactly_once=delivery == EXACTLY_ONCE,
        transaction_log=_transaction_log(given) if is_stream and delivery == EXACTLY_ONCE else None,
        codec=checked_word("kafka.compression.type", given.get("kafka.compression.type", "none"), CODECS),
        batch_size=positive("kafka.batch.size", given.get("kafka.batch.size")) or BATCH_SIZE,
        transaction_timeout_ms=positive("kafka.transaction.timeout.ms", given.get("kafka.transaction.timeout.ms"))
        or TRANSACTION_TIMEOUT_MS,
    )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in _KNOWN}
    for name in sorted(given.keys() - known):
        if name in _WHY_NOT:
            raise Refused(f"the option {name} is not supported: {_WHY_NOT[name]}")
        if is_client_setting(name) or name in _OF_SPARK:
            continue
        if name.startswith("kafka."):
            warn(f"the option {name} has no effect on writing")
            continue
        raise Refused(f"the option {name} is not supported in a write: known are {', '.join(_KNOWN)}")


def _transaction_log(given: Mapping[str, str]) -> str:
    place = given.get("transactionlog") or given.get("checkpointlocation", "")
    path = place.strip().removeprefix("file://")
    if path.startswith("file:"):
        path = path.removeprefix("file:")
    if not path or "://" in path:
        raise Refused(
            "transactionLog: delivery=exactly-once needs a directory that the driver can write, one that outlives it; "
            f"the checkpoint location {place or '(not given)'} is none"
        )
    return path if "transactionlog" in given else path.rstrip("/") + "/moldau-transactions"
