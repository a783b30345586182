"""Whole clusters under random faults: `swarm.run_seed(seed)`; `python -m tests.simulation.cluster`."""
