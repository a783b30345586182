"""Lineage in 30 bytes of custom metadata."""

from __future__ import annotations

from moldau.storage.tiered.metadata.lineage import FORMAT, Lineage, ancestor_digest, read_lineage

LINEAGE = Lineage(2, 1_000_000, 3, ancestor_digest([b"a" * 16, b"b" * 16, b"c" * 16]))


def test_it_is_read_as_it_was_written() -> None:
    assert read_lineage(LINEAGE.encode()) == LINEAGE
    assert FORMAT.size == 30 <= 128


def test_the_order_of_the_ancestors_does_not_matter() -> None:
    assert ancestor_digest([b"c" * 16, b"a" * 16, b"b" * 16]) == LINEAGE.ancestor_digest


def test_custom_metadata_of_another_writer_is_no_lineage() -> None:
    assert read_lineage(None) is None
    assert read_lineage(b"") is None
    assert read_lineage(bytes(30)) is None
    assert read_lineage(LINEAGE.encode() + b"x") is None
