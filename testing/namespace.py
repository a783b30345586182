"""`Namespace`: the topics and groups of one test on a cluster that many tests share."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

from moldau.testing.clients.port import Client
from moldau.testing.cluster import Cluster
from moldau.testing.conveniences import Conveniences

NAME_MAX: Final = 249
"""Characters of a topic's name, as in Apache Kafka."""
TEST_NAME_MAX: Final = 100
"""Characters of the test's name that are in the names of its topics."""
ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]+")


class Namespace(Conveniences):
    """The value of the fixture `kafka`: names that no other test has, and the conveniences of the cluster."""

    def __init__(self, cluster: Cluster, test_name: str) -> None:
        self.cluster = cluster
        self.prefix = f"{ILLEGAL.sub('-', test_name)[:TEST_NAME_MAX].strip('-')}-{secrets.token_hex(4)}"
        """The beginning of every name of this test."""
        self._made: list[str] = []

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the cluster for `bootstrap.servers`."""
        return self.cluster.bootstrap_servers

    @property
    def client(self) -> Client:
        """The client of the cluster."""
        return self.cluster.client

    @property
    def users(self) -> tuple[str, ...] | None:
        """The users of a secure cluster besides `admin`; None for one that is not secure."""
        return self.cluster.users

    @property
    def replicas(self) -> int:
        """The replicas of a topic for which no number is given."""
        return self.cluster.replicas

    def name(self, word: str) -> str:
        """A name that belongs to this test, for a group, a transactional id or a topic that the application creates."""
        return f"{self.prefix}-{ILLEGAL.sub('-', word)}"[:NAME_MAX]

    def topic(self, word: str = "topic", partitions: int = 1, *, settings: Mapping[str, object] | None = None) -> str:
        """Create a topic of this test. Returns its name, which ends with the word."""
        name = self.name(word)
        self.create_topic(name, partitions, settings=settings)
        self._made.append(name)
        return name

    def group(self, word: str = "group") -> str:
        """The id of a group of this test."""
        return self.name(word)

    def client_settings(self, library: str, user: str | None = None) -> dict[str, Any]:
        """As `Cluster.client_settings`."""
        return self.cluster.client_settings(library, user)

    def close(self) -> None:
        """Request the deletion of the test's topics, without waiting for it."""
        if self._made:
            self.client.delete_topics(self._made, waits=False)
            self._made = []
