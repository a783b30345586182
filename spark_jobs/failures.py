"""The reason of a failed query, without Spark's stack traces."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

_OURS: Final = re.compile(r"^(?:pyspark_)?moldau(?:\.\w+)+: (.*)$", re.MULTILINE)
"""The line of a Python traceback with an exception class of this project and its message."""


def reason_of(failure: PySparkException) -> str:
    """Return the message of the data source's own exception, if it caused the failure. Otherwise return the whole text
    of Spark's exception, with its first line repeated at the end: the session of a job logs no stack traces."""
    text = str(failure)
    ours = _OURS.search(text)
    if ours:
        return ours[1].strip()
    first, newline, _ = text.strip().partition("\n")
    return f"{text.strip()}\n{first}" if newline else first
