"""The place of a node among the broker processes of its machine (`moldau serve --cores`), and the directories of these
processes. The first process uses the log directories that the configuration names. Each further process has a directory
in them.

    data/                the first process: partitions, metadata, meta.properties
    data/core.2/         the second process, laid out the same
    data/core.3/
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from moldau.protocol.late_dataclass import dataclass

LEFT_STATUS: Final = 3
"""The exit status of a node that was told to leave its cluster and has left it: no partition has a replica there."""
_NAME: Final = re.compile(r"core\.([1-9][0-9]*)")
"""The name of the directory of a further process. It cannot be the name of a partition's directory, which ends with a
dash and a number.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a node among the processes of its machine."""

    node_ids: tuple[int, ...]
    """The nodes of the machine, the first process first."""
    sockets: str
    """The directory in which each further process serves its metrics and its health; empty if HTTP is off."""
    heirs: tuple[int, ...] = ()
    """For a node that leaves the cluster, the nodes of this machine that take its replicas over; empty for a node that
    stays.
    """

    def is_first(self, node_id: int) -> bool:
        """Whether the node is the first process, whose HTTP listener answers for all."""
        return node_id == self.node_ids[0]

    def socket_of(self, node_id: int) -> str:
        """The path of the socket of a further process."""
        return f"{self.sockets}/node-{node_id}"


def core_directory(log_directory: str, core: int) -> str:
    """The directory of a process in a log directory of the first one. `core` counts from 1, which is the first."""
    return log_directory if core == 1 else f"{log_directory}/core.{core}"


def cores_in(names: Iterable[str]) -> list[int]:
    """The numbers of the further processes that have a directory among the entries of a log directory."""
    return sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found is not None and int(found[1]) > 1)
