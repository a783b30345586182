"""`moldau consume`: prints the records of topics."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_connection, add_filters

DESCRIPTION: Final = "Print the records of topics, those that are there and those that come, until Ctrl-C or an end."
EPILOG: Final = f"""\
examples:
  moldau consume orders --until-end
  moldau consume orders -n 10 --from -10 --format line
  moldau consume orders:0,2 --from 2h --until 1h --json
  moldau consume orders --grep refund --header region=eu -f '%t/%p/%o %k: %s\\n'
  moldau consume orders --group audit --until-end

--format: value (a line each), line (partition, offset, time, key and value), csv, json (as --json), or a text with
  %%t topic  %%p partition  %%o offset  %%T timestamp (ms)  %%k key  %%s value  %%h headers  %%K %%S lengths  \\n \\t
  %%R length of the value, in four bytes

Records of several partitions are in no order. --group reads on where the group has committed and commits what was
printed; it does not join the group, and is refused while the group has members.
{EXIT_STATUSES}"""
ACTIONS: Final = {"consume": "records.consuming:consume"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("topics", nargs="+", metavar="TOPIC[:PARTITION,...]")
    begin = parser.add_argument_group("begin and end")
    begin.add_argument(
        "-o",
        "--from",
        dest="begin",
        metavar="WHERE",
        help="earliest (default), latest, an offset, -N for the last N of each partition, a time, a duration ago",
    )
    begin.add_argument("-e", "--until-end", action="store_true", help="stop at what the ends are now")
    begin.add_argument("--until", metavar="WHERE", help="stop before this offset or time")
    begin.add_argument("-n", "--count", type=int, metavar="N", help="stop after so many printed records")
    begin.add_argument("--group", metavar="NAME", help="begin where this group has committed, and commit")
    begin.add_argument("--read-committed", action="store_true", help="without records of aborted and open transactions")
    add_filters(parser, "filters: a record passes all that are given")
    parser.add_argument("-f", "--format", default="value", metavar="FORMAT", help="see below (default: value)")
    add_connection(parser)
    parser.set_defaults(action="consume")
