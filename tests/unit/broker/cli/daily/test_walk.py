"""Every action of the command line that speaks to a cluster is walked, here against one node and in the conformance
over each way to log in.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.testing.namespace import Namespace
from tests.support.daily_batch import HANG, TRACEBACK, run_all
from tests.support.daily_command import properties_text
from tests.support.daily_walk import AT_CONTROLLERS, COMMON_MISTAKES, DENIED, USAGE, actions_of_command_line, steps


def test_no_action_is_missing_from_the_walk(tmp_path: Path) -> None:
    declared = actions_of_command_line().keys()
    walked = {step.action for step in steps("walk", 1, tmp_path)}
    assert walked == declared
    with_mistakes = {step.action for step in steps("walk", 1, tmp_path) if step.wrong}
    assert declared - with_mistakes == {"cluster-status"}, "it has no arguments of its own"


@pytest.mark.processes
@pytest.mark.moldau(secure=True, users=())
def test_every_action_with_right_and_with_wrong_arguments(kafka: Namespace, tmp_path: Path) -> None:
    expected: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
    file = tmp_path / "client.properties"
    file.write_text(properties_text(kafka.client_settings("java", "admin")))
    at = ("-b", kafka.bootstrap_servers, "--command-config", str(file))
    for step in steps(kafka.prefix, 1, tmp_path):
        expected.append(((*step.words, *at), (DENIED,) if step.action in AT_CONTROLLERS else step.right))
        expected += [((*words, *at), (status,)) for status, words in step.wrong]
        expected.append(((*step.words, *at, *COMMON_MISTAKES[len(expected) % len(COMMON_MISTAKES)]), (USAGE,)))
    for (words, statuses), ended in zip(expected, run_all([words for words, _ in expected], tmp_path), strict=True):
        assert ended.status not in (TRACEBACK, HANG), ended.err
        assert ended.status in statuses, (words, ended)
