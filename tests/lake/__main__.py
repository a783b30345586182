"""Kill a writer of tables at each step of a commit, and read the tables with other readers afterwards.

    python -m tests.lake --kills 100
    python -m tests.lake --kills 100 --readers
    python -m tests.lake --looks 1000
    python -m tests.lake --looks 300 --rate 10
    python -m tests.lake --looks 100 --form debezium
    python -m tests.lake --nested 200

`--readers` fetches DuckDB and Spark in versions for which there is what they need for Iceberg.
`--looks` compares live tables of several forms, or of one with `--form`, with a model so often, while their follower
is killed; with `--rate` under a writer of so many MB/s.
`--nested` tells so many stories of nested values whose schemas change, read by pyiceberg, Polars and DuckDB.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lake import nested
from tests.lake.campaign import campaign
from tests.lake.looks import FORMS, Looks
from tests.lake.paced_looks import PacedLooks
from tests.lake.readers import readers
from tests.support.lake_stage import LakeStage


def main() -> None:
    """Run the campaign, and compare what the readers count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--readers", action="store_true")
    parser.add_argument("--looks", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--form", choices=FORMS)
    parser.add_argument("--nested", type=int)
    arguments = parser.parse_args()
    if arguments.nested is not None:
        nested.campaign(arguments.nested, arguments.seed)
        print(f"{arguments.nested} stories of nested values: every reader had what was written")
        return
    if arguments.looks is not None:
        forms = [arguments.form] if arguments.form else list(FORMS)
        if arguments.rate is None:
            look(forms, arguments.looks, arguments.seed)
        else:
            look_paced(forms, arguments.looks, arguments.rate, arguments.seed)
        return
    others = readers() if arguments.readers else ()
    for each in others:
        each.fetch()
    began = time.monotonic()
    with TemporaryDirectory() as directory:
        root = Path(directory)
        killed = campaign(root, arguments.kills, arguments.seed, print)
        print(
            f"{killed.total()} kills in {time.monotonic() - began:.0f} s, each offset once, no orphan after a next run"
        )
        for step, count in sorted(killed.items()):
            print(f"  {count:3} {step}")
        for kind in ("append", "upsert", "dead-letter"):
            stage = LakeStage(root / kind)
            expected = len(stage.rows())
            place = stage.table().metadata_location
            for each in others:
                found = each.counts(place)
                assert found == (expected, expected), (kind, each.name, found)
                print(f"{kind}: {each.name} reads the same {expected:,} rows")


def look(forms: Sequence[str], count: int, seed: int) -> None:
    """Look at tables of these forms."""
    for form in forms:
        with TemporaryDirectory() as directory:
            looks = Looks(Path(directory), form, seed)
            looks.look(count // len(forms), print)
            print(
                f"{form}: {count // len(forms)} looks were equal, {looks.kills} kills in {looks.runs} runs", flush=True
            )


def look_paced(forms: Sequence[str], count: int, rate: float, seed: int) -> None:
    """Look at tables of these forms under a writer of so many MB/s."""
    for form in forms:
        with TemporaryDirectory() as directory:
            looks = PacedLooks(Path(directory), form, rate * 1e6, seed)
            looks.look(count // len(forms), lambda line: print(line, flush=True))
            told = f"{looks.rate_reached / 1e6:.1f} MB/s written, {looks.kills} kills in {looks.runs} runs"
            print(f"{form}: {count // len(forms)} looks were equal, {told}", flush=True)


if __name__ == "__main__":
    main()
