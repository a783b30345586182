"""`python -m tests.conformance.connect`: Kafka Connect with exactly-once sources, and its workers killed.

Three nodes, two workers. Each kill -9 hits the worker of the file source's task while the file grows. In the end the
topic holds each line of the file exactly once, in order.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.conformance.brokers import Ports
from tests.conformance.connect.campaign import Copying, campaign
from tests.conformance.outcome import Failed
from tests.conformance.toolchain import Toolchain


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.connect", description=__doc__)
    parser.add_argument("--broker", choices=("moldau", "apache"), default="moldau")
    parser.add_argument("--kills", type=int, default=4, help="of the worker that runs the source's task (4)")
    parser.add_argument("--transaction-version", type=int, choices=(0, 1, 2), default=2)
    parser.add_argument("--keep", action="store_true", help="keep the directories; done anyway after a failure")
    return parser.parse_args()


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # stop the processes on the way out
    directory = Path(tempfile.mkdtemp(prefix="moldau-connect-"))
    say(f"{options.broker}, {directory}")
    try:
        copying = Copying.plain(options.broker, Toolchain(fetch=True), Ports(), directory)
        copying.brokers.transaction_version = options.transaction_version
        lines = campaign(copying, options.kills, say)
    except Failed as failed:
        say(f"FAIL: {failed}\nkept: {directory}")
        return 1
    say(f"each of {lines} lines is in the topic exactly once, in order")
    if options.keep:
        say(f"kept: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
