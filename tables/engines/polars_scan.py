"""Topics as lazy frames of Polars: the columns and the predicate of a query plan reach the scan of the topic.

Polars passes its predicate as an expression, which can be written as JSON. Bounds on partition, offset and timestamp
are taken from this JSON if they are joined by AND; other parts of the predicate set no bounds. Polars then evaluates
the whole predicate on the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from moldau.tables.planning.pushed_filters import ALL_VALUES, PushedFilters
from moldau.tables.reading.arguments import Place, Topic
from moldau.tables.reading.filter_bounds import BOUNDED
from moldau.tables.reading.scan import Scan, intersected_filters
from moldau.tables.reading.topics import scan_of_every_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polars import DataFrame, Expr, LazyFrame

MIRRORED: Final = {"Gt": "Lt", "GtEq": "LtEq", "Lt": "Gt", "LtEq": "GtEq", "Eq": "Eq"}
"""For each comparison operator of Polars, the operator after its two sides are exchanged."""
UNITS: Final = {"Milliseconds": 1000, "Microseconds": 1}
"""The number of microseconds in each time unit of Polars."""


def polars(place: Place, topic: Topic = None, **arguments: Any) -> LazyFrame:
    """Make a lazy frame over a topic, with the arguments of `moldau.read_topic`. Each collect reads the records that
    exist then. Raises `Refused`."""
    return lazy_frame(scan_of_every_column(place, topic, **arguments))


def lazy_frame(scan: Scan) -> LazyFrame:
    """Make a lazy frame that runs the scan anew for each collect. Raises `Refused`."""
    from polars import DataFrame
    from polars.io.plugins import register_io_source

    def batches(
        with_columns: list[str] | None, predicate: Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[DataFrame]:
        yield from frames_of(scan, with_columns, predicate, n_rows)

    schema = DataFrame(scan.schema.empty_table()).schema
    frame: LazyFrame = register_io_source(batches, schema=schema, is_pure=False)
    return frame


def frames_of(
    scan: Scan, columns: list[str] | None, predicate: Expr | None, rows_max: int | None
) -> Iterator[DataFrame]:
    """Yield the frames of one scan with the columns that a query plan wants, in the order of the scan. `rows_max`
    limits the rows before the predicate is applied. Raises what `TopicScan.reader` raises."""
    from polars import DataFrame

    wanted = tuple(name for name in scan.columns if columns is None or name in columns)
    needed = wanted or scan.columns
    if predicate is not None:
        needed = tuple(name for name in scan.columns if name in {*needed, *predicate.meta.root_names()})
        empty: Any = DataFrame(scan.restricted(needed, None).schema.empty_table())
        empty.filter(predicate)  # A predicate that does not fit the types is an error, also if no row is read.
        if rows_max is None and scan.takes_bounds:
            scan = replace(scan, pushed=intersected_filters(scan.pushed, bounds_of(predicate)))
    left = rows_max
    for batch in scan.restricted(needed, None).batches():
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        frame: Any = DataFrame(batch)
        if predicate is not None:
            frame = frame.filter(predicate)
        yield frame.select(columns) if columns is not None else frame
        if left == 0:
            return


def bounds_of(predicate: Expr) -> PushedFilters:
    """The bounds on partition, offset and timestamp that a predicate sets, as far as its JSON is understood."""
    from polars.exceptions import PolarsError

    try:
        parsed: object = json.loads(predicate.meta.serialize(format="json"))
    except (PolarsError, ValueError):
        return PushedFilters()
    found = PushedFilters()
    for comparison in _conjuncts(parsed):
        found = _restricted(found, comparison)
    return found


def _conjuncts(parsed: object) -> Iterator[Mapping[str, Any]]:
    """Yield the comparisons of a predicate (parsed JSON) that are joined by AND."""
    binary = parsed.get("BinaryExpr") if isinstance(parsed, dict) else None
    if not isinstance(binary, dict):
        return
    if binary.get("op") in ("And", "LogicalAnd"):
        yield from _conjuncts(binary.get("left"))
        yield from _conjuncts(binary.get("right"))
    elif binary.get("op") in MIRRORED:
        yield binary


def _restricted(found: PushedFilters, comparison: Mapping[str, Any]) -> PushedFilters:
    """Return the filters, restricted further by the comparison of a column with a number or a time."""
    left, right, operator = comparison.get("left"), comparison.get("right"), comparison["op"]
    if not (isinstance(left, dict) and "Column" in left):
        left, right, operator = right, left, MIRRORED[operator]
    column = left.get("Column") if isinstance(left, dict) else None
    number = _number(right, is_time=column == "timestamp")
    if column not in BOUNDED or number is None:
        return found
    low, high = ALL_VALUES
    start, end = {
        "Gt": (number + 1, high),
        "GtEq": (number, high),
        "Lt": (low, number),
        "LtEq": (low, number + 1),
        "Eq": (number, number + 1),
    }[operator]
    return found.with_range(str(column), start, end)


def _number(literal: object, *, is_time: bool) -> int | None:
    """The number in a literal of a predicate; for a time, its microseconds since the epoch. None if the literal is
    neither."""
    value = literal.get("Literal") if isinstance(literal, dict) else None
    if not isinstance(value, dict):
        return None
    scalar = value.get("Scalar") or value.get("Dyn")
    if not isinstance(scalar, dict) or len(scalar) != 1:
        return None
    ((kind, content),) = scalar.items()
    if is_time:
        if kind != "Datetime" or not isinstance(content, list) or content[1] not in UNITS or not content[2]:
            return None
        return int(content[0]) * UNITS[content[1]]
    is_number = kind.startswith(("Int", "UInt")) and isinstance(content, int)
    return content if is_number else None
