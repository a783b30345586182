"""`Namespace`: topics and groups of one test on a cluster that many tests share."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

from moldau.testing.clients.port import Client, Permission
from moldau.testing.cluster import Cluster
from moldau.testing.conveniences import Conveniences

NAME_MAX: Final = 249
"""The maximum length (characters) of a topic's name, as in Apache Kafka."""
TEST_NAME_MAX: Final = 100
"""The maximum length (characters) of the part of a topic's name that is the test's name."""
ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]+")


class Namespace(Conveniences):
    """The value of the fixture `kafka`: the conveniences of the cluster, and names that no other test uses."""

    def __init__(self, cluster: Cluster, test_name: str) -> None:
        self.cluster = cluster
        self.prefix = f"{ILLEGAL.sub('-', test_name)[:TEST_NAME_MAX].strip('-')}-{secrets.token_hex(4)}"
        """The beginning of every name of this test's topics and groups."""
        self._made: list[str] = []
        self._allowed: list[Permission] = []

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the cluster, for the setting `bootstrap.servers` of a client."""
        return self.cluster.bootstrap_servers

    @property
    def client(self) -> Client:
        """The client through which the cluster's conveniences work."""
        return self.cluster.client

    @property
    def users(self) -> tuple[str, ...] | None:
        """The users of a secure cluster besides `admin`; None if the cluster is not secure."""
        return self.cluster.users

    @property
    def replicas(self) -> int:
        """The default number of replicas of a topic."""
        return self.cluster.replicas

    def name(self, word: str) -> str:
        """A name that only this test uses, for a group, a transactional id, or a topic that the application creates."""
        return f"{self.prefix}-{ILLEGAL.sub('-', word)}"[:NAME_MAX]

    def topic(self, word: str = "topic", partitions: int = 1, *, settings: Mapping[str, object] | None = None) -> str:
        """Create a topic that only this test uses. Returns its name, which ends with `word`."""
        name = self.name(word)
        self.create_topic(name, partitions, settings=settings)
        self._made.append(name)
        return name

    def group(self, word: str = "group") -> str:
        """A group id that only this test uses."""
        return self.name(word)

    def client_settings(self, library: str, user: str | None = None) -> dict[str, Any]:
        """The settings with which a client of a library connects, like `Cluster.client_settings`."""
        return self.cluster.client_settings(library, user)

    def close(self) -> None:
        """Take back the permissions that this test has given, and request the deletion of its topics, without waiting
        for that.
        """
        if self._allowed:
            self.client.take_back(self._allowed)
            self._allowed = []
        if self._made:
            self.client.delete_topics(self._made, waits=False)
            self._made = []

    def _allow(self, permission: Permission) -> None:
        super()._allow(permission)
        self._allowed.append(permission)
