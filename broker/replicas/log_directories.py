"""The log directories of a node: their meta.properties, the progress of opening logs at start, and full disks."""

from __future__ import annotations

import logging
from collections.abc import Callable

from moldau.broker.config.config import Config
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.progress import Progress, byte_size_text
from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.checkpoints.meta_properties import (
    InvalidMetaProperties,
    MetaProperties,
    directory_conflict,
    read_meta_properties,
)
from moldau.storage.files.port import DISK_FULL_ERRNOS, FileSystem

log = logging.getLogger("moldau.logs")


class NotFormatted(Exception):
    """The node cannot start with its directories; the message has advice for the operator."""


class NodeDirectories(NamedTuple):
    """The meta.properties of a node's directories, by path: of its log directories and of its metadata directory."""

    properties: dict[str, MetaProperties]
    unusable: dict[str, str]
    """The directories that are offline from the start on, each with the reason."""


def read_directories(environment: Environment, config: Config) -> NodeDirectories:
    """Read the meta.properties of all directories. A directory without a readable one is offline, as after a disk
    failure.

    Raises `NotFormatted`, `InvalidMetaProperties` or OSError if the node cannot start: the metadata directory or every
    log directory is offline, or the directories do not belong to one node.

    DIVERGES: Apache Kafka does not start if the meta.properties of a directory is missing or damaged; only a failed
    read takes the directory offline. Here all three take it offline, because the disk may not be mounted.
    """
    properties: dict[str, MetaProperties] = {}
    unusable: dict[str, Exception] = {}
    for path in dict.fromkeys((config.metadata_log_dir, *config.log_dirs)):
        try:
            found = read_meta_properties(environment.fs, path)
        except (InvalidMetaProperties, OSError) as error:
            unusable[path] = error
        else:
            if found is None:
                text = "not formatted. First run `moldau format -c` with the same file"
                unusable[path] = NotFormatted(f"{path}: {text}")
            else:
                properties[path] = found
    if config.metadata_log_dir in unusable or all(path in unusable for path in config.log_dirs):
        raise next(iter(unusable.values()))
    _check(config, properties)
    for path, why in unusable.items():
        log.error("log directory %s is offline: %s", path, why)
    return NodeDirectories(properties, {path: str(why) for path, why in unusable.items()})


def _check(config: Config, properties: dict[str, MetaProperties]) -> None:
    problem = directory_conflict(list(properties.items()))
    if problem is not None:
        raise NotFormatted(f"{problem}. Leave out of log.dirs what belongs to another cluster or node")
    node_id = next(iter(properties.values())).node_id
    if node_id != config.node_id:
        raise NotFormatted(
            f"{config.log_dirs[0]} belongs to node {node_id}, and the configuration says node.id={config.node_id}."
            f" Set node.id={node_id}, or give node {config.node_id} a directory of its own (--data DIR, or log.dirs)"
        )


class OpeningResult(NamedTuple):
    """The result of opening the log directories."""

    partitions: int
    was_clean: bool
    """Whether the previous process closed all logs. If not, the logs were recovered."""
    damaged: int
    """The number of partitions that are not served because batches of their logs differ from what was written."""
    checked_size: int
    """The number of bytes whose checksums recovery compared."""
    duration_ms: int


class LogOpening:
    """Counts the logs that several threads open at start, each thread one log at a time, and logs the progress."""

    def __init__(self, precise_ns: Callable[[], int], partitions: int, threads: int, *, was_clean: bool) -> None:
        self._progress = Progress(precise_ns)
        self._partitions = partitions
        self._was_clean = was_clean
        self._done = [0] * threads
        self._checked = [0] * threads
        self._current = [(0, 0)] * threads

    def note_checked(self, thread: int, checked_size: int, of_size: int) -> None:
        """Note the progress of the log that a thread is opening: recovery has checked `checked_size` of its `of_size`
        bytes.
        """
        self._current[thread] = checked_size, of_size
        self._tell()

    def note_opened(self, thread: int) -> None:
        """Note that a thread has finished with a log, whether or not the log could be opened."""
        self._checked[thread] += self._current[thread][0]
        self._current[thread] = 0, 0
        self._done[thread] += 1
        self._tell()

    def result(self, damaged: int) -> OpeningResult:
        """The counts after all threads have ended. `damaged` is the number of damaged logs."""
        return OpeningResult(self._partitions, self._was_clean, damaged, sum(self._checked), self._progress.duration_ms)

    def _tell(self) -> None:
        parts = sum(checked / of for checked, of in self._current if of)
        self._progress.log_progress((sum(self._done) + parts) / self._partitions, self._counts)

    def _counts(self) -> str:
        done = f"{sum(self._done):,} of {self._partitions:,} partitions"
        if self._was_clean:
            return f"opening logs: {done}"
        checked = sum(self._checked) + sum(checked for checked, _ in self._current)
        return f"recovering logs after an unclean stop: {done}, {byte_size_text(checked)} checked"


class FullDisks:
    """The log directories whose disks are full, and the number of operations that failed for lack of space or of file
    descriptors. The owner calls `check_full_disks` periodically.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.refusals = 0
        """The number of writes that failed for lack of space, since the start."""
        self.descriptor_refusals = 0
        """The number of operations that failed for lack of file descriptors, since the start."""
        self._full: dict[str, int] = {}
        """For each full log directory, by path, its number of failed writes at the last check."""
        self._counts: dict[str, int] = {}

    @property
    def full(self) -> tuple[str, ...]:
        """The paths of the log directories on a full disk."""
        return tuple(self._full)

    def on_transient_error(self, path: str, error: OSError) -> None:
        """Note that an operation in a log directory failed because of a full disk or another transient error."""
        if error.errno not in DISK_FULL_ERRNOS:
            self.descriptor_refusals += 1
            if self.descriptor_refusals & (self.descriptor_refusals - 1) == 0:
                log.error(
                    "%d operations on log files failed for lack of file descriptors, raise the limit: %s",
                    self.descriptor_refusals,
                    error,
                )
            return
        self.refusals += 1
        self._counts[path] = self._counts.get(path, 0) + 1
        if path not in self._full:
            self._full[path] = 0
            log.error(
                "the disk of log directory %s is full: appends to its partitions are refused until it has space,"
                " consumers go on reading: %s",
                path,
                error,
            )

    def check_full_disks(self) -> None:
        """Remove each directory from `full` whose disk has free space, if no write failed there since the last
        check.
        """
        for path, seen in tuple(self._full.items()):
            count = self._counts[path]
            self._full[path] = count
            if seen == count and self._has_room(path):
                del self._full[path]
                log.info("log directory %s has space again, after %d failed writes", path, self._counts.pop(path))

    def _has_room(self, path: str) -> bool:
        try:
            return self._fs.disk_usage(path)[1] > 0
        except OSError:
            return False
