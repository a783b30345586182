"""Rounds of faults under load on one node, then a full reading, then the verdict of the history checker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.chaos.faults import Fault, Round
from tests.chaos.load import Load
from tests.chaos.processes import Broken, Node
from tests.chaos.reading import Follower, Unreadable, read_all
from tests.support.history import History, Key
from tests.support.history_check import anomalies, told

TOPIC = "chaos"
RESUMED_COUNT = 200
RESUME_PATIENCE_S = 60.0
CLEAN_MARK = ".kafka_cleanshutdown"

Say = Callable[[str], None]


@dataclass(slots=True)
class Result:
    """What a campaign came to; `problems` is what must not be."""

    kills: int = 0
    terms: int = 0
    seconds: float = 0.0
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    read_along: int = 0
    unclean_starts: int = 0
    starts_after_kill_s: list[float] = field(default_factory=list)
    starts_after_term_s: list[float] = field(default_factory=list)
    stops_s: list[float] = field(default_factory=list)
    resumed_after_s: list[float] = field(default_factory=list)
    """From the start of the process to the next acknowledged records."""
    problems: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        figures: dict[str, object] = {name: getattr(self, name) for name in _COUNTS}
        for name in _TIMES:
            times = getattr(self, name)
            if times:
                figures[name] = {"median": round(median(times), 3), "longest": round(max(times), 3)}
        return {**figures, "problems": self.problems}


_COUNTS = ("kills", "terms", "seconds", "sent", "acknowledged", "read", "read_along", "unclean_starts")
_TIMES = ("starts_after_kill_s", "starts_after_term_s", "stops_s", "resumed_after_s")


class Campaign:
    """One node, one topic. `stop_bound_s`: how long a stop by SIGTERM may take."""

    def __init__(self, node: Node, partitions: int, stop_bound_s: float, say: Say) -> None:
        self.result = Result()
        self._node = node
        self._keys: list[Key] = [(TOPIC, partition) for partition in range(partitions)]
        self._stop_bound_s = stop_bound_s
        self._say = say

    def run(self, rounds: Iterable[Round], load: Load) -> Result:
        began = time.monotonic()
        self._node.start()
        self._create_topic()
        follower = Follower(self._node.bootstrap, self._keys)
        follower.start()
        load.start()
        try:
            self._wait_for_load(load, time.monotonic())
            for each in rounds:
                self._strike(each, load)
            load.finish()
            follower.is_ending = True
            follower.join()
            self._judge(load, follower)
        except (Broken, Unreadable) as broken:
            self.result.problems.append(str(broken))
        self.result.seconds = round(time.monotonic() - began, 1)
        return self.result

    def _create_topic(self) -> None:
        config = {"segment.bytes": str(1 << 20)}  # the least there is: many rolls
        topic = NewTopic(TOPIC, num_partitions=len(self._keys), replication_factor=1, config=config)
        admin = AdminClient({"bootstrap.servers": self._node.bootstrap, "log_level": 2})
        admin.create_topics([topic])[TOPIC].result(30)

    def _strike(self, each: Round, load: Load) -> None:
        time.sleep(each.after_s)
        acknowledged = load.acknowledged_count
        if each.fault is Fault.KILL:
            self._kill()
        else:
            self._terminate(each)
        resumed_s = self._wait_for_load(load, time.monotonic())
        self._say(
            f"round {each.number}: {each.fault.value} after {acknowledged} records, {resumed_s:.2f} s to the next"
        )

    def _kill(self) -> None:
        self._node.kill()
        self.result.kills += 1
        started = self._node.start()
        self.result.starts_after_kill_s.append(started.seconds)
        self.result.unclean_starts += started.was_unclean
        if not started.was_unclean:
            self.result.problems.append("a start after kill -9 believed the files")

    def _terminate(self, each: Round) -> None:
        stop_s = self._node.terminate()
        self.result.terms += 1
        self.result.stops_s.append(stop_s)
        if stop_s > self._stop_bound_s:
            self.result.problems.append(f"round {each.number}: the stop took {stop_s:.1f} s")
        if not (self._node.data / CLEAN_MARK).exists():
            self.result.problems.append(f"round {each.number}: no mark of a clean stop")
        started = self._node.start()
        self.result.starts_after_term_s.append(started.seconds)
        if started.was_unclean:
            self.result.problems.append(f"round {each.number}: recovery after a clean stop")
        self.result.problems += [f"round {each.number}: {line}" for line in started.complaints]

    def _wait_for_load(self, load: Load, began: float) -> float:
        """Until records are acknowledged again. Raises `Broken`."""
        wanted = load.acknowledged_count + RESUMED_COUNT
        while load.acknowledged_count < wanted:
            if time.monotonic() - began > RESUME_PATIENCE_S:
                raise Broken(f"nothing is acknowledged {RESUME_PATIENCE_S:.0f} s after a start: {load.errors[:3]}")
            time.sleep(0.01)
        resumed_s = time.monotonic() - began
        self.result.resumed_after_s.append(resumed_s)
        return resumed_s

    def _judge(self, load: Load, follower: Follower) -> None:
        final = read_all(self._node.bootstrap, self._keys)
        history = History(load.sends, [*follower.readings, *final])
        result = self.result
        result.sent = len(history.sends)
        result.acknowledged = history.acknowledged_count
        result.read = sum(len(reading.records) for reading in final)
        result.read_along = sum(len(reading.records) for reading in follower.readings)
        result.problems += load.errors[:20]
        if follower.error is not None:
            result.problems.append(f"the follower: {follower.error}")
        result.problems += told(anomalies(history))
