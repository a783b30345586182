"""The audit without a JVM: damage of each kind is found and named, and what is intact gives no problem."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.broker.cli import main
from moldau.broker.cli.spark import json_lines, text_lines
from moldau.spark_jobs.jobs import audit, segment_audit
from moldau.spark_jobs.jobs.audit import AuditReader, plan_audit, result_of
from moldau.spark_jobs.jobs.segment_audit import SegmentFindings
from moldau.storage.checkpoints.text_checkpoint import CLEANER_OFFSET_CHECKPOINT, write_offsets
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.origins.port import Slice
from tests.support.damaged_places import audited
from tests.support.segments import mixed_batches, write_checkpoints, write_partition
from tests.support.tiered_copy import tiered_directory


@pytest.fixture
def local(tmp_path: Path) -> Path:
    directory = tmp_path / "local"
    directory.mkdir()
    write_partition(directory, mixed_batches(200, 5))
    write_partition(directory, mixed_batches(10, 5), topic="u", partition=2)
    write_checkpoints(directory, {("t", 0): 1000, ("u", 2): 50})
    return directory


@pytest.fixture
def tier(tmp_path: Path, local: Path) -> Path:
    tiered_directory(tmp_path / "tier", local)
    return tmp_path / "tier"


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted((directory / "t-0").glob(f"*{suffix}"))


def test_an_intact_log_has_no_problem(local: Path) -> None:
    result = audited(local)
    logs = [*local.glob("*/*.log")]
    assert result.is_intact, result.problems
    assert (result.batches, result.records, result.segments) == (210, 1050, len(logs))
    assert result.size == sum(each.stat().st_size for each in logs)


def test_both_tiers_are_read_and_compared(local: Path, tier: Path) -> None:
    result = audited(local, tier)
    assert result.is_intact, result.problems
    assert result.segments == len([*local.glob("*/*.log")]) + len(files(local, ".log")) - 1
    assert audited(local, tier, subscribe="u").segments == len([*local.glob("u-2/*.log")])


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)


DAMAGE: list[tuple[str, str, Callable[[Path], object]]] = [
    (".log", "checksum", lambda path: flip(path, 100)),
    (".log", "framing", lambda path: flip(path, 16)),
    (".log", "offsets", lambda path: flip(path, 6)),
    (".index", "indexes", lambda path: flip(path, 7)),
    (".index", "indexes", lambda path: path.unlink()),
    (".timeindex", "indexes", lambda path: flip(path, 3)),
]


@pytest.mark.parametrize(("suffix", "check", "damage"), DAMAGE)
def test_damage_is_found_and_named(local: Path, suffix: str, check: str, damage: Callable[[Path], object]) -> None:
    path = files(local, suffix)[1]
    damage(path)
    problems = audited(local).problems
    assert check in {each.check for each in problems} and {each.path for each in problems} == {str(path)}


def test_the_audit_goes_on_after_a_wrong_checksum(local: Path) -> None:
    flip(files(local, ".log")[0], 100)
    result = audited(local)
    assert (result.batches, len(result.problems), result.problems[0].offset) == (210, 1, 0)


def test_a_remote_object_that_is_damaged_or_missing(local: Path, tier: Path) -> None:
    index, other, *_ = sorted(tier.rglob("*.index"))
    flip(index, 5)
    other.unlink()
    problems = audited(tier).problems
    assert [(each.check, each.path.rpartition("/")[2]) for each in problems] == [
        ("objects", index.name),
        ("objects", other.name),
    ]
    assert "its manifest states" in problems[0].message and "missing" in problems[1].message
    assert audited(local).is_intact


def test_tiers_that_differ(local: Path, tier: Path) -> None:
    """A local log that was written anew: its batches are sound, and are not those of the remote segments."""
    for path in (local / "t-0").iterdir():
        path.unlink()
    write_partition(local, [*mixed_batches(10, 5), *mixed_batches(95, 10, first_offset=50)])
    assert audited(local).is_intact and audited(tier).is_intact
    problems = audited(local, tier).problems
    assert {each.check for each in problems} == {"tiers"}
    assert min(each.offset for each in problems) == 50
    write_offsets(LocalFiles(), str(local), CLEANER_OFFSET_CHECKPOINT, {("t", 0): 1000})
    assert audited(local, tier).is_intact, "compaction changes one tier before the other"


def test_a_segment_that_is_removed_meanwhile_is_no_problem(local: Path) -> None:
    reader = AuditReader({"path": str(local), "subscribe": "t"})
    tasks = reader.partitions()
    for path in (local / "t-0").iterdir():
        path.unlink()
    rows = [tuple(row.values()) for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    result = result_of(rows)
    assert result.is_intact and result.gone > 1 and not result.segments
    assert "removed meanwhile" in text_lines(result)[-1]


def test_a_remote_segment_that_is_removed_after_its_audit_is_not_compared(
    local: Path, tier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_one = segment_audit.audit_segment

    def audit_and_remove(wanted: Slice) -> SegmentFindings:
        findings = audit_one(wanted)
        for path in tier.rglob(f"{Path(wanted.path).stem}.*"):
            path.unlink()
        return findings

    whole = audited(local, tier)
    monkeypatch.setattr(audit, "audit_segment", audit_and_remove)
    result = audited(local, tier)
    assert result.is_intact and (result.batches, result.segments) == (whole.batches, whole.segments)


def test_the_plan_has_sizes_and_tasks(local: Path) -> None:
    plan = plan_audit({"path": str(local), "subscribe": "t"})
    assert plan.size == sum(each.stat().st_size for each in files(local, ".log"))
    assert len(plan.tasks) == 1


def test_a_result_as_text_and_as_json(local: Path) -> None:
    flip(files(local, ".log")[0], 100)
    result = audited(local)
    path = files(local, ".log")[0]
    assert text_lines(result)[0] == f"checksum: {path}, offset 0: the checksum of the batch at position 0 is wrong"
    assert text_lines(result)[-1].endswith(": 1 problem")
    problem, summary = map(json.loads, json_lines(result))
    assert problem["check"] == "checksum" and summary["problems"] == 1


def test_the_command_refuses_an_unknown_topic(local: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "audit", "--path", str(local), "--topic", "nothing"]) == 1
    assert "no partition of nothing is in" in capsys.readouterr().err
