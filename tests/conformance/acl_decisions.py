"""Compares random decisions of the authorizer with those of Apache Kafka's own class, StandardAuthorizer.

    python -m tests.conformance.acl_decisions --count 20000 [--seed 7]

It needs Java and Apache Kafka's jars, as `make conformance` does, and no broker. It prints the seed, the number of
decisions and of differences, and ends with status 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from random import Random, SystemRandom
from typing import NamedTuple

from moldau.security.acl.authorizer import Authorizer, AuthorizerSettings
from moldau.security.acl.bindings import AclBinding
from tests.conformance.toolchain import Toolchain
from tests.security.acl_decisions import Silent
from tests.support.acl_draws import SUPER_USERS, Question, draw_bindings, draw_question

QUESTIONS_EACH = 100
"""Questions about one set of ACLs."""


def is_alike(question: Question) -> bool:
    """Whether both authorizers are to answer alike. Apache Kafka's lets a resource whose longer name begins with `*`
    escape the ACLs on all resources; see `moldau.security.acl.bindings`."""
    return question.name in (None, "*") or not str(question.name).startswith("*")


class AclSet(NamedTuple):
    """ACLs, and questions about them."""

    is_open: bool
    bindings: list[AclBinding]
    questions: list[Question]


def drawn(random: Random, count: int) -> Iterator[AclSet]:
    for start in range(0, count, QUESTIONS_EACH):
        asked = filter(is_alike, iter(lambda: draw_question(random, any_share=0.2), None))
        questions = list(islice(asked, min(QUESTIONS_EACH, count - start)))
        yield AclSet(random.random() < 0.3, draw_bindings(random), questions)


def lines_of(drawn_set: AclSet) -> Iterator[str]:
    """The set as the driver reads it."""
    yield "\t".join(("acls", ";".join(sorted(SUPER_USERS)), str(drawn_set.is_open).lower()))
    for each in drawn_set.bindings:
        where = (str(int(each.kind)), each.name, str(int(each.pattern_type)))
        yield "\t".join(("acl", *where, each.principal, each.host, str(int(each.operation)), str(int(each.permission))))
    for asked in drawn_set.questions:
        name = () if asked.name is None else (asked.name,)
        codes = (str(int(asked.operation)), str(int(asked.kind)))
        yield "\t".join(("ask", asked.principal, asked.host, *codes, *name))


def answers_of_kafka(toolchain: Toolchain, sets: list[AclSet]) -> list[bool]:
    toolchain.compiled_java()
    text = "".join(f"{line}\n" for each in sets for line in lines_of(each))
    command = [*toolchain.java_command(), "AclOracle"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace")[-2000:])
    return [line == "1" for line in done.stdout.decode().split()]


def answers_of(drawn_set: AclSet) -> Iterator[bool]:
    authorizer = Authorizer(AuthorizerSettings(SUPER_USERS, drawn_set.is_open), Silent())
    authorizer.apply_changes({number.to_bytes(16, "big"): each for number, each in enumerate(drawn_set.bindings)})
    authorizer.on_metadata_loaded()
    for asked in drawn_set.questions:
        if asked.name is None:
            yield authorizer.decide_for_any(asked.principal, asked.host, asked.operation, asked.kind)
        else:
            yield authorizer.decide(asked.principal, asked.host, asked.operation, asked.kind, asked.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    sets = list(drawn(Random(options.seed), options.count))
    expected = iter(answers_of_kafka(Toolchain(fetch=True), sets))
    differences = 0
    for each in sets:
        for asked, answer in zip(each.questions, answers_of(each), strict=True):
            if answer != next(expected):
                differences += 1
                if differences <= 5:
                    print(f"{asked} gave {answer}, open {each.is_open}, under", *each.bindings, sep="\n  ")
    assert next(expected, None) is None, "the driver answers each question once"
    print(f"{options.count} decisions, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
