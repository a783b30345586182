"""The settings of a cluster's nodes, and of its clients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moldau.testing.node import NodeFailed
from moldau.testing.ports import HOST, free_ports, is_free

if TYPE_CHECKING:
    from moldau.testing.security import Security

REPLICAS_MAX: Final = 3
VOTERS_MAX: Final = 3
INTERNAL_PARTITIONS: Final = "4"
"""The number of partitions of each internal topic. Kafka's default of 50 would take longer to create, and a test has
few groups.
"""
DEFAULT_USERS: Final = ("alice", "bob")
USER: Final = re.compile(r"[\w.@-]+")
LIBRARIES: Final = {
    "confluent": "confluent-kafka",
    "confluent-kafka": "confluent-kafka",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka-python",
    "java": "java",
}
"""The names of client libraries that are accepted, each with the name under which its settings are known."""


def texts_of(settings: object) -> dict[str, str]:
    """Convert the values of settings of nodes or topics to texts. Raises TypeError for anything but a mapping from
    names to plain values."""
    if not isinstance(settings, Mapping):
        raise TypeError(f'settings is {settings!r}: a dictionary is needed, such as {{"num.partitions": 3}}')
    for name, value in settings.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            raise TypeError(
                f"the setting {name!r} is {value!r}: a name and a text or number are needed; lists have commas"
            )
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}


def users_of(users: Sequence[str] | None, *, secure: bool) -> tuple[str, ...] | None:
    """The users of a cluster besides `admin`; None if the cluster is not secure. Raises ValueError and TypeError."""
    if not secure:
        if users is not None:
            raise ValueError("users are those of a secure cluster: add secure=True")
        return None
    if users is None:
        return DEFAULT_USERS
    if isinstance(users, str) or not all(isinstance(user, str) for user in users):
        raise TypeError(f'users is {users!r}: a list of names is needed, such as ["alice"]')
    wrong = [user for user in users if not USER.fullmatch(user)]
    if wrong:
        raise ValueError(f"the user {wrong[0]!r}: a name has letters, digits, dots, dashes and underscores")
    return tuple(users)


class NodePorts(NamedTuple):
    """The ports of one node. Only a secure cluster uses `nodes`, for the connections between nodes."""

    clients: int
    controller: int
    nodes: int


def ports_of(count: int, first: int | None) -> list[NodePorts]:
    """Ports for `count` nodes that are free now. If `first` is given, the ports for clients are that port and the
    following ones. Raises `NodeFailed` if one of these is taken.
    """
    fixed = [] if first is None else list(range(first, first + count))
    for port in fixed:
        if not is_free(port):
            raise NodeFailed(f"port {port} is taken: end the process that has it, or choose another port")
    free = [port for port in free_ports(4 * count) if port not in fixed]
    clients = fixed or [free.pop() for _ in range(count)]
    return [NodePorts(port, free.pop(), free.pop()) for port in clients]


def node_settings(node_id: int, ports: Sequence[NodePorts], security: Security | None) -> dict[str, str]:
    """The settings of the node `node_id`. The first three nodes are also controllers."""
    own = ports[node_id - 1]
    is_voter = node_id <= VOTERS_MAX
    if security is None:
        listeners = [f"PLAINTEXT://{HOST}:{own.clients}"]
    else:
        listeners = [f"CLIENTS://{HOST}:{own.clients}", f"NODES://{HOST}:{own.nodes}"]
    listeners += [f"CONTROLLER://{HOST}:{own.controller}"] if is_voter else []
    voters = [f"{HOST}:{each.controller}" for each in ports[:VOTERS_MAX]]
    replicas = min(len(ports), REPLICAS_MAX)
    in_sync = str(max(1, replicas - 1))
    settings = {
        "node.id": str(node_id),
        "process.roles": "broker,controller" if is_voter else "broker",
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(listeners),
        "controller.quorum.bootstrap.servers": ",".join(voters),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": in_sync,
        "group.initial.rebalance.delay.ms": "0",
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{topic}.num.partitions"] = INTERNAL_PARTITIONS
        settings[f"{topic}.replication.factor"] = str(replicas)
    if len(ports) > 1:
        numbered = [f"{number}@{address}" for number, address in enumerate(voters, 1)]
        settings["controller.quorum.voters"] = ",".join(numbered)
    return settings | (security.node_settings() if security is not None else {})


def client_settings(
    library: str, bootstrap_servers: str, security: Security | None, user: str | None
) -> dict[str, Any]:
    """The settings with which a client of a library connects, under the library's own names. Raises ValueError for an
    unknown library or user.
    """
    name = LIBRARIES.get(library)
    if name is None:
        raise ValueError(f"there are no settings for {library}: the libraries are {', '.join(LIBRARIES)}")
    if user is not None and security is None:
        raise ValueError(f"the user {user} is one of a secure cluster: Cluster(secure=True)")
    key = "bootstrap.servers" if name in ("confluent-kafka", "java") else "bootstrap_servers"
    return {key: bootstrap_servers} | ({} if security is None else security.client_settings(name, user))
