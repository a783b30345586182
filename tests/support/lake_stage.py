"""A topic in a log directory, and a table that follows it: records are appended, the follower is opened and run."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from moldau.lake.follower import Follower, FollowPorts, FollowSettings
from moldau.lake.opening import (
    FollowChoices,
    LakePorts,
    catalog_of,
    identifier_of,
    load_table,
    open_follower,
    opened_catalog,
)
from moldau.lake.orphans import METADATA_NAME, referenced_files
from moldau.lake.reading import TopicReading
from moldau.lake.sink import LakeTable, SinkPorts
from moldau.lake.verification import Verification, VerificationResult
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.files.local_files import LocalFiles
from tests.support.segments import EPOCH, write_checkpoints, write_partition

FORMS = ("registry", "schema", "key_type", "envelope", "is_flat")
"""The fields of `FormChoices`."""
START_MS = 1_795_000_000_000


class LakeStage:
    """A log directory with one topic, and a warehouse beside it."""

    def __init__(self, directory: Path, *, seed: int = 0) -> None:
        self.logs = directory / "logs"
        self.warehouse = directory / "lake"
        self.schemas = directory / "schemas"
        for each in (self.logs, self.schemas):
            each.mkdir(parents=True, exist_ok=True)
        self.ends: dict[tuple[str, int], int] = {}
        self.said: list[str] = []
        self.steps: list[str] = []
        self.now_ms = START_MS + 3_600_000
        self.is_stopping = False
        self._drawn = seed

    def append(self, records: Sequence[Record], partition: int = 0, topic: str = "t") -> None:
        """Append a batch, and move the high watermark past it."""
        start = self.ends.get((topic, partition), 0)
        batch = build_batch(records, base_offset=start, partition_leader_epoch=EPOCH)
        self.ends[topic, partition] = write_partition(self.logs, [batch], topic=topic, partition=partition)
        write_checkpoints(self.logs, self.ends)

    def numbered(self, count: int, partition: int = 0, *, days: int = 1) -> None:
        """Append records whose values are their offsets, over some days."""
        start = self.ends.get(("t", partition), 0)
        times = [START_MS + each % days * 86_400_000 for each in range(start, start + count)]
        rows = range(start, start + count)
        self.append(
            [Record(f"k{each % 5}".encode(), str(each).encode(), at) for each, at in zip(rows, times, strict=True)],
            partition,
        )

    def put_schema(self, number: int, schema: object) -> None:
        (self.schemas / f"{number}.avsc").write_text(json.dumps(schema), "utf-8")

    def choices(self, **changed: Any) -> FollowChoices:
        """The choices of a user for this topic; `changed` names fields of `FollowChoices` and of what it has."""
        settings = {
            name: changed.pop(name)
            for name in ("misfits", "round_size", "has_headers", "compact_files_min")
            if name in changed
        }
        forms = {name: changed.pop(name) for name in FORMS if name in changed}
        options = {"path": str(self.logs), "kafka.isolation.level": "read_committed"}
        chosen = FollowChoices(options, "t", str(self.warehouse), mode="append", settings=FollowSettings(64 << 20))
        chosen = replace(chosen, forms=replace(chosen.forms, **forms))
        return replace(chosen, **changed, settings=replace(chosen.settings, **settings))

    def ports(self, step: Callable[[str], None] | None = None) -> LakePorts:
        sink = SinkPorts(self._random, lambda: self.now_ms, step or self.steps.append)
        follow = FollowPorts(lambda: self.now_ms, self.said.append, lambda: self.is_stopping)
        return LakePorts(LocalFiles(), sink, follow, lambda _: None)

    def open(self, step: Callable[[str], None] | None = None, **changed: Any) -> tuple[Follower, LakeTable]:
        return open_follower(self.choices(**changed), self.ports(step))

    def follow(self, **changed: Any) -> Follower:
        """Open the table, and let it catch up."""
        follower, _ = self.open(**changed)
        follower.catch_up()
        return follower

    def table(self, name: str | None = None) -> Any:
        """The table as pyiceberg loads it; `name` is that of another table in the same namespace."""
        choices = self.choices()
        identifier = identifier_of(choices)
        return catalog_of(choices).load_table((*identifier[:-1], name or identifier[-1]))

    def rows(self, name: str | None = None) -> list[dict[str, Any]]:
        """The rows, by partition and offset."""
        found = self.table(name).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row["partition"], row["offset"]))

    def offsets(self, name: str | None = None) -> list[tuple[int, int]]:
        return [(row["partition"], row["offset"]) for row in self.rows(name)]

    def verified(self, *, with_log: bool = True) -> VerificationResult:
        """What `moldau lake verify` finds."""
        catalog = opened_catalog(str(self.warehouse), None, {})
        verification = Verification(catalog, load_table(catalog, "t"))
        if not with_log:
            return verification.run()
        places = {"path": str(self.logs), "kafka.isolation.level": "read_committed"}
        return verification.run(TopicReading(LocalFiles(), places, "t", lambda _: None))

    def orphans(self, name: str | None = None) -> list[str]:
        """The files below a table that neither its metadata nor a snapshot names."""
        table = self.table(name)
        needed = {location.removeprefix("file://") for location in referenced_files(table)}
        root = Path(table.location().removeprefix("file://"))
        return sorted(str(path) for path in root.rglob("*") if path.is_file() and str(path) not in needed)

    def _random(self, size: int) -> bytes:
        self._drawn += 1
        return self._drawn.to_bytes(size, "big")


def framed(schema_id: int, schema: dict[str, Any], value: object) -> bytes:
    """A value as a serializer frames it: a zero byte, the id of the schema, Avro."""
    from fastavro import parse_schema, schemaless_writer

    written = io.BytesIO()
    schemaless_writer(written, parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4, "big") + written.getvalue()


def all_offsets(ends: Iterable[tuple[tuple[str, int], int]]) -> list[tuple[int, int]]:
    """Each (partition, offset) before the ends."""
    return sorted((partition, offset) for (_, partition), end in ends for offset in range(end))


def is_metadata(path: str) -> bool:
    return METADATA_NAME.fullmatch(path.rpartition("/")[2]) is not None
