"""Which records `moldau erase --verify` counts as left."""

from __future__ import annotations

from pathlib import Path

from moldau.broker.cli.daily.erasure.receipts import write_receipt
from moldau.broker.cli.daily.erasure.verifying import _left_of
from moldau.protocol.erase_orders import Run
from moldau.protocol.record_builder import Record


def test_a_run_of_any_length_takes_no_memory() -> None:
    """A receipt is a file, which may have been edited."""
    orders = [{"offset": 50, "runs": [[7, 10**12], [3, 3]]}, {"offset": 60, "runs": [[5, 6]]}]
    is_left, runs = _left_of(orders, None, 100)
    assert runs == [Run(3, 3), Run(5, 10**12)]
    offsets = (2, 3, 4, 5, 7, 10**11, 10**12, 10**12 + 1)
    assert [is_left(Record(offset=offset)) for offset in offsets] == [False, True, False, True, True, True, True, False]


def test_a_receipt_is_read_by_its_owner_alone(tmp_path: Path) -> None:
    (old := tmp_path / "old.json").write_text("much longer than the new one")
    old.chmod(0o644)
    for path in (old, tmp_path / "new.json"):
        write_receipt(str(path), "{}")
        assert (path.read_text(), path.stat().st_mode & 0o777) == ("{}\n", 0o600)


def test_records_that_pass_the_filters_count_up_to_the_last_order() -> None:
    is_left, _ = _left_of([{"offset": 50, "runs": [[7, 7]]}], lambda record: record.key == b"k", 100)
    assert [is_left(Record(b"k", offset=offset)) for offset in (7, 49, 50)] == [True, True, False]
    assert not is_left(Record(b"other", offset=8))
