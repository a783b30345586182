"""`moldau serve --cores`: formats the directories of one machine's broker processes, and runs the processes.

If moldau.cores was lowered, the surplus processes are started once more: each moves its replicas to the remaining
processes, unregisters from the cluster and ends. Then its directories are removed.
"""

from __future__ import annotations

import asyncio
import os  # noqa: TID251 the number of cores enters here
import socket
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.invocation import CommandError, Invocation, text_of
from moldau.broker.cli.processes.core import ProcessInput
from moldau.broker.cli.processes.cores import CORES, Machine, property_difference
from moldau.broker.cli.processes.merged_output import MergedLog
from moldau.broker.cli.processes.ports import is_free
from moldau.broker.cli.processes.shell import Launch, Processes, Report
from moldau.broker.cli.processes.supervisor import ProcessPolicy, Supervisor
from moldau.broker.config.catalogue import broker_setting
from moldau.broker.config.config import Config
from moldau.broker.config.setting import HIDDEN
from moldau.broker.runtime.place import MachineProcesses, core_numbers_in
from moldau.storage.directory.log_directory import METADATA_TOPIC
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.files.log_paths import STRAY_SUFFIX, parse_partition_directory

if TYPE_CHECKING:
    from moldau.broker.node.main import Formatting
    from moldau.storage.files.port import FileLock

LOCK: Final = ".cores.lock"
"""The name of the supervisor's lock file, in the first log directory. Each process locks its own directories too."""
TEXT_OF_STOPPING: Final = "stopping all processes; a second signal kills them"


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """The options for the start of the processes, apart from their configuration."""

    formatting: Formatting | None
    """The options for formatting empty directories of the first process. If None, empty directories are refused."""
    greet: Callable[[list[Report]], None] | None
    """Called with the greetings of all processes, once all serve. The greeting of the first process comes first."""
    is_quiet: bool
    until_eof: bool


def serve_cores(config: Config, invocation: Invocation, options: MachineOptions) -> int | None:
    """Run the processes that the configuration describes, and those that have a directory, until a signal stops them.
    Returns the exit status. If there is only one process, returns None: the caller must run the node itself. Raises
    `CommandError`.
    """
    machine = machine_of(config)
    return None if machine.cores == (1,) else serve_machine(machine, invocation, options)


def machine_of(config: Config, name: str | None = None) -> Machine:
    """The machine that a configuration describes. Processes whose directories exist are included. `name` is the name of
    the machine, by default its host name. Raises `CommandError`.
    """
    wanted = range(1, config.integer(CORES) + 1)
    machine = Machine(config, name or socket.gethostname(), tuple(sorted({*wanted, *cores_with_directories(config)})))
    machine.check()
    for core in machine.cores:
        machine.checked_config(core)
    return machine


def cores_with_directories(config: Config) -> set[int]:
    """The numbers of the processes, other than the first, that have a directory. Raises `CommandError`."""
    found: set[int] = set()
    for path in dict.fromkeys((config.metadata_log_dir, *config.log_dirs)):
        try:
            found |= set(core_numbers_in(each.name for each in Path(path).iterdir()))
        except FileNotFoundError:
            continue
        except OSError as problem:
            raise CommandError(f"{path} cannot be read: {problem.strerror}") from None
    return found


def print_process_settings(machine: Machine, invocation: Invocation) -> int:
    """Print the properties of each process that differ from those that the operator wrote. Returns the exit status."""
    wanted = machine.config.integer(CORES)
    for core in machine.cores:
        given, left_out = property_difference(machine, core)
        leaves = "" if core <= wanted else ", which leaves the cluster"
        invocation.out.say(f"# process {core}, node {machine.node_id(core)}{leaves}")
        for name, text in given.items():
            setting = broker_setting(name)
            invocation.out.say(f"{name}={HIDDEN if setting is not None and setting.is_sensitive else text}")
        if left_out:
            invocation.out.say(f"# without {', '.join(left_out)}")
    return 0


def serve_machine(machine: Machine, invocation: Invocation, options: MachineOptions) -> int:
    """Run the processes until a signal stops them. Returns the exit status. Raises `CommandError`."""
    config = machine.config
    form = config.text("moldau.log.format")
    node_ids = [machine.node_id(core) for core in machine.cores]
    output = MergedLog(invocation.errors, node_ids, "cores", form)
    lock = lock_directories(config)
    try:
        for warning in machine.warnings(os.cpu_count()):
            output.write_own(warning, is_problem=True)
        refuse_taken_ports(machine)
        formatted = format_missing(machine, options.formatting)
        for line in chain.from_iterable(formatted.values()):
            output.write_own(line)
        with tempfile.TemporaryDirectory(prefix="moldau-") as sockets:
            return asyncio.run(_run(machine, invocation, options, output, sockets, formatted.keys()))
    finally:
        lock.release()


