"""`moldau produce`: writes lines, JSON lines, rows of CSV or Parquet, or consumed records to a topic."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_connection

DESCRIPTION: Final = "Write records to a topic, from files or standard input, by an idempotent producer with acks=all."
EPILOG: Final = f"""\
examples:
  echo hello | moldau produce greetings
  moldau produce orders orders.csv --key-field customer
  moldau produce orders --format jsonl --key-field customer.id < orders.jsonl
  moldau produce orders rows.parquet -H source=import --compression zstd
  moldau produce words -K : < key-and-value.txt
  moldau consume orders --json --until-end | moldau produce copy --format records

  lines    each line is a value (-K: key and value; -D: what ends a value, \\0 and \\n too)
  file     the whole file is one value
  jsonl    each line is a JSON value; a key comes from a field
  csv      the first line names the columns; a row becomes a JSON object of texts
  parquet  a row becomes a JSON object; needs the extra 'arrow' (pip install 'moldau[arrow]')
  records  what 'moldau consume --json' writes: key, value, headers, partition and timestamp are kept

{EXIT_STATUSES}"""
FORMATS: Final = ("lines", "file", "jsonl", "csv", "parquet", "records")
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
ACTIONS: Final = {"produce": "records.producing:produce"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("files", nargs="*", metavar="FILE", help="default, and -: standard input")
    parser.add_argument("--format", choices=FORMATS, help="default: by the ending of the file, else lines")
    parser.add_argument("-k", "--key", metavar="TEXT", help="the key of every record")
    parser.add_argument("-K", "--key-separator", metavar="TEXT", help="lines: what stands between key and value")
    parser.add_argument("--key-field", metavar="NAME", help="jsonl, csv, parquet: the field that is the key")
    parser.add_argument("--value-field", metavar="NAME", help="jsonl, csv, parquet: the field that is the value, alone")
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="default: by the key, as Java's producer")
    parser.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="of every record; may be repeated, with the same name too",
    )
    parser.add_argument("-D", "--delimiter", metavar="TEXT", help="lines: what ends a record (default: a line end)")
    parser.add_argument("--timestamp", metavar="TIME", help="of every record (default: now)")
    parser.add_argument("-Z", "--tombstones", action="store_true", help="an empty value is none: it deletes its key")
    parser.add_argument("-z", "--compression", choices=CODECS, default="none", help="default: none")
    add_connection(parser)
    parser.set_defaults(action="produce")
