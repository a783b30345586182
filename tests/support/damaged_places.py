"""Random damage of the files and objects of a topic: the reader gives the right rows or an error or a warning that
names the partition, and the audit finds the damage.

A case is a random history of one partition in one kind of place (`PLACES`), and one damage (`DAMAGES`). The right rows
are those that the reader gives before the damage; their offsets are compared with a model of a consumer.
"""

from __future__ import annotations

import asyncio
import pickle
import random
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Final

from moldau.protocol.compression import Codec
from moldau.protocol.primitives import MalformedMessage
from moldau.spark_jobs.jobs.audit import AuditReader, AuditResult, AuditSource, plan_audit, result_of
from moldau.storage.checkpoints.meta_properties import MetaProperties, write_meta_properties
from moldau.storage.checkpoints.text_checkpoint import CLEANER_OFFSET_CHECKPOINT, write_offsets
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.storage.segment.segment_listing import list_segments
from moldau.storage.tiered.directory_storage import DirectoryStorage
from moldau.storage.tiered.layout import CLUSTER_MANIFEST_KEY
from moldau.storage.tiered.manifest import encode_cluster_manifest
from moldau.storage.tiered.port import RemoteStorageError
from moldau.tables.refusals import Refused
from tests.support.segments import EPOCH, write_checkpoints
from tests.support.tables import rows_of
from tests.support.tiered_copy import CLUSTER, copy_segment
from tests.support.transactional_log import TransactionalLog
from tests.unit.storage.compaction.histories import NOW_MS, clean_log

CONFIG: Final = LogConfig(segment_bytes=700, index_interval_bytes=150)
COMPACTED: Final = LogConfig(
    segment_bytes=700, index_interval_bytes=150, cleanup_policy=("compact",), delete_retention_ms=0
)
PLACES: Final = ("local", "compacted", "tiered", "joined", "replicas")
DAMAGES: Final = ("delete", "cut", "empty", "swap", "stale replica")
RIGHT, REFUSED, WARNED = "right rows", "named error", "right or fewer rows with a warning"
EPOCH_POSITION: Final = 12


