"""A fault: what it does, to which requests or files, how often. It is read from the JSON of the control interface.

    {"scope": {"api": "Produce", "topic": "orders"}, "when": {"times": 2}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}}

A request is in the scope if everything holds that the scope names. `when` is a trigger: which of the requests in the
scope the fault meets. `do` is an action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, Final, NamedTuple

from moldau.broker.faults.messages import InvalidFault, message_from_json
from moldau.protocol.errors import ErrorCode

Apis = Mapping[str, type[object]]
"""The classes of the responses by the names of the APIs."""
DELAY_MS_MAX: Final = 3_600_000
DISK_OPERATIONS: Final = ("append", "read", "sync")
DISK_ERRORS: Final = ("EIO", "ENOSPC", "EROFS")


class Subject(NamedTuple):
    """What a request, or an operation on a file, is about, as far as scopes ask for it."""

    api: str = ""
    client_id: str = ""
    from_node: int = -1
    """The node that sent the request; -1 for a client."""
    listener: str = ""
    topics: Mapping[str, frozenset[int]] = {}
    """The topics that the request names, each with its partitions; a topic has none if only its name is there."""
    groups: frozenset[str] = frozenset()
    transactional_ids: frozenset[str] = frozenset()
    disk: str = ""
    """The operation on a file, one of DISK_OPERATIONS."""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """The requests, or operations on files, that a fault may meet. A field that is None restricts nothing."""

    api: str | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    client_id: str | None = None
    from_node: int | None = None
    """The node that sent the request; 0 and above."""
    from_clients: bool | None = None
    """If True, only requests of clients are in the scope, not those of nodes."""
    listener: str | None = None
    disk: str | None = None
    """An operation on files, one of DISK_OPERATIONS; a scope with it is about files, and about no request."""
    path: str | None = None
    """A text that the path of the file contains; None for any file."""

    @classmethod
    def read(cls, value: object, apis: Apis, where: str = "scope") -> Scope:
        """Read a scope from JSON. Raises `InvalidFault`."""
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

    def has(self, subject: Subject) -> bool:
        """Whether the subject is in the scope."""
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

    def _has_topic(self, subject: Subject) -> bool:
        partitions = subject.topics.get(self.topic or "")
        return partitions is not None and (self.partition is None or self.partition in partitions)

    @property
    def names_resource(self) -> bool:
        """Whether the scope names a topic, a group or a transactional id, so that it may name only a part of a
        request.
        """
        return not (self.topic is None and self.group is None and self.transactional_id is None)


@dataclass(frozen=True, slots=True)
class Trigger:
    """Selects the requests in the scope that a fault meets. Without `on_call` and `times` it meets every request."""

    on_call: int | None = None
    """The only request of the scope that the fault meets, counted from 1."""
    times: int | None = None
    """The number of requests that the fault meets; then it ends."""
    probability: float = 1.0
    """The probability that the fault meets a request, drawn from a random generator of the fault with `seed`."""
    seed: int = 0

    @classmethod
    def read(cls, value: object) -> Trigger:
        """Read a trigger from JSON: {"once": true}, {"on_call": n}, {"times": n}, {"every_time": true} or
        {"probability": p, "seed": n}, the last one beside `times` too. Raises `InvalidFault`.
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
    """What a fault does. One field is set, and `until` only together with `hold`."""

    error: ErrorCode | None = None
    """The request has no effect; each element of it that is in the scope is answered with this error."""
    answer: Mapping[str, object] | None = None
    """The request has no effect, and this is the whole answer: the fields of the response that are not at their
    defaults.
    """
    delay_ms: int | None = None
    """The answer is delayed; the request has its effect at once. An operation on a file takes longer."""
    lose_answer: bool = False
    """The request has its effect, and its connection ends in place of the answer."""
    cut_answer: bool = False
    """The request has its effect, and its connection ends in the middle of the answer."""
    reset: bool = False
    """The connection ends, and the request has no effect."""
    hold: bool = False
    """The request waits until the fault has ended, or a request of the scope `until` has come; then it is handled."""
    until: Scope | None = None
    throttle_ms: int | None = None
    """The answer names this throttle time, and the connection is not read for so long, as by a quota."""
    disk_error: str | None = None
    """The operation on a file fails: one of DISK_ERRORS."""

    @classmethod
    def read(cls, value: object, scope: Scope, apis: Apis) -> Action:
        """Read an action from JSON. Raises `InvalidFault`."""
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
    """A fault in force, with what it has met."""

    id: int
    name: str
    scope: Scope
    trigger: Trigger
    action: Action
    source: Mapping[str, object]
    """The JSON that described it."""
    calls: int = 0
    """The number of requests that were in the scope of the fault."""
    met: int = 0
    """The number of requests that the fault acted on."""
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
        """Whether the fault acts on nothing more."""
        trigger = self.trigger
        if trigger.on_call is not None:
            return self.calls >= trigger.on_call
        return trigger.times is not None and self.met >= trigger.times

    def meets(self, subject: Subject) -> bool:
        """Count a request or an operation that is in the scope, and return whether the fault acts on it."""
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
        """The fault as the control interface shows it."""
        return {"id": self.id, "name": self.name, **self.source, "calls": self.calls, "met": self.met}


def object_of(value: object, where: str) -> dict[str, Any]:
    """Return a value that has to be a JSON object. Raises `InvalidFault` if it is none."""
    if not isinstance(value, dict):
        raise InvalidFault(f"{where} is {value!r}, and must be an object")
    return value
