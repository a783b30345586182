"""The broker processes of one machine: derives the settings of each process from the configuration of the first one.

| | the first process | the process with the number k |
|---|---|---|
| node.id | that of the file | k - 1 more |
| process.roles | those of the file | broker |
| listeners | those of the file | those of clients and brokers, each at the next port that the machine has not used |
| controller.quorum.bootstrap.servers | those of the file | the first process too, if it is a controller |
| log.dirs, metadata.log.dir | those of the file | the directory core.k in each of them |
| broker.rack | the machine's name, unless it is set | the same |
| moldau.http.listener, moldau.console | those of the file, for all processes | a Unix socket for the first process |
| moldau.audit.log.file | that of the file | the file core.k.NAME beside it |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from moldau.broker.cli.invocation import CommandError
from moldau.broker.config.config import Config, ConfigError
from moldau.broker.config.listeners import EVERY_INTERFACE, ListenerAddress, read_http_address
from moldau.broker.config.loading import checked_config
from moldau.broker.config.setting import Password
from moldau.broker.runtime.place import core_directory

CORES: Final = "moldau.cores"
SETTINGS_OF_FIRST_PROCESS: Final = ("moldau.http.listener", "moldau.console")
"""Settings that only the first process of a machine gets."""
SHARE_RACK: Final = "moldau.replicas.share.rack"
REPLICATION_FACTORS: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
PORT_MAX: Final = 65_535


@dataclass(frozen=True)
class Machine:
    """The broker processes of one machine. Processes are numbered from 1."""

    config: Config
    """The configuration of the first process, from the file, the environment and the command line."""
    name: str
    """The name of the machine. It is the rack of its brokers, unless broker.rack is set."""
    cores: tuple[int, ...]
    """The numbers of the processes that are started. Among them are those that will leave the cluster, because
    moldau.cores was lowered.
    """

    def node_id(self, core: int) -> int:
        """The node id of a process."""
        return self.config.node_id + core - 1

    def check(self) -> None:
        """Raise `CommandError` if several processes cannot run with this configuration."""
        config = self.config
        if not config.is_broker:
            raise CommandError(f"{CORES} is for a broker, and process.roles makes this node a controller alone")
        if any(each.port == 0 for each in config.listeners):
            raise CommandError(f"with {CORES} each listener needs a port: those of the processes follow it")
        if config.text_or_none("moldau.emulated.release"):
            raise CommandError(f"moldau.emulated.release is for a single node, and {CORES} runs several")
        voters = {each.node_id for each in config.controller_quorum_voters} - {config.node_id}
        taken = sorted(voters & {self.node_id(core) for core in self.cores})
        if taken:
            first, last = config.node_id, self.node_id(self.cores[-1])
            raise CommandError(
                f"the processes are the nodes {first} to {last}, and {taken[0]} is a voter of another machine: give"
                " the machines node ids that are further apart"
            )

    def warnings(self, cpus: int | None) -> Iterator[str]:
        """Warnings about the configuration for the operator. `cpus` is the number of CPU cores, or None if it is not
        known.
        """
        count = len(self.cores)
        if cpus is not None and count > cpus:
            yield f"{count} processes run on {cpus} cores: more processes than cores make nothing faster"
        config = self.config
        others = len(config.controller_quorum_voters) > 1 or len(config.controller_quorum_bootstrap_servers) > 1
        if not config.is_controller or others or self.shares_rack:
            return
        for name in REPLICATION_FACTORS:
            factor = config.integer(name)
            if factor > 1:
                yield (
                    f"{name} is {factor}, and one machine alone has one replica of each partition: such topics cannot"
                    f" be created before {factor} machines are there; {name}=1 is for one machine"
                )

    @property
    def shares_rack(self) -> bool:
        """Whether the operator has allowed several replicas of a partition in one rack."""
        return self.config.settings.is_set(SHARE_RACK) and self.config.flag(SHARE_RACK)

    def settings_of(self, core: int) -> dict[str, str]:
        """The properties of a process. Raises `CommandError`."""
        properties = {**self._common, **self._own(core)}
        if core > 1:
            properties = {name: text for name, text in properties.items() if name not in SETTINGS_OF_FIRST_PROCESS}
        return properties

    def checked_config(self, core: int) -> Config:
        """The validated configuration of a process. Raises `CommandError`."""
        try:
            return checked_config(self.settings_of(core))
        except ConfigError as refusal:
            what = f"the settings of process {core}, node {self.node_id(core)}, cannot be used"
            raise CommandError(what, *refusal.problems) from None

    @cached_property
    def _common(self) -> dict[str, str]:
        defaults = {"broker.rack": self.name, SHARE_RACK: "false"}
        return defaults | {name: text_of(value) for name, value in self.config.originals.items()}

    def _own(self, core: int) -> dict[str, str]:
        """The properties of a process that replace those of the first process."""
        config = self.config
        if core == 1:
            return {}
        own = {
            "node.id": str(self.node_id(core)),
            "process.roles": "broker",
            "listeners": ",".join(map(address_text, self._listeners(core))),
            "log.dirs": ",".join(core_directory(path, core) for path in config.log_dirs),
        }
        if config.is_controller and not config.controller_quorum_voters:
            own["controller.quorum.bootstrap.servers"] = ",".join(self._controllers())
        if "broker.id" in config.originals:
            own["broker.id"] = own["node.id"]
        if config.settings.is_set("advertised.listeners"):
            own["advertised.listeners"] = ",".join(map(address_text, self._advertised(core)))
        if config.settings.is_set("metadata.log.dir"):
            own["metadata.log.dir"] = core_directory(config.metadata_log_dir, core)
        audit = config.text_or_none("moldau.audit.log.file")
        if audit is not None:
            directory, slash, file = audit.rpartition("/")
            own["moldau.audit.log.file"] = f"{directory}{slash}core.{core}.{file}"
        return own

    def _controllers(self) -> tuple[str, ...]:
        """The bootstrap servers of the quorum for a process other than the first: the address of the first process,
        then those of the file. The file may name none if the first process is the whole quorum.
        """
        bound = self.config.controller_listeners[0]
        host = "127.0.0.1" if bound.host in EVERY_INTERFACE else bound.host
        own = f"{f'[{host}]' if ':' in host else host}:{bound.port}"
        return tuple(dict.fromkeys((own, *self.config.controller_quorum_bootstrap_servers)))

    # Ports

    def _listeners(self, core: int) -> Iterator[ListenerAddress]:
        for each in self.config.broker_listeners:
            yield replaced_port(each, self._ports[core][each.name])

    def _advertised(self, core: int) -> Iterator[ListenerAddress]:
        """The advertised listeners of a process. Their ports are shifted by as much as the ports on which the process
        listens, so that a range of ports may be forwarded.
        """
        first = {each.name: each.port for each in self.config.broker_listeners}
        for each in self.config.advertised_listeners:
            distance = self._ports[core][each.name] - first[each.name]
            yield replaced_port(each, each.port + distance)

    @cached_property
    def _ports(self) -> dict[int, dict[str, int]]:
        """The port of each listener of each process. A port does not depend on the number of processes."""
        config = self.config
        taken = {each.port for each in config.listeners}
        http = read_http_address(config.text_or_none("moldau.http.listener") or "")
        if http is not None:
            taken.add(http.port)
        last = {each.name: each.port for each in config.broker_listeners}
        found = {1: dict(last)}
        for core in range(2, self.cores[-1] + 1):
            for name in last:
                port = last[name] + 1
                while port in taken:
                    port += 1
                taken.add(port)
                last[name] = port
            found[core] = dict(last)
        return found


def replaced_port(listener: ListenerAddress, port: int) -> ListenerAddress:
    """The listener with another port. Raises `CommandError` if there is no such port."""
    if port > PORT_MAX:
        raise CommandError(f"listener {listener.name} would need port {port}: begin lower, or run fewer processes")
    return ListenerAddress(listener.name, listener.host, port, listener.security_protocol)


def address_text(listener: ListenerAddress) -> str:
    """A listener as the settings write it: NAME://host:port."""
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"


def text_of(value: str | Password) -> str:
    return value.reveal() if isinstance(value, Password) else value


class PropertyDifference(NamedTuple):
    """How the properties of a process differ from the configuration that the operator wrote: `given` has those that
    were added or changed, `left_out` the names of those that were removed.
    """

    given: Mapping[str, str]
    left_out: tuple[str, ...]


def property_difference(machine: Machine, core: int) -> PropertyDifference:
    """Compare the properties of a process with the configuration that the operator wrote."""
    written = {name: text_of(value) for name, value in machine.config.originals.items()}
    given = machine.settings_of(core)
    own = {name: text for name, text in given.items() if written.get(name) != text}
    return PropertyDifference(own, tuple(name for name in written if name not in given))
