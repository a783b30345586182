"""`NamedTuple` for the modules that every start imports: the constructor of a class is compiled when it is first
called.

The class of the standard library compiles one function for each class and one expression for each field, which takes
0.14 ms and 4 KB for each class. The classes made here behave in the same way, except that a class without a docstring
has none.
"""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]  # descriptors of fields, in C
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any


class _Named(tuple[Any, ...]):
    """The base class of all named tuples of this module. A subclass has `_fields` and `_field_defaults`."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    _field_defaults: dict[str, object] = {}  # noqa: RUF012 - as in the standard library

    @classmethod
    def _make(cls, values: Iterable[object]) -> _Named:
        """Make an object with these values. Raises TypeError if there are too few or too many."""
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, /, **changed: object) -> _Named:
        """Make a copy with some values changed. Raises TypeError for a name that is not a field, as Python does from
        3.13 on."""
        made = self._make(map(changed.pop, self._fields, self))
        if changed:
            raise TypeError(f"Got unexpected field names: {list(changed)!r}")
        return made

    __replace__ = _replace

    def _asdict(self) -> dict[str, object]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        values = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({', '.join(values)})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class _Declaring(type):
    """The metaclass of `NamedTuple`: it makes a named tuple class of a class statement with `NamedTuple` as its
    base."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(mcs, name, bases, namespace)
        names = tuple(namespace.get("__annotations__", ()))
        defaults = {each: namespace.pop(each) for each in names if each in namespace}

        def first_new(cls: type, *values: object, **named: object) -> object:
            made.__new__ = staticmethod(_constructor(name, names, defaults))
            return made.__new__(cls, *values, **named)

        fields = {each: _tuplegetter(at, f"Alias for field number {at}") for at, each in enumerate(names)}
        namespace |= {"__slots__": (), "_fields": names, "_field_defaults": defaults, "__match_args__": names}
        namespace |= fields | {"__new__": first_new}
        made: Any = type(name, (_Named, *bases[1:]), namespace)
        return made


def _constructor(name: str, names: tuple[str, ...], defaults: dict[str, object]) -> Any:
    """Compile the `__new__` method of a named tuple class."""
    parameters = ", ".join(f"{each}=_default_{each}" if each in defaults else each for each in names)
    scope = {"_new": tuple.__new__, **{f"_default_{each}": value for each, value in defaults.items()}}
    made = eval(f"lambda _cls, {parameters}: _new(_cls, ({''.join(f'{each}, ' for each in names)}))", scope)
    made.__name__, made.__qualname__ = "__new__", f"{name}.__new__"
    return made


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    NamedTuple = _Declaring("NamedTuple", (), {})
