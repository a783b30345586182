"""The page of figures follows from the results that are kept, and every row is held against its bar."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree

import pytest

from bench import __main__ as bench_main
from bench.document import DOCUMENT, PICTURE, ROOT, held_table, kept_results, merged, page, read_json, standing
from bench.figures import Figure
from bench.groups import GROUPS
from bench.picture import drawn
from bench.rows import ROWS, Row, Verdict


def figure(name: str = "a row", ours: float = 1.0, peer: float = 1.0) -> Figure:
    return Figure(name, "ms", {"moldau": [ours], "apache": [peer]})


def test_the_page_and_the_picture_follow_from_the_kept_results() -> None:
    kept = kept_results()
    assert kept is not None
    facts, figures = read_json(kept)
    text = DOCUMENT.read_text()
    assert text == page(text, facts, figures, str(kept.relative_to(ROOT))), "python -m bench --page"
    assert PICTURE.read_text() == drawn(figures), "python -m bench --page"


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


def test_without_a_peer_a_ratio_is_not_run() -> None:
    alone = Figure("rate", "requests/s", {"moldau": [1.0]})
    assert Row("rate", "loads", 1.5).verdict(alone) is Verdict.NOT_RUN
    assert Row("rate", "loads", 1.5).verdict(None) is Verdict.NOT_RUN


def test_a_row_without_a_bar_has_its_target_or_misses_it() -> None:
    row = Row("p99", "loads", None, 0.5, less_is_better=True)
    assert row.verdict(figure(ours=0.5)) is Verdict.TARGET_REACHED
    assert row.verdict(figure(ours=0.6)) is Verdict.TARGET_MISSED


def test_a_row_that_was_not_measured_is_in_the_table_all_the_same() -> None:
    lines = held_table([])
    assert all(any(line.startswith(f"| {row.name} |") and "not run" in line for line in lines) for row in ROWS)
    assert standing([]) == f"{len(ROWS)} not run"


def test_what_is_measured_again_takes_the_place_of_what_was_there() -> None:
    earlier = [figure("a", 1.0), figure("b", 2.0)]
    assert [(each.name, each.ours) for each in merged(earlier, [figure("c", 4.0), figure("a", 3.0)])] == [
        ("a", 3.0),
        ("b", 2.0),
        ("c", 4.0),
    ]


def test_the_picture_shows_half_the_latency_as_twice_as_good() -> None:
    name = "kafka-e2e-latency: p99"
    picture = drawn([figure(name, ours=1.0, peer=2.0)])
    ElementTree.fromstring(picture)
    assert name in picture and "2.00×" in picture


def test_plain_python_is_measured_only_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_main, "is_compiled", lambda: False)
    monkeypatch.setattr(bench_main, "measured", lambda *_: ([], True))
    monkeypatch.setattr(sys, "argv", ["bench", "--dry"])
    assert bench_main.main() == 2
    assert "`make compiled`, or --plain" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["bench", "--dry", "--plain"])
    assert bench_main.main() == 0
