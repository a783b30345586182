"""`python -m tests.conformance.streams`: a Kafka Streams application with exactly_once_v2 under kill -9.

Three nodes, two instances; each kill, of a broker or an instance, falls into the input. After each the committed output
equals what the input asks for, key by key and record by record.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.conformance.brokers import Ports
from tests.conformance.outcome import Failed
from tests.conformance.streams.campaign import AT_LEAST_ONCE, CLASSIC, EXACTLY_ONCE, STREAMS, Shop, campaign
from tests.conformance.toolchain import Toolchain


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.streams", description=__doc__)
    parser.add_argument("--broker", choices=("moldau", "apache"), default="moldau")
    parser.add_argument("--kills", type=int, default=20, help="of brokers and instances together (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the input and the kills")
    parser.add_argument("--transaction-version", type=int, choices=(0, 1, 2), default=2)
    parser.add_argument(
        "--guarantee", choices=(EXACTLY_ONCE, AT_LEAST_ONCE), default=EXACTLY_ONCE, help="the latter fails: a control"
    )
    parser.add_argument("--protocol", choices=(CLASSIC, STREAMS), default=CLASSIC, help="of the application's group")
    parser.add_argument("--keep", action="store_true", help="keep the directories; done anyway after a failure")
    return parser.parse_args()


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # stop the processes on the way out
    directory = Path(tempfile.mkdtemp(prefix="moldau-streams-"))
    say(f"seed {options.seed}, {options.broker}, {directory}")
    try:
        shop = Shop.plain(
            options.broker,
            Toolchain(fetch=True),
            Ports(),
            directory,
            options.guarantee,
            options.protocol,
            options.transaction_version,
        )
        figures = campaign(shop, options.kills, options.seed, say)
    except Failed as failed:
        say(f"FAIL: {failed}\nkept: {directory}")
        return 1
    for each in sorted(set(figures.replaced)):
        say(f"an exception ended a thread: {each[:200]}")
    say(f"records of the outputs, each equal to the truth: {figures.records}")
    say(f"records of aborted transactions among them, unread: {figures.aborted}")
    if options.keep:
        say(f"kept: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
