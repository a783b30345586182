"""The ledger of an export: which offsets are in which files, a JSON document for each run.

    <output>/*.parquet                    the rows
    <output>/_moldau/00000001.json        the offsets and files of the first run; written in one step and never changed
    <output>/_moldau/staging-<run>/       files of a run that has not ended

A document has the id of the topic: the offsets of a topic that was deleted say nothing about another one of its name.
It also has the isolation level. At an open transaction a read_committed run stops, and a read_uncommitted run
continues, so a run of the other level would not continue the same rows.

Spark does not read names that begin with an underscore. A run writes its files into its staging directory, then its
document, which commits the run. The files then move to the output; after a crash in between the next run moves them.
Files that no document names are removed with their staging directory. So each offset is exported once.

A run that begins anew replaces what earlier runs have exported. Once its document is there, their files and documents
are removed, by the next run if this one dies.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from moldau.storage.files.local_files import LocalFiles
from moldau.tables.refusals import IsolationDiffers, Refused, TopicRecreated

DIRECTORY: Final = "_moldau"
FORMAT_VERSION: Final = 1


class ExportedFile(NamedTuple):
    """A Parquet file of a run of an export."""

    name: str
    rows: int
    size: int
    """The size of the file in bytes."""


@dataclass(frozen=True, slots=True)
class ExportRun:
    """The offsets and files of one run of an export."""

    number: int
    topic: str
    cluster_id: str | None
    ranges: Mapping[int, tuple[int, int]]
    """The exported offsets [start, end) by partition."""
    files: tuple[ExportedFile, ...]
    topic_id: str | None = None
    is_anew: bool = False
    """Whether this run has replaced what earlier runs exported."""
    isolation: str | None = None
    """The isolation level, `read_committed` or `read_uncommitted`; None in documents of earlier versions."""

    def as_json(self) -> str:
        described = {
            "format_version": FORMAT_VERSION,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "cluster_id": self.cluster_id,
            "isolation": self.isolation,
            "is_anew": self.is_anew,
            "ranges": {str(partition): list(offsets) for partition, offsets in sorted(self.ranges.items())},
            "files": [each._asdict() for each in self.files],
        }
        return json.dumps(described, indent=1) + "\n"


class ExportLedger:
    """The ledger in an output directory of this machine, or of a mount that driver and executors share."""

    def __init__(self, output: str) -> None:
        self.output = Path(output).absolute()
        self._home = self.output / DIRECTORY

    @property
    def is_foreign(self) -> bool:
        """Whether the output directory holds files but no ledger, so that another program wrote them."""
        return self.output.exists() and any(self.output.iterdir()) and not self._home.is_dir()

    def staging(self, number: int) -> Path:
        return self._home / f"staging-{number:08}"

    def runs(self) -> list[ExportRun]:
        """Read the committed runs of the export, in the order of their numbers. Each run has a JSON document in the
        ledger. Raises OSError, and `Refused` if a document cannot be parsed."""
        return [_parsed(path) for path in sorted(self._home.glob("[0-9]*.json"))]

    def ends(
        self,
        topic: str,
        cluster_id: str | None,
        topic_id: str | None = None,
        *,
        isolation: str | None = None,
        is_anew: bool = False,
    ) -> dict[int, int]:
        """The offset at which the next run begins, by partition. Empty if the export begins anew. Raises `Refused` if
        the ledger is of another topic or cluster, `IsolationDiffers` and `TopicRecreated`."""
        found: dict[int, int] = {}
        for run in self.runs():
            if run.topic != topic:
                raise Refused(f"{self.output} is an export of {run.topic}, not of {topic}")
            if None not in (run.cluster_id, cluster_id) and run.cluster_id != cluster_id:
                raise Refused(f"{self.output} is an export of cluster {run.cluster_id}, not of {cluster_id}")
            if run.is_anew:
                found = {}
            found |= {partition: end for partition, (_, end) in run.ranges.items()}
        if is_anew:
            return {}
        for run in self.runs_since_anew():
            check_topic_id(f"{self.output} is an export", topic, run.topic_id, topic_id)
            check_isolation(str(self.output), topic, run.isolation, isolation)
        return found

    def runs_since_anew(self) -> list[ExportRun]:
        """The runs whose files make up the export: the last run that began anew, and the runs after it. Raises
        `Refused` and OSError."""
        runs = self.runs()
        begun = max((number for number, run in enumerate(runs) if run.is_anew), default=0)
        return runs[begun:]

    def begin(self, topic: str, cluster_id: str | None) -> int:
        """Begin a run of the export: complete or remove what a crash left, and make an empty staging directory. Returns
        the number of the run. Raises `Refused` and OSError."""
        self._home.mkdir(parents=True, exist_ok=True)
        runs = self.runs()
        for run in runs:
            self._move(run)
        self._remove_replaced()
        for left in self._home.glob("staging-*"):
            shutil.rmtree(left)
        number = runs[-1].number + 1 if runs else 1
        self.staging(number).mkdir()
        return number

    def commit(self, run: ExportRun) -> None:
        """Commit a run of the export: store its document, and move its files to the output. Raises FileExistsError if
        another process has committed a run of the same number."""
        staging = self.staging(run.number)
        document = staging / "run.json"
        with document.open("w", encoding="utf-8") as file:
            file.write(run.as_json())
            file.flush()
            os.fsync(file.fileno())
        LocalFiles.sync_directory(str(staging))  # The document names files, so their names are durable before it.
        os.link(document, self._home / f"{run.number:08}.json")
        LocalFiles.sync_directory(str(self._home))
        self._move(run)
        self._remove_replaced()
        shutil.rmtree(staging)

    def _remove_replaced(self) -> None:
        """Remove the files and documents of the runs before the last run that began anew."""
        kept = {run.number for run in self.runs_since_anew()}
        for run in self.runs():
            if run.number not in kept:
                for file in run.files:
                    (self.output / file.name).unlink(missing_ok=True)
                (self._home / f"{run.number:08}.json").unlink()

    def _move(self, run: ExportRun) -> None:
        staging = self.staging(run.number)
        for file in run.files:
            if (staging / file.name).exists():
                os.replace(staging / file.name, self.output / file.name)
        LocalFiles.sync_directory(str(self.output))


def check_topic_id(what: str, topic: str, known: str | None, topic_id: str | None) -> None:
    """Raise `TopicRecreated` if both ids are known and differ. `what`: the beginning of the message, which names the
    output of the topic with the id `known`. `topic_id`: the present id."""
    if None not in (known, topic_id) and known != topic_id:
        raise TopicRecreated(
            f"{what} of {topic} with the id {known}, which was deleted; the topic of this name now has the id "
            f"{topic_id}. --anew replaces what was exported, and begins with the first record of this topic"
        )


def check_isolation(output: str, topic: str, known: str | None, isolation: str | None) -> None:
    """Raise `IsolationDiffers` if an export would continue with another isolation level than it was begun with."""
    if None not in (known, isolation) and known != isolation:
        raise IsolationDiffers(
            f"{output} is an export of {topic} with {known}, and this run has {isolation}: "
            f"--{str(known).replace('_', '-')} continues it, --anew replaces what was exported"
        )


def _parsed(path: Path) -> ExportRun:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        if read["format_version"] != FORMAT_VERSION:
            raise Refused(f"{path}: format version {read['format_version']} is not {FORMAT_VERSION}")
        ranges = {int(partition): (int(start), int(end)) for partition, (start, end) in read["ranges"].items()}
        files: Sequence[ExportedFile] = [ExportedFile(**each) for each in read["files"]]
        ids = read["cluster_id"], read.get("topic_id")  # Documents of earlier versions have no id of the topic.
        is_anew, isolation = bool(read.get("is_anew")), read.get("isolation")
        return ExportRun(int(path.stem), str(read["topic"]), ids[0], ranges, tuple(files), ids[1], is_anew, isolation)
    except Refused:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Refused(f"{path} is not the document of a run: {type(problem).__name__} {problem}") from None
