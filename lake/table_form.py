"""The form of a table: how its rows are made from records. It is stored as a property of the table, so that a later
run, a live read and a verification know it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from moldau.lake.columns import Columns, DecodedColumns, RawColumns, TypedColumn, raw_schema, read_columns
from moldau.lake.flattening import RESERVED_COLUMNS
from moldau.lake.forms import (
    BINARY,
    CONNECT,
    JSON,
    REGISTRY,
    SERIALIZED,
    ConnectForm,
    Form,
    JsonForm,
    KafkaSerializerForm,
    RegistryForm,
)
from moldau.lake.keys import KEY, key_names
from moldau.lake.sink import FORM
from moldau.lake.sink import SAMPLE as SAMPLE_PROPERTY
from moldau.tables.refusals import Refused
from moldau.tables.values.registry import SchemaSource
from moldau.tables.values.topic_types import SAMPLE, given_type
from moldau.tables.values.value_types import plain_type

VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class TableForm:
    """The form of a table: how keys and values become columns."""

    key: str = BINARY
    value: str = BINARY
    envelope: str | None = None
    """`debezium` if the values are change events; otherwise None."""
    is_flat: bool = False

    def to_property(self) -> str:
        return json.dumps(asdict(self))

    def check(self, wanted: TableForm, name: str) -> None:
        """Raise `Refused` if a run with the form `wanted` would make other rows than the table `name` has."""
        if wanted == self:
            return
        if self.value == REGISTRY and wanted.value == BINARY:
            raise Refused(f"table {name} has decoded values: --registry says where their schemas are")
        if self.value == BINARY and wanted.value == REGISTRY:
            raise Refused(f"table {name} was begun without --registry, and has the values as they are")
        raise Refused(f"table {name} was begun with {self}, and this run has {wanted}")

    def __str__(self) -> str:
        flat = ", flat" if self.is_flat else ""
        return f"keys: {self.key}, values: {self.value}, envelope: {self.envelope or 'none'}{flat}"


def form_of(properties: Mapping[str, str], schema: pa.Schema) -> TableForm:
    """Return the form of a table. A table of an earlier version does not state its form, so it is derived from the
    columns."""
    written = properties.get(FORM)
    if written is not None:
        return TableForm(**json.loads(written))
    is_raw = VALUE in schema.names and plain_type(schema.field(VALUE).type).equals(pa.binary())
    return TableForm(value=BINARY if is_raw else REGISTRY)


@dataclass(frozen=True, slots=True)
class FormChoices:
    """The forms of keys and values that a user chose."""

    registry: str | None = None
    """The URL of a registry, or a directory with schemas. If it is given, values are framed."""
    schema: str | None = None
    """The schema of JSON values: `sample`, `connect`, or a file with a JSON Schema."""
    key_type: str = BINARY
    """The form of the keys. For keys in JSON it is `sample`, or a file with a JSON Schema."""
    envelope: str | None = None
    is_flat: bool = False

    def form(self) -> TableForm:
        """Return the form of the table for these choices. Raises `Refused` if they contradict each other."""
        if self.registry is not None and self.schema is not None:
            raise Refused("--schema is of values without a registry: leave out --schema or --registry")
        if self.key_type == REGISTRY and self.registry is None:
            raise Refused("--key-type registry needs --registry")
        value = REGISTRY if self.registry is not None else BINARY
        if self.schema is not None:
            value = CONNECT if self.schema == CONNECT else JSON
        if self.envelope is not None and value == BINARY:
            raise Refused(f"--envelope {self.envelope} needs --registry or --schema, by which values are decoded")
        serialized = self.key_type in (BINARY, REGISTRY, CONNECT) or self.key_type in SERIALIZED
        return TableForm(self.key_type if serialized else JSON, value, self.envelope, self.is_flat)

    def columns(self, table: Table, *, has_headers: bool) -> Columns:
        """Make the columns by which the rows of a table are made. Raises `Refused`."""
        schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
        form = form_of(table.metadata.properties, schema)
        typed = [
            TypedColumn(
                name,
                self._form(name, of_column, form, table.metadata.properties),
                stored_type(schema, name, form),
                is_enveloped=name == VALUE and form.envelope is not None,
                is_flat=form.is_flat,
            )
            for name, of_column in ((KEY, form.key), (VALUE, form.value))
            if of_column != BINARY
        ]
        if typed:
            return DecodedColumns(*typed, has_headers=has_headers)
        return RawColumns(read_columns(has_headers=has_headers))

    def _form(self, name: str, chosen: str, form: TableForm, properties: Mapping[str, str]) -> Form:
        is_enveloped = name == VALUE and form.envelope is not None
        if chosen == REGISTRY:
            if self.registry is None:
                raise Refused("the table has decoded values: --registry says where their schemas are")
            return RegistryForm(SchemaSource(self.registry), is_enveloped=is_enveloped)
        if chosen == CONNECT:
            return ConnectForm(is_enveloped=is_enveloped)
        if chosen != JSON:
            return KafkaSerializerForm(chosen)
        given = self.schema if name == VALUE else self.key_type
        stored = properties.get(f"{SAMPLE_PROPERTY}{name}")
        if given not in (None, SAMPLE, BINARY):
            given_type(str(given))  # It refuses what is not a JSON Schema.
            stored = Path(str(given)).read_text("utf-8")
        return JsonForm(None if stored is None else json.loads(stored), is_enveloped=is_enveloped)


def stored_type(schema: pa.Schema, name: str, form: TableForm) -> pa.DataType | None:
    """The type of the column `key` or `value` in a table. For a flat table it is the struct of the columns that come
    from it. None if the table does not have it yet."""
    if not form.is_flat:
        return plain_type(schema.field(name).type) if name in schema.names else None
    keys = key_names(schema.names)
    names = (
        keys
        if name == KEY
        else [each for each in schema.names if each not in keys and each not in RESERVED_COLUMNS[:-1]]
    )
    return pa.struct([pa.field(each, plain_type(schema.field(each).type)) for each in names]) if names else None


def first_schema(form: TableForm, *, has_headers: bool) -> pa.Schema:
    """The columns of a new table, without those whose types are determined by the first records."""
    schema = raw_schema(read_columns(has_headers=has_headers))
    left_out = {name for name, of_column in ((KEY, form.key), (VALUE, form.value)) if of_column != BINARY}
    return pa.schema([field for field in schema if field.name not in left_out])
