"""What the driver of Apache Kafka's authorizer is given to read."""

from __future__ import annotations

from random import Random

from moldau.security.acl.bindings import AclBinding
from tests.conformance.acl_decisions import AclSet, answers_of, drawn, lines_of
from tests.support.acl_draws import Question


def test_a_set_is_written_line_by_line_and_answered() -> None:
    bindings = [AclBinding(2, "t", 3, "User:a", "*", 3, 3)]
    questions = [Question("User:a", "10.0.0.1", 3, 2, "t"), Question("User:a", "10.0.0.1", 4, 2, None)]
    made = AclSet(False, bindings, questions)
    assert list(lines_of(made)) == [
        "acls\tUser:root\tfalse",
        "acl\t2\tt\t3\tUser:a\t*\t3\t3",
        "ask\tUser:a\t10.0.0.1\t3\t2\tt",
        "ask\tUser:a\t10.0.0.1\t4\t2",
    ]
    assert list(answers_of(made)) == [True, False]


def test_as_many_questions_are_drawn_as_are_asked_for() -> None:
    assert [len(each.questions) for each in drawn(Random(1), 250)] == [100, 100, 50]
