"""`KafkaContainer`: a cluster in the shape of the class of Testcontainers for Python: a suite changes one import.

    from testcontainers.kafka import KafkaContainer   →   from moldau.testing import KafkaContainer

There is no container and no image. Arguments that describe one have no effect, except the variables of Apache Kafka's
image, which are settings of the node. Methods that reach into a container do not exist.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final

from moldau.testing.cluster import Cluster

PORT: Final = 9093
"""The port in the container that suites ask for by default."""
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
"""Settings that describe the listeners of a container; the cluster has its own."""


class _ClusterOfVariables(Cluster):
    """A cluster whose settings are variables of an image. Unknown settings are not refused, because some variables name
    no setting.
    """

    def _refuse_unknown_settings(self) -> None:
        pass


class KafkaContainer:
    """A node in memory behind the methods of Testcontainers' class."""

    def __init__(self, image: str = "", port: int = PORT, **options: Any) -> None:
        """`image` and `options` describe a container, and have no effect. `port` is the one that `get_exposed_port`
        takes.
        """
        self.port: Final = port
        self._settings: dict[str, str] = {}
        self._fixed_port: int | None = None
        self._cluster: Cluster | None = None

    def with_kraft(self) -> KafkaContainer:
        """Has no effect: the node always uses KRaft."""
        return self

    def with_cluster_id(self, cluster_id: str) -> KafkaContainer:
        """Has no effect: the id is made at each start."""
        return self

    def with_env(self, key: str, value: object) -> KafkaContainer:
        """Set a variable of Apache Kafka's image: KAFKA_NUM_PARTITIONS is the setting num.partitions. Other variables
        have no effect, and neither do those of the listeners.
        """
        if key.startswith("KAFKA_"):
            words = key.removeprefix("KAFKA_").lower()
            name = words.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
            if name not in OF_THE_CLUSTER:
                self._settings[name] = str(value)
        return self

    def with_envs(self, **variables: object) -> KafkaContainer:
        """As `with_env`, for several variables."""
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_bind_ports(self, container: int | str, host: int | None = None) -> KafkaContainer:
        """Serve on this port of the machine."""
        self._fixed_port = host
        return self

    def with_exposed_ports(self, *ports: int | str) -> KafkaContainer:
        """Has no effect: the port is one of this machine."""
        return self

    def with_name(self, name: str) -> KafkaContainer:
        """Has no effect."""
        return self

    def with_network(self, network: object) -> KafkaContainer:
        """Has no effect: the node listens on the loopback address."""
        return self

    def with_network_aliases(self, *aliases: str) -> KafkaContainer:
        """Has no effect."""
        return self

    def with_kwargs(self, **options: Any) -> KafkaContainer:
        """Has no effect."""
        return self

    def start(self, timeout: float = 30) -> KafkaContainer:
        """Start the node, and wait until it serves."""
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
        """The cluster, with all that this class does not offer. Raises RuntimeError before `start`."""
        if self._cluster is None:
            raise RuntimeError("the container does not run: call start()")
        return self._cluster

    def get_bootstrap_server(self) -> str:
        """The address for `bootstrap.servers`."""
        return self.cluster.bootstrap_servers

    def get_container_host_ip(self) -> str:
        """The address of this machine on which the node listens."""
        return self.get_bootstrap_server().rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        """The port of this machine. Raises ValueError for a port that the container does not have."""
        if int(port) != self.port:
            raise ValueError(f"the port of this container is {self.port}, not {port}")
        return int(self.get_bootstrap_server().rpartition(":")[2])

    def get_logs(self) -> tuple[bytes, bytes]:
        """The standard output, which is empty, and the last lines of the log."""
        return b"", self.cluster.node(1).log.encode()
