"""Faults on demand, for tests of clients: what a node does wrong on request. A node without `--control` has none of it.

control (HTTP) ──▶ Faults: the faults in force, the timeline ──▶ handlers, files
"""
