"""A late dataclass does what one of the standard library does, and compiles nothing before its first object."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, Final

import pytest

from moldau.protocol.late_dataclass import late_dataclass

Decorator = Callable[..., Callable[[type[Any]], type[Any]]]


def plain(decorator: Decorator) -> type[Any]:
    @decorator(slots=True, frozen=True)
    class Sample:
        """Its text."""

        LIMIT: ClassVar[int] = 7
        first: int
        second: str = "two"
        third: list[int] = field(default_factory=list, compare=False)
        fourth: int = field(default=4, repr=False)

    return Sample


def by_name(decorator: Decorator) -> type[Any]:
    @decorator(slots=True, frozen=True, kw_only=True)
    class Sample:
        first: int
        second: str = "two"

    return Sample


def mixed(decorator: Decorator) -> type[Any]:
    @decorator(slots=True, frozen=True)
    class Sample:
        third: int = field(default=3, kw_only=True)
        first: int
        second: str = "two"

    return Sample


def mutable(decorator: Decorator) -> type[Any]:
    @decorator(slots=True)
    class Sample:
        first: int
        second: list[int] = field(default_factory=list)
        made: list[int] = field(default_factory=list, init=False)
        fixed: int = field(default=9, init=False)

    return Sample


def without_comparison(decorator: Decorator) -> type[Any]:
    @decorator(slots=True, frozen=True, eq=False, repr=False)
    class Sample:
        first: int
        second: str = "two"

    return Sample


def with_own_methods(decorator: Decorator) -> type[Any]:
    @decorator(slots=True, frozen=True)
    class Sample:
        first: int
        second: str = "two"

        def __post_init__(self) -> None:
            assert self.first != 0, "no zero"

        def __repr__(self) -> str:
            return "its own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    return Sample


def of_a_base(decorator: Decorator) -> type[Any]:
    @decorator(slots=True, frozen=True)
    class Base:
        first: int

    @decorator(slots=True, frozen=True)
    class Sample(Base):
        second: str = "two"

    return Sample


SHAPES: Final = (plain, by_name, mixed, mutable, without_comparison, with_own_methods, of_a_base)
CALLS: Final[tuple[tuple[tuple[Any, ...], dict[str, Any]], ...]] = (
    ((1,), {}),
    ((1, "x"), {}),
    ((1, [3]), {}),
    ((), {"first": 1}),
    ((), {"first": 1, "second": "x"}),
    ((), {"first": 1, "second": "x", "third": 5}),
    ((1, "x", [5], 6), {}),
    ((0,), {}),
    ((), {}),
    ((1, 2, 3, 4, 5), {}),
    ((1,), {"first": 2}),
    ((1,), {"unknown": 2}),
)
OTHER: Final = object()


def outcome(does: Callable[[], object]) -> object:
    try:
        return does()
    except Exception as error:
        return type(error), str(error)


def facts(cls: type[Any], values: tuple[Any, ...], named: dict[str, Any]) -> dict[str, object]:
    """What can be seen of an object of a class, or the error of its constructor."""
    try:
        made, twin, other = cls(*values, **named), cls(*values, **named), cls(first=9)
    except (TypeError, AssertionError) as error:
        return {"error": (type(error), str(error))}
    seen = {each.name: getattr(made, each.name) for each in dataclasses.fields(made)}
    compares, shows = (cls.__dict__.get(name) is not None for name in ("__eq__", "__repr__"))
    return {
        "values": seen,
        "repr": repr(made) if shows else None,
        "equal": (made == twin, made == other, made == seen, made != twin),
        "hash": outcome(lambda: hash(made) == hash(twin)),
        "hash value": outcome(lambda: hash(made)) if compares else None,
        "replaced": outcome(lambda: repr(dataclasses.replace(made, first=8)) if compares else None),
        "as a dict": dataclasses.asdict(made),
        "copied": [getattr(copy.copy(made), name) for name in seen],
        "set": outcome(lambda: setattr(made, "first", 5)),
        "deleted": outcome(lambda: delattr(twin, "first")),
        "shared": made.third is twin.third if "third" in seen and isinstance(made.third, list) else None,
        "matched": cls.__match_args__,
        "text": cls.__doc__ if cls.__doc__ == "Its text." else None,
        "slots": not hasattr(made, "__dict__"),
    }


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_class_is_one_of_the_standard_library(shape: Callable[[Decorator], type[Any]]) -> None:
    ours, standard = shape(late_dataclass), shape(dataclasses.dataclass)
    errors = 0
    for values, named in CALLS:
        expected = facts(standard, values, named)
        assert facts(ours, values, named) == expected, (values, named)
        errors += "error" in expected
    assert 0 < errors < len(CALLS)


@late_dataclass(slots=True, frozen=True)
class Sent:
    """Pickles find a class by its name."""

    first: int = dataclasses.field()
    second: str = dataclasses.field(default="two")


def test_an_object_goes_to_another_process() -> None:
    sent: Any = Sent
    assert pickle.loads(pickle.dumps(sent(1))) == sent(1)


def test_the_constructor_is_compiled_at_the_first_object() -> None:
    made = plain(late_dataclass)
    before = made.__init__
    assert before.__code__.co_name == "first_init"
    made(1)
    assert made.__init__ is not before and made.__init__.__code__.co_varnames[:2] == ("self", "first")
