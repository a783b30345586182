"""Opens a follower from the choices of a user: the catalog, the mode, the claim of the table, the columns, the dead
letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from moldau.lake.columns import Columns
from moldau.lake.data_files import FILE_SIZE_MAX
from moldau.lake.dead_letters import SUFFIX, DeadLetters
from moldau.lake.durable_files import DurableFileIO, make_durable_directory
from moldau.lake.follower import Follower, FollowPorts, FollowSettings
from moldau.lake.layout import ChosenLayout
from moldau.lake.ledger import Ledger
from moldau.lake.reading import TopicReading
from moldau.lake.round_rows import DEAD_LETTER
from moldau.lake.sink import FORM, LakeTable, NewTable, SinkPorts, ledger_of
from moldau.lake.table_form import FormChoices, TableForm, first_schema, form_of
from moldau.lake.upsert import FILE_SIZE_MAX as REPLACED_SIZE_MAX
from moldau.storage.files.port import FileSystem
from moldau.tables.refusals import Refused
from moldau.tables.values.registry import SchemaSource

NAMESPACE: Final = "default"
TOPIC: Final = "{topic}"
"""The placeholder, in the name of a table, for the default name of its topic's table."""
CATALOG_DATABASE: Final = "catalog.db"
"""The name of the SQLite database with the catalog, in a warehouse directory."""
FILES: Final = {"py-io-impl": f"{DurableFileIO.__module__}.{DurableFileIO.__name__}"}
CATALOG_ERRORS: Final = tuple(
    each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, Exception)
)
"""The exceptions of pyiceberg, which have no common base class."""


@dataclass(frozen=True, slots=True)
class FollowChoices:
    """The choices of a user for one follower. `options` are the options of the data source, for places
    and isolation."""

    options: Mapping[str, str]
    topic: str
    warehouse: str | None = None
    """A warehouse: a directory with a catalog of its own."""
    catalog: str | None = None
    """The name of a catalog that pyiceberg's configuration may describe."""
    catalog_properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the catalog `catalog`. They take precedence over its configuration."""
    table: str | None = None
    """The name of the table, `namespace.name`, in which `{topic}` stands for the topic. By default it is the topic, in
    the namespace `default`."""
    mode: str = "auto"
    forms: FormChoices = field(default_factory=FormChoices)
    """The forms of keys and values."""
    unit: str | None = "day"
    """The unit of time by which a new table is partitioned; None if it is not partitioned by time."""
    settings: FollowSettings = field(default_factory=lambda: FollowSettings(64 << 20))
    layout: ChosenLayout = field(default_factory=ChosenLayout)
    """The layout of a new table that the user chose."""


@dataclass(frozen=True, slots=True)
class LakePorts:
    """The functions and services of the process that the follower and its table use."""

    fs: FileSystem
    sink: SinkPorts
    follow: FollowPorts
    sleep: Callable[[float], None]
    """A function that waits for some seconds."""


def open_follower(
    choices: FollowChoices, ports: LakePorts, catalog: Catalog | None = None
) -> tuple[Follower, LakeTable]:
    """Become the writer of the table of a topic, and delete the orphans that an earlier process has left. Returns the
    follower and the table. `catalog`: the catalog of the choices, if it is open already. A table that cannot be
    followed with these choices is not changed, and keeps its writer.

    Raises `Refused`, also for a registry that is neither a URL nor a directory; `DataLost`, `CorruptCheckpoint` and
    OSError of the places; and what `LakeTable.claim` raises.
    """
    form, has_headers = choices.forms.form(), choices.settings.has_headers
    if choices.forms.registry is not None:
        SchemaSource(choices.forms.registry).check()
    reading = TopicReading(ports.fs, choices.options, choices.topic, ports.sleep)
    mode = choices.mode
    if mode == "auto":
        mode = "upsert" if form.envelope is not None or reading.is_compacted() else "append"
    if form.envelope is not None and mode == "append":
        raise Refused("--envelope makes a table by key: --mode append keeps change events as they are, without it")
    starts, topic_id = reading.starts()
    size_max = REPLACED_SIZE_MAX if mode == "upsert" else FILE_SIZE_MAX
    catalog, identifier = catalog or catalog_of(choices), identifier_of(choices)
    table = LakeTable(catalog, identifier, ports.sink, size_max)
    wanted = Ledger(choices.topic, mode, reading.isolation, table.writer, starts, topic_id, reading.cluster_id, {})
    unit = choices.unit if mode == "append" else None
    properties = {FORM: form.to_property(), **choices.layout.to_properties()}
    new = NewTable(first_schema(form, has_headers=has_headers), unit, properties)
    letters = None
    if choices.settings.misfits == DEAD_LETTER:
        named = (*identifier[:-1], identifier[-1] + SUFFIX)
        letters = DeadLetters(LakeTable(catalog, named, ports.sink), has_headers=has_headers)
        letters.check(wanted)
    known = table.check(wanted)
    if known is not None and ledger_of(known) is not None:
        check_form(known, form)
        columns_of(known, choices.forms, has_headers=has_headers)
    ledger = table.claim(wanted, new)
    orphans = table.sweep()
    if letters is not None:
        letters.claim(wanted)
    columns = columns_of(catalog.load_table(identifier), choices.forms, has_headers=has_headers)
    follower = Follower(reading, table, columns, ledger, choices.settings, ports.follow, letters)
    follower.progress.orphans_count = len(orphans)
    return follower, table


def catalog_of(choices: FollowChoices) -> Catalog:
    """Open the catalog of the choices: by its name and properties, or the catalog in a warehouse directory, which is
    made if it is missing.

    Raises `Refused` and OSError.
    """
    if choices.warehouse is None:
        return opened_catalog(None, choices.catalog, choices.catalog_properties)
    make_durable_directory(Path(choices.warehouse).absolute())
    return _catalog_in(choices.warehouse)


def opened_catalog(warehouse: str | None, name: str | None, properties: Mapping[str, str]) -> Catalog:
    """Open the catalog in an existing warehouse directory; without a directory the catalog `name`, with these
    properties besides those of pyiceberg's configuration. Raises `Refused`."""
    if warehouse is None:
        try:
            return load_catalog(name, **{**properties, **FILES})
        except ValueError as problem:
            raise Refused(f"--catalog {name}: {problem}") from None
    if not (Path(warehouse) / CATALOG_DATABASE).is_file():
        raise Refused(f"{warehouse}: there is no {CATALOG_DATABASE}, as moldau follow-table makes it")
    return _catalog_in(warehouse)


