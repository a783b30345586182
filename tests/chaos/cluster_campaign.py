"""Rounds of faults on three nodes under load, then healing, a full reading, and the verdict of the history checker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from moldau.kraft.features import LATEST_METADATA_VERSION
from tests.chaos.campaign import RESUMED_COUNT, TOPIC, Say
from tests.chaos.cluster import TRANSACTION_KEY, Cluster, Member
from tests.chaos.cluster_faults import ClusterRound, Deed, Role
from tests.chaos.group_readers import Group
from tests.chaos.java_load import JavaLoad
from tests.chaos.load import Load
from tests.chaos.processes import Broken
from tests.chaos.reading import Follower, Unreadable, read_all
from tests.chaos.transaction_campaign import Transactions
from tests.support.history import History, Key
from tests.support.history_check import anomalies, told

GROUP = "chaos-group"
RESUME_PATIENCE_S = 60.0
GROUP_PATIENCE_S = 60.0


@dataclass(slots=True)
class ClusterResult:
    """What a campaign came to; `problems` is what must not be."""

    rounds: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    read_along: int = 0
    commits: int = 0
    by_java: int = 0
    resumed_after_s: dict[str, list[float]] = field(default_factory=dict)
    """By deed: from the fault until every partition had acknowledged records again."""
    stops_s: list[float] = field(default_factory=list)
    metadata_versions: list[int] = field(default_factory=list)
    """As they were finalized before and after each step up."""
    transactions: dict[str, object] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        names = ("seconds", "sent", "acknowledged", "read", "read_along", "commits", "by_java")
        resumed = {
            deed: {"median": round(median(times), 2), "longest": round(max(times), 2)}
            for deed, times in self.resumed_after_s.items()
        }
        return {
            "rounds": dict(self.rounds),
            **{name: getattr(self, name) for name in names},
            "resumed_after_s": resumed,
            "metadata_versions": sorted(set(self.metadata_versions)),
            "longest_stop_s": round(max(self.stops_s, default=0.0), 2),
            **({"in_transactions": self.transactions} if self.transactions else {}),
            "problems": self.problems,
        }


class ClusterCampaign:
    """Three nodes, one topic on all of them, a group that reads it; a Java producer and transactions if wanted."""

    def __init__(
        self,
        cluster: Cluster,
        partitions: int,
        stop_bound_s: float,
        java: JavaLoad | None,
        transactions: Transactions | None,
        say: Say,
    ) -> None:
        self.result = ClusterResult()
        self._cluster = cluster
        self._keys: list[Key] = [(TOPIC, partition) for partition in range(partitions)]
        self._stop_bound_s = stop_bound_s
        self._java = java
        self._transactions = transactions
        self._say = say

    def run(self, rounds: Iterable[ClusterRound], load: Load) -> ClusterResult:
        began = time.monotonic()
        try:
            self._cluster.start()
            self._create_topic()
            follower = Follower(self._cluster.bootstrap, self._keys)
            group = Group(self._cluster.bootstrap, GROUP, TOPIC, 2)
            follower.start()
            group.start()
            load.start()
            if self._java is not None:
                self._java.start()
            if self._transactions is not None:
                self._transactions.start()
                self._transactions.await_commits(time.monotonic())
            self._wait_for_load(load)
            for each in rounds:
                self._strike(each, load)
            load.finish()
            if self._java is not None:
                self._java.finish()
            follower.is_ending = True
            follower.join()
            self._judge(load, follower, group)
        except (Broken, Unreadable) as broken:
            self.result.problems.append(str(broken))
            self.result.problems += load.errors[:5]
        self.result.seconds = round(time.monotonic() - began, 1)
        return self.result

    def _create_topic(self) -> None:
        config = {"segment.bytes": str(1 << 20), "min.insync.replicas": "2"}
        topics = [NewTopic(TOPIC, num_partitions=len(self._keys), replication_factor=3, config=config)]
        if self._java is not None:
            topics.append(NewTopic(self._java.topic, num_partitions=3, replication_factor=3, config=config))
        if self._transactions is not None:
            topics += self._transactions.topics(config)
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 2})
        admin.list_topics(timeout=30)  # the brokers by their ids: with an address, librdkafka may drop a request
        for created in admin.create_topics(topics).values():
            created.result(30)

    # Faults

    def _strike(self, each: ClusterRound, load: Load) -> None:
        time.sleep(each.after_s)
        began = time.monotonic()
        if each.role is Role.EACH:
            resumed_s = max(self._roll(member, load) for member in self._cluster.members.values())
            struck = "1, 2, 3"
            if each.deed is Deed.UPGRADE:
                self._upgrade()
        else:
            member = self._struck(each)
            struck = str(member.node_id)
            resumed_s = self._harm(each, member, load)
        if self._transactions is not None:
            self._say(f"round {each.number}: {self._transactions.await_commits(began):.2f} s until all had committed")
        self.result.rounds[f"{each.deed.value}: {each.role.value}"] += 1
        self.result.resumed_after_s.setdefault(each.deed.value, []).append(resumed_s)
        self._say(
            f"round {each.number}: {each.deed.value}, {each.role.value} (node {struck}), for {each.for_s:.1f} s;"
            f" {resumed_s:.2f} s until all partitions took records, {load.acknowledged_count} so far"
        )
        self.result.problems += [f"round {each.number}: {error}" for error in load.errors[:3]]
        if self.result.problems:
            raise Broken(f"stopped after round {each.number}")

    def _struck(self, each: ClusterRound) -> Member:
        """Asked until somebody is known to be it."""
        cluster, deadline = self._cluster, time.monotonic() + RESUME_PATIENCE_S
        while time.monotonic() < deadline:
            match each.role:
                case Role.CONTROLLER:
                    node_id = cluster.controller()
                case Role.COORDINATOR:
                    node_id = cluster.coordinator_of(GROUP)
                case Role.TRANSACTION_COORDINATOR if self._transactions is not None:
                    node_id = cluster.coordinator_of(self._transactions.transactional_id, TRANSACTION_KEY)
                case _:
                    node_id = cluster.leader_of(TOPIC, each.number % len(self._keys))
            if each.role is Role.FOLLOWER and node_id > 0:
                node_id = sorted(cluster.others(node_id))[each.number // 2 % 2]
            if node_id > 0:
                return cluster.members[node_id]
            time.sleep(0.05)
        raise Broken(f"nobody is {each.role.value}")

    def _harm(self, each: ClusterRound, member: Member, load: Load) -> float:
        """The fault and its end; how long after the fault all partitions acknowledged again."""
        waiting = Resumption(load)
        match each.deed:
            case Deed.KILL:
                member.kill()
                waiting.watch_for(each.for_s)
                member.launch()
                resumed_s = waiting.until_resumed()
                member.await_serving()
            case Deed.PAUSE:
                member.pause()
                waiting.watch_for(each.for_s)
                member.go_on()
                resumed_s = waiting.until_resumed()
            case _:
                self._cluster.network.cut(member.node_id)
                waiting.watch_for(each.for_s)
                self._cluster.network.heal()
                resumed_s = waiting.until_resumed()
        return resumed_s

    def _roll(self, member: Member, load: Load) -> float:
        waiting = Resumption(load)
        stop_s = member.terminate()
        self.result.stops_s.append(stop_s)
        if stop_s > self._stop_bound_s:
            self.result.problems.append(f"the stop of node {member.node_id} took {stop_s:.1f} s")
        started = member.start()
        if started.was_unclean:
            self.result.problems.append(f"node {member.node_id}: recovery after a clean stop")
        return waiting.until_resumed()

    def _upgrade(self) -> None:
        """One level, if there is one above; every node must come to know it."""
        level, deadline = self._cluster.metadata_version(), time.monotonic() + RESUME_PATIENCE_S
        self.result.metadata_versions.append(level)
        if level == LATEST_METADATA_VERSION:
            return
        while self._cluster.metadata_version() != level + 1:
            error = self._cluster.raise_metadata_version(level + 1)
            if time.monotonic() > deadline:
                raise Broken(f"metadata.version stays at {level}: error {error}")
            time.sleep(0.2)
        self.result.metadata_versions.append(level + 1)

    def _wait_for_load(self, load: Load) -> None:
        began = time.monotonic()
        while load.acknowledged_count < RESUMED_COUNT:
            if time.monotonic() - began > RESUME_PATIENCE_S:
                raise Broken(f"nothing is acknowledged {RESUME_PATIENCE_S:.0f} s after the start: {load.errors[:3]}")
            time.sleep(0.01)

    # The verdict

    def _judge(self, load: Load, follower: Follower, group: Group) -> None:
        transactions = self._transactions
        if transactions is not None:
            transactions.judge()
            self.result.problems += transactions.problems
            self.result.transactions = transactions.summary()
        final = read_all(self._cluster.bootstrap, self._keys)
        group.await_all({each.key[1]: [offset for offset, _ in each.records] for each in final}, GROUP_PATIENCE_S)
        history = History(load.sends, [*follower.readings, *final])
        result = self.result
        result.sent = len(history.sends)
        result.acknowledged = history.acknowledged_count
        result.read = sum(len(reading.records) for reading in final)
        result.read_along = sum(len(reading.records) for reading in follower.readings)
        result.commits = group.ledger.commits_count
        result.problems += load.errors[:20]
        if follower.error is not None:
            result.problems.append(f"the follower: {follower.error}")
        result.problems += told(anomalies(history))
        result.problems += group.ledger.problems
        if self._java is not None:
            result.by_java = self._java.sent_count
            found = read_all(self._cluster.bootstrap, [(self._java.topic, partition) for partition in range(3)])
            count = sum(len(reading.records) for reading in found)
            result.problems += self._java.problems
            if count != self._java.sent_count:
                result.problems.append(f"the Java producer sent {self._java.sent_count} records, {count} are there")


class Resumption:
    """From a fault until every partition has acknowledged a record that was sent after it."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._began = time.time_ns()
        self._resumed_s: float | None = None

    def watch_for(self, seconds: float) -> None:
        """While the fault lasts."""
        end = time.time_ns() + int(seconds * 1e9)
        while time.time_ns() < end:
            self._look()
            time.sleep(0.01)

    def until_resumed(self) -> float:
        """Raises `Broken` if it takes too long."""
        while self._resumed_s is None:
            if time.time_ns() - self._began > RESUME_PATIENCE_S * 1e9:
                silent = [partition for partition, at in self._load.latest_sent_ns.items() if at <= self._began]
                raise Broken(f"partitions {silent} acknowledge nothing {RESUME_PATIENCE_S:.0f} s after a fault")
            self._look()
            time.sleep(0.01)
        return self._resumed_s

    def _look(self) -> None:
        if self._resumed_s is None and all(at > self._began for at in self._load.latest_sent_ns.values()):
            self._resumed_s = (time.time_ns() - self._began) / 1e9
