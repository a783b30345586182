"""Settings that Apache Kafka does not know: what this broker does beyond it."""

from __future__ import annotations

ROWS = """
moldau.log.format  string  text  one-of:text,json  honoured  read-only
    How the node's own log is written to standard error: lines for people, or one JSON object a line.
"""
