"""The active controller: one request in, one decision out; the records of a decision are replayed before the next
request.

    step, tick    decide on the image and the sessions; they only change the time of each broker's last heartbeat
    replay        makes a decision's records part of the image, which is ahead of what is committed

A node that becomes leader of the quorum builds a new controller from the end of its log, and drops it when its term
ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from moldau.kraft.controller.apis import CONTROLLER_APIS, ControllerApis, is_out_of_time
from moldau.kraft.controller.broker_sessions import BrokerSessions
from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.kraft.controller.failure_detector import FailureDetector
from moldau.kraft.controller.feature_control import records_of_eligible_replicas
from moldau.kraft.controller.nodes.broker_lifecycle import fencing_records
from moldau.kraft.controller.partition_index import PartitionIndex
from moldau.kraft.controller.partitions.elections import preferred_elections
from moldau.kraft.controller.partitions.leadership import changes_of_leaderless
from moldau.kraft.controller.security.token_control import expired_tokens
from moldau.kraft.controller.settings import ControllerSettings
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.features import ELIGIBLE_LEADER_REPLICAS
from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage, Provenance
from moldau.kraft.image.replay import Replay
from moldau.protocol.errors import ErrorCode
from moldau.protocol.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from moldau.protocol.refusals import refused
from moldau.security.principal import NODE, Requester
from moldau.security.quotas.limits import QuotaTags
from moldau.security.quotas.mutations import MutationQuotas, Mutations

BOOTSTRAP = "Bootstrap records"
PREFERRED_ELECTIONS_MAX: Final = 1_000
"""The most preferred leaders that one decision of the periodic check elects."""


class Controller:
    """The active controller: it owns the metadata image at the end of the log and the brokers' sessions."""

    def __init__(
        self,
        replay: Replay,
        settings: ControllerSettings,
        now_ms: int,
        index: PartitionIndex | None = None,
        apis: ControllerApis = CONTROLLER_APIS,
    ) -> None:
        """`index` is the partition index of the topics in `replay`; if it is None, the controller makes it."""
        self._replay = replay
        self._settings = settings
        self._index = PartitionIndex(replay.image.topics) if index is None else index
        self._sessions = BrokerSessions(replay.image, settings.broker_session_timeout_ms, now_ms)
        self._failures = FailureDetector(settings.broker_silence_fence_ms)
        self._apis = apis
        self._mutations = MutationQuotas(settings.quota_windows)
        self._mutations.limits.apply_changes(dict(replay.image.quotas.by_entity.items()))
        self._last_append_ms = now_ms
        self._rebalance_ms = now_ms + settings.leader_imbalance_check_interval_seconds * 1000
        """The time (ms) of the next check for partitions that their preferred leader does not lead."""
        self._unclean_ms = now_ms + settings.unclean_leader_election_interval_ms
        """The time (ms) of the next check for partitions without a leader."""
        self._tokens_ms = now_ms + settings.security.token_check_interval_ms
        """The time (ms) of the next search for expired delegation tokens."""

    @property
    def state(self) -> Replay:
        """The metadata at the end of the log, with the metadata transaction that is open there, if any."""
        return self._replay

    @property
    def image(self) -> MetadataImage:
        """The metadata after all decisions so far, committed or not. The next decision is made on it; readers on this
        node get committed metadata only.
        """
        return self._replay.image

    @property
    def view(self) -> ControllerView:
        return ControllerView(self.image, self._index, self._settings)

    def activate(self, bootstrap: Sequence[object], registration: RegisterControllerRecord) -> list[Decision]:
        """The decisions with which a new leader begins; their records are the first that it writes.

        In this order they abort a metadata transaction that the earlier leader left open (KIP-868), write the bootstrap
        records if there is no metadata yet, register this controller, and hold the elections that the earlier leader
        did not hold.
        """
        decisions = []
        if self._replay.in_transaction:
            decisions.append(Decision([AbortTransactionRecord(reason="failover")]))
        if not self.image.features.levels:
            records = [*bootstrap, *self._bootstrap_settings(bootstrap)]
            decisions.append(Decision([BeginTransactionRecord(name=BOOTSTRAP), *records, EndTransactionRecord()]))
        decisions.append(Decision([registration]))
        decisions.append(Decision.in_slices(changes_of_leaderless(self.view)))
        return decisions

    def _bootstrap_settings(self, bootstrap: Sequence[object]) -> Iterator[object]:
        """Yield the first settings of a cluster. If it has eligible leader replicas, it needs one min.insync.replicas
        for the whole cluster (KIP-966)."""
        levels = {each.name: each.feature_level for each in bootstrap if isinstance(each, FeatureLevelRecord)}
        if levels.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0:
            yield from records_of_eligible_replicas(self.view)

    def step(self, request: object, now_ms: int, requester: Requester = NODE) -> Decision:
        """Decide on a request, a message of the protocol. Raises `AssertionError` if the controller has no API for
        it."""
        row = self._apis.get(type(request))
        assert row is not None, f"the controller has no API {type(request).__name__}"
        mutations = self._mutations.mutations_of(requester, now_ms)
        context = DecisionContext(
            self.view, self._sessions, self._failures, now_ms, self._end_offset, requester.principal, mutations
        )
        if is_out_of_time(request):
            return Decision([], refused(request, None, ErrorCode.REQUEST_TIMED_OUT))
        decision = row.decide(context, request)
        set_throttle_time(decision.reply, mutations)
        return (
            decision._replace(further_batches=batches_with_throttle(decision, mutations))
            if decision.further_batches
            else decision
        )

    def _end_offset(self) -> int:
        return self.image.provenance.end_offset

    def mutation_tokens(self, now_ms: int) -> dict[QuotaTags, float]:
        """The balance (tokens) of each client that has a quota of controller mutations, for metrics."""
        return self._mutations.tokens(now_ms)

    def tick(self, now_ms: int) -> Iterable[Decision]:
        """Yield the decisions of the periodic work that is due: fence brokers whose session ended or that are
        suspected, hold elections, remove expired delegation tokens, and append a NoOpRecord to an idle log
        (KIP-835)."""
        for broker_id in sorted({*self._sessions.expired_brokers(now_ms), *self._failures.suspected_brokers(now_ms)}):
            broker = self.image.cluster.brokers.get(broker_id)
            if broker is None or broker.fenced:
                self._forget(broker_id)
            else:
                yield Decision.in_slices(
                    fencing_records(self.view, broker)
                )  # The replay of this record ends the session.
        yield from self._elections(now_ms)
        if now_ms >= self._tokens_ms:
            self._tokens_ms = now_ms + self._settings.security.token_check_interval_ms
            removals = [*expired_tokens(self.image, self._settings)]
            if removals:
                yield Decision.in_slices(removals)
        idle_ms = self._settings.metadata_max_idle_interval_ms
        if idle_ms and now_ms >= self._last_append_ms + idle_ms:
            yield Decision([NoOpRecord()])

    def _elections(self, now_ms: int) -> Iterator[Decision]:
        """Yield the decisions of the periodic elections that are due. If more preferred leaders than
        `PREFERRED_ELECTIONS_MAX` are to be elected, the others are elected at the next tick.
        """
        if now_ms >= self._rebalance_ms:
            records = self._balancing()
            if len(records) < PREFERRED_ELECTIONS_MAX:
                self._rebalance_ms = now_ms + self._settings.leader_imbalance_check_interval_seconds * 1000
            if records:
                yield Decision.in_slices(records)
        if now_ms >= self._unclean_ms:
            self._unclean_ms = now_ms + self._settings.unclean_leader_election_interval_ms
            if self._index.leaderless:
                yield Decision.in_slices(changes_of_leaderless(self.view))

    def _balancing(self) -> Sequence[object]:
        if not self._settings.auto_leader_rebalance_enable or not self._index.imbalanced:
            return ()
        return preferred_elections(self.view, PREFERRED_ELECTIONS_MAX)

    def note_disconnected(self, broker_id: int, now_ms: int) -> None:
        """Note that the connection to the broker broke. The controller fences the broker unless a heartbeat arrives
        soon."""
        self._failures.note_disconnected(broker_id, now_ms)

    def note_last_heard(self, broker_id: int, heard_ms: int) -> None:
        """Note that the broker's node led the quorum before this node did, and last responded at `heard_ms`.

        The controller fences the broker unless a heartbeat arrives soon.
        """
        self._failures.note_last_heard(broker_id, heard_ms)

    def _forget(self, broker_id: int) -> None:
        self._sessions.forget(broker_id)
        self._failures.forget(broker_id)

    def next_deadline_ms(self) -> int:
        idle_ms = self._settings.metadata_max_idle_interval_ms
        deadlines = [self._sessions.next_deadline_ms(), self._failures.next_deadline_ms()]
        deadlines += [self._last_append_ms + idle_ms if idle_ms else None]
        periodic_ms = min(self._rebalance_ms, self._unclean_ms, self._tokens_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=periodic_ms)

    def replay(self, records: Sequence[object], provenance: Provenance, now_ms: int) -> MetadataDelta:
        """Apply appended records to the image, the index and the sessions. Returns the changes of the metadata."""
        self._last_append_ms = now_ms
        delta = self._replay.replay(records, provenance)
        self._index.update(delta.topics)
        if delta.quotas.changed:
            quotas = self.image.quotas.by_entity
            self._mutations.limits.apply_changes({entity: quotas.get(entity) for entity in delta.quotas.changed})
        for record in records:
            self._replay_session(record, now_ms)
        return delta

    def _replay_session(self, record: object, now_ms: int) -> None:
        match record:
            case RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch):
                self._forget(broker_id)
                self._sessions.note_heartbeat(broker_id, epoch, now_ms)
            case (
                UnregisterBrokerRecord(broker_id=broker_id)
                | BrokerRegistrationChangeRecord(broker_id=broker_id, fenced=1)
            ):
                self._forget(broker_id)


def batches_with_throttle(decision: Decision, mutations: Mutations) -> Iterator[Sequence[object]]:
    """Yield the batches of a decision that is made in slices, and then set the throttle time of its reply from the
    mutations of all batches."""
    yield from decision.further_batches
    set_throttle_time(decision.reply, mutations)


def set_throttle_time(reply: object, mutations: Mutations) -> None:
    if mutations.throttle_ms:
        assert hasattr(reply, "throttle_time_ms"), "mutations are counted where the reply can say so"
        reply.throttle_time_ms = mutations.throttle_ms
