"""`python -m tests.conformance.others`: clients and tools that nobody here wrote, on this broker and on Apache Kafka.

Each is installed once, in a folder of `.tools/conformance/others`, from the registry that its entry in `catalogue.py`
names; those of Debian must be there. What it does is run against one node of each broker. Needs what `make conformance`
needs, and Cargo.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import KafkaException

from tests.conformance.brokers import Apache, Broker, Moldau, Ports
from tests.conformance.others.catalogue import OTHERS
from tests.conformance.others.installs import install
from tests.conformance.others.other import Other, Place
from tests.conformance.others.page import PAGE, WORKS, Row, rows_in, with_rows
from tests.conformance.outcome import Failed
from tests.conformance.toolchain import Missing, Toolchain

CHOICE = "run entries of which NAME is a part, as `sarama` of `github.com/IBM/sarama v1.61.1` (all)"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.others", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=CHOICE)
    parser.add_argument("--list", action="store_true", help="print the catalogue and run nothing")
    parser.add_argument("--write", action="store_true", help=f"put the rows into {PAGE.name}")
    return parser.parse_args()


def say(line: str) -> None:
    print(line, flush=True)


def is_chosen(other: Other, names: Sequence[str]) -> bool:
    return not names or any(name in f"{other.name} {other.version}" for name in names)


def outcome(other: Other, command: list[str], place: Place) -> str:
    """`works`, or the words of the failure, without the port of this run."""
    try:
        other.use(command, place)
    except (Failed, KafkaException) as failed:
        return str(failed).replace(place.bootstrap.rpartition(":")[2], "PORT")
    return WORKS


def run(others: Iterable[Other], brokers: Sequence[Broker], directory: Path) -> Iterator[Row]:
    """A row for each entry that could be installed, as soon as it is known."""
    for other in others:
        try:
            command = install(other)
        except Missing as missing:
            say(f"not run: {other.name} {other.version}: {missing}")
            continue
        here, there = (outcome(other, command, Place.fresh(broker.bootstrap, directory)) for broker in brokers)
        yield Row(other.name, other.version, other.registry.value, other.done, here, there)


def write(row: Row) -> None:
    """The row in the page, in the order of the catalogue."""
    text = PAGE.read_text()
    known = {(each.name, each.version): each for each in (*rows_in(text), row)}
    kept = [known[key] for other in OTHERS if (key := (other.name, other.version)) in known]
    PAGE.write_text(with_rows(text, kept))


@contextmanager
def running(brokers: Iterable[Broker]) -> Iterator[None]:
    with ExitStack() as stops:
        for broker in brokers:
            broker.format()
            stops.callback(broker.stop)
            broker.start()
        yield


def main() -> int:
    options = arguments()
    chosen = [other for other in OTHERS if is_chosen(other, options.names)]
    if options.list:
        for other in chosen:
            say(f"{other.name} {other.version} ({other.registry.value}): {other.done}")
        return 0
    if not chosen:
        say("no entry has such a name: --list shows them")
        return 2
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # stop the brokers on the way out
    directory = Path(tempfile.mkdtemp(prefix="moldau-others-"))
    ports, equal = Ports(), 0
    apache = Apache(directory / "apache", ports.pair(), Toolchain(fetch=True))
    brokers = (Moldau(directory / "moldau", ports.pair()), apache)
    with running(brokers):
        for row in run(chosen, brokers, directory):
            say(row.cells() if row.is_equal else f"DIFFERS {row.cells()}")
            equal += row.is_equal
            if options.write:
                write(row)
    shutil.rmtree(directory, ignore_errors=True)
    say(f"{equal} of {len(chosen)} end the same way on both")
    return 0 if equal == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