async def _run(
    machine: Machine,
    invocation: Invocation,
    options: MachineOptions,
    output: MergedLog,
    sockets: str,
    formatted: Collection[int],
) -> int:
    staying = [core for core in machine.cores if core <= machine.config.integer(CORES)]
    leaving = [core for core in machine.cores if core not in staying]
    node_ids = [machine.node_id(core) for core in machine.cores]
    policy = ProcessPolicy(
        restarts=True,
        # The first one last: its controller releases the others.
        stop_order=[node_ids[1:], node_ids[:1]],
        stopping=TEXT_OF_STOPPING,
        remedies={},
    )

    def serving(reports: Mapping[int, Report]) -> None:
        first, last = node_ids[0], node_ids[-1]
        output.write_own(f"{len(node_ids)} broker processes serve, nodes {first} to {last}")
        if options.greet is not None:
            found = {core: reports.get(machine.node_id(core)) for core in machine.cores}
            options.greet([{**it, "formatted": core in formatted} for core, it in found.items() if it is not None])

    async def left(node_id: int) -> None:
        config = machine.checked_config(node_id - machine.config.node_id + 1)
        done = await asyncio.to_thread(remove_directories, config)
        output.write_own(f"node {node_id} has left the cluster; {done}")

    observed_in = sockets if machine.config.text_or_none("moldau.http.listener") else ""
    heirs = tuple(machine.node_id(core) for core in staying)
    launches = {
        machine.node_id(core): _launch(
            machine,
            core,
            MachineProcesses(tuple(node_ids), observed_in, heirs if core in leaving else ()),
            invocation,
            is_quiet=options.is_quiet,
        )
        for core in machine.cores
    }
    for core in leaving:
        names = ", ".join(map(str, heirs))
        output.write_own(f"process {core}, node {machine.node_id(core)}, leaves: its replicas go to nodes {names}")
    return await Processes(Supervisor(policy), launches, output, serving, left).run(until_eof=options.until_eof)


def _launch(machine: Machine, core: int, place: MachineProcesses, invocation: Invocation, *, is_quiet: bool) -> Launch:
    orders = ProcessInput(machine.settings_of(core), place, is_quiet)
    command = ("-m", "moldau.broker.cli.processes.core", f"node-{machine.node_id(core)}")
    return Launch(command, invocation.variables, orders.as_line())


# Ports and directories


def refuse_taken_ports(machine: Machine) -> None:
    """Raise `CommandError` if another process has one of the ports. It is called before directories are formatted, so
    that a start that fails has formatted nothing.
    """
    for core in machine.cores:
        for each in machine.checked_config(core).listeners:
            if not is_free(each.host, each.port):
                where = f"{each.host or '*'}:{each.port}"
                raise CommandError(
                    f"cannot listen on {where}, which is {each.name} of process {core}: Address already in use",
                    "stop the process that has the port, or choose other listeners",
                )


def lock_directories(config: Config) -> FileLock:
    """Lock the directories of the machine until this process ends. Raises `CommandError` if they are locked already."""
    path = config.log_dirs[0]
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        return LocalFiles().lock(f"{path}/{LOCK}")
    except BlockingIOError:
        raise CommandError(f"the processes of {path} run already: stop them, or name another directory") from None
    except OSError as problem:
        raise CommandError(f"{path} cannot be written: {problem.strerror}") from None


def format_missing(machine: Machine, formatting: Formatting | None) -> dict[int, list[str]]:
    """Format the directories of new processes with the cluster id of the first process. The directories of the first
    process are formatted only if `formatting` is given. Returns the lines to print, by process. Raises `CommandError`.

    If only some directories of a process are formatted, the others are not: one of its disks may not be mounted.
    """
    from secrets import token_bytes
    from time import time_ns

    from moldau.broker.cli.format_storage import cluster_id_of_a_formatted_directory, fresh_cluster_id
    from moldau.broker.cli.scram_credentials import InvalidScram, scram_record
    from moldau.broker.metadata.storage_format import FormatError, format_directories

    files, config = LocalFiles(), machine.config
    cluster_id = cluster_id_of_a_formatted_directory(files, config)
    is_new = cluster_id is None
    if cluster_id is None:
        if formatting is None:
            raise CommandError(f"{config.log_dirs[0]}: not formatted. First run `moldau format -c` with the same file")
        cluster_id = formatting.cluster_id or fresh_cluster_id(token_bytes)
    elif formatting is not None and formatting.cluster_id not in (None, cluster_id):
        raise CommandError(f"{config.log_dirs[0]} belongs to cluster {cluster_id}, not to that of --cluster-id")
    lines: dict[int, list[str]] = {}
    for core in machine.cores:
        its = machine.checked_config(core)
        if (core > 1 and cluster_id_of_a_formatted_directory(files, its) is not None) or (core == 1 and not is_new):
            continue
        try:
            lines[core] = format_directories(
                files,
                its,
                cluster_id=cluster_id,
                features={},
                ignore_formatted=False,
                standalone=its.is_controller and not its.controller_quorum_voters,
                entropy=token_bytes,
                now_ms=time_ns() // 1_000_000,
                credentials=[scram_record(each, token_bytes) for each in _credentials(core, formatting)],
            )
        except (FormatError, InvalidScram, OSError) as refusal:
            raise CommandError(text_of(refusal)) from None
    return lines


def _credentials(core: int, formatting: Formatting | None) -> tuple[str, ...]:
    return () if formatting is None or core > 1 else formatting.scram


def remove_directories(config: Config) -> str:
    """Remove the directories of a process that has left the cluster. A directory that still has a partition is kept.
    Returns a sentence that says what was done.
    """
    kept, gone = [], []
    for path in dict.fromkeys((*config.log_dirs, config.metadata_log_dir)):
        try:
            names = [each.name for each in Path(path).iterdir()]
            if any(is_served(name) for name in names):
                kept.append(f"{path} stays, because there are partitions in it")
                continue
            LocalFiles().remove_tree(path)
            gone.append(path)
        except OSError as problem:
            kept.append(f"{path} stays: {problem.strerror}")
    return "; ".join(([f"removed {', '.join(gone)}"] if gone else []) + kept)


def is_served(name: str) -> bool:
    """Whether an entry of a log directory is a partition with data to keep: one in use, or a stray one. False for a
    partition that is being deleted, and for the metadata log.
    """
    found = parse_partition_directory(name)
    return found is not None and found.suffix in ("", STRAY_SUFFIX) and found.topic != METADATA_TOPIC
