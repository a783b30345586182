"""Many cases of random damage (tests/support/damaged_places.py): `python -m tests.spark.under_damage --count 500`."""

from __future__ import annotations

import argparse

from tests.support.damaged_places import run_damages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=26)
    arguments = parser.parse_args()
    for outcome, count in sorted(run_damages(range(arguments.count), arguments.seed).items()):
        print(f"{count:5} {outcome}")


if __name__ == "__main__":
    main()
