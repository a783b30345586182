"""`python -m tests.spark.under_change --rounds 200`: reads while the cleaner, retention and tiering run.

No JVM takes part.
"""

from __future__ import annotations

import argparse

from tests.support.changing_log import LOST, RIGHT, run_rounds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.under_change", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(f"SEED {asked.seed}")
    outcomes = run_rounds(asked.rounds, asked.seed)
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
    assert outcomes[RIGHT] and outcomes[LOST], "rounds of both kinds are expected"


if __name__ == "__main__":
    main()
