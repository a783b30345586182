"""The quorum's nodes alone, with their logs, snapshots and disks, and with brokers that are only said to be there.

No partition is replicated, so that a second holds many more elections, cut logs and snapshots than with whole brokers;
and the power of all may go at any time, for metadata is synced before every answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any, Final

from moldau.kraft.image.metadata_image import EMPTY_IMAGE, MetadataImage
from moldau.security.principal import USER, Principal
from moldau.testing.simulation.schedule import SimulationFailed
from tests.simulation.cluster.nemesis import Nemesis
from tests.simulation.cluster.plan import VOTERS, Fault, Plan
from tests.simulation.invariants import Invariant
from tests.simulation.invariants.controller_state import ControllerState
from tests.simulation.invariants.decided_by_acls import DecidedByAcls
from tests.simulation.invariants.equal_images import EqualImages
from tests.simulation.invariants.metadata_epochs import MetadataEpochs
from tests.simulation.invariants.metadata_logs import MetadataLogs
from tests.simulation.invariants.observation import Node, Observation, Violation
from tests.simulation.invariants.one_controller import OneController
from tests.simulation.invariants.quorum_state import QuorumState
from tests.simulation.invariants.sound_image import SoundImage
from tests.simulation.invariants.true_snapshots import TrueSnapshots
from tests.simulation.metadata.phantom import Blocks, Phantom
from tests.support.cluster import Cluster
from tests.support.cluster_admin import Administrator
from tests.support.cluster_clients import Bootstrap, Brokers
from tests.support.failed_handlers import failed_handlers
from tests.support.node import Client
from tests.support.security.acl_administrator import USERS, AclAdministrator
from tests.support.security.enveloped import EnvelopedConnection, EnvelopedUser
from tests.support.security.restricted_client import OF_CONTROLLERS, RestrictedClient
from tests.support.security.token_holder import TokenHolder
from tests.support.security_administrator import SecurityAdministrator

INVARIANTS: Final = (
    ControllerState,
    DecidedByAcls,
    EqualImages,
    MetadataEpochs,
    MetadataLogs,
    OneController,
    QuorumState,
    SoundImage,
    TrueSnapshots,
)
FAULTS: Final = (
    Fault.POWER_CUT,
    Fault.POWER_CUT_ALL,
    Fault.CUT_AT_STEP,
    Fault.KILL,
    Fault.KILL_CONTROLLER,
    Fault.KILL_ALL,
    Fault.STOP,
    Fault.PAUSE,
    Fault.ISOLATE,
    Fault.ISOLATE_CONTROLLER,
    Fault.CUT_ONE_WAY,
    Fault.SLOW_LINK,
    Fault.RESET,
    Fault.STALL_LINK,
    Fault.SLOW_DISK,
    Fault.STALL_DISK,
)
FAULTS_S: Final = 6.0
LOOK_EVERY_S: Final = 0.01
LIVENESS_S: Final = 60.0
PHANTOMS: Final = (101, 102, 103)
ADMINISTRATORS: Final = 2
PRINCIPALS: Final = tuple(Principal(USER, user) for user in USERS)
"""Of requests in Envelopes; all others are anonymous, and super users."""
LIMIT_S: Final = 200.0


class EveryNode:
    """The way to all nodes of a cluster, whether they lead or not."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def node_ids(self) -> list[int]:
        return list(self._cluster.nodes)

    async def connect(self, node_id: int) -> Client:
        return await self._cluster.connect(node_id)


