"""Fault injection for tests of clients: a node with `--control` fails on request. Other nodes import nothing of this
package.

control (HTTP) ──▶ Faults: the faults in force, the timeline ──▶ handlers, files
"""
