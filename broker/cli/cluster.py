"""`moldau cluster`: runs several nodes on this machine, each in its own process, from one terminal."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.invocation import CommandError, Invocation, text_of
from moldau.broker.config.loading import checked_config

if TYPE_CHECKING:
    from moldau.broker.cli.local_cluster import Layout
    from moldau.broker.cli.processes.shell import Launch

DESCRIPTION: Final = """\
Run a cluster on this machine: so many processes, formatted on the first start, their logs merged into one output.

The first three nodes are brokers and controllers, further ones brokers only. Topics have three replicas, of which two
must have a record before it is acknowledged. Ctrl-C stops the nodes one after the other, twice kills them. The same
directory starts the same cluster again. A node is one process on one core."""
EPILOG: Final = """\
examples:
  moldau cluster --nodes 3                               on ports 9092 to 9094, data in ./data-cluster
  moldau cluster --nodes 5 --data /tmp/five --port 19092
  moldau cluster --rack a,b,c --override num.partitions=6
  moldau cluster --host 192.0.2.7 --rack machine-7       reachable from other machines
  docker run -p 9092-9094:9092-9094 moldau moldau cluster --listen 0.0.0.0 --data data

The exit status is 0 after a clean stop, 1 where a node failed. KAFKA_ variables are not read: use --override."""
DEFAULT_NODES: Final = 3
NODES_MAX: Final = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument(
        "--nodes", type=int, metavar="COUNT", help="how many nodes (default: 3, or as many as the directory holds)"
    )
    parser.add_argument(
        "--data", default="./data-cluster", metavar="DIR", help="the directory for the data of all nodes"
    )
    parser.add_argument(
        "--port", type=int, default=9092, help="the port of node 1; the other nodes have the next ones (default: 9092)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on and to tell clients")
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="the address on which clients are accepted, such as 0.0.0.0 (default: --host)",
    )
    parser.add_argument(
        "--advertise",
        metavar="LIST",
        help="what clients are told: host:port of each node, separated by commas (default: --host and the node's port)",
    )
    parser.add_argument("--rack", metavar="NAMES", help="broker.rack: one name, or several given to the nodes in turn")
    parser.add_argument(
        "--override", action="append", default=[], metavar="NAME=VALUE", help="a setting of every node; may be repeated"
    )


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Run the cluster until a signal stops it."""
    layout = _layout(arguments)
    import asyncio

    from moldau.broker.cli.local_cluster import claim_directory, refuse_taken_ports
    from moldau.broker.cli.processes.merged_output import MergedOutput
    from moldau.broker.cli.processes.shell import Processes, Report
    from moldau.broker.cli.processes.supervisor import ProcessPolicy, Supervisor
    from moldau.storage.files.local_files import LocalFiles

    _refuse_bad_settings(layout)
    refuse_taken_ports(layout)
    lock = claim_directory(LocalFiles(), layout)
    _write(layout)
    output = MergedOutput(invocation.out, layout.node_ids, "cluster")
    for line in _format(layout):
        output.write_plain(line)

    def serving(reports: Mapping[int, Report]) -> None:
        for line in _what_to_try(layout):
            output.write_own(line)

    policy = ProcessPolicy(
        restarts=False,
        # The brokers first, then the controllers, one after the other: each hands its leadership to those that run.
        stop_order=[[node_id] for node_id in reversed(layout.node_ids)],
        stopping="stopping the nodes one after the other; a second Ctrl-C kills them",
        remedies={node_id: f"moldau serve {layout.file_of(node_id)}" for node_id in layout.node_ids},
    )

    async def cluster() -> int:
        return await Processes(Supervisor(policy), _launches(layout, invocation.variables), output, serving).run()

    try:
        return asyncio.run(cluster())
    finally:
        lock.release()


def _launches(layout: Layout, variables: Mapping[str, str]) -> dict[int, Launch]:
    """The command line and the environment of each node, by node id. The environment has no KAFKA_ variables, because
    one value cannot be right for every node.
    """
    from moldau.broker.cli.processes.shell import Launch

    kept = {name: value for name, value in variables.items() if not name.startswith("KAFKA_")}
    command = ("-m", "moldau.broker.cli", "serve", "--until-eof", "--greeting", "json")
    return {node_id: Launch((*command, layout.file_of(node_id)), kept) for node_id in layout.node_ids}


