"""`moldau backup`: its rate beside `cp` of the same directories to the same disk, and what a second backup copies.

Both end when the copies are on the disk: `cp` is followed by `sync`, and a backup syncs each piece. The log was just
written, so that both read it from the page cache.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.spark_reads import TIERED, produce
from bench.subjects import Bench, RunningBroker, remove_server

TOPIC: Final = "backed-up"
NEW_SHARE_DIVISOR: Final = 100
"""The share of the records that is new at the second backup is one divided by this number."""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    server = bench.new_server(OURS, extra=("log.retention.ms=-1",))
    server.format()
    count = TIERED.records_quick if form.is_quick else TIERED.records
    store, copy = server.directory / "store", server.directory / "copy"
    percents: list[float] = []
    with RunningBroker(server) as running:
        produce(running, TOPIC, TIERED, count)
        for number in range(form.rounds):
            shutil.rmtree(store, ignore_errors=True)
            subprocess.run(["sync"], check=True)
            copied_s = command_seconds(["cp", "-r", str(server.data), str(copy)], ["sync", "-f", str(copy)])
            shutil.rmtree(copy)
            subprocess.run(["sync"], check=True)
            store.mkdir()
            began = time.monotonic()
            first = run_backup(store, server.data)
            percents.append(100 * copied_s / (time.monotonic() - began))
            if number == 0:
                produce(running, f"{TOPIC}-new", TIERED, count // NEW_SHARE_DIVISOR)
                shares = [100 * run_backup(store, server.data) / first]
    remove_server(server)
    note = f"{count:,} records, {TIERED}; from the start of the process to its end, {form.rounds} rounds"
    return [
        Figure("backup: rate, of cp and sync", "%", {OURS: percents}, False, note),
        Figure("backup: a second one with 1 % new: bytes, of the first's", "%", {OURS: shares}, True, note),
    ]


def run_backup(store: Path, data: Path) -> int:
    """Run a backup, and return the number of bytes that it copied. Python keeps the bytecode of its modules, as it does
    for a user.
    """
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "moldau", "backup", str(store), "--path", str(data), "--json"]
    said = subprocess.run(command, capture_output=True, check=True, env=variables)
    copied: int = json.loads(said.stdout)["copied_bytes"]
    return copied


def command_seconds(*commands: list[str]) -> float:
    began = time.monotonic()
    for command in commands:
        subprocess.run(command, check=True)
    return time.monotonic() - began