def _catalog_in(warehouse: str) -> Catalog:
    directory = Path(warehouse).absolute()
    return load_catalog(
        "moldau",
        type="sql",
        uri=f"sqlite:///{directory / CATALOG_DATABASE}",
        warehouse=f"file://{directory}",  # pyiceberg takes the path as it is, without decoding %20.
        **FILES,
    )


def identifier_of(choices: FollowChoices) -> tuple[str, ...]:
    """The namespaces and the name of the table that the choices name. Raises `Refused`."""
    if choices.table is None:
        return default_identifier(choices.topic)
    parts = tuple(choices.table.replace(TOPIC, default_identifier(choices.topic)[-1]).split("."))
    if len(parts) < 2 or not all(parts):
        raise Refused(f"--table {choices.table}: a table has a namespace and a name, with a dot between them")
    return parts


def default_identifier(topic: str) -> tuple[str, ...]:
    """The namespace and the name of a topic's table if the user has named none."""
    return NAMESPACE, re.sub(r"\W", "_", topic, flags=re.ASCII)


def load_table(catalog: Catalog, name: str) -> Table:
    """Load a table. `name` is a topic, whose table has the default name, or the name of a table with its namespaces.
    Raises `Refused` if there is no such table."""
    tried = [default_identifier(name)]
    if "." in name:
        tried.append(tuple(name.split(".")))
    for identifier in tried:
        try:
            return catalog.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            continue
    raise Refused(f"there is no table {' and no table '.join('.'.join(each) for each in tried)}")


def check_form(table: Table, wanted: TableForm) -> None:
    """Raise `Refused` if the form of a table is not `wanted`, so that further rows would be made in another way."""
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    form_of(table.metadata.properties, schema).check(wanted, ".".join(table.name()))


def columns_of(table: Table, forms: FormChoices, *, has_headers: bool) -> Columns:
    """Return the columns by which the rows of a table are made. Raises `Refused` if the table cannot have them."""
    if has_headers and "headers" not in table.schema().column_names:
        raise Refused(f"table {'.'.join(table.name())} was begun without --headers")
    return forms.columns(table, has_headers=has_headers)
