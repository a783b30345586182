"""A late named tuple does what one of the standard library does, and compiles nothing before its first object."""

from __future__ import annotations

import copy
import pickle
import typing
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

import pytest

from moldau.protocol import late_tuple

T = TypeVar("T")
Late: Any = late_tuple.NamedTuple
Standard: Any = typing.NamedTuple


def plain(base: Any) -> Any:
    class Sample(base):  # type: ignore[misc]
        """Its text."""

        first: int
        second: str = "two"
        third: tuple[int, ...] = ()

        LIMIT = 7

        @property
        def both(self) -> str:
            return f"{self.first}{self.second}"

        def more(self) -> Any:
            return self._replace(first=self.first + 1)

    return Sample


def generic(base: Any) -> Any:
    class Sample(base, Generic[T]):  # type: ignore[misc]
        first: T
        second: str = "two"

    return Sample


def without_defaults(base: Any) -> Any:
    class Sample(base):  # type: ignore[misc]
        first: int
        second: str

    return Sample


def with_own_methods(base: Any) -> Any:
    class Sample(base):  # type: ignore[misc]
        first: int
        second: str = "two"

        def __repr__(self) -> str:
            return f"its own {self.second}"

        def __str__(self) -> str:
            return "as a text"

        def __contains__(self, value: object) -> bool:
            return value == 5

    return Sample


def of_a_subclass(base: Any) -> Any:
    class Sample(plain(base)):  # type: ignore[misc]
        __slots__ = ()

        def more(self) -> Any:
            return self._replace(second="more")

    return Sample


SHAPES: Final = (plain, generic, without_defaults, with_own_methods, of_a_subclass)
CALLS: Final[tuple[tuple[tuple[Any, ...], dict[str, Any]], ...]] = (
    ((1,), {}),
    ((1, "x"), {}),
    ((), {"first": 1, "second": "x"}),
    ((1, "x", (5,)), {}),
    ((), {}),
    ((1, 2, 3, 4), {}),
    ((1,), {"first": 2}),
    ((1,), {"unknown": 2}),
)


def outcome(does: Callable[[], object]) -> object:
    try:
        return does()
    except Exception as error:
        return type(error), str(error)


def replaced(made: Any, name: str) -> str:
    return repr(made._replace(**{name: 3}))


def remade(made: Any, count: int) -> str:
    return repr(made._make(tuple(made)[:count]))


def facts(cls: Any, values: tuple[Any, ...], named: dict[str, Any]) -> dict[str, object]:
    """What can be seen of an object of a class, or the error of its constructor."""
    try:
        made = cls(*values, **named)
    except TypeError as error:
        return {"error": str(error)}
    return {
        "values": tuple(made),
        "names": (cls._fields, cls._field_defaults, cls.__match_args__, made._asdict()),
        "texts": (repr(made), str(made), f"{made}"),
        "comparisons": (made == tuple(made), made == cls(*tuple(made)), hash(made) == hash(tuple(made)), made < (2,)),
        "contains": 5 in made,
        "replaced": [outcome(partial(replaced, made, name)) for name in ("first", "second")],
        "not replaced": outcome(partial(replaced, made, "unknown"))[1],  # type: ignore[index]
        "made": [outcome(partial(remade, made, count)) for count in range(4)],
        "own": outcome(lambda: (repr(made.more()), made.both, cls.LIMIT)) if hasattr(cls, "more") else None,
        "copied": (repr(copy.copy(made)), type(copy.deepcopy(made)) is cls),
        "set": outcome(lambda: setattr(made, "first", 5))[0],  # type: ignore[index]
        "another": outcome(lambda: setattr(made, "another", 5))[0],  # type: ignore[index]
        "kinds": (isinstance(made, tuple), cls.__doc__ == "Its text.", hasattr(made, "__dict__")),
    }


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_class_is_one_of_the_standard_library(shape: Callable[[Any], Any]) -> None:
    ours, standard = shape(Late), shape(Standard)
    errors = 0
    for values, named in CALLS:
        expected = facts(standard, values, named)
        assert facts(ours, values, named) == expected, (values, named)
        errors += "error" in expected
    assert 0 < errors < len(CALLS)


class Sent(Late):  # type: ignore[misc]
    """Pickles find a class by its name."""

    first: int
    second: str = "two"


def test_an_object_goes_to_another_process() -> None:
    sent = pickle.loads(pickle.dumps(Sent(1)))
    assert sent == Sent(1) and type(sent) is Sent


def test_the_constructor_is_compiled_at_the_first_object() -> None:
    made = plain(Late)
    assert made.__new__.__code__.co_name == "first_new"
    made(1)
    assert made.__new__.__code__.co_varnames == ("_cls", "first", "second", "third")
