"""Bugs in how records become rows of a table: forms, keys, change events, flat tables, layouts."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

KEYS: Final = "lake/keys.py"
FLATTENING: Final = "lake/flattening.py"
DEBEZIUM: Final = "lake/forms.py"
LAYOUT: Final = "lake/layout.py"
FORMS: Final = "lake/forms.py"
SINK: Final = "lake/sink.py"
UPSERT: Final = "lake/upsert.py"

TABLE_MUTANTS: Final = (
    Mutant(
        680,
        "keys of several fields are one if their texts are, one behind the other",
        KEYS,
        "    parts = [part for leaf in leaves for part in _measured(leaf)]\n",
        "    parts = [_measured(leaf)[1] for leaf in leaves]\n",
        Hunt.TABLES,
    ),
    Mutant(
        681,
        "a file whose least key is the greatest that has changed is not written anew",
        KEYS,
        "lower > most) or",
        "lower >= most) or",
        Hunt.TABLES,
    ),
    Mutant(
        682,
        "a field of a value takes the column of a field of the key in a flat table",
        FLATTENING,
        'return f"value_{joined}" if joined in RESERVED_COLUMNS or joined.startswith(PREFIX) else joined',
        'return f"value_{joined}" if joined in RESERVED_COLUMNS else joined',
        Hunt.TABLES,
    ),
    Mutant(
        683,
        "the records within a map keep their names in a flat table, and so lose their values",
        FLATTENING,
        "    return [(key, _changed(change, each)) for key, each in pairs]\n",
        "    return [(key, each) for key, each in pairs]\n",
        Hunt.TABLES,
    ),
    Mutant(
        684,
        "the rows of a snapshot of Debezium do not fit",
        DEBEZIUM,
        '_ROWS: Final = ("c", "r", "u")\n',
        '_ROWS: Final = ("c", "u")\n',
        Hunt.TABLES,
    ),
    Mutant(
        685,
        "a row that was deleted at the source is what it was before",
        DEBEZIUM,
        "        return DELETION\n",
        '        return event.get("before")\n',
        Hunt.TABLES,
    ),
    Mutant(
        686,
        "rows without a value in the field of a partition are in no file",
        LAYOUT,
        "        is_it = pc.equal(column, value) if value.is_valid else column.is_null()\n",
        "        is_it = pc.equal(column, value)\n",
        Hunt.TABLES,
    ),
    Mutant(
        687,
        "rows with the text null are in the partition of those without a value",
        LAYOUT,
        '        return "%6Eull"\n',
        '        return "null"\n',
        Hunt.TABLES,
    ),
    Mutant(
        688,
        "a message within a schema has the column of the first one",
        FORMS,
        "            (schema_id, *path),\n",
        "            (schema_id,),\n",
        Hunt.TABLES,
    ),
    Mutant(
        689,
        "each batch is a sample that gives the types anew",
        FORMS,
        "        if self.schema is None:\n            with suppress(NoSample):\n",
        "        if True:\n            with suppress(NoSample):\n",
        Hunt.TABLES,
    ),
    Mutant(
        740,
        "a key that moved to another partition gets the value that is read last",
        KEYS,
        "pc.or_(is_later, is_tied)), False)",
        "pc.and_(is_later, is_tied)), False)",
        Hunt.TABLES,
    ),
    Mutant(
        741,
        "a record with an earlier time than the one before it in its partition changes nothing",
        KEYS,
        "pc.fill_null(pc.and_(is_moved, pc.or_(is_later, is_tied)), False)",
        "pc.fill_null(pc.or_(is_later, is_tied), False)",
        Hunt.TABLES,
    ),
    Mutant(
        742,
        "a new table deletes the files of one that had its name",
        SINK,
        "            if has_files_of_attempts(making._table):\n",
        "            if False:\n",
        Hunt.TABLES,
    ),
    Mutant(
        743,
        "the values of a column that another program renamed are in no file",
        "lake/follower.py",
        "            if not attempt.has(self._columns.schema):\n",
        "            if False:\n",
        Hunt.TABLES,
    ),
    Mutant(
        744,
        "a run that is refused because of its dead letters takes the table from its writer",
        "lake/opening.py",
        "        letters.check(wanted)\n",
        "",
        Hunt.TABLES,
    ),
    Mutant(
        760,
        "of a key in several partitions the changes of all but one are forgotten before the round is over",
        UPSERT,
        "        self._keep(_last_in_partitions(KeyedRows.of(self._keys_and_places())))\n",
        "        places = Places.of(self._keys_and_places())\n"
        "        self._keep(_last_of_keys(places, _last_in_partitions(places)))\n",
        Hunt.TABLES,
    ),
    Mutant(
        761,
        "the rows that stay in each batch of a file are chosen by the keys of its first batch",
        UPSERT,
        "~is_changed[start : start + len(batch)], start + len(batch)",
        "~is_changed[start : start + len(batch)], start",
        Hunt.TABLES,
    ),
    Mutant(
        762,
        "a row outlives a later record of its key and partition, if a round has a newer one of another partition",
        KEYS,
        "        if others is not None:\n",
        "        if False:\n",
        Hunt.TABLES,
    ),
    Mutant(
        776,
        "a column of which one row group has no bounds has those of the others, so that rows are not found",
        "lake/data_files.py",
        "            bounds.pop(ids[path], None)\n",
        "            pass\n",
        Hunt.TABLES,
    ),
    Mutant(
        777,
        "a key that decodes to null is the key of a row",
        "lake/columns.py",
        "                    if made is None and not may_become_null:\n",
        "                    if False:\n",
        Hunt.TABLES,
    ),
    Mutant(
        778,
        "a sweep deletes files of a process that is taking the table over",
        SINK,
        "        if not self._commit_empty():\n",
        "        if False:\n",
        Hunt.TABLES,
    ),
)