def audited(*places: Path, **options: str) -> AuditResult:
    """The audit of places, planned as the driver does and each task pickled as to a worker."""
    path = ",".join(map(str, places))
    source = AuditSource({"path": path, **options})
    reader = source.reader(source.schema())
    assert isinstance(reader, AuditReader)
    problems = plan_audit({"path": path, **options}).problems
    reader, tasks = pickle.loads(pickle.dumps((reader, reader.partitions())))
    rows = [tuple(row.values()) for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    return result_of(rows, problems)


class DamagedCase:
    """One history in its places."""

    def __init__(self, root: Path, dice: random.Random, place: str, damage: str) -> None:
        self._root, self._dice = root, dice
        self.place = "replicas" if damage == "stale replica" else place
        self.damage = damage
        self._log = random_history(dice)
        self.directories = [root / "broker-1"]
        self._write(self.directories[0], self._log)
        if self.place == "replicas":
            self.directories.append(root / "broker-2")
            self._write(self.directories[1], self._log)
        if self.place in ("tiered", "joined"):
            self._copy()

    @property
    def places(self) -> list[Path]:
        if self.place == "tiered":
            return [self._root / "tier"]
        return [*self.directories, self._root / "tier"] if self.place == "joined" else self.directories

    def rows(self, *, is_committed: bool) -> list[tuple[object, ...]]:
        isolation = "read_committed" if is_committed else "read_uncommitted"
        options = {"subscribe": "t", "kafka.isolation.level": isolation, "columns": "offset,key,value"}
        options["minPartitions"] = str(self._dice.randint(1, 5))
        return [tuple(row.values()) for row in rows_of(",".join(map(str, self.places)), **options)]

    def expected_offsets(self) -> list[int]:
        """The committed offsets of a local log, by a model."""
        return self._log.committed(self._log.end_offset)

    def do_damage(self) -> str | None:
        """Damage the files.

        Returns what was done; None if nothing has changed, for example a file that was empty is emptied.
        """
        if self.damage == "stale replica":
            return self._make_stale()
        files = self._files()
        path = self._dice.choice(files)
        data = path.read_bytes()
        match self.damage:
            case "delete":
                path.unlink()
            case "cut":
                if not data:
                    return None
                path.write_bytes(data[: self._cut_position(path, data)])
            case "empty":
                if not data:
                    return None
                path.write_bytes(b"")
            case _:
                others = [each for each in files if each.suffixes == path.suffixes and each.read_bytes() != data]
                if not others:
                    return None
                other = self._dice.choice(others)
                for target, content in ((path, other.read_bytes()), (other, data)):
                    target.write_bytes(content)
        return f"{self.damage} {path}"

    def _files(self) -> list[Path]:
        """The files that may be damaged: segments and their transaction indexes, and all objects of a segment."""
        local = [] if self.place == "tiered" else [each / "t-0" for each in self.directories]
        found = [each for place in local for suffix in ("log", "txnindex") for each in place.glob(f"*.{suffix}")]
        if self.place in ("tiered", "joined"):
            found += [each for each in (self._root / "tier" / "topics").rglob("*") if each.is_file()]
        return sorted(found)

    def _cut_position(self, path: Path, data: bytes) -> int:
        """A position inside the file, often the end of a batch: such a cut leaves whole batches."""
        ends = []
        position = 0
        while path.suffix == ".log" and position + 12 <= len(data):
            ends.append(position)
            position += int.from_bytes(data[position + 8 : position + 12]) + 12
        return self._dice.choice(ends) if ends and self._dice.random() < 0.7 else self._dice.randrange(len(data))

    def _make_stale(self) -> str:
        """The second broker led in an older epoch, and an unclean election has passed it over: from some offset on it
        has other records, below its high watermark.
        """
        fork = self._dice.choice(self._log.batches).base_offset
        for number, directory in enumerate(self.directories):
            for path in (directory / "t-0").iterdir():
                path.unlink()
            history = self._log
            if number == 1:
                history = TransactionalLog([each for each in self._log.batches if each.next_offset <= fork], {}, fork)
                for _ in range(self._dice.randint(1, 5)):
                    history.append(self._dice.randint(1, 4), codec=Codec.LZ4)
            self._write(directory, history, fork=fork, epoch=EPOCH + 1 - number)
        return f"{self.directories[1]} has other records from {fork} on"

    def _write(self, directory: Path, history: TransactionalLog, *, fork: int = 0, epoch: int = EPOCH) -> None:
        directory.mkdir(exist_ok=True)
        config = COMPACTED if self.place == "compacted" else CONFIG
        log = Log.open(LocalFiles(), f"{directory}/t-0", config, clean_shutdown=True, now_ms=NOW_MS)
        for each in history.batches:
            data = bytearray(each.data)
            its_epoch = epoch if each.base_offset >= fork else EPOCH
            data[EPOCH_POSITION : EPOCH_POSITION + 4] = its_epoch.to_bytes(4)
            result = log.append_as_follower(bytes(data), its_epoch, NOW_MS)
            assert not result.error, result
        if self.place == "compacted":
            log.roll(NOW_MS)
            clean_log(LocalFiles(), log, NOW_MS + 10_000)
            write_offsets(LocalFiles(), str(directory), CLEANER_OFFSET_CHECKPOINT, {("t", 0): history.end_offset})
        log.close(NOW_MS, clean=True)
        write_checkpoints(directory, {("t", 0): history.end_offset})
        number = int(directory.name.rpartition("-")[2])
        write_meta_properties(LocalFiles(), str(directory), MetaProperties(CLUSTER, number, None))

    def _copy(self) -> None:
        """Copy sealed segments into a tier; joined, the local log begins after some of them."""
        tier = self._root / "tier"
        tier.mkdir()
        storage = DirectoryStorage(str(tier), random.Random(1))
        partition = self.directories[0] / "t-0"
        limit = self._log.last_stable_offset(self._log.end_offset)
        sealed = [
            each for each in list_segments(LocalFiles(), str(partition))[:-1] if each.next_base_offset is not None
        ]
        copied = [each for each in sealed if (each.next_base_offset or 0) <= limit]

        async def copy() -> None:
            await storage.put(CLUSTER_MANIFEST_KEY, encode_cluster_manifest(CLUSTER))
            for number, segment in enumerate(copied):
                await copy_segment(storage, segment, segment_id=bytes([*bytes(15), number + 1]))

        asyncio.run(copy())
        if self.place == "joined":
            for each in copied[: self._dice.randint(0, len(copied))]:
                for file in partition.glob(f"{each.base_offset:020}.*"):
                    file.unlink()


def random_history(dice: random.Random) -> TransactionalLog:
    """Batches of three producers with and without transactions, and in the end without one that is open."""
    log = TransactionalLog()
    opened: set[int] = set()
    for _ in range(dice.randint(15, 50)):
        producer_id = dice.randrange(5)
        if producer_id >= 3:
            log.append(dice.randint(1, 4), codec=dice.choice(list(Codec)))
        elif producer_id in opened and dice.random() < 0.5:
            opened.discard(producer_id)
            log.end(producer_id, commits=dice.random() < 0.5)
        else:
            opened.add(producer_id)
            log.append(dice.randint(1, 4), producer_id)
    for producer_id in sorted(opened):
        log.end(producer_id, commits=dice.random() < 0.5)
    return log


def run_damages(numbers: range, seed: int) -> Counter[str]:
    """Run cases. Returns the number of cases by place, damage and result.

    Raises `AssertionError` that names the case if rows are wrong in silence, or the audit finds nothing.
    """
    outcomes: Counter[str] = Counter()
    for number in numbers:
        dice = random.Random(f"{seed}/{number}")
        place = PLACES[number % len(PLACES)]
        damage = DAMAGES[number // len(PLACES) % len(DAMAGES)]
        with tempfile.TemporaryDirectory() as name:
            try:
                case = DamagedCase(Path(name), dice, place, damage)
                outcomes[f"{case.place}, {damage}: {run_case(case, dice)}"] += 1
            except AssertionError as wrong:
                raise AssertionError(f"case {number} of seed {seed}, {place}, {damage}: {wrong}") from wrong
    return outcomes


def run_case(case: DamagedCase, dice: random.Random) -> str:
    is_committed = dice.random() < 0.6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = audited(*case.places)
        assert before.is_intact, f"the audit finds a problem in what is intact: {before.problems}"
        right = case.rows(is_committed=is_committed)
        if is_committed and case.place in ("local", "joined", "replicas"):
            assert [row[0] for row in right] == case.expected_offsets(), "the rows before the damage are wrong"
    done = case.do_damage()
    if done is None:
        return "nothing changed"
    check_audit(case, done)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            rows = case.rows(is_committed=is_committed)
        except (Refused, MalformedMessage, RemoteStorageError, OSError) as error:
            assert "t-0" in str(error) or "/t." in str(error) or "path: " in str(error), f"no partition in {error!r}"
            return REFUSED
    if rows == right:
        return RIGHT
    said = [
        str(each.message) for each in warned if "t-0" in str(each.message) and "alone does not" not in str(each.message)
    ]
    assert said, f"{done}: {len(rows)} rows instead of {len(right)}, in silence"
    assert case.place in ("tiered",), f"{done}: {len(rows)} rows instead of {len(right)}, with a warning alone: {said}"
    return WARNED


def check_audit(case: DamagedCase, done: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = audited(*case.places)
        except (Refused, MalformedMessage, RemoteStorageError, OSError):
            return
    assert not result.is_intact, f"{done}: the audit finds no problem"
