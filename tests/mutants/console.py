"""Bugs in the search of the console through whole topics."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

SIGNS: Final = "broker/console/decoding/prefilter.py"

CONSOLE_MUTANTS: Final = (
    Mutant(
        700,
        "the time of a search tells what a masked part holds",
        SIGNS,
        "    if wanted.masks or is_framed:\n",
        "    if is_framed:\n",
        Hunt.STORIES,
    ),
    Mutant(
        701,
        "a text that JSON writes with escapes is not found",
        SIGNS,
        'key=len, default=b""), _ESCAPED)\n',
        'key=len, default=b""),)\n',
        Hunt.STORIES,
    ),
    Mutant(
        702,
        "a search reads a file that has replaced the one that was looked up",
        "broker/console/decoding/work.py",
        "            if fs.stamp(place.path).inode == place.inode:\n",
        "            if True:\n",
        Hunt.STORIES,
    ),
    Mutant(
        703,
        "a compressed batch is skipped as if its bytes were its records",
        SIGNS,
        "_SPECIAL: Final = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT\n",
        "_SPECIAL: Final = TRANSACTIONAL_BIT | CONTROL_BIT\n",
        Hunt.STORIES,
    ),
)
