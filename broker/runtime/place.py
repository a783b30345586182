"""The broker processes of one machine (`moldau serve --cores`), and the directories of each. The first process uses the
log directories that the configuration names. Each further process has a subdirectory in every one of them.

    data/                the first process: partitions, metadata, meta.properties
    data/core.2/         the second process, laid out the same
    data/core.3/
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from moldau.protocol.late_dataclass import dataclass

EXIT_LEFT_CLUSTER: Final = 3
"""The exit status of a node that was told to leave its cluster and has left it: it has no replicas any more."""
_NAME: Final = re.compile(r"core\.([1-9][0-9]*)")
"""The name of a further process's directory. It cannot be the name of a partition's directory, which ends with a dash
and a number.
"""


@dataclass(frozen=True, slots=True)
class MachineProcesses:
    """The broker processes of one machine, as one of them knows them."""

    node_ids: tuple[int, ...]
    """The node ids of the processes of the machine, the first process first."""
    sockets: str
    """The directory with the sockets on which further processes serve metrics and health to the first one; empty if
    HTTP is off.
    """
    heirs: tuple[int, ...] = ()
    """For a node that leaves the cluster: the node ids of this machine's processes that take over its replicas. Empty
    for a node that stays.
    """

    def is_first(self, node_id: int) -> bool:
        """Whether the node is the first process, whose HTTP listener answers for all processes."""
        return node_id == self.node_ids[0]

    def socket_of(self, node_id: int) -> str:
        """The path of the socket on which a further process serves metrics and health."""
        return f"{self.sockets}/node-{node_id}"


def core_directory(log_directory: str, core: int) -> str:
    """The directory of a process within a log directory. `core` is the number of the process, from 1. The first process
    uses the log directory itself.
    """
    return log_directory if core == 1 else f"{log_directory}/core.{core}"


def core_numbers_in(names: Iterable[str]) -> list[int]:
    """The numbers of the further processes whose directories are among the names of a log directory's entries."""
    return sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found is not None and int(found[1]) > 1)
