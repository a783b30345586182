"""Compares random decisions of the authorizer with the reference, while ACLs come and go.

    python -m tests.security.acl_decisions --count 1000000 [--seed 7]

It prints the seed, the number of decisions and of differences, and ends with status 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import sys
from random import Random, SystemRandom

from moldau.security.acl.authorizer import AclAccess, Authorizer, AuthorizerSettings
from moldau.security.acl.bindings import AclBinding
from moldau.security.principal import Principal, parse_principal
from tests.support.acl_draws import SUPER_USERS, Question, draw_binding, draw_bindings, draw_question, reference

QUESTIONS_EACH = 40
"""Questions between two changes of the ACLs."""
CHANGES_EACH = 30
"""Changes until a new set of ACLs is drawn."""


class Silent:
    """No audit log."""

    def log_decisions(self, access: object, decisions: object) -> None:
        pass


def differences(random: Random, count: int) -> list[tuple[list[AclBinding], Question, bool]]:
    """What differed, at most ten: the ACLs, the question, the answer of the authorizer."""
    found: list[tuple[list[AclBinding], Question, bool]] = []
    asked = 0
    while asked < count and len(found) < 10:
        settings = AuthorizerSettings(SUPER_USERS, allows_without_acls=random.random() < 0.3)
        authorizer = Authorizer(settings, Silent())
        entries = {random.randbytes(16): each for each in draw_bindings(random)}
        authorizer.apply_changes(entries)
        authorizer.on_metadata_loaded()
        accesses: dict[tuple[str, str], AclAccess] = {}
        for _ in range(CHANGES_EACH):
            for _ in range(min(QUESTIONS_EACH, count - asked)):
                asked += 1
                question = draw_question(random)
                answer = asked_of(authorizer, accesses, question)
                if answer != reference(list(entries.values()), question, settings.allows_without_acls):
                    found.append((list(entries.values()), question, answer))
            change(random, authorizer, entries)
    return found


def asked_of(authorizer: Authorizer, accesses: dict[tuple[str, str], AclAccess], question: Question) -> bool:
    """The answer of an access that lives on: what it remembers must not outlive a change."""
    key = (question.principal, question.host)
    if key not in accesses:
        accesses[key] = authorizer.access(Principal(*parse_principal(question.principal)[:2]), question.host)
    access = accesses[key]
    if question.name is None:
        return access.allows_for_any(question.operation, question.kind)  # type: ignore[arg-type]
    return access.allows(question.operation, question.kind, question.name)  # type: ignore[arg-type]


def change(random: Random, authorizer: Authorizer, entries: dict[bytes, AclBinding]) -> None:
    """One ACL comes or goes."""
    if entries and random.random() < 0.5:
        gone = random.choice(list(entries))
        del entries[gone]
        authorizer.apply_changes({gone: None})
        return
    binding = draw_binding(random)
    if binding not in entries.values():
        entry_id = random.randbytes(16)
        entries[entry_id] = binding
        authorizer.apply_changes({entry_id: binding})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    found = differences(Random(options.seed), options.count)
    for bindings, question, answer in found:
        print(f"{question} gave {answer} under", *bindings, sep="\n  ")
    print(f"{options.count} decisions, {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
