"""Files of a log changed at random: it opens and is read, or says that it is corrupt; never anything else."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.checkpoints.meta_properties import InvalidMetaProperties, read_meta_properties
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.recovery import CorruptLog
from tests.fuzz.mutation import mutate
from tests.unit.storage.stories import NOW_MS, batch, open_log

ROUNDS = int(os.environ.get("FUZZ_DISK_ROUNDS", "25"))
META = "version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n"


def written(directory: Path) -> None:
    log = open_log(LocalFiles(), str(directory))
    for sequence in range(40):
        log.append_as_leader(batch("x" * sequence, producer=(7, 0, sequence)), sequence // 10, NOW_MS)
    log.close(NOW_MS, clean=True)


@pytest.mark.parametrize("is_clean", [False, True], ids=["recovered", "after a clean stop"])
def test_a_log_whose_files_were_changed_opens_or_says_that_it_is_corrupt(tmp_path: Path, is_clean: bool) -> None:
    chance = random.Random(f"{is_clean}")
    opened = 0
    for number in range(ROUNDS):
        directory = tmp_path / f"t-{number}"
        written(directory)
        path = chance.choice(sorted(directory.iterdir()))
        path.write_bytes(mutate(chance, path.read_bytes()))
        try:
            log = open_log(LocalFiles(), str(directory), recovery_point=20, clean=is_clean)
        except (CorruptLog, OSError):
            continue
        opened += 1
        with contextlib.suppress(MalformedMessage, CorruptLog, OSError):
            log.offset_for_timestamp(NOW_MS)
        for offset in range(log.log_start_offset, log.end_offset):  # a consumer looks at the checksums
            with contextlib.suppress(MalformedMessage, CorruptLog, OSError):
                log.read(offset, 1 << 20, end_offset=log.end_offset, at_least_one=True)
        assert log.append_as_leader(batch("y"), 9, NOW_MS).error in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
    assert opened > ROUNDS // 4


def test_meta_properties_that_were_changed_are_read_or_invalid(tmp_path: Path) -> None:
    chance = random.Random(1)
    read = 0
    for _ in range(ROUNDS * 10):
        (tmp_path / "meta.properties").write_bytes(mutate(chance, META.encode()))
        with contextlib.suppress(InvalidMetaProperties, OSError):
            found = read_meta_properties(LocalFiles(), str(tmp_path))
            assert found is not None and found.cluster_id and found.node_id >= 0
            read += 1
    assert 0 < read < ROUNDS * 10
