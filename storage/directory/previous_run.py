"""The end of the previous process that served a log directory, and the data that it may have lost."""

from __future__ import annotations

from moldau.storage.checkpoints.clean_shutdown import read_clean_shutdown, remove_clean_shutdown
from moldau.storage.checkpoints.serving_epoch import read_serving_epoch
from moldau.storage.files.port import FileSystem


class PreviousRun:
    """The state that the previous process left; it is read once, when the directory is opened.

    | the previous process     | its files are trusted    | may have lost writes | its broker epoch is taken from |
    |--------------------------|--------------------------|----------------------|--------------------------------|
    | shut down cleanly        | all                      | no                   | .kafka_cleanshutdown           |
    | was killed, in this boot | up to the recovery point | no                   | .moldau-life                   |
    | ended with the machine   | up to the recovery point | yes                  | none: the epoch is not known   |

    Reading removes .kafka_cleanshutdown: if this process crashes, the next one must not find it. Raises OSError.
    """

    __slots__ = ("_serving", "clean_broker_epoch", "may_have_lost_writes")

    def __init__(self, fs: FileSystem, path: str, boot_id: str) -> None:
        self.clean_broker_epoch = read_clean_shutdown(fs, path)
        """The broker epoch of a clean shutdown (-1 where it is not known), None after a crash."""
        remove_clean_shutdown(fs, path)
        self._serving = read_serving_epoch(fs, path)
        is_same_boot = self._serving is not None and boot_id != "" and self._serving.boot_id == boot_id
        self.may_have_lost_writes = not self.was_clean and not is_same_boot
        """Whether written data that was not synced may be lost."""

    @property
    def was_clean(self) -> bool:
        return self.clean_broker_epoch is not None

    @property
    def broker_epoch(self) -> int | None:
        """The broker epoch of the previous process, where it ended without losing anything; None where it may have lost
        records."""
        if self.may_have_lost_writes:
            return None
        if self.was_clean or self._serving is None:
            return self.clean_broker_epoch
        return self._serving.broker_epoch
