"""`moldau cluster-status`: prints the nodes of a cluster, its controller, and the partitions that are offline or
under-replicated.
"""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_connection

DESCRIPTION: Final = "Show nodes and their disks, the controller, versions, and partitions that are not well."
EPILOG: Final = f"""\
examples:
  moldau cluster-status
  moldau cluster-status --check && echo all is well

--check ends with 1 where a broker is fenced or does not answer, or partitions are offline or under-replicated.
Sizes, fenced brokers and the quorum need DESCRIBE on the cluster; without it they are left out.
{EXIT_STATUSES}"""
ACTIONS: Final = {"status": "cluster_view:status"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--check", action="store_true", help="end with 1 where something is not well")
    add_connection(parser)
    parser.set_defaults(action="status")
