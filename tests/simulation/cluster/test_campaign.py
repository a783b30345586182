"""What `make sim` runs: in an order that is data, each with a name that replays it, and what fails is told at once."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tests.simulation.cluster import campaign, stages
from tests.simulation.cluster.campaign import Outcome, complain, run_one, staleness, tasks
from tests.simulation.cluster.eager import FAMILIES
from tests.simulation.cluster.plan import Fault, Plan, harsh
from tests.simulation.cluster.stages import EAGER, HARSH, KINDS, QUORUM, SWARM, Report, Run, Stage, named, opening
from tests.simulation.cluster.swarm import run_seed


def options(**given: object) -> Namespace:
    return Namespace(**({"first": 0, "seeds": 0, "harsh": False, "harsh_every": 0} | given))


def fails(seed: int, lines: list[str] | None) -> Report:
    raise AssertionError(f"number {seed}")


def finds(seed: int, lines: list[str] | None) -> Report:
    return Report(problems=[f"found in {seed}"])


def goes_on(seed: int, lines: list[str] | None) -> Report:
    while True:
        pass


def test_every_kind_of_the_opening_is_known_and_named_once() -> None:
    runs = [run for together in opening(7) for run in together]
    assert {run.kind for run in runs} <= set(KINDS)
    assert len({run.name for run in runs}) == len(runs)
    told = stages.EARLIEST_STORIES + stages.FIRST_STORIES + stages.STORIES + stages.LONG_STORIES
    assert len(KINDS) == 22 + len(FAMILIES) + len(stages.SCRIPTS) + len(told), "two kinds of one name"


def test_the_opening_has_a_run_of_each_family_of_faults_before_a_second_of_any() -> None:
    with_stages_of_their_own = (stages.COPIES, stages.PERMISSIONS, stages.DISKS, stages.DIRECTORIES)
    eager = [kind for kind in EAGER if kind not in with_stages_of_their_own]
    drawn = [run.kind for together in opening(0) for run in together if run.kind in eager]
    assert drawn[: len(eager)] == eager
    assert {fault for family in FAMILIES for fault in family.faults} == {*Fault}


def test_numbers_of_a_kind_go_on_from_stage_to_stage_and_begin_where_they_are_told() -> None:
    staged = (Stage((QUORUM,), 3, at_once=2), Stage((stages.SCRIPTS[0].__name__,)), Stage((QUORUM,), 1))
    assert [[run.number for run in together] for together in opening(10, staged)] == [[10, 11], [12], [0], [13]]


@pytest.mark.parametrize("run", [Run(SWARM, 23), Run(HARSH, 4), Run("leaders", 3), Run(stages.STORIES[0], 0)])
def test_a_name_says_which_run_it_is(run: Run) -> None:
    assert named(run.name) == run


def test_a_kind_alone_is_its_first_run() -> None:
    assert named("leaders") == Run("leaders", 0)


@pytest.mark.parametrize("name", ["", "nobody", "nobody/3", "leaders/three", "-1"])
def test_what_names_no_run_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no run"):
        named(name)


def test_a_number_alone_is_the_seed_of_the_swarm_that_it_always_was() -> None:
    digest = f"digest {run_seed(2).digest}"
    assert digest in run_one(named("2")).report.told


def test_a_run_is_the_same_whenever_it_is_run() -> None:
    first, second = (run_one(named("leaders/0")).report for _ in range(2))
    assert (first, first.problems) == (second, [])
    assert "digest" in first.told


def test_so_many_seeds_are_those_of_the_swarm_alone() -> None:
    drawn = [run for together in tasks(options(first=5, seeds=3)) for run in together]
    assert drawn == [Run(SWARM, 5), Run(SWARM, 6), Run(SWARM, 7)]


def test_the_swarm_follows_the_opening() -> None:
    length = len([*opening(5)])
    assert [*islice(tasks(options(first=5)), length, length + 1)] == [[Run(SWARM, 5)]]


def test_every_so_manyth_seed_is_harsh_or_all_of_them() -> None:
    mixed = [run for (run,) in tasks(options(seeds=5, harsh_every=4))]
    assert [run.kind for run in mixed] == [SWARM, SWARM, SWARM, HARSH, SWARM]
    assert [run.number for run in mixed] == [0, 1, 2, 3, 4]
    assert {run.kind for (run,) in tasks(options(seeds=5, harsh=True))} == {HARSH}


def test_a_harsh_plan_has_more_of_everything_and_breaks_no_rule() -> None:
    plans = [harsh(seed) for seed in range(300)]
    for seed, plan in enumerate(plans):
        usual = Plan.drawn(Random(f"{seed}/plan"))
        more = {*plan.faults} - {*usual.faults, Fault.BIT_ROT}
        assert 2 - (Fault.BIT_ROT in plan.faults) <= len(more) <= 5
        assert plan.strike_every_s <= 2.0
        assert plan.flushes or Fault.POWER_CUT_ALL not in plan.faults, "nobody promises that"
        assert not {Fault.BIT_ROT, Fault.REASSIGN} <= {*plan.faults}, "a move could leave the rotten copy alone"
        assert plan.names_voters or Fault.CHANGE_VOTERS not in plan.faults
    assert sum(Fault.BIT_ROT in plan.faults for plan in plans) > 150


@pytest.mark.parametrize("runner", [fails, finds])
def test_what_is_found_is_said_with_what_replays_it(
    runner: Callable[[int, list[str] | None], Report], capsys: pytest.CaptureFixture[str]
) -> None:
    complain(run_one(Run("leaders", 3), {"leaders": runner}))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "VIOLATION seed leaders/3 (replay: make sim SEED=leaders/3)"
    assert "3" in said[1]


def test_a_run_without_an_end_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "SHORT_S_MAX", 0.05)
    outcome = run_one(Run("leaders", 3), {"leaders": goes_on})
    assert "on and on" in outcome.report.problems[0]


def test_a_story_that_fails_is_a_finding(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("stories") / "test_story.py"
    path.write_text("def test_it() -> None:\n    assert 1 == 2\n")
    code = (
        "from tests.simulation.cluster.stages import of_stories;"
        f"print(of_stories({str(path)!r})(0, None).problems[0].splitlines()[0])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "test_it" in finished.stdout


def test_extensions_that_are_older_than_their_sources_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "stale_files", lambda: [Path("log.so")])
    monkeypatch.setattr(sys, "argv", ["campaign", "--seeds", "1"])
    assert campaign.main() == 2
    said = capsys.readouterr().out
    assert "log.so is older than its source" in said
    assert "--remove" in said


def test_what_is_compiled_here_is_current() -> None:
    assert staleness() is None


def test_the_sums_count_what_was_found() -> None:
    tally = campaign.Tally()
    tally.add(Outcome(Run(SWARM, 1), Report(simulated_s=1800.0, acknowledged=5, looks=7)))
    tally.add(Outcome(Run(SWARM, 2), Report(problems=["lost"])))
    assert tally.told(3.0).startswith("2 seeds, 0.500 simulated cluster-hours in 3 s: 5 records acknowledged")
    assert tally.told(3.0).endswith("1 seeds with violations")
