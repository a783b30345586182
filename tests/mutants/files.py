"""Bugs in what a start makes of files that are missing, damaged or wrong, and in what a value may claim."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

DERIVED: Final = "storage/log/derived_files.py"
LOADING: Final = "storage/log/loading.py"
BOUNDS: Final = "tables/values/bounds.py"

FILE_MUTANTS: Final = (
    Mutant(
        641,
        "aborted transactions whose index is gone after a crash count as committed",
        DERIVED,
        "        return has_ended and not",
        "        return False and not",
        Hunt.STORIES,
    ),
    Mutant(
        642,
        "a sparse index that is missing is not made again",
        DERIVED,
        "            if offset_name(segment.base_offset, suffix) not in self._names:\n",
        "            if False:\n",
        Hunt.STORIES,
    ),
    Mutant(
        643,
        "a transaction index is believed whatever it holds",
        DERIVED,
        "            if not segment.has_sound_transaction_index(end_offset):\n",
        "            if False:\n",
        Hunt.STORIES,
    ),
    Mutant(
        644,
        "one checkpoint alone says how far the log went",
        LOADING,
        "    agreed = sorted(stated)[-2]\n",
        "    agreed = sorted(stated)[-1]\n",
        Hunt.STORIES,
    ),
    Mutant(
        645,
        "a log whose end is gone uses its offsets again",
        LOADING,
        "    if max(end_offset, request.log_start_offset) < stated_end_offset:\n",
        "    if False:\n",
        Hunt.STORIES,
    ),
    Mutant(
        646,
        "a checkpointed start past the end of the log is believed",
        LOADING,
        "    if start_offset > end_offset and (",
        "    if False and (",
        Hunt.STORIES,
    ),
    Mutant(
        647,
        "a segment that is gone between others is not told",
        LOADING,
        "    if not request.config.is_compacted and request.cleaned_end_offset is None:\n",
        "    if False:\n",
        Hunt.STORIES,
    ),
    Mutant(
        648,
        "ten bytes may claim ten times as many values",
        BOUNDS,
        "    return max(VALUES_MAX, 2 * size)\n",
        "    return 10 * max(VALUES_MAX, 2 * size)\n",
        Hunt.STORIES,
    ),
)
