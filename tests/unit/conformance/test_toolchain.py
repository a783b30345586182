"""Brokers and controllers of another release than the tools."""

from __future__ import annotations

import pytest

from tests.conformance.toolchain import Toolchain


def class_path(command: list[str]) -> str:
    return command[command.index("-cp") + 1]


def test_servers_may_have_jars_of_another_release(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Toolchain(fetch=False)
    monkeypatch.setattr(tools, "java", lambda: "java")
    monkeypatch.setenv("MOLDAU_KAFKA_LIB", "/tools")
    monkeypatch.delenv("MOLDAU_KAFKA_SERVER_LIB", raising=False)
    assert tools.server_command() == tools.java_command()
    monkeypatch.setenv("MOLDAU_KAFKA_SERVER_LIB", "/servers")
    assert class_path(tools.server_command("-Xmx1g")).startswith("/servers/*:")
    assert class_path(tools.java_command()).startswith("/tools/*:")
