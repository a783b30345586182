"""`moldau container`: the command of the container image.

The node's settings may be the environment variables of Apache Kafka's image. When the node serves clients, the command
prints the lines that Apache Kafka logs at that time, because programs that start the image wait for them.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.cli.invocation import CommandError, Invocation, read_file, text_of
from moldau.broker.config.loading import checked_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from moldau.broker.config import Config
    from moldau.broker.node.start_messages import StartReport

DESCRIPTION: Final = """\
Format the node's directories where that is missing, and run it, as Apache Kafka's image does.

Settings: /mnt/shared/config/server.properties where it is mounted, then the KAFKA_ variables (KAFKA_NODE_ID is node.id:
after KAFKA_, _ is a dot, __ an underscore, ___ a dash). They complete a node of one on 9092, unless they name its roles
or its quorum. CLUSTER_ID is the id of the cluster. What is for the JVM (KAFKA_HEAP_OPTS, KAFKA_JMX_PORT ...) is passed
over; variables of bitnami/kafka and cp-kafka are translated (docs/containers.md).

When the node serves, the lines that Apache Kafka logs at that moment go to the standard output."""
EPILOG: Final = """\
examples:
  docker run -p 127.0.0.1:9092:9092 moldau
  docker run -p 9092:9092 -e KAFKA_NODE_ID=1 -e KAFKA_PROCESS_ROLES=broker,controller ... moldau"""
MOUNTED_CONFIG_FILE: Final = "/mnt/shared/config/server.properties"
CLUSTER_ID: Final = "5L6g3nShT-eMCtK--X86sw"
"""The cluster id if the variable CLUSTER_ID is not set. It is the one of Apache Kafka's image, so that nodes of both
images form one cluster.
"""
HTTP_LISTENER: Final = "moldau.http.listener"
HTTP_ADDRESS: Final = "http://0.0.0.0:9464"
DATA: Final = "/var/lib/kafka/data"
ZOOKEEPER: Final = "zookeeper.connect"
CLUSTER_SETTINGS: Final = {
    "process.roles",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    ZOOKEEPER,
}
"""Settings that define the nodes of the cluster. If one of them is set, the configuration is not completed to that of a
single node.
"""
SERVING: Final = (
    "[BrokerLifecycleManager id={id}] The broker has been unfenced. Transitioning from RECOVERY to RUNNING.",
    "[KafkaServer id={id}] started",
)
"""The lines that a broker of Apache Kafka logs when it serves. The second line is that of a broker with ZooKeeper. The
modules of Testcontainers wait for one of these lines, or for `STARTED`.
"""
STARTED: Final = "[KafkaRaftServer nodeId={id}] Kafka Server started"
"""The line that every node of Apache Kafka logs when it serves."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument(
        "-c",
        "--config",
        default=MOUNTED_CONFIG_FILE,
        metavar="FILE",
        help=f"settings, where it exists ({MOUNTED_CONFIG_FILE})",
    )
    parser.add_argument("--format", action="store_true", help="format the directories, and end")
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="with --format: the id where CLUSTER_ID is not set")
    parser.add_argument(
        "-S", "--add-scram", action="append", default=[], metavar="CREDENTIAL", help="with --format: a SCRAM credential"
    )
    parser.add_argument("-g", "--ignore-formatted", action="store_true", help="with --format: has no effect")


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Format the directories and serve until a signal stops the node."""
    properties = read_file(arguments.config) if Path(arguments.config).exists() else {}
    from moldau.broker.config.image_variables import translate_variables
    from moldau.broker.config.sources import unknown_variables

    try:
        variables, warning = translate_variables(
            invocation.variables, lambda path: Path(path).read_text(encoding="utf-8")
        )
    except OSError as refusal:
        raise CommandError(f"{refusal.filename} cannot be read: {refusal.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError("a file of a KAFKA_SSL_*_CREDENTIALS variable is not UTF-8") from None
    settings = container_settings(properties, variables)
    config = load(settings, unknown_variables(variables), () if warning is None else (warning,))
    cluster_ids = ClusterIds(variables.get("CLUSTER_ID"), arguments.cluster_id)
    _format(config, invocation, cluster_ids, arguments.add_scram)
    if arguments.format:
        return 0
    if config.settings.is_set("moldau.cores"):
        status = serve_cores(config, invocation)
        if status is not None:
            return status
    from moldau.broker.runtime.event_loop import import_event_loop

    import_event_loop()
    from moldau.broker.node.main import StartOptions, serve

    return serve(config, invocation.errors, StartOptions(greet=lambda report: greet(invocation, report)))


def serve_cores(config: Config, invocation: Invocation) -> int | None:
    """Run several broker processes, if the configuration asks for them. Returns the exit status, or None if it asks for
    one process only. Raises `CommandError`.
    """
    from moldau.broker.cli.processes import machine
    from moldau.broker.node.start_messages import report_in

    options = machine.MachineOptions(
        formatting=None,
        greet=lambda reports: greet(invocation, report_in(reports[0])),
        is_quiet=False,
        until_eof=False,
    )
    return machine.serve_cores(config, invocation, options)


def greet(invocation: Invocation, report: StartReport) -> None:
    """Print the lines that Apache Kafka logs when a node serves."""
    for line in (*(SERVING if report.listeners else ()), STARTED):
        invocation.out.say(line.format(id=report.node_id))


def container_settings(properties: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Merge the settings in the mounted file with those in the environment variables. A variable takes precedence.

    If there is no file, and the variables name neither the roles of the node nor its quorum, the configuration is
    completed to that of a single node.

    DIVERGES: Apache Kafka's image forgets its own settings at the first variable, and ends with "Missing required
    configuration process.roles".
    """
    from moldau.broker.config.sources import from_environment

    own = {HTTP_LISTENER: HTTP_ADDRESS}
    said = dict(properties) | from_environment(variables)
    if said.get(ZOOKEEPER, "").startswith("localhost:") and "process.roles" not in said:
        said = zookeeper_as_single_node(said)
    return own | (said if properties or said.keys() & CLUSTER_SETTINGS else node_of_one(said))


