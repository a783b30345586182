"""`python -m tests.simulation.raft FIRST COUNT`: seeds until one fails; `... SEED trace`: its last lines."""

from __future__ import annotations

import sys
from time import perf_counter

from tests.simulation.raft.swarm import Swarm


def main() -> int:
    first, second = sys.argv[1], sys.argv[2]
    if second == "trace":
        swarm = Swarm(int(first))
        swarm.world.trace = []
        try:
            swarm.run()
        finally:
            print(*swarm.world.trace[-int((sys.argv[3:] or ["200"])[0]) :], swarm.world.states(), sep="\n")
        return 0
    began, virtual_ms = perf_counter(), 0
    for seed in range(int(first), int(first) + int(second)):
        swarm = Swarm(seed)
        try:
            swarm.run()
        except AssertionError as error:
            print(f"SEED={seed} after {perf_counter() - began:.1f} s, {virtual_ms / 3.6e6:.3f} virtual hours: {error}")
            return 1
        virtual_ms += swarm.world.now_ms
    print(f"{second} seeds in {perf_counter() - began:.1f} s, {virtual_ms / 3.6e6:.3f} virtual hours: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
