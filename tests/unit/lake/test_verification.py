"""`moldau lake verify`: nothing is found in a sound table, and each of a hundred planted faults is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from moldau.broker.cli.command import main
from moldau.lake.durable_files import DurableFileIO
from moldau.lake.ledger import TAKEN
from moldau.lake.offset_runs import RUNS
from moldau.lake.opening import CATALOG_DATABASE
from moldau.lake.round_rows import DEAD_LETTER
from moldau.lake.verification import VerificationResult
from moldau.protocol.record_builder import Record, build_batch
from tests.support.lake_stage import START_MS, LakeStage, framed
from tests.support.segments import EPOCH, write_checkpoints, write_partition

pytestmark = pytest.mark.slow

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
FAULTS = ("row missing", "row twice", "changed offset", "foreign file")
PLANTS = ("in place", "in place, without its runs", "by a commit of another program")


def stage_of(directory: Path, kind: str) -> LakeStage:
    """A table of two partitions in several commits, whose topic has a hole."""
    stage = LakeStage(directory)
    stage.put_schema(1, SCHEMA)
    for number in range(4):
        for partition in (0, 1):
            start = stage.ends.get(("t", partition), 0)
            records = []
            for offset in range(start, start + 30):
                key = f"{partition}-{offset % 40}".encode() if kind == "upsert" else b"k"
                value = None if kind == "upsert" and offset % 13 == 0 else framed(1, SCHEMA, {"id": offset})
                if kind == DEAD_LETTER and offset % 11 == 3:
                    value = b"not framed"
                records.append(Record(key, value, START_MS))
            last = start + (29 if number != 2 else 34)
            batch = build_batch(records, base_offset=start, partition_leader_epoch=EPOCH, last_offset=last)
            stage.ends["t", partition] = write_partition(stage.logs, [batch], partition=partition)
        write_checkpoints(stage.logs, stage.ends)
        stage.follow(**options(stage, kind))
    return stage


def options(stage: LakeStage, kind: str) -> dict[str, Any]:
    if kind == DEAD_LETTER:
        return {"unit": None, "registry": str(stage.schemas), "misfits": DEAD_LETTER}
    return {"unit": None, "mode": kind}


def verify(stage: LakeStage, *, with_log: bool = False) -> VerificationResult:
    return stage.verified(with_log=with_log)


class Planter:
    """Plants a fault into a table and takes it out again."""

    def __init__(self, stage: LakeStage, dice: Random) -> None:
        self._stage = stage
        self._dice = dice

    @contextmanager
    def planted(self, fault: str, plant: str, name: str) -> Iterator[None]:
        catalog = self._stage.warehouse / CATALOG_DATABASE
        shutil.copy(catalog, catalog.with_suffix(".kept"))
        table = self._stage.table(name)
        path = Path(self._dice.choice(list(table.scan().plan_files())).file.file_path.removeprefix("file://"))
        content = path.read_bytes()
        if plant.startswith("in place") and fault != "foreign file":
            self._write(path, self._changed(pq.read_table(path), fault), keeps_runs=plant == "in place")
        else:
            self._commit(table, fault)
        yield
        path.write_bytes(content)
        shutil.move(catalog.with_suffix(".kept"), catalog)

    def _changed(self, rows: pa.Table, fault: str) -> pa.Table:
        at = self._dice.randrange(len(rows))
        before, one, after = rows.slice(0, at), rows.slice(at, 1), rows.slice(at + 1)
        instead = {"row missing": [], "row twice": [one, one], "changed offset": [self._moved(one)]}[fault]
        return pa.concat_tables([before, *instead, after])

    def _moved(self, one: pa.Table) -> pa.Table:
        """A row at another offset, also one of the hole or past the end."""
        offset = one["offset"][0].as_py()
        other = self._dice.choice([each for each in range(150) if each != offset])
        at = one.schema.get_field_index("offset")
        return one.set_column(at, one.schema.field(at), pa.array([other], pa.int64()))

    def _write(self, path: Path, rows: pa.Table, *, keeps_runs: bool) -> None:
        runs = pq.ParquetFile(path).metadata.metadata[RUNS.encode()]
        with pq.ParquetWriter(path, rows.schema) as writer:
            writer.write_table(rows)
            if keeps_runs:
                writer.add_key_value_metadata({RUNS: runs.decode()})

    def _commit(self, table: Any, fault: str) -> None:
        rows = table.scan().to_arrow()
        one = rows.slice(self._dice.randrange(len(rows)), 1)
        partition, offset = one["partition"][0].as_py(), one["offset"][0].as_py()
        if fault in ("row missing", "changed offset"):
            table.delete(f"partition = {partition} and offset = {offset}")
        if fault != "row missing":
            table.append(one if fault == "row twice" else self._moved(one))


def test_a_hundred_planted_faults_are_found(tmp_path: Path) -> None:
    dice = Random(41)
    found = 0
    tables = [("append", "t"), ("upsert", "t"), (DEAD_LETTER, "t"), (DEAD_LETTER, "t_dead_letters")]
    stages = {kind: stage_of(tmp_path / kind, kind) for kind in ("append", "upsert", DEAD_LETTER)}
    for stage in stages.values():
        for with_log in (False, True):
            assert verify(stage, with_log=with_log).findings == []
    for number in range(100):
        kind, name = tables[number % len(tables)]
        fault, plant = FAULTS[number // 4 % 4], PLANTS[number // 16 % 3]
        planter = Planter(stages[kind], dice)
        with planter.planted(fault, plant, name):
            # A row of a table by key that another program has moved to a free offset is told by the log alone.
            needs_log = kind == "upsert" and fault == "changed offset" and plant != "in place"
            assert verify(stages[kind], with_log=needs_log).findings, (kind, name, fault, plant)
            assert verify(stages[kind], with_log=True).findings, (kind, name, fault, plant)
            found += 1
    assert found == 100
    for stage in stages.values():
        assert verify(stage, with_log=True).findings == []


def test_what_is_counted_and_what_the_command_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = stage_of(tmp_path, DEAD_LETTER)
    found = verify(stage, with_log=True)
    assert (found.records_count, found.rows_count + found.letters_count) == (240, 240)
    assert found.misfits_count == found.letters_count == len(stage.offsets("t_dead_letters"))
    named = ["--warehouse", str(stage.warehouse), "--table", "t"]
    assert main(["lake", "verify", *named, "--path", str(stage.logs)]) == 0
    assert "each offset is there once" in capsys.readouterr().out
    stage.table().delete("partition = 1 and offset = 2")
    assert main(["lake", "verify", *named, "--path", str(stage.logs), "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert any("neither in the table nor a misfit: 2" in each for each in findings)
    assert main(["lake", "verify", "--warehouse", str(tmp_path / "gone"), "--table", "t"]) == 1
    assert "there is no catalog.db" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_each_data_file_is_read_once(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(tmp_path, kind)
    opened: list[str] = []
    new_input = DurableFileIO.new_input

    def noted(io: DurableFileIO, location: str) -> Any:
        opened.append(location)
        return new_input(io, location)

    monkeypatch.setattr(DurableFileIO, "new_input", noted)
    found = stage.verified(with_log=False)
    files = [each for each in opened if each.endswith(".parquet")]
    assert found.findings == [] and len(files) == len(set(files)) == found.files_count > 0


def test_skipped_records_are_counted_over_restarts_and_a_crash_between_two_commits(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    stage.put_schema(1, SCHEMA)
    good = framed(1, SCHEMA, {"id": 1})
    choices: dict[str, Any] = {"registry": str(stage.schemas), "misfits": "skip"}
    for _ in range(3):
        stage.append([Record(b"k", good, START_MS), Record(b"k", b"bad", START_MS)])
        stage.follow(**choices)
    choices["misfits"] = DEAD_LETTER
    stage.append([Record(b"k", b"bad", START_MS), Record(b"k", good, START_MS)])
    stage.open(**choices)

    class Crash(Exception):
        pass

    def crash(step: str) -> None:
        stage.steps.append(step)
        if step == "committed" and stage.steps.count("committed") == crashes:
            raise Crash

    stage.steps.clear()
    crashes = 3  # The claims of both tables, then the letters.
    with pytest.raises(Crash):
        follower, _ = stage.open(crash, **choices)
        follower.catch_up()
    assert stage.offsets("t_dead_letters") == [(0, 6)] and verify(stage).findings == []
    stage.follow(**choices)
    found = verify(stage, with_log=True)
    assert found.findings == [] and (found.rows_count, found.letters_count, found.misfits_count) == (4, 1, 4)


def test_a_table_of_an_earlier_version_is_verified_as_far_as_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = LakeStage(tmp_path)
    stage.numbered(20)
    with monkeypatch.context() as earlier:
        earlier.setattr("moldau.lake.ledger.Ledger.properties", without_taken(stage))
        stage.follow(unit=None)
    stage.numbered(20)
    stage.follow(unit=None)
    found = verify(stage, with_log=True)
    assert found.findings == [] and not found.is_counted
    stage.table().delete("offset = 3")
    assert verify(stage).findings == ["default.t: 39 rows, and the last commit of the follower left 40"]
    assert any("neither in the table nor a misfit: 3" in each for each in verify(stage, with_log=True).findings)


def without_taken(stage: LakeStage) -> Any:
    from moldau.lake.ledger import Ledger

    whole = Ledger.properties

    def properties(ledger: Ledger, attempt: str) -> dict[str, str]:
        return {name: value for name, value in whole(ledger, attempt).items() if name != TAKEN}

    return properties
