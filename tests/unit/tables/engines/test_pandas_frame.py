"""Topics as data frames of pandas."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

import moldau
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

pd = pytest.importorskip("pandas")


def test_the_columns_stay_arrow(tmp_path: Path) -> None:
    write_partition(tmp_path, mixed_batches(4, 10))
    write_checkpoints(tmp_path, {("t", 0): 40})
    frame = moldau.pandas(tmp_path, "t", columns=["offset", "key"], filter=pc.field("offset") >= 30)
    assert frame["offset"].tolist() == list(range(30, 40))
    assert all(isinstance(kind, pd.ArrowDtype) for kind in frame.dtypes)
