"""Why a query failed, without the two stack traces that Spark wraps around it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

_OURS: Final = re.compile(r"^(?:[\w.]+\.)?(?:MalformedMessage|Refused|DataLost|CorruptCheckpoint): (.*)$", re.MULTILINE)


def reason_of(failure: PySparkException) -> str:
    """What the data source said, else the first line of what Spark says."""
    text = str(failure)
    ours = _OURS.search(text)
    return ours[1].strip() if ours else text.strip().partition("\n")[0]
