"""Three nodes that authenticate to each other, and clients that log in by SCRAM under TLS and have what ACLs give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conformance.brokers import Ports
from tests.conformance.secured.jaas import client_settings
from tests.conformance.secured.listeners import CLIENTS, Between, credentials, secured
from tests.conformance.secured.stores import Stores
from tests.conformance.toolchain import Toolchain
from tests.conformance.trio import Trio, pairs_of


class SecuredTrio(Trio):
    """`bootstrap` is the plain listener for administration, `secured_bootstrap` that of the users."""

    def __init__(
        self,
        name: str,
        toolchain: Toolchain,
        ports: Ports,
        directory: Path,
        between: Between,
        users: Mapping[str, str],
        *,
        extra: Sequence[str] = (),
    ) -> None:
        super().__init__(name, toolchain, pairs_of(ports), directory, extra=extra)
        self._users = users
        self.stores = Stores(directory)
        self.secured_ports = pairs_of(ports)
        """Of the users' listener of each node; that of brokers is at the port after it."""
        self.secured_bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.secured_ports)
        for node, port in zip(self.nodes, self.secured_ports, strict=True):
            node.set(secured(self.stores, node.port, port, between))
            node.format_words = credentials(users)

    def security_of(self, user: str) -> dict[str, str]:
        """How the user logs in, as the programs of clients are told."""
        return {
            "protocol": "SASL_SSL",
            "ca": str(self.stores.ca),
            "mechanism": CLIENTS,
            "user": user,
            "password": self._users[user],
        }

    def java_settings_of(self, user: str) -> dict[str, str]:
        """The properties of a Java client that logs in so."""
        return client_settings(self.security_of(user))
