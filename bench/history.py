"""The events that coordinators keep of their groups: memory, the time to add an event, and the cost for a commit."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.rows import HISTORY
from bench.subjects import Bench

PROGRAM: Final = """\
import gc, time
from moldau.coordinator.group.history import Cause, GroupEvent, GroupHistory
def resident_kb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
GROUPS, EVENTS = 10_000, 1_000_000
names = [f"application-{number}" for number in range(GROUPS)]
hosts = [f"/10.0.{number // 256}.{number % 256}" for number in range(256)]
history = GroupHistory()
gc.collect()
before = resident_kb()
began = time.process_time()
for number in range(EVENTS):
    group = number % GROUPS
    member = f"consumer-{number % 7}-{number:08x}-4a5b-4c5d-8e9f-0123456789ab"
    client, host = f"consumer-{number % 7}", hosts[number % 256]
    event = GroupEvent(Cause.JOINED, member, client, host, number, "a reason to join", number, number)
    history.add([(names[group], event)])
took = time.process_time() - began
gc.collect()
print((resident_kb() - before) * 1024 / 1e6, took / EVENTS * 1e6, len(history))
"""
"""The program that is measured, in a process of its own, so that its memory is measured alone. Each event has texts of
its own.
"""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure a million events of 10,000 groups."""
    grown: list[float] = []
    microseconds: list[float] = []
    for _ in range(form.rounds):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        mb, each_us, kept = map(float, done.stdout.split())
        grown.append(mb)
        microseconds.append(each_us)
        print(f"  {mb:.1f} MB, {each_us:.2f} us an event, {kept:,.0f} kept", flush=True)
    return [
        Figure(HISTORY, "MB", {OURS: grown}),
        Figure("history of groups: CPU of an event, its texts made", "µs", {OURS: microseconds}),
    ]
