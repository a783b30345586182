"""A fault: what it does, to which requests or file operations, and how often. It is read from JSON of the control
interface.

    {"scope": {"api": "Produce", "topic": "orders"}, "when": {"times": 2}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}}

A request is in the scope if it meets every condition of the scope. `when` is the trigger, which selects requests of the
scope. `do` is the action, which the fault applies to the selected requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, Final, NamedTuple

from moldau.broker.faults.messages import InvalidFault, message_from_json
from moldau.protocol.errors import ErrorCode

Apis = Mapping[str, type[object]]
"""The response class of each API that the node serves, by the name of the API."""
DELAY_MS_MAX: Final = 3_600_000
DISK_OPERATIONS: Final = ("append", "read", "sync")
DISK_ERRORS: Final = ("EIO", "ENOSPC", "EROFS")


class FaultSubject(NamedTuple):
    """The properties of a request, or of a file operation, that scopes are compared with."""

    api: str = ""
    client_id: str = ""
    from_node: int = -1
    """The id of the node that sent the request; -1 if a client sent it."""
    listener: str = ""
    topics: Mapping[str, frozenset[int]] = {}
    """The partitions that the request names, by topic. A topic has none if the request names only the topic."""
    groups: frozenset[str] = frozenset()
    transactional_ids: frozenset[str] = frozenset()
    disk: str = ""
    """The file operation, one of DISK_OPERATIONS; empty for a request."""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """The conditions that select the requests, or the file operations, to which a fault may apply. A field that is None
    sets no condition.
    """

    api: str | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    client_id: str | None = None
    from_node: int | None = None
    """The id of the node that sent the request."""
    from_clients: bool | None = None
    """If True, only requests of clients are in the scope, not those of other nodes."""
    listener: str | None = None
    disk: str | None = None
    """A file operation, one of DISK_OPERATIONS. If it is given, the scope has only file operations; otherwise only
    requests.
    """
    path: str | None = None
    """A text that the path of the file must contain; None for any file."""

    @classmethod
    def read(cls, value: object, apis: Apis, where: str = "scope") -> Scope:
        """Read a scope from JSON. `where` names it in messages. Raises `InvalidFault`."""
        given = object_of(value, where)
        kinds = {each.name: each.type for each in fields(cls)}
        for name, one in given.items():
            if name not in kinds:
                raise InvalidFault(f"{where}.{name} is unknown: here are {', '.join(kinds)}")
            kind = {"str | None": str, "int | None": int, "bool | None": bool}[str(kinds[name])]
            if type(one) is not kind:
                raise InvalidFault(f"{where}.{name} is {one!r}, and must be of the type {kind.__name__}")
        scope = cls(**given)
        if scope.api is not None and scope.api not in apis:
            raise InvalidFault(f"{where}.api is {scope.api!r}: here are {', '.join(apis)}")
        if scope.partition is not None and scope.topic is None:
            raise InvalidFault(f"{where}.partition needs {where}.topic")
        if scope.disk is not None and scope.disk not in DISK_OPERATIONS:
            raise InvalidFault(f"{where}.disk is {scope.disk!r}: here are {', '.join(DISK_OPERATIONS)}")
        beside = set(given) - {"disk", "path"}
        if scope.disk is not None and beside:
            raise InvalidFault(f"{where}.disk is about files, and {where}.{min(beside)} about requests")
        if scope.path is not None and scope.disk is None:
            raise InvalidFault(f"{where}.path needs {where}.disk")
        return scope

    def has(self, subject: FaultSubject) -> bool:
        """Whether a request or a file operation is in the scope."""
        if self.disk is not None or subject.disk:
            return self.disk == subject.disk and (self.path is None or self.path in subject.path)
        return (
            (self.api is None or self.api == subject.api)
            and (self.client_id is None or self.client_id == subject.client_id)
            and (self.from_node is None or self.from_node == subject.from_node)
            and (not self.from_clients or subject.from_node < 0)
            and (self.listener is None or self.listener == subject.listener)
            and (self.group is None or self.group in subject.groups)
            and (self.transactional_id is None or self.transactional_id in subject.transactional_ids)
            and (self.topic is None or self._has_topic(subject))
        )

    def _has_topic(self, subject: FaultSubject) -> bool:
        partitions = subject.topics.get(self.topic or "")
        return partitions is not None and (self.partition is None or self.partition in partitions)

    @property
    def names_resource(self) -> bool:
        """Whether the scope names a topic, a group or a transactional id. Then it may contain some elements of a
        request and not others.
        """
        return not (self.topic is None and self.group is None and self.transactional_id is None)


@dataclass(frozen=True, slots=True)
class Trigger:
    """Selects the requests of the scope to which a fault is applied: all of them, if no field is set."""

    on_call: int | None = None
    """The fault is applied only to this request of the scope, counted from 1."""
    times: int | None = None
    """The number of requests to which the fault is applied before it ends."""
    probability: float = 1.0
    """The probability with which a request is selected. It is drawn from a random generator that begins with `seed`."""
    seed: int = 0

    @classmethod
    def read(cls, value: object) -> Trigger:
        """Read a trigger from JSON: {"once": true}, {"on_call": n}, {"times": n}, {"every_time": true} or
        {"probability": p, "seed": n}, which may be combined with `times`. Raises `InvalidFault`.
        """
        given = object_of(value, "when")
        known = ("once", "on_call", "times", "every_time", "probability", "seed")
        for name in given:
            if name not in known:
                raise InvalidFault(f"when.{name} is unknown: here are {', '.join(known)}")
        for name in ("on_call", "times"):
            one = given.get(name)
            if one is not None and (type(one) is not int or one < 1):
                raise InvalidFault(f"when.{name} is {one!r}, and must be a number from 1 on")
        counted = [name for name in ("once", "on_call", "times", "every_time") if given.get(name)]
        if len(counted) > 1:
            raise InvalidFault(f"when has {' and '.join(counted)}: one of them")
        probability, seed = given.get("probability", 1.0), given.get("seed", 0)
        if not isinstance(probability, (int, float)) or not 0 < probability <= 1:
            raise InvalidFault(f"when.probability is {probability!r}, and must be above 0 and at most 1")
        if type(seed) is not int:
            raise InvalidFault(f"when.seed is {seed!r}, and must be a number")
        times = 1 if given.get("once") else given.get("times")
        return cls(given.get("on_call"), times, float(probability), seed)


@dataclass(frozen=True, slots=True)
class Action:
    """The effect of a fault on a request or a file operation. Exactly one field is set; only `hold` may have `until`
    with it.
    """

    error: ErrorCode | None = None
    """The request is not carried out. Each of its elements that is in the scope is answered with this error."""
    answer: Mapping[str, object] | None = None
    """The request is not carried out. The response has these fields; other fields have their defaults."""
    delay_ms: int | None = None
    """The request is carried out, and its response is delayed by this time. A file operation takes this time longer."""
    lose_answer: bool = False
    """The request is carried out, and its connection is closed instead of the response."""
    cut_answer: bool = False
    """The request is carried out, and its connection is closed in the middle of the response."""
    reset: bool = False
    """The request is not carried out, and its connection is closed."""
    hold: bool = False
    """The request waits until the fault ends, or until a request in the scope `until` arrives. Then it is carried
    out.
    """
    until: Scope | None = None
    throttle_ms: int | None = None
    """The response has this throttle time, and the connection is not read for that time, as if a quota was exceeded."""
    disk_error: str | None = None
    """The file operation fails with this error, one of DISK_ERRORS."""

    @classmethod
    def read(cls, value: object, scope: Scope, apis: Apis) -> Action:
        """Read an action from JSON, for a fault with this scope. Raises `InvalidFault`."""
        given = dict(object_of(value, "do"))
        on_files = scope.disk is not None
        known = ["delay_ms", "error"] if on_files else [n for n in cls.__dataclass_fields__ if n != "disk_error"]
        for name in given:
            if name not in known:
                raise InvalidFault(f"do.{name} is unknown for this scope: here are {', '.join(known)}")
        chosen = [name for name in given if name != "until"]
        if len(chosen) != 1:
            raise InvalidFault(f"do has {len(chosen)} actions; it has one of {', '.join(known)}")
        (name,) = chosen
        one = given[name]
        if name in ("delay_ms", "throttle_ms"):
            if type(one) is not int or not 0 <= one <= DELAY_MS_MAX:
                raise InvalidFault(f"do.{name} is {one!r}, and must be a number from 0 to {DELAY_MS_MAX}")
            if scope.disk == "append":
                raise InvalidFault("an append ends in the page cache: scope.disk may be read or sync for a delay")
            return cls(delay_ms=one) if name == "delay_ms" else cls(throttle_ms=one)
        if name == "error":
            return cls._error(one, on_files=on_files)
        if name == "answer":
            if scope.api is None:
                raise InvalidFault("do.answer needs scope.api, whose response it is")
            message_from_json(apis[scope.api], one)
            return cls(answer=one)
        if one is not True:
            raise InvalidFault(f"do.{name} is {one!r}, and must be true")
        until = None if "until" not in given else Scope.read(given["until"], apis, "do.until")
        if until is not None and name != "hold":
            raise InvalidFault("do.until goes with do.hold")
        made: dict[str, Any] = {name: True}
        return cls(**made, until=until)

    @classmethod
    def _error(cls, name: object, *, on_files: bool) -> Action:
        if on_files:
            if name not in DISK_ERRORS:
                raise InvalidFault(f"do.error is {name!r}: for files here are {', '.join(DISK_ERRORS)}")
            return cls(disk_error=str(name))
        if not isinstance(name, str) or name not in ErrorCode.__members__ or name == "NONE":
            raise InvalidFault(f"do.error is {name!r}, and must be the name of an error of Kafka's protocol")
        return cls(error=ErrorCode[name])


@dataclass(slots=True, eq=False)
class Fault:
    """A fault in force, and the numbers of requests in its scope and of those to which it was applied."""

    id: int
    name: str
    scope: Scope
    trigger: Trigger
    action: Action
    source: Mapping[str, object]
    """The JSON that describes the fault."""
    calls: int = 0
    """The number of requests or file operations in the scope since the fault began."""
    met: int = 0
    """The number of requests or file operations to which the fault was applied."""
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(self.trigger.seed)

    @classmethod
    def read(cls, fault_id: int, value: object, apis: Apis) -> Fault:
        """Read a fault from JSON. Raises `InvalidFault`."""
        given = object_of(value, "the fault")
        known = ("name", "scope", "when", "do", "ends_after_ms")
        for name in given:
            if name not in known:
                raise InvalidFault(f"{name} is unknown: here are {', '.join(known)}")
        name = given.get("name", f"fault-{fault_id}")
        if not isinstance(name, str):
            raise InvalidFault(f"name is {name!r}, and must be a text")
        ends = given.get("ends_after_ms")
        if ends is not None and (type(ends) is not int or ends < 1):
            raise InvalidFault(f"ends_after_ms is {ends!r}, and must be a number from 1 on")
        if "do" not in given:
            raise InvalidFault("do is missing: what shall the fault do?")
        scope = Scope.read(given.get("scope", {}), apis)
        trigger = Trigger.read(given.get("when", {}))
        return cls(fault_id, name, scope, trigger, Action.read(given["do"], scope, apis), given)

    @property
    def is_used_up(self) -> bool:
        """Whether the fault will not be applied any more."""
        trigger = self.trigger
        if trigger.on_call is not None:
            return self.calls >= trigger.on_call
        return trigger.times is not None and self.met >= trigger.times

    def applies_to(self, subject: FaultSubject) -> bool:
        """Count a request or a file operation if it is in the scope. Returns whether the fault is applied to it."""
        if self.is_used_up or not self.scope.has(subject):
            return False
        self.calls += 1
        trigger = self.trigger
        if trigger.on_call is not None and self.calls != trigger.on_call:
            return False
        if trigger.probability < 1 and self._random.random() >= trigger.probability:
            return False
        self.met += 1
        return True

    def as_json(self) -> dict[str, object]:
        """The fault as JSON of the control interface."""
        return {"id": self.id, "name": self.name, **self.source, "calls": self.calls, "met": self.met}


def object_of(value: object, where: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object, otherwise raise `InvalidFault`. `where` names it in the message."""
    if not isinstance(value, dict):
        raise InvalidFault(f"{where} is {value!r}, and must be an object")
    return value
