"""`dataclass` for the modules that every start imports: the constructor of a class is compiled when it is first called.

The decorator of the standard library compiles up to six methods for each class in 0.3 to 2 ms, and most of them are
never called. The classes behave in the same way, and `dataclasses.fields`, `replace` and `asdict` accept them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

T = TypeVar("T")
_SET: Final = object.__setattr__


def late_dataclass(
    *, slots: bool, frozen: bool = False, eq: bool = True, repr: bool = True, kw_only: bool = False
) -> Callable[[type[T]], type[T]]:
    """`dataclasses.dataclass` with these arguments. `slots` must be true. A base class that is a dataclass must also be
    made by this decorator."""
    assert slots, "a class that the start imports has slots"

    def declare(cls: type[T]) -> type[T]:
        cls.__doc__ = cls.__doc__ or cls.__name__  # What the standard library writes instead takes 3 ms.
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)

        def first_init(self: object, *values: object, **named: object) -> None:
            made.__init__ = _constructor(made)
            made.__init__(self, *values, **named)

        methods: dict[str, object] = {"__init__": first_init}
        if repr:
            methods["__repr__"] = _shown
        if eq:
            methods |= _comparison(made, is_hashable=frozen)
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete, "__setstate__": _set_state}
        for name, method in methods.items():
            if made.__dict__.get(name) is None:
                setattr(made, name, method)
        result: type[T] = made
        return result

    return declare


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = late_dataclass


def _constructor(cls: type[Any]) -> object:
    """Compile the `__init__` method of a dataclass."""
    scope: dict[str, object] = {"_set": _SET, "_MISSING": dataclasses.MISSING}
    positional: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    is_frozen = cls.__dict__.get("__setattr__") is _refuse_to_set
    for field in dataclasses.fields(cls):
        name, made = field.name, f"_make_{field.name}()"
        default, value = "", name
        if field.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = field.default_factory
            default, value = "=_MISSING", f"{made} if {name} is _MISSING else {name}"
        elif field.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
        if field.init:
            (by_name if field.kw_only else positional).append(f"{name}{default}")
        elif default:
            value = made if default == "=_MISSING" else f"_default_{name}"
        else:
            continue
        body.append(f" _set(self, {name!r}, {value})\n" if is_frozen else f" self.{name} = {value}\n")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()\n")
    parameters = ["self", *positional, *(["*", *by_name] if by_name else [])]
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(body) or ' pass'}", scope)
    constructor: Any = scope["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    return constructor


def _comparison(cls: type[Any], *, is_hashable: bool) -> dict[str, object]:
    """Make `__eq__` and `__hash__` of a dataclass, which compare and hash the tuple of its compared fields."""
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    compared = attrgetter(*names)

    def equal(self: object, other: object) -> bool:
        return bool(compared(self) == compared(other)) if type(other) is type(self) else NotImplemented

    return {"__eq__": equal, "__hash__": (lambda self: hash(compared(self))) if is_hashable else None}


def _shown(self: Any) -> str:
    values = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _set_state(self: object, state: tuple[None, dict[str, object]]) -> None:
    """The `__setstate__` method of a frozen dataclass: set the slots of a new object, for copies and pickles."""
    for name, value in state[1].items():
        _SET(self, name, value)
