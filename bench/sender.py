"""The floor of a bulk fetch: a C program that only sends (`sender.c`) sends the same bytes to the same client."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench import load
from bench.contenders import run_in_turns, warmed_contenders
from bench.figures import OURS, PEER, Figure
from bench.frames import Frames
from bench.groups import RunForm
from bench.native_load import build_shared_library
from bench.outcome import LoadFailed, Outcome
from bench.processes import cpu_time
from bench.rows import BULK_FETCH
from bench.subjects import Bench, die_with_parent
from bench.workloads import FETCH_SIZE, LOADS

WORKLOAD: Final = next(each for each in LOADS if each.name == BULK_FETCH)
SOURCE: Final = Path(__file__).with_name("sender.c")
SENDER: Final = "the program that only sends"
SEND_BUFFER_SIZE: Final = 204_800
"""The default of socket.send.buffer.bytes."""
ONCE_SIZE_MAX: Final = 1 << 18
"""The most bytes that are sent on a connection before the next one's turn, as in the broker."""
START_S: Final = 0.2


class SendingSubject(NamedTuple):
    """The broker, or the program that only sends."""

    name: str
    port: int
    pid: int


class SendRun(NamedTuple):
    outcome: Outcome
    cpu_s: float

    @property
    def rate(self) -> float:
        """The rate in MB/s."""
        return self.outcome.received_size / self.outcome.seconds / 1e6

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / self.outcome.received_size * 1e9


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure both in turns. The program sends the segment that the broker's fetches read."""
    program = build_shared_library(SOURCE, "sender", "-O2", "-Wall")
    if program is None:
        raise LoadFailed("the program that only sends needs a C compiler")
    contender = next(each for each in warmed_contenders(bench, form) if each.name == OURS)
    requests = WORKLOAD.requests_quick if form.is_quick else WORKLOAD.requests
    with contender.new_topic() as (client, topic), ExitStack() as stack:
        frames = WORKLOAD.frames(client, topic)
        (segment,) = contender.directory.glob(f"**/{topic}-0/*.log")
        port = bench.free_pair()
        words = (str(program), str(port), str(segment), str(FETCH_SIZE), str(SEND_BUFFER_SIZE), str(ONCE_SIZE_MAX))
        sender = subprocess.Popen(words, preexec_fn=die_with_parent)
        stack.callback(sender.wait)
        stack.callback(sender.kill)
        time.sleep(START_S)
        subjects = (SendingSubject(OURS, contender.port, contender.pid), SendingSubject(SENDER, port, sender.pid))
        position = WORKLOAD.error_position(topic)
        runs = run_in_turns(subjects, form.rounds, lambda each: _run(each, frames, requests, position), _sentence)
    return _figures({OURS: runs[OURS], PEER: runs[SENDER]})


def _run(subject: SendingSubject, frames: list[Frames], requests: int, error_position: int) -> SendRun:
    before = cpu_time(subject.pid)
    outcome = load.run_load(
        subject.port, frames, in_flight=WORKLOAD.in_flight, requests=requests, error_position=error_position
    )
    return SendRun(outcome, cpu_time(subject.pid).since(before).total_s)


def _figures(runs: dict[str, list[SendRun]]) -> list[Figure]:
    note = f"the peer is {SENDER}, in C"
    generator = max(run.outcome.generator_share for mine in runs.values() for run in mine)
    rates = {name: [run.rate for run in mine] for name, mine in runs.items()}
    cpu = {name: [run.cpu_s_per_gb for run in mine] for name, mine in runs.items()}
    return [
        Figure(f"{BULK_FETCH}, against a program that only sends: rate", "MB/s", rates, False, note, generator),
        Figure(f"{BULK_FETCH}, against a program that only sends: CPU", "s/GB", cpu, True, note, generator),
    ]


def _sentence(run: SendRun) -> str:
    return f"{run.rate:,.0f} MB/s, {run.cpu_s_per_gb:.3f} s of CPU a GB"
