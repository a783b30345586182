"""The page of figures follows from the kept run, and every row is held against its bar."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench import __main__ as bench_main
from bench.document import DOCUMENT, kept_page, rows_without_figure, run_summary, updated_page, verdict_counts
from bench.figures import Figure
from bench.front import FRONT_ROWS, chart_svg
from bench.groups import GROUPS
from bench.rows import ROWS, Row, Verdict
from bench.runs import BenchRun, GroupResult

FACTS = {"commit": "abcdef12", "form": "full", "date": "2026-01-01", "cpu": "2 x CPU", "memory": "25 GB"}
FACTS |= {"system": "Linux 6", "python": "3.11.7", "hot path": "compiled", "load generator": "C"}
SMALL_PRODUCES = "produce 200 B, 4 connections x 5 in flight: rate"
P99 = "produce 200 B, 4 connections x 5 in flight: p99"
PAGE = "\n".join(
    f"<!-- {place}, from the kept run: begin -->\nbefore\n<!-- {place}, from the kept run: end -->"
    for place in ("front", "groups", "long")
)


def figure(name: str = "a row", ours: float = 1.0, peer: float = 1.0, *, note: str = "") -> Figure:
    return Figure(name, "ms", {"moldau": [ours], "apache": [peer]}, note=note)


def run_of(*figures: Figure, group: str = "loads") -> BenchRun:
    return BenchRun(FACTS, {group: GroupResult(60.0, figures)})


def test_the_page_follows_from_the_kept_runs() -> None:
    assert DOCUMENT.read_text() == kept_page(), "python docs/compute.py"


def test_every_row_belongs_to_one_group_and_has_a_name_of_its_own() -> None:
    assert {row.group for row in ROWS} <= {group.name for group in GROUPS}
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.bar is not None or row.target is not None for row in ROWS)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(2.6, Verdict.TARGET_REACHED), (2.5, Verdict.TARGET_REACHED), (1.5, Verdict.HOLDS), (1.49, Verdict.MISSED)],
)
def test_a_rate_is_held_against_apache_kafkas(ours: float, verdict: Verdict) -> None:
    assert Row("rate", "loads", 1.5, 2.5).verdict(figure(ours=ours * 100, peer=100)) is verdict


@pytest.mark.parametrize(
    ("ours", "verdict"), [(12, Verdict.TARGET_REACHED), (25, Verdict.HOLDS), (25.1, Verdict.MISSED)]
)
def test_what_is_held_against_a_figure_of_its_own_needs_no_peer(ours: float, verdict: Verdict) -> None:
    alone = Figure("cpu", "us", {"moldau": [ours]})
    assert Row("cpu", "hot", 25, 12, less_is_better=True, is_ratio=False).verdict(alone) is verdict


def test_without_a_peer_a_ratio_is_not_compared() -> None:
    alone = Figure("rate", "requests/s", {"moldau": [1.0]})
    assert Row("rate", "loads", 1.5).verdict(alone) is Verdict.NOT_COMPARED


def test_a_row_without_a_bar_has_its_target_or_misses_it() -> None:
    row = Row("p99", "loads", None, 0.5, less_is_better=True)
    assert row.verdict(figure(ours=0.5)) is Verdict.TARGET_REACHED
    assert row.verdict(figure(ours=0.6)) is Verdict.TARGET_MISSED


def test_the_page_has_a_table_for_each_measured_group_and_names_the_others() -> None:
    text = updated_page(PAGE, run_of(figure(SMALL_PRODUCES, 3.0, note="two cores"), figure("no row", 2.0)), None)
    assert "| small produces, 4 connections | 3 ms | 1 ms | 3.00 (3.00–3.00) |" in text
    assert f"| {SMALL_PRODUCES} | ms | 3 | 1 | 3.00 (3.00–3.00) | ≥ 1.5× | ≥ 2.5× | target reached |" in text
    assert f"- {SMALL_PRODUCES}: two cores." in text
    assert "Commit abcdef12, measured on 2026-01-01" in text and "1 target reached" in text
    assert "left out the groups start, memory," in text and "Not run yet." in text
    assert "before" not in text and "no row" not in text
    assert text == updated_page(text, run_of(figure(SMALL_PRODUCES, 3.0, note="two cores")), None)


def test_a_whole_run_left_nothing_out() -> None:
    whole = BenchRun(FACTS, {group.name: GroupResult(1.0, ()) for group in GROUPS if not group.is_long})
    assert "left out" not in updated_page(PAGE, whole, None)


def test_how_many_rows_stand_how() -> None:
    rows = [figure(row.name) for row in ROWS if row.group == "sender"]
    assert verdict_counts(run_of(*rows, group="sender")) == "2 holds"
    assert verdict_counts(run_of(rows[0], group="sender")) == "1 holds, 1 without a figure"
    assert verdict_counts(BenchRun(FACTS, {})) == "none"


def test_the_rows_of_a_group_that_failed_say_why() -> None:
    failed = BenchRun(FACTS, {"sender": GroupResult(3.0, (), "LoadFailed: no reply")})
    text = updated_page(PAGE, failed, None)
    names = [row.name for row in ROWS if row.group == "sender"]
    assert names and all(f"| {name} |  | – | – | – |" in text for name in names)
    assert text.count("| failed: LoadFailed: no reply |") == len(names)
    assert rows_without_figure(failed) == dict.fromkeys(names, "failed: LoadFailed: no reply")
    assert not failed.has_group("sender")


def test_a_row_that_its_group_does_not_give_has_no_figure() -> None:
    text = updated_page(PAGE, run_of(figure(SMALL_PRODUCES)), None)
    assert f"| {P99} |  | – | – | – | ≤ 0.8× | ≤ 0.5× | no figure |" in text


def test_the_chart_shows_half_the_latency_as_twice_as_good() -> None:
    drawn = chart_svg(run_of(figure(P99, ours=1.0, peer=2.0)))
    ElementTree.fromstring(drawn)
    assert FRONT_ROWS[P99] in drawn and "2×" in drawn and "commit abcdef12" in drawn


def test_a_run_without_a_peer_has_a_page_and_an_empty_chart() -> None:
    alone = run_of(Figure(P99, "ms", {"moldau": [1.0]}))
    assert FRONT_ROWS[P99] in updated_page(PAGE, alone, None)
    assert FRONT_ROWS[P99] not in chart_svg(alone)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = run_of(figure(SMALL_PRODUCES, 3.0, note="two cores"))
    run.write(tmp_path / "run.json")
    assert BenchRun.read(tmp_path / "run.json") == run
    failed = BenchRun(FACTS, {"loads": GroupResult(60.0, (), "LoadFailed: no reply")})
    failed.write(tmp_path / "run.json")
    assert BenchRun.read(tmp_path / "run.json") == failed
    assert run_summary(failed) == run_summary(BenchRun.read(tmp_path / "run.json"))


@pytest.mark.parametrize(("fact", "continues"), [("date", True), ("commit", False), ("cpu", False), ("form", False)])
def test_a_run_is_continued_on_the_same_commit_and_machine(fact: str, continues: bool) -> None:
    assert BenchRun(FACTS, {}).continues(BenchRun(FACTS | {fact: "another"}, {})) is continues


def test_plain_python_is_measured_only_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_main, "is_compiled", lambda: False)
    monkeypatch.setattr(bench_main, "measure", lambda *_: [])
    monkeypatch.setattr(sys, "argv", ["bench", "--dry"])
    assert bench_main.main() == 2
    assert "`make compiled`, or --plain" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["bench", "--dry", "--plain", "--only", "start"])
    assert bench_main.main() == 0