def _layout(arguments: argparse.Namespace) -> Layout:
    from moldau.broker.cli.local_cluster import Layout
    from moldau.broker.config.sources import MalformedOverride, read_overrides

    directory = str(Path(arguments.data).absolute())
    found = len([path for path in Path(directory).glob("node-*") if path.is_dir()])
    count = arguments.nodes if arguments.nodes is not None else found or DEFAULT_NODES
    if not 1 <= count <= NODES_MAX:
        raise CommandError(f"--nodes takes 1 to {NODES_MAX}")
    if found and found != count:
        raise CommandError(f"{directory} holds a cluster of {found}: give --nodes {found}, or another --data")
    try:
        overrides = read_overrides(arguments.override)
    except MalformedOverride as problem:
        raise CommandError(str(problem)) from None
    racks = tuple(filter(None, (arguments.rack or "").split(",")))
    advertised = tuple(filter(None, (arguments.advertise or "").split(",")))
    if advertised and len(advertised) != count:
        raise CommandError(f"--advertise names {len(advertised)} addresses for {count} nodes")
    layout = Layout(directory, count, arguments.host, arguments.port, racks, overrides, arguments.listen, advertised)
    if layout.ports[0] < 1 or layout.ports[-1] > 65535:
        raise CommandError(
            f"--port {arguments.port}: it is 1 to {65_536 - len(layout.ports)}, because {count} nodes need"
            f" {len(layout.ports)} ports from there on"
        )
    return layout


def _refuse_bad_settings(layout: Layout) -> None:
    from moldau.broker.config import ConfigError

    for node_id in layout.node_ids:
        try:
            checked_config(layout.properties(node_id))
        except ConfigError as refusal:
            raise CommandError(f"the settings of node {node_id} cannot be used", *refusal.problems) from None


def _write(layout: Layout) -> None:
    """Write the configuration files of the nodes."""
    from moldau.broker.cli.local_cluster import properties_text

    for node_id in layout.node_ids:
        try:
            Path(layout.directory_of(node_id)).mkdir(parents=True, exist_ok=True)
            Path(layout.file_of(node_id)).write_text(properties_text(layout.properties(node_id)), "utf-8")
        except OSError as problem:
            raise CommandError(f"{layout.file_of(node_id)} cannot be written: {problem.strerror}") from None


def _format(layout: Layout) -> list[str]:
    """Format the directories of the nodes that are new. They get the cluster id of the nodes that exist, or a new one.
    Returns the lines to print.
    """
    from secrets import token_bytes
    from time import time_ns

    from moldau.broker.cli.format_storage import cluster_id_of_a_formatted_directory, fresh_cluster_id
    from moldau.broker.metadata.storage_format import FormatError, format_directories
    from moldau.storage.files.local_files import LocalFiles

    files = LocalFiles()
    configs = [checked_config(layout.properties(node_id)) for node_id in layout.node_ids]
    known = [found for each in configs if (found := cluster_id_of_a_formatted_directory(files, each)) is not None]
    if len(known) == len(configs):
        return []
    cluster_id = known[0] if known else fresh_cluster_id(token_bytes)
    for each in configs:
        try:
            format_directories(
                files,
                each,
                cluster_id=cluster_id,
                features={},
                ignore_formatted=True,
                standalone=False,
                entropy=token_bytes,
                now_ms=time_ns() // 1_000_000,
            )
        except (FormatError, OSError) as refusal:
            raise CommandError(text_of(refusal)) from None
    return [f"formatted {len(configs) - len(known)} nodes of cluster {cluster_id} in {layout.directory}"]


def _what_to_try(layout: Layout) -> list[str]:
    from moldau.broker.cli.serve import first_record

    return [
        f"{layout.node_count} nodes serve; bootstrap.servers={layout.bootstrap}",
        f"the console: {layout.console}",
        f"try:  {first_record(layout.address(1))}",
        "      kill -9 one of the nodes while a client writes. Ctrl-C stops all.",
    ]
