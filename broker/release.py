"""Which version this is, and which Apache Kafka it stands for."""

from __future__ import annotations

from typing import Final

KAFKA_VERSION: Final = "4.3.1"
"""The release whose APIs, formats and features these are."""


def installed_version() -> str:
    """The version of the installed package. Its first call imports importlib.metadata, which takes 50 ms."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("moldau")
    except PackageNotFoundError:
        return "(not installed)"
