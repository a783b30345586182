"""Every authorizer decides what the ACLs in the metadata of its node say, at every moment, and no token is to outlive
its maximum.
"""

from __future__ import annotations

from itertools import product
from typing import Final

from moldau.security.access import AclOperation as Op
from moldau.security.access import ResourceKind as Kind
from tests.simulation.invariants.observation import Observation, Violation
from tests.support.acl_draws import Question, reference
from tests.support.security.acl_administrator import GROUP, PRINCIPALS, TOPIC
from tests.support.security.acl_views import NO_HOST

QUESTIONS: Final = tuple(
    Question(principal, NO_HOST, operation, kind, name)
    for operation, (kind, name), principal in product(
        (Op.WRITE, Op.READ, Op.CREATE, Op.DESCRIBE),
        ((Kind.TOPIC, TOPIC), (Kind.TOPIC, f"{TOPIC[:5]}-"), (Kind.GROUP, GROUP)),
        PRINCIPALS,
    )
)
AT_ONCE: Final = 8
"""The questions after one change of a node's ACLs; the next change is followed by the next ones."""


class DecidedByAcls:
    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], object] = {}
        self._asked = 0
        self._end_offset = -1

    def check(self, seen: Observation) -> None:
        self._check_tokens(seen)
        for node in seen.nodes:
            authorizer, image = node.broker.security.authorizer, node.broker.quorum.image
            if authorizer is None or not authorizer.is_loaded:
                continue
            if self._seen.get((node.id, node.life)) is image.acls:
                continue
            self._seen[node.id, node.life] = image.acls
            bindings = list(image.acls.by_id.values())
            for _ in range(AT_ONCE):
                question = QUESTIONS[self._asked % len(QUESTIONS)]
                self._asked += 1
                assert question.name is not None
                decided = authorizer.decide(
                    question.principal, question.host, question.operation, question.kind, question.name
                )
                if decided != reference(bindings, question, allows_without_acls=False):
                    raise Violation(f"node {node.id} decides {decided} on {question}, and has the ACLs {bindings}")

    def _check_tokens(self, seen: Observation) -> None:
        end_offset = seen.image.provenance.end_offset
        if end_offset == self._end_offset:
            return
        self._end_offset = end_offset
        for token in seen.image.tokens.by_id.values():
            if not token.issued_at_ms <= token.max_at_ms >= token.expires_at_ms:
                raise Violation(f"a token is to outlive its maximum: {token}")
