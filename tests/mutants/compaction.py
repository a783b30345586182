"""Planted bugs of log compaction: the cleaner, the swap of its segments, and what a start makes of an unfinished one.

Numbers 210 to 217 are the list that the simulator was asked to kill.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

COMPACTION_MUTANTS: Final = (
    Mutant(
        210,
        "a tombstone is dropped before its horizon",
        "storage/compaction/batch_cleaner.py",
        "keeps_tombstones = horizon_ms is None or request.now_ms < horizon_ms",
        "keeps_tombstones = horizon_ms is None",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        211,
        "records count as cleaned that the full offset map has no room for",
        "storage/compaction/cleaning.py",
        "                if read_count < count:\n                    return False\n",
        "                if read_count < count:\n"
        "                    offsets.raise_latest_offset(header.last_offset)\n"
        "                    return False\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        212,
        "records above the last stable offset are cleaned",
        "storage/compaction/request.py",
        "limit = min(last_stable_offset, log.active.base_offset,",
        "limit = min(log.end_offset, log.active.base_offset,",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        213,
        "an aborted record is kept as the latest of its key",
        "storage/compaction/cleaning.py",
        "        elif not transactions.observe_data_batch(header):\n",
        "        elif not transactions.observe_data_batch(header) or True:\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        214,
        "a swap is half done after a crash",
        "storage/log/unfinished_cleaning.py",
        "    if swaps:\n        complete_swaps(fs, directory, swaps)\n",
        "    unlink(fs, directory, swaps)\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        215,
        "the cleaner's checkpoint is ahead of the swap",
        "broker/replicas/log_cleaner.py",
        "        throttle = IoThrottle(self._settings, self._environment)\n",
        "        throttle = IoThrottle(self._settings, self._environment)\n"
        "        its_log.note_cleaned(request.first_uncleanable_offset, request.truncation_count)\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        216,
        "the last batch of a producer is removed with its sequence",
        "storage/compaction/batch_cleaner.py",
        "        return header.last_offset == last.last_data_offset\n",
        "        return False\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        217,
        "the active segment is cleaned",
        "storage/compaction/request.py",
        "    else:\n        first_uncleanable = log.active.base_offset\n",
        "    else:\n        first_uncleanable = log.active.base_offset\n"
        "    if last_stable_offset >= log.end_offset:\n        first_uncleanable = log.end_offset\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        218,
        "a stale cleaned file stays beside a later swap",
        "storage/compaction/cleaning.py",
        "    remove_cleaned(fs, request.directory)\n",
        "",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        219,
        "the recovery point is not durable before the swap",
        "broker/replicas/log_rewriting.py",
        "        if not await self._checkpoint() or its_log.recovery_point < end_offset:\n",
        "        if its_log.recovery_point < end_offset:\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        220,
        "a marker is dropped while data of its transaction stays",
        "storage/compaction/batch_cleaner.py",
        "            return not (is_kept or is_committed)\n",
        "            return not is_kept\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        221,
        "a segment is swapped into a log that was truncated",
        "storage/log/segment_swap.py",
        "    if log.failure is not None or log.truncation_count != cleaned.truncation_count:\n",
        "    if log.failure is not None:\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        222,
        "a follower begins a segment past a gap",
        "storage/log/append.py",
        "segment = log.roll(now_ms, log.end_offset if is_near else header.base_offset)",
        "segment = log.roll(now_ms, header.base_offset)",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        223,
        "the delete horizon begins anew with each pass",
        "storage/compaction/batch_cleaner.py",
        "needs_horizon = has_tombstones and horizon_ms is None and",
        "needs_horizon = has_tombstones and",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        224,
        "a batch is written anew with the maximum timestamp of what was removed",
        "storage/compaction/batch_cleaner.py",
        "            max_timestamp = header.base_timestamp + max_timestamp_delta\n",
        "            max_timestamp = header.max_timestamp\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        225,
        "discarded output is left behind",
        "storage/log/segment_swap.py",
        "        if fs.exists(path):\n            fs.unlink(path)\n",
        "        if not fs.exists(path):\n            fs.unlink(path)\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        226,
        "keys are compared by a part of their hash",
        "storage/compaction/offset_map.py",
        "            if known == first and table[place + 1] == second:\n",
        "            if known & 15 == first & 15 and table[place + 2]:\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        227,
        "segments are grouped past the span of an index",
        "storage/compaction/cleaning.py",
        "            and (not segment.size or behind - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)\n",
        "",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        228,
        "a cleaned segment has no entries for the aborted transactions that it still holds",
        "storage/compaction/cleaning.py",
        "        transactions.on_abort_marker_kept = cleaned.add_aborted_transaction\n",
        "",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        229,
        "the end of the log goes with its last batch",
        "storage/compaction/batch_cleaner.py",
        "if header.next_offset != self._request.first_uncleanable_offset and not self._is_last_of_producer(header):",
        "if not self._is_last_of_producer(header):",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        230,
        "aborted transactions with a marker behind the cleaned part are not known",
        "storage/compaction/request.py",
        "        aborted_with_later_marker=tuple(aborted_transactions(log, end_offset, end_offset)),\n",
        "        aborted_with_later_marker=(),\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        231,
        "young records are cleaned",
        "storage/compaction/request.py",
        "            if segment.largest_timestamp() > now_ms - lag_ms:\n",
        "            if segment.largest_timestamp() > now_ms:\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        232,
        "a round begins with what was there before the log became durable",
        "broker/replicas/log_cleaner.py",
        "        if present.first_dirty_offset != part.first_dirty_offset or not present.cleanable_bytes:\n"
        "            raise LogChanged\n"
        "        part = present._replace(\n"
        "            first_uncleanable_offset=min(present.first_uncleanable_offset, part.first_uncleanable_offset)\n"
        "        )\n",
        "        assert present\n",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        233,
        "the newest record of a key is dropped where the offset map does not have it",
        "storage/compaction/offset_map.py",
        "is_kept = offset >= self.get(run[at:key_end])",
        "is_kept = offset == self.get(run[at:key_end])",
        Hunt.LOG_CLEANER,
    ),
    Mutant(
        234,
        "the fate of one record stands for its whole batch",
        "storage/compaction/offset_map.py",
        "return fate if self._fates.count(fate, start, start + count) == count else NOT_NOTED",
        "return fate",
        Hunt.LOG_CLEANER,
    ),
)
