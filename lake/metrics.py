"""The metrics of followers, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from moldau.lake.follower import FollowProgress

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
METRICS: Final = (
    ("moldau_table_lag_offsets", "gauge", "offsets of a partition that the places show and the table does not have"),
    ("moldau_table_next_offset", "gauge", "the next offset of a partition of the topic that the table takes"),
    ("moldau_table_lag_seconds", "gauge", "the time since the table had all that the places show"),
    ("moldau_table_last_commit_seconds", "gauge", "when the last commit was made, in Unix time"),
    ("moldau_table_rows_total", "counter", "rows that this process has committed"),
    ("moldau_table_commits_total", "counter", "commits of this process"),
    ("moldau_table_conflicts_total", "counter", "commits that failed because another program had committed"),
    ("moldau_table_misfits_total", "counter", "records that did not fit the table"),
    ("moldau_table_orphans_deleted_total", "counter", "files of attempts that failed, deleted by this process"),
    ("moldau_table_files_compacted_total", "counter", "small files that this process has replaced by fewer ones"),
    ("moldau_table_is_followed", "gauge", "1, or 0 once the topic has failed"),
)
"""The name, the type and the help text of each metric."""


class FollowerMetrics(NamedTuple):
    """The progress of a follower, with the labels of its metrics."""

    progress: FollowProgress
    table: str
    topic: str


def metrics_text(followers: Iterable[FollowerMetrics], now_ms: int) -> str:
    """Make the text of the metrics of all followers, at the time `now_ms`."""
    samples = [dict(_samples(each, now_ms)) for each in followers]
    lines = []
    for name, kind, described in METRICS:
        lines += [f"# HELP {name} {described}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{{{labels}}} {value}" for each in samples for labels, value in each[name].items()]
    return "".join(f"{line}\n" for line in lines)


def _samples(measured: FollowerMetrics, now_ms: int) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield each metric of a follower: its name, and its values by labels."""
    progress, table, topic = measured
    labels = f'table="{table}",topic="{topic}"'
    known, ends = progress.offsets, progress.ends
    of_partitions = {
        "moldau_table_lag_offsets": {each: max(0, end - known.get(each, 0)) for each, end in ends.items()},
        "moldau_table_next_offset": known,
    }
    of_all = {
        "moldau_table_lag_seconds": max(0, now_ms - progress.caught_up_ms) / 1000 if progress.lag else 0,
        "moldau_table_last_commit_seconds": progress.committed_ms / 1000,
        "moldau_table_rows_total": progress.rows_count,
        "moldau_table_commits_total": progress.commits_count,
        "moldau_table_conflicts_total": progress.conflicts_count,
        "moldau_table_misfits_total": progress.misfits_count,
        "moldau_table_orphans_deleted_total": progress.orphans_count,
        "moldau_table_files_compacted_total": progress.compacted_count,
        "moldau_table_is_followed": int(progress.is_followed),
    }
    for name, by_partition in of_partitions.items():
        yield name, {f'{labels},partition="{each}"': value for each, value in sorted(by_partition.items())}
    for name, value in of_all.items():
        yield name, {labels: value}
