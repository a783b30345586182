"""The names of partition directories and of files."""

from __future__ import annotations

import pytest

from moldau.storage.files.log_paths import (
    PartitionDirectory,
    offset_name,
    offset_of_name,
    parse_partition_directory,
    suffixed_directory_name,
)

UNIQUE = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("orders-0", PartitionDirectory("orders", 0, "", "")),
        ("a-b.c_d-12", PartitionDirectory("a-b.c_d", 12, "", "")),
        (f"a-b-3.{UNIQUE}-delete", PartitionDirectory("a-b", 3, "-delete", UNIQUE)),
        (f"t-0.{UNIQUE}-future", PartitionDirectory("t", 0, "-future", UNIQUE)),
        (f"t-0.{UNIQUE}-stray", PartitionDirectory("t", 0, "-stray", UNIQUE)),
        ("x.y-delete", None),
        ("remote-log-index-cache", None),
        ("-0", None),
        ("orders", None),
        ("orders-", None),
        ("orders-1a", None),
        ("orders-²", None),
    ],
)
def test_a_directory_is_read_by_its_name(name: str, parsed: PartitionDirectory | None) -> None:
    assert parse_partition_directory(name) == parsed


def test_a_name_that_would_be_too_long_loses_the_end_of_its_topic() -> None:
    name = suffixed_directory_name("t" * 249, 7, UNIQUE, "-delete")
    assert len(name) == 255 and name.endswith(f"ttt-7.{UNIQUE}-delete")
    assert suffixed_directory_name("t", 7, UNIQUE, "-stray") == f"t-7.{UNIQUE}-stray"


def test_files_are_named_by_twenty_digits() -> None:
    assert offset_name(5801, ".log") == "00000000000000005801.log"
    assert offset_of_name("00000000000000005801.log.swap") == 5801
    for name in ("5801.log", "0000000000000000580x.log", "leader-epoch-checkpoint"):
        with pytest.raises(ValueError, match="no offset"):
            offset_of_name(name)