def zookeeper_as_single_node(settings: Mapping[str, str]) -> dict[str, str]:
    """Turn the settings of a broker with ZooKeeper into those of a single node that is its own controller.

    DIVERGES: Apache Kafka from 4.0 on refuses them. Suites of tests whose start script runs ZooKeeper in the same
    container keep working.
    """
    kept = {name: value for name, value in settings.items() if name not in ("broker.id", ZOOKEEPER)}
    node_id = {"node.id": settings.get("node.id", settings.get("broker.id", "1"))}
    return kept | {"process.roles": "broker,controller"} | node_id | own_controller(settings)


def own_controller(said: Mapping[str, str]) -> dict[str, str]:
    """The settings that add a controller to a node with the settings `said`. The controller listens on the loopback
    address, on the port after the highest one of the clients' listeners.
    """
    listeners = said.get("listeners", "PLAINTEXT://:9092")
    controller = f"127.0.0.1:{max(map(int, re.findall(r':([0-9]+)', listeners)), default=9092) + 1}"
    protocols = said.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
    return {
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller,
        "listeners": f"{listeners},CONTROLLER://{controller}",
        "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
    }


def node_of_one(said: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a single node for clients on the same machine as the container, which use the published port
    9092. The settings in `said` take precedence.
    """
    from moldau.broker.config.sources import single_node_defaults

    complete = single_node_defaults(DATA) | {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    }
    if "listeners" in said:
        del complete["advertised.listeners"], complete["inter.broker.listener.name"]
        if "controller.listener.names" not in said and "CONTROLLER://" not in said["listeners"]:
            return {**complete, **said, **own_controller(said)}
    return {**complete, **said}


def load(settings: Mapping[str, str], unknown_variables: Sequence[str] = (), warnings: Sequence[str] = ()) -> Config:
    from moldau.broker.config import ConfigError

    try:
        return checked_config(settings, unknown_variables, warnings)
    except ConfigError as refusal:
        raise CommandError("the settings of this container cannot be used", *refusal.problems) from None


class ClusterIds(NamedTuple):
    """The cluster ids with which new log directories may be formatted. The id in the environment variable takes
    precedence.
    """

    variable: str | None
    argument: str | None
    """The id for log directories without an id, from the argument `--cluster-id`."""


def _format(config: Config, invocation: Invocation, ids: ClusterIds, scram: Sequence[str]) -> None:
    """Format the directories that are not formatted yet."""
    from secrets import token_bytes
    from time import time_ns

    from moldau.broker.cli.format_storage import check_cluster_id, cluster_id_of_a_formatted_directory
    from moldau.broker.cli.scram_credentials import InvalidScram, scram_record
    from moldau.broker.metadata.storage_format import FormatError, format_directories
    from moldau.storage.files.local_files import LocalFiles

    files = LocalFiles()
    cluster_id = ids.variable or cluster_id_of_a_formatted_directory(files, config) or ids.argument or CLUSTER_ID
    check_cluster_id(cluster_id)
    try:
        lines = format_directories(
            files,
            config,
            cluster_id=cluster_id,
            features={},
            ignore_formatted=True,
            standalone=config.is_controller and not config.controller_quorum_voters,
            entropy=token_bytes,
            now_ms=time_ns() // 1_000_000,
            credentials=[scram_record(each, token_bytes) for each in scram],
        )
    except PermissionError as refusal:
        hint = f"make user 1000 its owner, or mount a named volume at {DATA}"
        raise CommandError(f"{refusal.filename or config.log_dirs[0]} cannot be written: {hint}") from None
    except (FormatError, InvalidScram, OSError) as refusal:
        raise CommandError(text_of(refusal)) from None
    for line in lines:
        invocation.errors.say(line)
