"""Moldau, a Kafka-compatible broker: the package under which a wheel installs every other one of this repository.

The functions that read topics without a broker (`pip install 'moldau[arrow]'`) are imported when they are used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.lake.live_table import table as table
    from moldau.tables.engines.duckdb_views import duckdb as duckdb
    from moldau.tables.engines.pandas_frame import pandas as pandas
    from moldau.tables.engines.polars_scan import polars as polars
    from moldau.tables.engines.topic_dataset import dataset as dataset
    from moldau.tables.reading.topics import batches as batches
    from moldau.tables.reading.topics import groups as groups
    from moldau.tables.reading.topics import json_schema as json_schema
    from moldau.tables.reading.topics import latest as latest
    from moldau.tables.reading.topics import offsets as offsets
    from moldau.tables.reading.topics import read_topic as read_topic
    from moldau.tables.reading.topics import read_topic_async as read_topic_async
    from moldau.tables.reading.topics import segments as segments
    from moldau.tables.reading.topics import topics as topics
    from moldau.tables.reading.topics import transactions as transactions
    from moldau.tables.values.column_decoding import values as values

__version__ = "0.1.0"

_EXPORTED = {
    "tables.reading.topics": (
        "read_topic",
        "read_topic_async",
        "latest",
        "batches",
        "segments",
        "topics",
        "offsets",
        "groups",
        "transactions",
        "json_schema",
    ),
    "tables.engines.topic_dataset": ("dataset",),
    "tables.engines.duckdb_views": ("duckdb",),
    "tables.engines.polars_scan": ("polars",),
    "tables.engines.pandas_frame": ("pandas",),
    "tables.values.column_decoding": ("values",),
    "lake.live_table": ("table",),
}
"""The public names, by the module that has them."""
_NEEDED = {
    "duckdb": ("sql", ("duckdb",)),
    "polars": ("arrow", ("polars",)),
    "pandas": ("arrow", ("pandas",)),
    "table": ("iceberg", ("pyiceberg", "sqlalchemy")),
}
"""The extra that a public name needs, and packages besides pyarrow and numpy. A name that is not here needs the extra
`arrow`.
"""


def __getattr__(name: str) -> Any:
    for module, names in _EXPORTED.items():
        if name in names:
            _check_installed(name)
            return getattr(import_module(f"moldau.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _check_installed(name: str) -> None:
    """Check what a public name needs. Raises ImportError, which names all that is missing."""
    extra, further = _NEEDED.get(name, ("arrow", ()))
    missing = [package for package in ("pyarrow", "numpy", *further) if find_spec(package) is None]
    if missing:
        engine = f" {name}" if name in missing and extra == "arrow" else ""
        raise ImportError(
            f"moldau.{name} needs {' and '.join(missing)}, not installed here: pip install 'moldau[{extra}]'{engine}"
        )


def __dir__() -> list[str]:
    return sorted([*globals(), *(name for names in _EXPORTED.values() for name in names)])
