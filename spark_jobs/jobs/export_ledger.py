"""The ledger of an export: which offsets are in which files, a JSON document for each run.

    <output>/*.parquet                    the rows
    <output>/_moldau/00000001.json        the offsets and files of the first run; written in one step and never changed
    <output>/_moldau/staging-<run>/       files of a run that has not ended

Spark does not read names that begin with an underscore. A run writes its files into its staging directory, then its
document, which commits the run. The files then move to the output; after a crash in between the next run moves them.
Files that no document names are removed with their staging directory. So each offset is exported once.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from spark_jobs.refusals import Refused

DIRECTORY: Final = "_moldau"
FORMAT_VERSION: Final = 1


class ExportedFile(NamedTuple):
    """A Parquet file of a run."""

    name: str
    rows: int
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class ExportRun:
    """What one run has exported."""

    number: int
    topic: str
    cluster_id: str | None
    ranges: Mapping[int, tuple[int, int]]
    """[start, end) offsets by partition."""
    files: tuple[ExportedFile, ...]

    def as_json(self) -> str:
        described = {
            "format_version": FORMAT_VERSION,
            "topic": self.topic,
            "cluster_id": self.cluster_id,
            "ranges": {str(partition): list(offsets) for partition, offsets in sorted(self.ranges.items())},
            "files": [each._asdict() for each in self.files],
        }
        return json.dumps(described, indent=1) + "\n"


class ExportLedger:
    """The ledger at an output directory of this machine, or of a mount that driver and executors share."""

    def __init__(self, output: str) -> None:
        self.output = Path(output).absolute()
        self._home = self.output / DIRECTORY

    @property
    def is_foreign(self) -> bool:
        """Whether the output holds files but no ledger, so that another program wrote them."""
        return self.output.exists() and any(self.output.iterdir()) and not self._home.is_dir()

    def staging(self, number: int) -> Path:
        return self._home / f"staging-{number:08}"

    def runs(self) -> list[ExportRun]:
        """The committed runs. Raises `Refused` for a document that cannot be parsed, and OSError."""
        return [_parsed(path) for path in sorted(self._home.glob("[0-9]*.json"))]

    def ends(self, topic: str, cluster_id: str | None) -> dict[int, int]:
        """The offset at which the next run begins, by partition. Raises `Refused` where the ledger is of another topic
        or cluster.
        """
        found: dict[int, int] = {}
        for run in self.runs():
            if run.topic != topic:
                raise Refused(f"{self.output} is an export of {run.topic}, not of {topic}")
            if None not in (run.cluster_id, cluster_id) and run.cluster_id != cluster_id:
                raise Refused(f"{self.output} is an export of cluster {run.cluster_id}, not of {cluster_id}")
            found |= {partition: end for partition, (_, end) in run.ranges.items()}
        return found

    def begin(self, topic: str, cluster_id: str | None) -> int:
        """Begin a run: complete or remove what a crash left, and make an empty staging directory. Returns the number of
        the run. Raises OSError.
        """
        self._home.mkdir(parents=True, exist_ok=True)
        runs = self.runs()
        for run in runs:
            self._move(run)
        for left in self._home.glob("staging-*"):
            shutil.rmtree(left)
        number = runs[-1].number + 1 if runs else 1
        self.staging(number).mkdir()
        return number

    def commit(self, run: ExportRun) -> None:
        """Make a run final. Raises FileExistsError where another process has committed one of this number."""
        staging = self.staging(run.number)
        document = staging / "run.json"
        with document.open("w", encoding="utf-8") as file:
            file.write(run.as_json())
            file.flush()
            os.fsync(file.fileno())
        os.link(document, self._home / f"{run.number:08}.json")
        _sync(self._home)
        self._move(run)
        shutil.rmtree(staging)

    def _move(self, run: ExportRun) -> None:
        staging = self.staging(run.number)
        for file in run.files:
            if (staging / file.name).exists():
                os.replace(staging / file.name, self.output / file.name)
        _sync(self.output)


def _parsed(path: Path) -> ExportRun:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        if read["format_version"] != FORMAT_VERSION:
            raise Refused(f"{path}: format version {read['format_version']} is not {FORMAT_VERSION}")
        ranges = {int(partition): (int(start), int(end)) for partition, (start, end) in read["ranges"].items()}
        files: Sequence[ExportedFile] = [ExportedFile(**each) for each in read["files"]]
        return ExportRun(int(path.stem), str(read["topic"]), read["cluster_id"], ranges, tuple(files))
    except Refused:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Refused(f"{path} is not the document of a run: {type(problem).__name__} {problem}") from None


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
