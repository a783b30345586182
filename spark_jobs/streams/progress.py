"""The lag of a streaming query, from its progress.

Spark takes no metrics from a source in Python, but shows the offsets that it reports: `endOffset`, the end of the
trigger, and `latestOffset`, the ends of the partitions at that time. The three metrics of the Kafka connector are
computed from both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from moldau.spark_jobs.streams.stream_offsets import StreamOffsets, from_json


def offsets_behind_latest(source: Mapping[str, object]) -> dict[str, float]:
    """Compute the smallest, largest and mean lag of the partitions of a source, by the names of the metrics.

    `source` is one of `sources` in the JSON of a query's progress. A lag is a count of offsets. Empty if the progress
    has no offsets. Raises `Refused` for the progress of another source.
    """
    ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    lags = [max(0, latest[key] - end) for key, end in ends.items() if key in latest]
    if not lags:
        return {}
    return {
        "minOffsetsBehindLatest": min(lags),
        "maxOffsetsBehindLatest": max(lags),
        "avgOffsetsBehindLatest": sum(lags) / len(lags),
    }


def _offsets(value: object) -> StreamOffsets:
    return from_json(json.loads(value) if isinstance(value, str) else value or {})
