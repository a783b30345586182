"""Records for the offset map, and both of its forms."""

from __future__ import annotations

from types import ModuleType

from hypothesis import strategies as st

from moldau.protocol.record_batch import HEADER_SIZE
from moldau.protocol.record_builder import NEXT_OFFSET, Record, build_batch
from tests.support import modules_in_c

MODULE = "storage.compaction.offset_map"
keys = st.none() | st.sampled_from([b"", b"a", b"b", b"eight by", b"c" * 200])
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)
records = st.builds(
    Record,
    key=keys,
    value=st.none() | st.binary(max_size=5) | st.just(b"v" * 300),
    timestamp=st.integers(min_value=0, max_value=1 << 41),
    headers=headers,
    offset=st.just(NEXT_OFFSET),
)
runs = st.lists(records, min_size=1, max_size=12)


def encoded(chosen: list[Record], base_offset: int) -> tuple[bytes, bytes]:
    """A batch, and its records alone."""
    batch = build_batch(chosen, base_offset=base_offset)
    return batch, batch[HEADER_SIZE:]


def plain_form() -> ModuleType:
    """The module in Python, also if its compiled form is installed."""
    return modules_in_c.plain_form(MODULE)


def compiled_form() -> ModuleType | None:
    """The module in C, compiled for these tests; None if this machine has no C compiler."""
    return modules_in_c.compiled_form(MODULE)


def forms() -> list[ModuleType]:
    """The forms of the module that this machine can run."""
    return modules_in_c.forms_of(MODULE)
