"""A node on the event loop of this process."""

from __future__ import annotations

import asyncio
import cProfile
import gc
import pstats
import resource
import statistics
import sys
from collections.abc import Sequence

from moldau.broker.config.loading import checked_config
from moldau.broker.metadata.storage_format import format_directories
from moldau.broker.node.main import GC_THRESHOLDS
from moldau.broker.node.node import Node
from moldau.broker.runtime.environment import LocalEnvironment
from tests.conformance.brokers import CLUSTER_ID


def formatted_node(properties: dict[str, str]) -> Node:
    """Format the directories that the properties name, and make a node on them. The node is not started."""
    config, loop = checked_config(properties), asyncio.get_running_loop()
    environment = LocalEnvironment(loop)
    format_directories(
        environment.fs,
        config,
        cluster_id=CLUSTER_ID,
        features={},
        ignore_formatted=False,
        standalone=False,
        entropy=environment.entropy,
        now_ms=environment.wall_ms(),
    )
    return Node(config, environment, loop)


async def measure_rounds(client_command: Sequence[str], what: str, *, requests: int, rounds: int) -> None:
    """Print the CPU time (microseconds) of this process for a request, as the median and the minimum of some rounds.
    With `--profile` print the profile of one round instead.

    The process `client_command` sends the requests. It reads the number of requests of a round from a line of its
    input, and prints a line when all are answered.
    """
    pipe = asyncio.subprocess.PIPE
    client = await asyncio.create_subprocess_exec(sys.executable, *client_command, stdin=pipe, stdout=pipe)
    sent, answers = client.stdin, client.stdout
    assert sent is not None and answers is not None

    async def spent_us() -> tuple[float, float]:
        """CPU and user CPU of a request."""
        sent.write(b"%d\n" % requests)
        before = resource.getrusage(resource.RUSAGE_SELF)
        assert await answers.readline() == b"done\n"
        after = resource.getrusage(resource.RUSAGE_SELF)
        user_s, system_s = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
        return (user_s + system_s) * 1e6 / requests, user_s * 1e6 / requests

    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    await spent_us()
    if "--profile" in sys.argv:
        profiler = cProfile.Profile()
        profiler.enable()
        await spent_us()
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(60)
    else:
        total_us, user_us = zip(*[await spent_us() for _ in range(rounds)], strict=True)
        print(
            f"{statistics.median(total_us):.1f} us {what} (lowest {min(total_us):.1f}), "
            f"user {statistics.median(user_us):.1f} (lowest {min(user_us):.1f})"
        )
    sent.close()
    await client.wait()
