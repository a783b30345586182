"""docs/engines.md, from the cells of the matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tests.engines.environments import ENVIRONMENTS

NOT_RUN: Final = (
    "Iceberg and Delta by Spark from 4.2 on, for which there is no jar; Iceberg and Delta by DuckDB 2.0, of which pip "
    "has no extensions."
)


class Note(NamedTuple):
    """Why cells are not equal, and the way around it."""

    paths: tuple[str, ...]
    """What the names of the paths begin with, or end with."""
    traps: tuple[str, ...]
    """What the names of the traps begin with; none for all."""
    words: str


NOTES: Final = (
    Note(
        ("Polars, Parquet", "Delta, Polars", "Iceberg, Polars"),
        ("map with",),
        "Polars keeps the last pair of a repeated key of a Parquet file (`findings/polars_parquet_map_keys.sh`): "
        "`read_parquet(use_pyarrow=True)`, or Arrow.",
    ),
    Note(
        ("DuckDB, Arrow", "DuckDB 1.5, Arrow"),
        ("map with",),
        "DuckDB takes no map with a repeated key from Arrow: read Parquet, or cast to a list of structs.",
    ),
    Note(
        ("Daft, Arrow",),
        ("enum", "string_view"),
        "Daft makes these columns Python objects (`findings/daft_pickles_columns.sh`): cast them to `string`.",
    ),
    Note(
        ("Iceberg, pyiceberg",),
        ("list of structs", "map of structs", "headers"),
        "A scan of pyiceberg makes a null list or map of structs empty "
        "(`findings/pyiceberg_null_lists_of_structs.sh`): read by Polars, DuckDB or Spark.",
    ),
    Note(
        ("chdb",),
        ("struct", "list", "large_list", "map", "headers", "union"),
        "ClickHouse has no null list, map or struct: they are empty, or a struct of nulls. A column of `is null` "
        "beside keeps the difference.",
    ),
    Note(("chdb",), ("time",), "chdb reads a time of day as a time of 1970-01-01."),
    Note(
        ("deltalake", "Delta", "DuckDB 1.5"),
        ("timestamp in ns",),
        "Cut to microseconds, without a word: Moldau's own times are in microseconds.",
    ),
    Note(
        ("Iceberg",),
        ("timestamp past", "timestamp in µs"),
        "pyiceberg describes files by values of `datetime`, which ends with the year 9999: `moldau follow-table` takes "
        "such records by its policy for misfits ([lake](lake.md)).",
    ),
    Note(
        ("deltalake", "Delta", "Iceberg", "Spark", "chdb", "Daft, Parquet"),
        ("uint64", "time", "timestamp in ns", "date past 9999", "string_view"),
        "The format or the library does not have the type or the value.",
    ),
    Note(
        ("Iceberg, Daft",),
        (),
        "Daft reads no table of Iceberg to which files without field ids were added (`add_files`, as here): those that "
        "`moldau follow-table` writes have them.",
    ),
    Note(
        ("pandas 2, to_pandas()", "pandas 3, to_pandas()"),
        (),
        "pandas without Arrow makes integers beside nulls doubles, which change those past 2^53, NaN null, and has no "
        "date past 9999: `types_mapper=pandas.ArrowDtype`, as `moldau.pandas`.",
    ),
    Note(
        ("PyArrow, CSV", "DuckDB, CSV", "Polars, JSON lines"),
        (),
        "A text has no types: bytes, dates, decimals and nested values are texts, and what the reader makes of them it "
        "infers. Use Parquet or Arrow for what must come back as it was.",
    ),
    Note(
        ("DataFusion, Arrow",),
        ("an empty",),
        "`register_record_batches` wants a batch: register the dataset, or a file.",
    ),
)
MARKS: Final = {"=": "=", "—": "—"}


def note_of(path: str, trap: str) -> int | None:
    """The number of the note for a cell."""
    for number, note in enumerate(NOTES, 1):
        if path.startswith(note.paths) and (not note.traps or trap.startswith(note.traps)):
            return number
    return None


def page(cells: Mapping[str, Mapping[str, str]], failed: Iterable[str]) -> str:
    """The text of the page."""
    paths = list(cells)
    titles = list(next(iter(cells.values())))
    used: dict[int, None] = {}
    open_cells: list[str] = []
    lines = []
    for path in paths:
        row = []
        for title in titles:
            told = cells[path][title]
            number = note_of(path, title)
            if told in MARKS:
                row.append(told)
                continue
            kind = "✗" if told.startswith("refused") else "≠"
            row.append(f"{kind}{number or ''}")
            if number is None:
                open_cells.append(f"- {path}, {title}: {told.replace('|', '¦')}")
            else:
                used[number] = None
        lines.append(f"| {path} | {' | '.join(row)} |")
    counts = {kind: sum(told.startswith(kind) for row in cells.values() for told in row.values()) for kind in KINDS}
    pins = "; ".join(f"{name}: {', '.join(packages)}" for name, packages in ENVIRONMENTS.items())
    notes = [f"{number}. {note.words}" for number, note in enumerate(NOTES, 1)]
    letters = [f"T{number}" for number in range(1, len(titles) + 1)]
    return "\n".join(
        [
            "# What engines and formats make of a topic's values",
            "",
            "Computed by `make engines`, which installs the engines in environments of their own (`tests/engines/`). "
            "Each value goes the path and comes back as Arrow. A cell compares it with the truth: `=` equal, `≠` "
            "changed, `✗` refused, with the number of a note below; `—` not a topic.",
            "",
            f"{counts['=']} cells are equal, {counts['changed']} changed, {counts['refused']} refused. Of the paths "
            f"that begin with `moldau`, {own_faults(cells)} cells are changed or refused.",
            "",
            "The traps: " + "; ".join(f"{letter} {title}" for letter, title in zip(letters, titles, strict=True)) + ".",
            "",
            f"| path | {' | '.join(letters)} |",
            f"|---|{'---|' * len(titles)}",
            *lines,
            "",
            "## Notes, with the way around",
            "",
            *notes,
            *(["", "Other cells, as the engine says it:", "", *open_cells] if open_cells else []),
            "",
            f"Not run: {NOT_RUN}" + "".join(f" {each}." for each in failed),
            "",
            f"Versions: {pins}.",
            "",
        ]
    )


KINDS: Final = ("=", "changed", "refused")


def own_faults(cells: Mapping[str, Mapping[str, str]]) -> int:
    """The cells of our own paths that are neither equal nor left out."""
    own = (row for path, row in cells.items() if path.startswith("moldau"))
    return sum(told not in MARKS for row in own for told in row.values())