class Swarm:
    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        random = Random(f"{seed}/metadata")
        faults = tuple(random.sample(FAULTS, random.randint(2, 6)))
        names_voters = random.random() < 0.5
        nodes = random.choice((3, 4, 4, 5)) if names_voters else random.choice((3, 3, 3, 5))
        if names_voters and nodes > VOTERS:
            faults = (*faults, *[Fault.CHANGE_VOTERS] * len(faults))
        self.plan = Plan.drawn(random)
        self.plan = plan_of(self.plan, nodes, faults, names_voters=names_voters)
        properties: dict[str, Any] = {
            **self.plan.broker_properties(),
            "metadata.log.max.record.bytes.between.snapshots": random.choice(("300", "600", "3000")),
            "metadata.max.retention.bytes": random.choice(("1000", "4000")),
            "broker.session.timeout.ms": "2000",
            "offsets.topic.replication.factor": "3",
        }
        self.cluster = Cluster(
            seed,
            nodes=nodes,
            controllers=nodes,
            voters=VOTERS if names_voters else 0,
            keep_trace=keep_trace,
            **properties,
        )
        self.nemesis = Nemesis(self.cluster, self.plan, Random(f"{seed}/nemesis"))
        self.complaints: list[str] = []
        self.looks = 0
        self._invariants: list[Invariant] = [make() for make in INVARIANTS]
        self.image = EMPTY_IMAGE
        """The newest that anybody ever showed."""
        self._is_ended = False
        blocks = Blocks(self.complaints, self._told)
        self._phantoms = [Phantom(each, self._bootstrap(f"phantom-{each}"), blocks, self._told) for each in PHANTOMS]
        self._administrators = [
            Administrator(self._bootstrap(f"churn-{number}"), self.complaints, f"churn-{number}", told=self._told)
            for number in range(ADMINISTRATORS)
        ]
        self._users = SecurityAdministrator(self._bootstrap("users"), self.complaints, told=self._told)
        self._acls = AclAdministrator(self._bootstrap("acls"), self.complaints, told=self._told)
        holder = self._bootstrap("holder")
        self._holder = TokenHolder(EnvelopedUser(holder, PRINCIPALS[0]), holder, self.complaints, told=self._told)
        self._clients = [self._client(each) for each in PRINCIPALS]

    # How the clients reach the controller

    @property
    def node_ids(self) -> list[int]:
        """A node that leads, or takes itself for the leader; else any node."""
        leading = [node.id for node in self._opened() if node.broker.quorum.active_controller is not None]
        return leading or list(self.cluster.nodes)

    async def connect(self, node_id: int) -> Client:
        return await self.cluster.connect(node_id)

    def _client(self, principal: Principal) -> RestrictedClient:
        """One of them asks the leader, the other any node: one that does not lead has no say, whatever ACLs it has."""
        nodes: Brokers = self if principal is PRINCIPALS[0] else EveryNode(self.cluster)
        bootstrap = Bootstrap(nodes, Random(f"{self.seed}/{principal.name}"))

        async def connect(node_id: int) -> EnvelopedConnection:
            return EnvelopedConnection(await bootstrap.connect(node_id), principal)

        return RestrictedClient(
            principal, bootstrap, self.cluster, connect, self.complaints, OF_CONTROLLERS, is_enveloped=True
        )

    def _bootstrap(self, name: str) -> Bootstrap:
        return Bootstrap(self, Random(f"{self.seed}/{name}"))

    def _told(self, bootstrap: Bootstrap, what: str, holds: Callable[[MetadataImage], bool]) -> None:
        """A node that acknowledged something publishes it as long as its process lives: it is committed."""
        if bootstrap.is_peer_alive() and not holds(self._newest(self._opened())):
            self.complaints.append(f"{what}: promised, and not committed")

    # The watch

    def _opened(self) -> list[Node]:
        return [
            Node(node.id, node.host.lives, node.broker, node.host.disk)
            for node in self.cluster.nodes.values()
            if node.is_up and node.broker is not None and node.broker.quorum.is_open
        ]

    def look(self) -> None:
        """Raises `Violation`."""
        nodes = self._opened()
        self.image = self._newest(nodes)
        self.looks += 1
        seen = Observation(self.cluster.world.loop.now_ns, nodes, {}, self.image, {}, flushes=True)
        for invariant in self._invariants:
            invariant.check(seen)

    def _newest(self, nodes: list[Node]) -> MetadataImage:
        images = [self.image, *(node.broker.image for node in nodes)]
        return max(images, key=lambda image: image.provenance.end_offset)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                self.look()
            except Exception as error:  # also what cannot be read any more is a violation
                failed = SimulationFailed(f"{type(error).__name__}: {error}")
                failed.__cause__ = error
                self.cluster.world.loop.fail(failed)
                return

    # The story

    def run(self, lines: list[str] | None = None) -> None:
        """Raises what broke; what clients saw is in `complaints`."""
        for node in self.cluster.nodes.values():
            node.host.may_halt = True

        async def main(_: Cluster) -> None:
            await self._live()

        with self.cluster, failed_handlers(self.complaints):
            try:
                self.cluster.live(main, limit_s=LIMIT_S)
            finally:
                if lines is not None:
                    lines += self.cluster.world.trace.lines or []

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        watch, operator = loop.create_task(self._watch()), loop.create_task(self.nemesis.operate())
        work: list[Callable[[Callable[[], bool]], Coroutine[object, object, None]]] = [
            *(each.work for each in self._phantoms),
            *(each.work for each in self._administrators),
            *(each.work for each in self._clients),
            *(self._users.work, self._acls.work, self._holder.work),
        ]
        working = [loop.create_task(each(lambda: self._is_ended)) for each in work]
        await self.cluster.settled()
        striking = loop.create_task(self.nemesis.work())
        await asyncio.sleep(FAULTS_S)
        self.nemesis.end()
        await striking
        await self.nemesis.heal()
        await self._converged("after everything healed")
        self._is_ended = True
        await asyncio.wait_for(asyncio.gather(*working), LIVENESS_S)
        for node in self.cluster.nodes.values():
            node.crash()
            node.boot()
        await self._converged("after the power of all was cut")
        watch.cancel()
        operator.cancel()
        self.look()
        for administrator in self._administrators:
            administrator.verify(self.image)
        for opened in self._opened():
            self._users.verify(opened.id, opened.broker.quorum.image)
            self._acls.verify(opened.id, opened.broker.quorum.image)

    async def _converged(self, when: str) -> None:
        """There is a leader, and every node holds what was committed by now."""
        goal = self._newest(self._opened()).provenance.end_offset + 1

        def holds() -> bool:
            nodes = self._opened()
            has_leader = self.cluster.leader_of_quorum() is not None
            ends = [node.broker.image.provenance.end_offset for node in nodes]
            return has_leader and len(nodes) == len(self.cluster.nodes) and min(ends) >= goal

        try:
            await self.cluster.until(holds, "full service", LIVENESS_S)
        except AssertionError as error:
            told = {node.id: (node.broker.quorum.leader_epoch, node.broker.image.provenance) for node in self._opened()}
            raise Violation(f"not live: {LIVENESS_S:.0f} s {when}: {told}, {goal} was committed") from error


def plan_of(drawn: Plan, nodes: int, faults: tuple[Fault, ...], *, names_voters: bool) -> Plan:
    """What of a plan is there without partitions."""
    return replace(
        drawn,
        faults=faults,
        nodes=nodes,
        names_voters=names_voters,
        flushes=True,
        strike_every_s=0.4,
        session_ms=2000,
        rate_ppm_max=0,
        small_snapshots=True,
        is_tiered=False,
        changes_security=True,
    )
