"""I1: a broker serves, and takes roles, once it has read its own registration in the metadata: what is older speaks of
the process before it, whose end may be lost."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, Violation


class RegisteredFirst:
    def check(self, seen: Observation) -> None:
        for node in seen.nodes:
            broker = node.broker
            if not broker.config.is_broker:
                continue
            epoch = broker.registration.epoch
            has_read = broker.image.provenance.end_offset > epoch >= 0
            known = seen.image.cluster.brokers.get(node.id)
            if known is not None and known.epoch == epoch and not known.fenced and not has_read:
                end_offset = broker.image.provenance.end_offset
                raise Violation(f"broker {node.id} of epoch {epoch} is unfenced and has read up to {end_offset}")
            if not has_read and any(each.leadership is not None or each.leader_epoch >= 0 for each in broker.replicas):
                raise Violation(f"broker {node.id} has roles and no registration that it has read")
