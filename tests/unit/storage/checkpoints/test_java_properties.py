"""Java's properties files, with all their oddities."""

from __future__ import annotations

import pytest

from moldau.storage.checkpoints.java_properties import MalformedProperties, read_properties


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1\nb = 2\nc:3\nd : 4\ne 5\nf\t=\t6", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": "6"}),
        ("# a=1\n! b=2\n   # c=3\n\n  \n d=4", {"d": "4"}),
        ("a=1,\\\n   2,\\\n   3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=\\u0041\\t\\n\\x", {"a": "A\t\nx"}),
        ("a=\\uD83D\\uDE00", {"a": "\N{GRINNING FACE}"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a\nb=\nc==1", {"a": "", "b": "", "c": "=1"}),
        ("a= x y  ", {"a": "x y  "}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_a_properties_file_reads_as_java_reads_it(text: str, settings: dict[str, str]) -> None:
    assert read_properties(text) == settings


def test_a_broken_escape_is_refused() -> None:
    with pytest.raises(MalformedProperties):
        read_properties("a=\\u00g0")


def test_java_properties_are_read_with_all_their_oddities() -> None:
    text = "! c\n  a=1\nb : 2\nc 3\nd\\=e=4\nf=x\\\n   y\ng=\\u0041\\t\nh\n"
    assert read_properties(text) == {"a": "1", "b": "2", "c": "3", "d=e": "4", "f": "xy", "g": "A\t", "h": ""}
