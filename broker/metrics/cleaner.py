"""Metrics of the log cleaner: its work, the logs that wait, and the logs that it cannot clean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from moldau.broker.metrics.exposition import Page
    from moldau.broker.replicas.log_cleaner import LogCleaner

CLEANER: Final = "kafka_log_logcleaner_"
MANAGER: Final = "kafka_log_logcleanermanager_"


def collect_cleaner(page: Page, cleaner: LogCleaner, log_directories: Sequence[str], now_ms: int) -> None:
    """Collect the cleaner's metrics. `now_ms` is on the monotonic clock."""
    totals = cleaner.totals
    recopied = 100 * totals.bytes_written / totals.bytes_read if totals.bytes_read else 0
    page.add(f"{CLEANER}cleaner_recopy_percent", recopied)
    page.add(f"{CLEANER}max_buffer_utilization_percent", 100 * totals.buffer_share_max)
    page.add(f"{CLEANER}max_clean_time_secs", totals.clean_time_ms_max / 1000)
    page.add(f"{CLEANER}max_compaction_delay_secs", totals.compaction_delay_ms_max / 1000)
    page.add(f"{MANAGER}max_dirty_percent", 100 * totals.dirty_share_max)
    page.add(f"{MANAGER}time_since_last_run_ms", now_ms - totals.last_run_ms)
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for its_log in cleaner.uncleanable:
        directory = its_log.directory.rpartition("/")[0]
        counts[directory] += 1
        sizes[directory] += its_log.size
    for directory in log_directories:
        labels = (("logDirectory", directory),)
        page.add(f"{MANAGER}uncleanable_partitions_count", counts[directory], labels)
        page.add(f"{MANAGER}uncleanable_bytes", sizes[directory], labels)
    page.add("moldau_log_cleaner_read_bytes_total", totals.bytes_read)
    page.add("moldau_log_cleaner_written_bytes_total", totals.bytes_written)
    page.add("moldau_log_cleaner_cleanings_total", totals.logs_cleaned)
    page.add("moldau_log_cleaner_failures_total", totals.failures)
