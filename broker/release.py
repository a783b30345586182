"""The version of this broker, the release of Apache Kafka that it corresponds to, and the form of its hot path."""

from __future__ import annotations

import sys
from typing import Final

KAFKA_VERSION: Final = "4.3.1"
"""The Apache Kafka release whose APIs, formats and features this version has."""


def is_compiled() -> bool:
    """Whether the hot path runs as C extensions. Either all of its modules are compiled or none, so examining one is
    enough.
    """
    from moldau.protocol import record_batch

    return not str(record_batch.__file__).endswith(".py")


def hot_path_form() -> str:
    """The form of the hot path as words."""
    return "hot path compiled" if is_compiled() else "hot path in plain Python"


def interpreter_text() -> str:
    """The name and version of the Python interpreter."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    return f"{'CPython' if sys.implementation.name == 'cpython' else sys.implementation.name} {version}"
