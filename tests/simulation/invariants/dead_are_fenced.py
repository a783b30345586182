"""L2: a controller that decides fences a broker that is gone, within its session: else nobody else leads for it."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, Violation

PATIENCE_NS = 3_000_000_000
ALIVE_NS = 1_500_000_000


class DeadAreFenced:
    """The session counts anew with each controller, and when a late request of a broker that is gone, or of the next
    one on its way, has unfenced it. A controller that commits nothing, as it is alone, or its disk full, decides
    nothing; nor does one that was not looked at for long."""

    def __init__(self) -> None:
        self._gone_since: dict[int, int] = {}
        self._term: tuple[int, int, int] | None = None
        """Node, life and epoch of the controller."""
        self._term_since = 0
        self._committed = (-1, 0)
        """The end of what it showed, and when that moved for the last time."""

    def check(self, seen: Observation) -> None:
        now_ns = seen.now_ns
        here = {node.id for node in seen.nodes}
        self._gone_since = {
            broker_id: self._gone_since.get(broker_id, now_ns)
            for broker_id, broker in seen.image.cluster.brokers.items()
            if broker_id not in here and not broker.fenced
        }
        leading = [node for node in seen.nodes if node.broker.quorum.active_controller is not None]
        newest = max(leading, key=lambda node: node.broker.quorum.leader_epoch, default=None)
        term = None if newest is None else (newest.id, newest.life, newest.broker.quorum.leader_epoch)
        end_offset = -1 if newest is None else newest.broker.image.provenance.end_offset
        is_stale = now_ns > self._committed[1] + ALIVE_NS
        if term != self._term or is_stale:
            self._term, self._term_since = term, now_ns
        if end_offset != self._committed[0]:
            self._committed = end_offset, now_ns
        if newest is None or is_stale:
            return
        session_ns = newest.broker.config.integer("broker.session.timeout.ms") * 1_100_000
        for broker_id, since_ns in self._gone_since.items():
            broker = newest.broker.image.cluster.brokers.get(broker_id)
            late_ns = now_ns - max(since_ns, self._term_since) - session_ns - PATIENCE_NS
            if broker is not None and not broker.fenced and late_ns > 0:
                raise Violation(f"broker {broker_id} is gone for {(now_ns - since_ns) / 1e9:.1f} s and not fenced")
