"""`moldau serve`: runs a node."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.format_storage import check_cluster_id
from moldau.broker.cli.invocation import CommandError, Invocation, Terminal, load_config, reason_of
from moldau.broker.release import hot_path_form
from moldau.broker.runtime.progress import byte_size_text, short_duration_text

if TYPE_CHECKING:
    from moldau.broker.cli.processes.shell import Report
    from moldau.broker.config.config import Config
    from moldau.broker.config.listeners import HttpAddress
    from moldau.broker.node.main import Formatting
    from moldau.broker.node.start_messages import StartReport

DESCRIPTION: Final = """\
Run a node until SIGTERM or Ctrl-C.

Without a file: a ready node of one, broker and controller, on 127.0.0.1:9092 (controller on 9093). It formats its own
directory if that is empty. Started on a terminal, it has a console on http://127.0.0.1:9464.
With a file: the node that the file describes; its directories must have been prepared with 'moldau format'.
With --cores: so many broker processes in place of one, of consecutive ids and ports (docs/cores.md).

On a terminal the node greets in a few lines when it serves, and until then its log says only warnings and progress."""
EPILOG: Final = """\
examples:
  moldau serve
  moldau serve --data /tmp/try --override num.partitions=3
  moldau serve server.properties --override log.retention.hours=24
  moldau serve server.properties --cores 4
  moldau serve --greeting json 2>moldau.log
  moldau serve --memory --port 0 --greeting json
  moldau serve --memory --control 127.0.0.1:0
  KAFKA_LISTENERS=PLAINTEXT://:19092,CONTROLLER://:19093 moldau serve

