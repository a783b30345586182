"""The nodes of a local cluster as processes: started together, watched, stopped in order.

    starting ──all answer──▶ serving ──signal, or no node left──▶ stopping ──second signal──▶ killed
       └──one ends─────────────────────────────────────────────────▲

Every node holds the reading end of a pipe to this process. If this process is killed, the pipe closes and the nodes
stop.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from moldau.broker.cli.local_cluster.layout import Layout
from moldau.broker.cli.local_cluster.merged_output import MergedOutput

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROBE_S: Final = 0.1
STOP_PATIENCE_S: Final = 40.0
"""Time (seconds) after which a node that does not stop is killed. It is longer than the node's own limits."""


class Phase(Enum):
    STARTING = auto()
    SERVING = auto()
    STOPPING = auto()


class Processes:
    """The processes of a local cluster.

    `run` may be called once. It returns the exit status: 0 after a clean stop by a signal.
    """

    def __init__(self, layout: Layout, output: MergedOutput, variables: Mapping[str, str]) -> None:
        self._layout = layout
        self._output = output
        self._variables = {name: value for name, value in variables.items() if not name.startswith("KAFKA_")}
        """The environment variables without settings of Apache Kafka's image, because one value cannot be right for
        every node.
        """
        self._nodes: dict[int, Process] = {}
        self._phase = Phase.STARTING
        self._stop = asyncio.Event()
        self._has_failed = False

    async def run(self, serving: Callable[[], None]) -> int:
        """Run the nodes. `serving` is called when every node accepts connections."""
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self._signalled)
        for node_id in self._layout.node_ids:
            self._nodes[node_id] = await self._started(node_id)
        watching = [asyncio.create_task(self._watch(node_id)) for node_id in self._nodes]
        answering = asyncio.create_task(self._announce(serving))
        await self._stop.wait()
        self._phase = Phase.STOPPING
        answering.cancel()
        await self._stop_in_order()
        await asyncio.gather(*watching)
        return 1 if self._has_failed else 0

    async def _started(self, node_id: int) -> Process:
        command = ("-m", "moldau.broker.cli", "serve", "--until-eof", self._layout.file_of(node_id))
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=PIPE,
            env=self._variables,
            start_new_session=True,  # Ctrl-C is for this process alone, which stops the nodes in order.
        )

    async def _watch(self, node_id: int) -> None:
        """Copy the output of the node until the node ends."""
        node = self._nodes[node_id]
        assert node.stderr is not None
        await self._output.follow(node_id, node.stderr)
        status = await node.wait()
        if status:
            self._has_failed = True
        if self._phase is Phase.STOPPING:
            if status:
                self._output.own(f"node {node_id} {ended(status)}", "red")
            return
        file = self._layout.file_of(node_id)
        self._output.own(f"node {node_id} {ended(status)}; this starts it again: moldau serve {file}", "red")
        if self._phase is Phase.STARTING or all(each.returncode is not None for each in self._nodes.values()):
            self._has_failed = True
            self._stop.set()

    async def _announce(self, serving: Callable[[], None]) -> None:
        for node_id in self._layout.node_ids:
            while not await answers(self._layout.host, self._layout.port_of(node_id)):
                await asyncio.sleep(PROBE_S)
        self._phase = Phase.SERVING
        serving()

    def _signalled(self) -> None:
        if not self._stop.is_set():
            self._output.own("stopping the nodes one after the other; a second Ctrl-C kills them", "bold")
            self._stop.set()
            return
        self._output.own("killing the nodes; the next start recovers their logs", "red")
        for node in self._nodes.values():
            if node.returncode is None:
                node.kill()

    async def _stop_in_order(self) -> None:
        """Stop the brokers first, then the controllers, one after the other: each hands its leadership to the nodes
        that still run."""
        for node_id in sorted(self._nodes, reverse=True):
            node = self._nodes[node_id]
            if node.returncode is None:
                node.terminate()
                try:
                    await asyncio.wait_for(node.wait(), STOP_PATIENCE_S)
                except TimeoutError:
                    node.kill()


async def answers(host: str, port: int) -> bool:
    """Whether a process accepts connections at the address."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


def ended(status: int) -> str:
    """How the process ended, in words."""
    if status >= 0:
        return f"has ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"
