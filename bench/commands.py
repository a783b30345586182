"""The start of the command line: what a user waits for the help of a command, and for the list of topics."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.processes import cpu_time_of_children
from bench.rows import HELP, TOPIC_LIST
from bench.start import compile_packages
from bench.subjects import Bench, RunningBroker, remove_server
from moldau.broker.cli.command import SUBCOMMANDS

COMMAND: Final = str(Path(sys.executable).with_name("moldau"))


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the help of each command, and take the slowest one. Measure the list of topics, beside kcat if it is
    installed."""
    compile_packages()
    helps: dict[str, list[float]] = {each.name: [] for each in SUBCOMMANDS}
    listed: list[float] = []
    used: list[float] = []
    others: dict[str, list[float]] = {}
    server = bench.new_server(OURS)
    server.format()
    with RunningBroker(server) as running:
        running.connect().create_topic("listed")
        address = f"127.0.0.1:{server.port}"
        seconds_of([COMMAND, "version"])
        for _ in range(form.rounds):
            for command, seconds in helps.items():
                seconds.append(seconds_of([COMMAND, command, "--help"]))
            before_s = cpu_time_of_children()
            listed.append(seconds_of([COMMAND, "topic", "list", "-b", address]))
            used.append(cpu_time_of_children() - before_s)
            if shutil.which("kcat"):
                others.setdefault("kcat -L", []).append(seconds_of(["kcat", "-L", "-b", address]))
    remove_server(server)
    slowest = max(helps, key=lambda command: min(helps[command]))
    return [
        Figure(HELP, "s", {OURS: helps[slowest]}, note=f"moldau {slowest}"),
        Figure(TOPIC_LIST, "s", {OURS: listed}),
        Figure("moldau topic list: user + system CPU", "s", {OURS: used}),
        *(Figure(f"{name}: from exec to the end", "s", {OURS: values}) for name, values in others.items()),
    ]


def seconds_of(command: Sequence[str]) -> float:
    """Return the time from exec to the end of a command, which must succeed."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=variables)
    return time.perf_counter() - began