A later source wins: file, variables (KAFKA_LOG_DIRS is log.dirs), --data, --override. docs/configuration.md lists every
name and what this broker does with it."""
IMPORT_GC_THRESHOLDS: Final = (700, 10, 10_000)
"""The thresholds of Python's garbage collector until the node is created. Imports keep nearly all objects that they
create, so the full collections of Python's default thresholds would waste a tenth of the start. Young objects are
collected as usual, because the declaration of a message leaves an unused class behind.
"""
LABEL_WIDTH: Final = 10
TOPIC: Final = "greetings"
NO_FETCH_SESSIONS: Final = "max.incremental.fetch.session.cache.slots=0"
"""The setting that turns fetch sessions off if faults can be injected. Then each Fetch names its topics, so that a
fault can apply to one topic.
"""
SCRAM_VARIABLE: Final = "MOLDAU_ADD_SCRAM"
HTTP_PORT: Final = 9464
"""The port of the console and the metrics of a node without a configuration file, unless another process uses it."""
CORES: Final = "moldau.cores"
MEMORY_DIRECTORY: Final = "/memory"
"""The log directory of a node that keeps everything in memory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument("file", nargs="?", metavar="server.properties", help="settings, in Apache Kafka's own names")
    parser.add_argument("--data", metavar="DIR", help="the directory for the data; log.dirs (without a file: ./data)")
    parser.add_argument(
        "--memory",
        action="store_true",
        help="keep everything in memory: nothing is on a disk, and all of it ends with the process (without a file)",
    )
    parser.add_argument(
        "--port",
        type=int,
        metavar="PORT",
        help="the port for clients on 127.0.0.1 (without a file); 0: any free port, which the greeting names",
    )
    parser.add_argument(
        "--cores",
        type=int,
        metavar="COUNT",
        help="how many broker processes run on this machine, each on one core; moldau.cores",
    )
    parser.add_argument(
        "--print-cores",
        action="store_true",
        help="print which settings each of these processes gets besides those that are written, and end",
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting that takes precedence; may be repeated",
    )
    parser.add_argument(
        "--cluster-id",
        metavar="ID",
        help="the id of the cluster for which an empty directory is formatted (without a file); otherwise a new id",
    )
    parser.add_argument(
        "--add-scram",
        action="append",
        default=[],
        metavar="CREDENTIAL",
        help="a SCRAM credential for an empty directory (without a file), as"
        " SCRAM-SHA-256=[name=alice,password=alice-secret]; may be repeated. Other users of the machine see the command"
        f" line, and not the variable {SCRAM_VARIABLE}, which holds credentials one a line",
    )
    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="stop also when the standard input ends, which it does when the process that holds its other end ends",
    )
    parser.add_argument(
        "--control",
        metavar="HOST:PORT",
        help="for tests of clients: take faults on demand by HTTP at this address (port 0: a free one, which the"
        " greeting names); docs/faults.md",
    )
    parser.add_argument(
        "--faults", metavar="FILE", help="with --control: the faults from the start on, as JSON or YAML"
    )
    parser.add_argument(
        "--greeting",
        choices=("text", "json", "none"),
        help="what to say when the node serves: text (the default if the log goes to a terminal), one JSON object on"
        " the standard output (its fields: docs/start.md), or none",
    )
    parser.add_argument("--log-format", choices=("text", "json"), help="the form of the log; moldau.log.format")


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Serve until a signal stops the node."""
    gc.set_threshold(*IMPORT_GC_THRESHOLDS)
    refuse_no_settings(arguments.file)
    overrides = [*own_settings(arguments), *arguments.override]
    if arguments.log_format is not None:
        overrides.append(f"moldau.log.format={arguments.log_format}")
    if arguments.cores is not None:
        overrides.append(f"{CORES}={arguments.cores}")
    config = load_config(
        arguments.file, arguments.data, overrides, invocation.variables, console_settings(arguments, invocation)
    )
    is_seen = invocation.errors.is_terminal and config.text("moldau.log.format") == "text"
    greeting = arguments.greeting or ("text" if is_seen else "none")
    if arguments.print_cores or config.settings.is_set(CORES):
        status = serve_cores(arguments, invocation, config, greeting, is_quiet=is_seen and greeting == "text")
        if status is not None:
            return status
    from moldau.broker.runtime.event_loop import import_event_loop

    import_event_loop()
    from moldau.broker.config.sources import read_overrides
    from moldau.broker.node.main import StartOptions, serve

    start = StartOptions(
        formatting=formatting(arguments, invocation.variables),
        in_memory=arguments.memory,
        until_eof=arguments.until_eof,
        greet=greeter(greeting, invocation),
        control=control_address(arguments),
        faults=None if arguments.faults is None else read_script(arguments.faults),
        is_quiet=is_seen and greeting == "text",
        takes_port=arguments.file is None and "listeners" not in read_overrides(arguments.override),
    )
    return serve(config, invocation.errors, start)


def refuse_no_settings(file: str | None) -> None:
    """Raise `CommandError` if `file`, the argument for the configuration file, is a port or a directory."""
    import os  # noqa: TID251 whether the word is a directory is asked before there is an environment

    if file is not None and not os.path.exists(file) and file.isdecimal():
        raise CommandError(f"{file} is not a file with settings: a port is given as --port {file}")
    if file is not None and os.path.isdir(file):
        raise CommandError(f"{file} is not a file with settings: a directory for the data is given as --data {file}")


def serve_cores(
    arguments: argparse.Namespace, invocation: Invocation, config: Config, greeting: str, *, is_quiet: bool
) -> int | None:
    """Run the broker processes of this machine. Returns the exit status. If there is only one process, returns None:
    the caller must run the node itself. Raises `CommandError`.
    """
    if arguments.memory or arguments.control is not None:
        if config.integer(CORES) == 1:
            return None
        raise CommandError("--memory and --control are for one process: leave out --cores and moldau.cores")
    from moldau.broker.cli.processes import machine

    if arguments.print_cores:
        return machine.print_process_settings(machine.machine_of(config), invocation)
    options = machine.MachineOptions(
        formatting(arguments, invocation.variables),
        machine_greeter(greeting, invocation),
        is_quiet=is_quiet,
        until_eof=arguments.until_eof,
    )
    return machine.serve_cores(config, invocation, options)


def own_settings(arguments: argparse.Namespace) -> list[str]:
    """The settings, as NAME=VALUE, that --memory, --port and --control stand for. Raises `CommandError`."""
    if arguments.file is not None and (arguments.memory or arguments.port is not None):
        raise CommandError("--memory and --port are for a node without a file", "in a file: listeners, log.dirs")
    if arguments.memory and arguments.data is not None:
        raise CommandError("--memory keeps no data, and --data names a directory for them")
    settings = [f"log.dirs={MEMORY_DIRECTORY}"] if arguments.memory else []
    if arguments.control is not None:
        settings.append(NO_FETCH_SESSIONS)
    if arguments.port is not None:
        free, controller = free_ports()
        port = arguments.port or free
        settings += [
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}",
        ]
    return settings


def console_settings(arguments: argparse.Namespace, invocation: Invocation) -> dict[str, str]:
    """The settings that turn the console on, for a node that a user starts by hand: it has no configuration file, keeps
    its data on disk, and logs to a terminal. Empty for any other node: a program that starts a node expects no port
    that it did not name, and a node in memory is for tests.
    """
    if arguments.file is not None or arguments.memory or not invocation.errors.is_terminal:
        return {}
    from moldau.broker.cli.processes.ports import is_free

    port = HTTP_PORT if is_free("127.0.0.1", HTTP_PORT) else free_ports()[0]
    return {"moldau.http.listener": f"http://127.0.0.1:{port}", "moldau.console": "true"}


def formatting(arguments: argparse.Namespace, variables: Mapping[str, str]) -> Formatting | None:
    """The options for formatting an empty log directory. None if the node has a configuration file, because then an
    empty directory is refused. Raises `CommandError`.
    """
    from moldau.broker.node.main import Formatting

    if arguments.file is None:
        if arguments.cluster_id is not None:
            check_cluster_id(arguments.cluster_id)
        credentials = (*arguments.add_scram, *variables.get(SCRAM_VARIABLE, "").splitlines())
        return Formatting(arguments.cluster_id, credentials)
    if arguments.cluster_id is not None or arguments.add_scram:
        raise CommandError("--cluster-id and --add-scram are for a node without a file", "with a file: moldau format")
    return None


def control_address(arguments: argparse.Namespace) -> HttpAddress | None:
    """The address of the control interface; None if `--control` is not given. Raises `CommandError`."""
    from moldau.broker.config.listeners import read_http_address

    if arguments.control is None:
        if arguments.faults is not None:
            raise CommandError("--faults needs --control", "moldau serve --control 127.0.0.1:0 --faults faults.json")
        return None
    address = read_http_address(f"http://{arguments.control}")
    if address is None:
        raise CommandError(f"--control is {arguments.control!r}, and must be HOST:PORT", "--control 127.0.0.1:0")
    return address


def read_script(path: str) -> object:
    """Read the faults in a JSON or YAML file. Raises `CommandError`."""
    import json
    from pathlib import Path

    try:
        text = Path(path).read_text(encoding="utf-8")
        if not path.endswith((".yaml", ".yml")):
            return json.loads(text)
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise CommandError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    except ImportError:
        raise CommandError(f"{path} is YAML, which needs PyYAML", "pip install PyYAML, or use JSON") from None
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read: {reason_of(error)}") from None


def free_ports() -> tuple[int, int]:
    """Two free ports of 127.0.0.1. If another process takes one before the node binds it, the start fails with a
    message that names the port.
    """
    import socket

    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def greeter(greeting: str, invocation: Invocation) -> Callable[[StartReport], None] | None:
    """The function that prints the greeting when the node serves; None if there is no greeting."""
    if greeting == "none":
        return None
    if greeting == "json":
        return lambda report: invocation.out.say(as_json(report))
    return lambda report: greet(invocation.errors if invocation.errors.is_terminal else invocation.out, report)


def machine_greeter(greeting: str, invocation: Invocation) -> Callable[[list[Report]], None] | None:
    """The function that prints the greeting when all processes of a machine serve; None if there is no greeting. It
    gets the greeting of each process, that of the first process first.
    """
    if greeting == "none":
        return None
    if greeting == "json":
        return lambda reports: invocation.out.say(processes_as_json(reports))
    from moldau.broker.node.start_messages import report_in

    terminal = invocation.errors if invocation.errors.is_terminal else invocation.out
    return lambda reports: greet(terminal, report_in(reports[0]), [("processes", processes_text(reports))])


# The greeting once the node serves


def greet(terminal: Terminal, report: StartReport, further: Sequence[tuple[str, str]] = ()) -> None:
    """Print the greeting as text, then `further` lines, each with its label."""
    words = f"Apache Kafka {report.kafka_version}, {report.python}, {hot_path_form()}"
    terminal.say(f"{terminal.styled(f'Moldau {report.version}', 'bold')} serves ({words})")
    for label, text in (*lines(report), *further):
        terminal.say(f"  {terminal.styled(f'{label:{LABEL_WIDTH}}', 'dim')} {text}")
    terminal.say("Ctrl-C stops the node: it hands over what it leads, then flushes and closes its logs.", "dim")


def lines(report: StartReport) -> Iterator[tuple[str, str]]:
    """The lines of the greeting, as pairs of a label and a text."""
    yield "node", f"{report.node_id}, {' and '.join(report.roles)}, of cluster {report.cluster_id}"
    if report.listeners:
        yield "clients", addresses_text(report.listeners)
    if report.controller_listeners:
        yield "quorum", addresses_text(report.controller_listeners)
    yield "data", ", ".join(report.data)
    yield "metrics", report.metrics or "off (--override moldau.http.listener=http://127.0.0.1:9464 turns them on)"
    yield "console", report.console or "off (--override moldau.console=true turns it on, if the metrics are on)"
    yield "found", f"{recovery_text(report)}; serving after {short_duration_text(report.start_ms / 1000)}"
    first = next(iter(report.listeners.values()), None)
    if first is not None:
        yield "try", first_record(first)


def first_record(address: str) -> str:
    """A command for the user to try: it installs a client, and produces a record to the broker at this address. It uses
    the virtual environment of the node, if there is one, because the Python of many systems refuses packages.
    """
    from shlex import quote

    python = quote(sys.executable) if sys.prefix != sys.base_prefix else "python3"
    program = (
        f"from confluent_kafka import Producer; p = Producer({{'bootstrap.servers': '{address}'}});"
        f" p.produce('{TOPIC}', 'hello'); print(p.flush(), 'records left')"
    )
    return f'{python} -m pip install confluent-kafka && {python} -c "{program}"'


def addresses_text(addresses: dict[str, str]) -> str:
    """Format the addresses as text, each with the name of its listener."""
    return ", ".join(f"{address} ({name})" for name, address in addresses.items())


def recovery_text(report: StartReport) -> str:
    """Describe in words which partitions were opened or recovered at the start, and how long that took."""
    if report.recovered is None:
        return "new directories, formatted now" if report.formatted else "no partitions"
    opened = report.recovered
    partitions = f"{opened.partitions:,} partition{'' if opened.partitions == 1 else 's'}"
    took = short_duration_text(opened.duration_ms / 1000)
    damaged = f", {opened.damaged:,} of them damaged and not served (see the log)" if opened.damaged else ""
    if opened.was_clean:
        return f"{partitions} of a node that was stopped cleanly{damaged}, opened in {took}"
    return f"{partitions} after an unclean stop{damaged}, {byte_size_text(opened.checked_size)} checked in {took}"


def as_json(report: StartReport) -> str:
    """The greeting as one line of JSON, for a program. docs/start.md lists its fields."""
    import json
    from dataclasses import asdict

    fields = asdict(report)
    fields["recovered"] = None if report.recovered is None else report.recovered._asdict()
    return json.dumps(fields)


def processes_text(reports: Sequence[Report]) -> str:
    """Describe the processes of a machine in words: their node ids, and the addresses for clients."""
    nodes = ", ".join(f"{each['node_id']} at {next(iter(each['listeners'].values()))}" for each in reports)
    return f"{len(reports)}, each a broker on one core: {nodes}"


def processes_as_json(reports: Sequence[Report]) -> str:
    """The greeting of the first process as one line of JSON. Its field `cores` has the greetings of all processes."""
    import json

    return json.dumps({**reports[0], "cores": list(reports)})
