"""The limits of a trigger of a streaming query: the offsets that it reads, and the time that it waits for a minimum of
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from moldau.spark_jobs.options.option_values import positive
from moldau.spark_jobs.refusals import Refused

DELAY_MS_DEFAULT: Final = 15 * 60_000
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The connector's limits of a trigger, in offsets over all partitions."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = DELAY_MS_DEFAULT
    """After this time a trigger reads although fewer than `offsets_min` are there."""


def trigger_limits(given: Mapping[str, str]) -> TriggerLimits:
    """The limits from the options, whose names are in lower case. Raises `Refused`."""
    limits = TriggerLimits(
        positive("maxOffsetsPerTrigger", given.get("maxoffsetspertrigger")),
        positive("minOffsetsPerTrigger", given.get("minoffsetspertrigger")),
        _duration_ms("maxTriggerDelay", given.get("maxtriggerdelay")),
    )
    if limits.offsets_max is not None and limits.offsets_min is not None and limits.offsets_max < limits.offsets_min:
        raise Refused(f"minOffsetsPerTrigger {limits.offsets_min} is above maxOffsetsPerTrigger {limits.offsets_max}")
    return limits


def _duration_ms(name: str, value: str | None) -> int:
    """A duration in ms, from a number with one of Spark's units, or milliseconds without a unit."""
    if value is None:
        return DELAY_MS_DEFAULT
    parsed = re.fullmatch(r"(\d+)\s*([a-z]*)", value.strip().lower())
    if parsed is None or parsed[2] not in _UNITS_MS:
        raise Refused(f"{name}: {value} is not a duration such as 30s, 15m or 1h")
    return int(parsed[1]) * _UNITS_MS[parsed[2]]
