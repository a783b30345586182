"""The identity of a key, as bytes: two rows of a table by key are of the same key if their identities are equal.

The identity of a binary or text key is its bytes. That of any other key consists of the texts of its fields, each after
its length, so that two keys have one identity only if all their fields are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

KEY: Final = "key"
PREFIX: Final = "key_"
"""The prefix of the names of the columns of a key with several fields, in a flat table."""
Rows: TypeAlias = "pa.RecordBatch | pa.Table"


def key_names(names: Iterable[str]) -> list[str]:
    """The columns of the key among the columns of a table."""
    return [name for name in names if name == KEY or name.startswith(PREFIX)]


def key_identities(rows: Rows) -> pa.Array:
    """The identity of the key of each row, as binary; null if the key is null."""
    leaves = [array for _, array in scalar_fields_of(rows)]
    if len(leaves) == 1 and is_bytes(leaves[0].type):
        return _as_bytes(leaves[0])
    parts = [part for leaf in leaves for part in _measured(leaf)]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def scalar_fields_of(rows: Rows) -> Iterator[tuple[str, pa.Array]]:
    """Yield each scalar field of the keys of rows: its path and its values."""
    for name in key_names(rows.schema.names):
        column = rows.column(name)
        yield from scalar_fields(name, column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def scalar_fields(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield each scalar field of an array: its path, which begins with `path`, and its values."""
    if not pa.types.is_struct(array.type):
        yield path, array
        return
    for number, of_field in enumerate(array.flatten()):
        yield from scalar_fields(f"{path}.{array.type.field(number).name}", of_field)


def is_bytes(kind: pa.DataType) -> bool:
    """Whether the values of a type are bytes or texts."""
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    return any(test(kind) for test in tests)


def _as_bytes(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type):
        array = array.cast(pa.large_string())
    return array.cast(pa.large_binary())


def _measured(leaf: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the lengths of the values as texts, followed by a colon, and the values as bytes. A null has the length
    `-`."""
    found = _as_bytes(leaf if is_bytes(leaf.type) else leaf.cast(pa.large_string()))
    lengths = pc.binary_length(found).cast(pa.large_string()).cast(pa.large_binary())
    marks = pc.binary_join_element_wise(lengths, *(pa.scalar(each, pa.large_binary()) for each in (b"", b":")))
    return pc.fill_null(marks, b"-"), pc.fill_null(found, b"")


def _in_partitions(rows: Rows) -> pa.Array:
    """The identity of the key of each row together with the row's partition, as binary."""
    partitions = rows.column("partition").cast(pa.large_string()).cast(pa.large_binary())
    partitions = partitions.combine_chunks() if isinstance(partitions, pa.ChunkedArray) else partitions
    return pc.binary_join_element_wise(partitions, key_identities(rows), pa.scalar(b":", pa.large_binary()))


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """The keys of the changes of a round, with the partition and the time of each change."""

    key_identities: pa.Array
    partitions: pa.Array
    timestamps: pa.Array
    """The timestamp of the change of each key; `partitions` has its partition."""
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """The least and the greatest value of each scalar field of the keys, by path."""
    others: Callable[[], pa.Array | None] = lambda: None
    """Returns the further changes of these keys, each as its key's identity and its partition; None if there are none.
    Such a change is the last one of its key in its partition, and older than that of another partition. It has
    nevertheless replaced the row that came from its partition."""

    @classmethod
    def of(cls, rows: pa.Table, others: Callable[[], pa.Table | None] = lambda: None) -> ChangedKeys:
        """Make the keys of changed rows. `rows` has each key once. `others` returns the older changes of these keys in
        other partitions, or None; it is called only if they may matter."""
        bounds = {}
        for path, leaf in scalar_fields_of(rows):
            if leaf.null_count == 0 and (is_bytes(leaf.type) or pa.types.is_integer(leaf.type)):
                least, most = pc.min_max(leaf).values()
                bounds[path] = least.as_py(), most.as_py()
        partitions, timestamps = (rows[name].combine_chunks() for name in ("partition", "timestamp"))

        @cache
        def in_partitions() -> pa.Array | None:
            found = others()
            return None if found is None else _in_partitions(found)

        return cls(key_identities(rows), partitions, timestamps, bounds, in_partitions)

    def __len__(self) -> int:
        return len(self.key_identities)

    def has(self, rows: Rows) -> pa.Array:
        """Return a mask of the rows whose key is among these keys."""
        return pc.is_in(key_identities(rows), value_set=self.key_identities)

    def are_older(self, rows: Rows) -> pa.Array:
        """Return a mask of the rows of a table that are later than the change of their key. A change from the row's own
        partition is always later than the row. A key is in several partitions if the topic was given more of them. Of
        two equal timestamps, the one in the higher partition counts as later."""
        changed = pc.index_in(key_identities(rows), value_set=self.key_identities)
        partitions, timestamps = self.partitions.take(changed), self.timestamps.take(changed)
        is_higher = pc.greater(rows.column("partition"), partitions)
        is_later = pc.greater(rows.column("timestamp"), timestamps)
        is_tied = pc.and_(pc.equal(rows.column("timestamp"), timestamps), is_higher)
        is_moved = pc.not_equal(rows.column("partition"), partitions)
        others = self.others() if pc.any(is_moved).as_py() else None
        if others is not None:
            is_moved = pc.and_not(is_moved, pc.is_in(_in_partitions(rows), value_set=others))
        return pc.fill_null(pc.and_(is_moved, pc.or_(is_later, is_tied)), False)

    def without(self, left_out: pa.Array) -> ChangedKeys:
        """Return these keys without those whose identities are in `left_out`."""
        stays = pc.invert(pc.is_in(self.key_identities, value_set=left_out))
        arrays = {name: getattr(self, name).filter(stays) for name in ("key_identities", "partitions", "timestamps")}
        return replace(self, **arrays)

    def may_be_older(self, file: DataFile, schema: Schema) -> bool:
        """Whether a file may have a row with a later timestamp than one of the changes."""
        found = schema.find_field("timestamp")
        latest = (file.upper_bounds or {}).get(found.field_id)
        earliest = pc.min(self.timestamps.cast(pa.int64())).as_py()
        return latest is None or earliest is None or from_bytes(found.field_type, latest) >= earliest

    def may_be_in(self, file: DataFile, schema: Schema) -> bool:
        """Whether a file may have a row with one of the keys, by the bounds of its columns. `schema` is that of the
        table, which may lack a field that the keys have."""
        for path, (least, most) in self.bounds.items():
            if path not in schema.column_names:
                return False  # The field is null in the file, and in none of the keys.
            found = schema.find_field(path)
            lower, upper = (
                None if each is None else from_bytes(found.field_type, each)
                for each in (
                    (file.lower_bounds or {}).get(found.field_id),
                    (file.upper_bounds or {}).get(found.field_id),
                )
            )
            if (lower is not None and lower > most) or (upper is not None and upper < least):
                return False
        return True


NO_KEYS: Final = ChangedKeys(
    pa.array([], pa.large_binary()), pa.array([], pa.int32()), pa.array([], pa.timestamp("us", "UTC"))
)


def check_key_type(kind: pa.DataType, path: str = KEY) -> Sequence[str]:
    """Return the paths of the lists and maps in a key type. Keys with these have no identity."""
    if pa.types.is_struct(kind):
        return [each for inner in kind for each in check_key_type(inner.type, f"{path}.{inner.name}")]
    return [path] if pa.types.is_nested(kind) else []
