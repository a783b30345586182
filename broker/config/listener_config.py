"""The part of a node's configuration from which the settings of TLS and SASL are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from moldau.broker.config.listeners import ListenerAddress
from moldau.broker.config.password import Password


class SettingValues(Protocol):
    """Values by name: the configured one, else the default."""

    def is_set(self, name: str) -> bool: ...

    def integer(self, name: str) -> int: ...

    def integer_or_none(self, name: str) -> int | None: ...

    def real(self, name: str) -> float: ...

    def flag(self, name: str) -> bool: ...

    def text(self, name: str) -> str: ...

    def text_or_none(self, name: str) -> str | None: ...

    def password(self, name: str) -> Password | None: ...

    def entries(self, name: str) -> tuple[str, ...]: ...

    def of_listener(self, listener: str, name: str) -> str: ...


class ListenerConfig(Protocol):
    """The listeners of a node, the listeners to which it connects, and the settings."""

    @property
    def settings(self) -> SettingValues: ...

    @property
    def listeners(self) -> tuple[ListenerAddress, ...]: ...

    @property
    def listener_protocols(self) -> Mapping[str, str]: ...

    @property
    def controller_listener_names(self) -> tuple[str, ...]: ...

    @property
    def inter_broker_listener_name(self) -> str: ...

    @property
    def is_broker(self) -> bool: ...
