"""`python -m tests.limits`: each limit of docs/limits.md over its edge on a real process, an honest client beside.

Of each: what is stated happens, the honest client is served on, the metric moves, the process lives.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from moldau.testing.ports import free_ports
from tests.limits import clusters, connections, disks, lists, members, pages, sizes, storms
from tests.limits.stage import Stage, Wrong, is_root

PORTS_EACH = 4
JOBS = 4


class Trial(NamedTuple):
    """One limit. A `disk` of its own, of a size, needs root; `fails` needs a C compiler; `logs_in` adds a listener with
    SASL, `shows_pages` the console. A trial that is `alone` measures latency, and runs after the others.
    """

    run: Callable[[Stage], None]
    settings: Sequence[str] = ()
    prefix: Sequence[str] = ()
    two_directories: bool = False
    disk: str = ""
    fails: bool = False
    logs_in: bool = False
    shows_pages: bool = False
    alone: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__.replace("_", " ")


TRIALS = (
    Trial(sizes.unsent_reply_bytes, ("moldau.queued.max.reply.bytes=1000000",)),
    Trial(sizes.queued_request_bytes, ("queued.max.request.bytes=4000000", "socket.request.max.bytes=2100000")),
    Trial(connections.connections_a_second),
    Trial(connections.connections_in_all, ("max.connections=20",)),
    Trial(connections.connections_of_an_address, (f"max.connections.per.ip.overrides={connections.OTHER}:5",)),
    Trial(connections.idle_connections, ("connections.max.idle.ms=1000",)),
    Trial(connections.descriptors, prefix=("prlimit", "--nofile=200:200")),
    Trial(connections.request_size, ("socket.request.max.bytes=200000",)),
    Trial(connections.a_flood),
    Trial(storms.a_short_storm),
    Trial(pages.a_few_console_pages, shows_pages=True),
    Trial(sizes.fetch_size, ("fetch.max.bytes=100000",)),
    Trial(sizes.batch_expansion, ("moldau.batch.expanded.bytes.max=8000000",)),
    Trial(sizes.partitions),
    Trial(sizes.members, ("group.max.size=1", "group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1")),
    Trial(sizes.strings, ("group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1")),
    Trial(disks.full_disk, two_directories=True, disk="12m"),
    Trial(disks.write_error, two_directories=True, fails=True),
    Trial(disks.sync_error, two_directories=True, fails=True),
    Trial(disks.removed_directory, two_directories=True),
    Trial(disks.read_only_directory, two_directories=True, disk="12m"),
    Trial(lists.long_lists_before_login, logs_in=True, alone=True),
    Trial(lists.long_lists_without_rights, logs_in=True, alone=True),
    Trial(lists.long_lists_of_a_super_user, logs_in=True, alone=True),
    Trial(lists.long_lists_at_a_controller, logs_in=True, alone=True),
    Trial(members.long_lists_of_members, members.SETTINGS, alone=True),
    Trial(storms.small_requests, logs_in=True, alone=True),
    Trial(storms.metadata_of_all_topics, alone=True),
    Trial(pages.console_pages, shows_pages=True, alone=True),
    Trial(clusters.storms_at_three_nodes, alone=True),
)


def tried(trial: Trial, home: Path, ports: Sequence[int]) -> str:
    """What came of it, in a sentence. Raises what was wrong."""
    directory = home / trial.run.__name__
    directory.mkdir()
    if trial.disk and not is_root():
        return "left out: only root may mount"
    settings, variables = list(trial.settings), {}
    if trial.two_directories:
        settings.append(disks.directories(directory))
    if trial.fails:
        library = disks.shim(directory)
        if library is None:
            return "left out: there is no C compiler"
        variables = {"LD_PRELOAD": str(library), "REFUSED_DIRECTORY": str(directory / disks.BAD)}
    *ports, login_port = ports
    if trial.logs_in:
        settings += lists.login_settings(ports[0], ports[1], login_port)
    with ExitStack() as held:
        if trial.shows_pages:
            settings += held.enter_context(pages.console_settings())
        if trial.disk:
            held.enter_context(disks.small_disk(directory, trial.disk))
        stage = Stage(directory, ports, settings, trial.prefix, variables)
        held.callback(stage.close)
        stage.login_port = login_port
        trial.run(stage)
        return stage.end()


def report(trial: Trial, home: Path, ports: Sequence[int]) -> bool:
    began = time.monotonic()
    try:
        text, held = tried(trial, home, ports), True
    except Wrong as wrong:
        text, held = f"WRONG: {wrong}", False
    except Exception:
        text, held = f"WRONG: {traceback.format_exc()}", False
    print(f"{trial.name:28} {time.monotonic() - began:5.1f} s  {text}", flush=True)
    return held


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.limits", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[trial.run.__name__ for trial in TRIALS], help="these alone")
    parser.add_argument("--quick", action="store_true", help="without what takes minutes")
    parser.add_argument("--keep", action="store_true", help="keep data and logs; done anyway where something is wrong")
    given = parser.parse_args()
    began = time.monotonic()
    wanted = [trial for trial in TRIALS if not given.only or trial.run.__name__ in given.only]
    if given.quick:
        wanted = [trial for trial in wanted if trial.run is not sizes.unsent_reply_bytes and not trial.alone]
    home = Path(tempfile.mkdtemp(prefix="moldau-limits-"))
    ports = free_ports(PORTS_EACH * len(wanted))
    shares = [ports[first : first + PORTS_EACH] for first in range(0, len(ports), PORTS_EACH)]
    with ThreadPoolExecutor(JOBS) as jobs:
        together = [(trial, share) for trial, share in zip(wanted, shares, strict=True) if not trial.alone]
        outcomes = list(jobs.map(lambda each: report(each[0], home, each[1]), together))
    outcomes += [report(trial, home, share) for trial, share in zip(wanted, shares, strict=True) if trial.alone]
    print(f"{outcomes.count(True)} of {len(outcomes)} held; {time.monotonic() - began:.0f} s")
    if given.keep or not all(outcomes):
        print(f"kept: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
