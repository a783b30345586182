"""`KafkaContainer`: a cluster with the interface of the class of that name in Testcontainers for Python, so that a test
suite has to change only one import.

    from testcontainers.kafka import KafkaContainer   →   from moldau.testing import KafkaContainer

There is no container and no image. Arguments that describe one have no effect, except the variables of Apache Kafka's
image, which are settings of the node. Methods that reach into a container do not exist.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final

from moldau.testing.cluster import Cluster

PORT: Final = 9093
"""The default port in the container, which test suites pass to `get_exposed_port`."""
OF_THE_CLUSTER: Final = frozenset(
    {
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "controller.listener.names",
        "controller.quorum.voters",
        "process.roles",
        "node.id",
        "broker.id",
        "log.dirs",
    }
)
"""Settings of a container's listeners and directories, which have no effect because the cluster sets its own."""


class _ClusterOfVariables(Cluster):
    """A cluster whose settings come from the variables of an image. Unknown settings are not refused, because some
    variables are not settings.
    """

    def _refuse_unknown_settings(self) -> None:
        pass


class KafkaContainer:
    """A node in memory with the methods of Testcontainers' `KafkaContainer`."""

    def __init__(self, image: str = "", port: int = PORT, **options: Any) -> None:
        """`image` and `options` describe a container, and have no effect. `port` is the port in the container, which
        `get_exposed_port` accepts.
        """
        self.port: Final = port
        self._settings: dict[str, str] = {}
        self._fixed_port: int | None = None
        self._cluster: Cluster | None = None

    def with_kraft(self) -> KafkaContainer:
        """Do nothing: the node always uses KRaft."""
        return self

    def with_cluster_id(self, cluster_id: str) -> KafkaContainer:
        """Do nothing: each start makes a new cluster id."""
        return self

    def with_env(self, key: str, value: object) -> KafkaContainer:
        """Set a variable of Apache Kafka's image: KAFKA_NUM_PARTITIONS is the setting num.partitions. Variables of the
        listeners, and variables of other names, have no effect."""
        if key.startswith("KAFKA_"):
            words = key.removeprefix("KAFKA_").lower()
            name = words.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
            if name not in OF_THE_CLUSTER:
                self._settings[name] = str(value)
        return self

    def with_envs(self, **variables: object) -> KafkaContainer:
        """Set several variables of the image, like `with_env`."""
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_bind_ports(self, container: int | str, host: int | None = None) -> KafkaContainer:
        """Serve on the port `host` of this machine."""
        self._fixed_port = host
        return self

    def with_exposed_ports(self, *ports: int | str) -> KafkaContainer:
        """Do nothing: the node listens on a port of this machine."""
        return self

    def with_name(self, name: str) -> KafkaContainer:
        """Do nothing: there is no container."""
        return self

    def with_network(self, network: object) -> KafkaContainer:
        """Do nothing: the node listens on the loopback address."""
        return self

    def with_network_aliases(self, *aliases: str) -> KafkaContainer:
        """Do nothing: there is no container network."""
        return self

    def with_kwargs(self, **options: Any) -> KafkaContainer:
        """Do nothing: there is no container."""
        return self

    def start(self, timeout: float = 30) -> KafkaContainer:
        """Start the node, and wait until it serves clients."""
        if self._cluster is None:
            self._cluster = _ClusterOfVariables(port=self._fixed_port, settings=self._settings).start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """End the node."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.stop()

    def __enter__(self) -> KafkaContainer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def cluster(self) -> Cluster:
        """The cluster, whose methods offer more than those of this class. Raises RuntimeError before `start`."""
        if self._cluster is None:
            raise RuntimeError("the container does not run: call start()")
        return self._cluster

    def get_bootstrap_server(self) -> str:
        """The address of the node, for the setting `bootstrap.servers` of a client."""
        return self.cluster.bootstrap_servers

    def get_container_host_ip(self) -> str:
        """The address on which the node listens."""
        return self.get_bootstrap_server().rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        """The port of this machine on which the node listens. Raises ValueError if `port` is not the port in the
        container.
        """
        if int(port) != self.port:
            raise ValueError(f"the port of this container is {self.port}, not {port}")
        return int(self.get_bootstrap_server().rpartition(":")[2])

    def get_logs(self) -> tuple[bytes, bytes]:
        """The output of the node: its standard output, which is empty, and the last lines of its log."""
        return b"", self.cluster.node(1).log.encode()
