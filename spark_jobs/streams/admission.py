"""The offsets that a trigger reads: maxOffsetsPerTrigger, shared among partitions by their lag, and
minOffsetsPerTrigger with maxTriggerDelay.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from moldau.spark_jobs.options.trigger_limits import TriggerLimits
from moldau.spark_jobs.streams.stream_offsets import StreamOffsets
from moldau.storage.checkpoints.text_checkpoint import TopicPartition


def admitted(
    begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], offsets_max: int
) -> StreamOffsets:
    """The end offsets of a trigger that reads about `offsets_max` offsets.

    `offsets_max` is divided among the partitions in proportion to their lag. A share between 0 and 1 is rounded up, so
    that every partition with a lag advances; other shares are rounded down.
    """
    lags = {key: max(0, end - begins[key]) for key, end in ends.items()}
    lag = sum(lags.values())
    if lag <= offsets_max:
        return dict(ends)
    admitted_ends = {}
    for key, end in ends.items():
        share = offsets_max * lags[key] / lag
        admitted_ends[key] = min(end, begins[key] + (ceil(share) if share < 1 else int(share)))
    return admitted_ends


class Patience:
    """Lets a trigger wait until minOffsetsPerTrigger offsets can be read, or maxTriggerDelay has passed since the last
    trigger that read offsets. The first trigger does not wait.
    """

    def __init__(self, limits: TriggerLimits) -> None:
        self._limits = limits
        self._last_ms: float | None = None

    def waits(self, offsets_count: int, now_ms: float) -> bool:
        """Whether the trigger reads nothing yet. Where it reads, the delay of the next trigger begins now."""
        least, last_ms = self._limits.offsets_min, self._last_ms
        is_short = least is not None and offsets_count < least
        if is_short and last_ms is not None and now_ms - last_ms <= self._limits.delay_ms_max:
            return True
        self._last_ms = now_ms
        return False
