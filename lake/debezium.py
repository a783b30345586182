"""Change events of Debezium: the row of a table after a change, or that it was deleted.

    {"op": "u", "before": {…}, "after": {…}, "source": {…}, "ts_ms": …}

| op | of | becomes |
|---|---|---|
| c, r, u | an insert, a row of a snapshot, an update | the row `after` |
| d | a delete | the row of the key is deleted; the tombstone that follows deletes nothing more |
| t, m | a truncate, a message of the source | a misfit: it is of no key |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.values.registry import ValueNotDecoded

AFTER: Final = "after"
_ROWS: Final = ("c", "r", "u")
_OTHERS: Final = {"t": "a truncate of the source", "m": "a message of the source"}
DELETION: Final = object()
"""In the place of a row that is deleted."""


def row_of(event: Any) -> Any:
    """The row after the change, or `DELETION`. Raises `ValueNotDecoded` for what is not a change of a row."""
    if not isinstance(event, Mapping) or "op" not in event:
        hint = ": it has a schema part (--schema connect)" if _has_schema_part(event) else ""
        raise ValueNotDecoded(f"the value is not a change event of Debezium{hint or ': it has no op'}")
    op = event["op"]
    if op == "d":
        return DELETION
    if op not in _ROWS:
        raise ValueNotDecoded(f"the change event is {_OTHERS.get(op, f'of the op {op!r}')}, which is of no key")
    row = event.get(AFTER)
    if row is None:
        raise ValueNotDecoded(f"the change event of the op {op} has no row after the change")
    return row


def row_type(event: pa.DataType) -> pa.DataType:
    """The type of the rows, from that of the events. Raises `ValueNotDecoded`."""
    if not pa.types.is_struct(event) or event.get_field_index(AFTER) < 0 or event.get_field_index("op") < 0:
        raise ValueNotDecoded("the schema is not that of change events of Debezium: it lacks op or after")
    return event.field(AFTER).type


def _has_schema_part(event: Any) -> bool:
    return isinstance(event, Mapping) and event.keys() == {"schema", "payload"}
