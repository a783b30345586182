"""The declaration of messages: one class for all versions of a message, with a typed annotation for each field.

    @struct
    class PartitionProduceData:
        index: Int32
        records: Annotated[Records | None, nullable()] = None

    @message(key=0, versions="3-13", flexible="9+")
    class ProduceRequest:
        transactional_id: Annotated[str | None, since(3), nullable(3)] = None
        acks: Int16
        timeout_ms: Int32
        topic_data: list[TopicProduceData] = empty()

Fields stand in wire order under Kafka's names in snake_case. A field without a default must be given when a message is
built; if a version lacks a field, decoding yields its default (or the zero of its type) and encoding leaves it out.
A class costs next to nothing at import: annotations are read, and `__init__` and codecs compiled, on first use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Annotated, Final, TypeAlias, TypeVar, Union, cast, dataclass_transform, get_args, get_origin

from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import BytesLike, FileRegion

T = TypeVar("T")

VERSION_MAX: Final = 0x7FFF


class WireType(Enum):
    """The primitive types of fields. The value is the `struct` format of the type, or a name if its length varies."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    UINT32 = "I"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "str"
    BYTES = "bytes"
    RECORDS = "records"

    @property
    def is_fixed(self) -> bool:
        return self not in (WireType.STRING, WireType.BYTES, WireType.RECORDS)


Int8: TypeAlias = Annotated[int, WireType.INT8]
Int16: TypeAlias = Annotated[int, WireType.INT16]
UInt16: TypeAlias = Annotated[int, WireType.UINT16]
Int32: TypeAlias = Annotated[int, WireType.INT32]
UInt32: TypeAlias = Annotated[int, WireType.UINT32]
Int64: TypeAlias = Annotated[int, WireType.INT64]
Float64: TypeAlias = Annotated[float, WireType.FLOAT64]
Uuid: TypeAlias = Annotated[bytes, WireType.UUID]
Bytes: TypeAlias = Annotated[bytes, WireType.BYTES]
"""Bytes that are copied from the receive buffer, so that a handler may keep them."""
Records: TypeAlias = Annotated[BytesLike, WireType.RECORDS]
"""Record batches as a view of the receive buffer, which is valid until the handler returns."""
FetchedRecords: TypeAlias = Annotated[BytesLike | FileRegion, WireType.RECORDS]
"""Record batches in a response: bytes, or a part of a file that the connection sends without reading it."""

ZERO_UUID: Final = bytes(16)


class Range(NamedTuple):
    """An inclusive range of versions."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str) -> Range:
        """Parse a range in Kafka's notation: "3-13", "9+", "0" or "none"."""
        if text == "none":
            return NEVER
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_MAX)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


NEVER: Final = Range(0, -1)


class FieldAttributes(NamedTuple):
    """The attributes of a field that its annotation declares; an attribute that is not declared is None."""

    first_version: int | None = None
    last_version: int | None = None
    nullable: Range | None = None
    tag: int | None = None


def since(version: int) -> FieldAttributes:
    """Declare that a field exists from this version on."""
    return FieldAttributes(first_version=version)


def until(version: int) -> FieldAttributes:
    """Declare that a field exists up to and including this version."""
    return FieldAttributes(last_version=version)


def nullable(since: int = 0, until: int = VERSION_MAX) -> FieldAttributes:
    """Declare that a field may be None in these versions."""
    return FieldAttributes(nullable=Range(since, until))


def tag(number: int) -> FieldAttributes:
    """Declare that a field is in the tagged section, with this tag.

    A tagged struct is left out if all of its fields have their defaults. Decoding then yields None; if the field is
    nullable, it yields a struct of defaults, because None means null.
    """
    return FieldAttributes(tag=number)


class _Empty(list[object]):
    """The type of the marker for a list field whose default is a new empty list."""


EMPTY: Final = _Empty()


def empty() -> list[T]:
    """The default of a list field: a new empty list for each message."""
    return cast("list[T]", EMPTY)


class Field(NamedTuple):
    """The declaration of one field of a struct, for all versions."""

    name: str
    kind: WireType | type[object]
    is_array: bool
    versions: Range
    nullable: Range
    tag: int | None
    default: object

    @property
    def struct(self) -> type[object] | None:
        """The class of a struct field, or of the elements of an array of structs; None for a primitive type."""
        return None if isinstance(self.kind, WireType) else self.kind

    @property
    def is_packed(self) -> bool:
        """Whether all items of an array can be packed by one `struct` format."""
        return isinstance(self.kind, WireType) and self.kind.is_fixed and self.kind is not WireType.UUID


class Spec(NamedTuple):
    """The declaration of a message or a record: the arguments of `@message`."""

    key: int | None
    versions: Range
    flexible: Range
    has_flexible_header: bool = True
    """Whether the header has a tagged section in flexible versions of the message."""


_ZEROS: Final[dict[WireType, object]] = {
    WireType.BOOL: False,
    WireType.FLOAT64: 0.0,
    WireType.UUID: ZERO_UUID,
    WireType.STRING: "",
    WireType.BYTES: b"",
    WireType.RECORDS: None,
}
_NO_DEFAULT: Final = object()


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Declare a struct: a part of a message that is not a message itself."""
    return _declare(cls, None)


@dataclass_transform(kw_only_default=True)
def message(
    *, versions: str, flexible: str, key: int | None = None, has_flexible_header: bool = True
) -> Callable[[type[T]], type[T]]:
    """Declare a message or a record, with its API key or record type, its versions, and the versions that are
    flexible."""
    spec = Spec(key, Range.parse(versions), Range.parse(flexible), has_flexible_header)
    return lambda cls: _declare(cls, spec)


def spec_of(cls: type[object]) -> Spec:
    """The declaration of a message class."""
    spec: Spec | None = cls.__dict__.get("__spec__")
    assert spec is not None, f"{cls.__name__} is a struct, not a message"
    return spec


def header_flexible_from(cls: type[object]) -> int:
    """The first version of a message whose header ends with a tagged section; `VERSION_MAX` if there is none."""
    spec = spec_of(cls)
    return spec.flexible.first if spec.has_flexible_header and spec.flexible != NEVER else VERSION_MAX


def key_of(request_class: type[object]) -> int:
    """The API key of a request class."""
    key = spec_of(request_class).key
    assert key is not None, f"{request_class.__name__} is declared without an API key"
    return key


def response_class_of(request_class: type[object]) -> type[object]:
    """The response class of a request class (`FetchRequest` → `FetchResponse`), in the same module."""
    name = request_class.__name__.removesuffix("Request") + "Response"
    found: type[object] = getattr(sys.modules[request_class.__module__], name)
    return found


def fields_of(cls: type[object]) -> tuple[Field, ...]:
    """The fields of a struct or message class, in wire order."""
    known: tuple[Field, ...] | None = cls.__dict__.get("__fields__")
    if known is None:
        annotations: dict[str, str] = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 - inspect is slow to import
        # All in one call, because `typing.get_type_hints` takes four times as long.
        hints = eval(f"[{', '.join(annotations.values())}]", sys.modules[cls.__module__].__dict__)
        known = tuple(map(partial(_field, cls), annotations, hints))
        cls.__fields__ = known  # type: ignore[attr-defined]
    return known


def fields_in(cls: type[object], version: int) -> tuple[list[Field], list[Field], list[Field]]:
    """The fields of a class in a version, as three lists: untagged fields in wire order, tagged fields in the order of
    their tags, and fields that the version lacks."""
    here = [field for field in fields_of(cls) if version in field.versions]
    absent = [field for field in fields_of(cls) if version not in field.versions]
    tagged = sorted((field for field in here if field.tag is not None), key=lambda field: field.tag or 0)
    return [field for field in here if field.tag is None], tagged, absent


def struct_of(cls: type[object], name: str) -> type[object]:
    """The class of the elements of the list field `name`."""
    found = next(each for each in fields_of(cls) if each.name == name).struct
    assert found is not None, f"{name} is not a list of structs"
    return found


def default_struct(cls: type[T]) -> T:
    """Make a struct in which every field has its default; a field that is a struct is None."""
    result = cls.__new__(cls)
    for field in fields_of(cls):
        setattr(result, field.name, [] if field.default is EMPTY else field.default)
    return result


def _declare(cls: type[T], spec: Spec | None) -> type[T]:
    names = tuple(cls.__dict__.get("__annotations__", ()))  # noqa: RUF063 - inspect is slow to import
    namespace = {key: value for key, value in cls.__dict__.items() if key not in ("__dict__", "__weakref__")}
    defaults = {name: namespace.pop(name, _NO_DEFAULT) for name in names}
    namespace.update(
        __slots__=names,
        __defaults_by_name__=defaults,
        __spec__=spec,
        __init__=_first_init,
        __eq__=_first_equal,
        __hash__=None,
        __repr__=_repr,
    )
    return cast("type[T]", type(cls.__name__, (), namespace))


def _field(cls: type[object], name: str, hint: object) -> Field:
    mark = FieldAttributes()
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        for each in marks:
            if isinstance(each, WireType):
                hint = Annotated[hint, each]
            else:
                mark = mark._replace(**{name: said for name, said in each._asdict().items() if said is not None})
    hint = _without_none(hint)
    is_array = get_origin(hint) is list
    if is_array:
        (hint,) = get_args(hint)
    kind = _wire(hint)
    default = cls.__dict__["__defaults_by_name__"][name]
    if default is _NO_DEFAULT:
        default = EMPTY if is_array else _ZEROS.get(kind, 0) if isinstance(kind, WireType) else None
    versions = Range(mark.first_version or 0, VERSION_MAX if mark.last_version is None else mark.last_version)
    return Field(name, kind, is_array, versions, mark.nullable or NEVER, mark.tag, default)


def _without_none(hint: object) -> object:
    """`X` of `X | None`; a union without None (such as `BytesLike`) is returned unchanged."""
    members = get_args(hint)
    if type(None) not in members or get_origin(hint) is Annotated:
        return hint
    rest = tuple(member for member in members if member is not type(None))
    return rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007 - built at run time


def _wire(hint: object) -> WireType | type[object]:
    if get_origin(hint) is Annotated:
        return next(mark for mark in get_args(hint)[1:] if isinstance(mark, WireType))
    if hint is bool:
        return WireType.BOOL
    if hint is str:
        return WireType.STRING
    assert isinstance(hint, type) and "__defaults_by_name__" in hint.__dict__, f"{hint!r} is not a wire type"
    return hint


def _first_init(self: object, **values: object) -> None:
    """The first `__init__` of a class: compile the constructor, replace this function by it, and call it. A decoder
    makes objects without a constructor."""
    cls = type(self)
    names = _names(self)
    defaults = cls.__dict__["__defaults_by_name__"]
    scope: dict[str, object] = {"EMPTY": EMPTY, **{f"_{name}": defaults[name] for name in names}}
    parameters = [name if defaults[name] is _NO_DEFAULT else f"{name}=_{name}" for name in names]
    body = [
        f" self.{name} = [] if {name} is EMPTY else {name}\n" if defaults[name] is EMPTY else f" self.{name} = {name}\n"
        for name in names
    ]
    star = "*, " if names else ""
    exec(f"def __init__(self, {star}{', '.join(parameters)}):\n{''.join(body) or ' pass'}", scope)
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"  # type: ignore[attr-defined]
    cls.__init__ = init  # type: ignore[assignment]
    cls.__init__(self, **values)


def _first_equal(self: object, other: object) -> bool:
    """The first `__eq__` of a class: compile the comparison, replace this function by it, and call it."""
    cls = type(self)
    same = " and ".join(["type(self) is type(other)", *(f"self.{name} == other.{name}" for name in _names(self))])
    scope: dict[str, object] = {}
    exec(f"def __eq__(self, other):\n return {same}", scope)
    cls.__eq__ = scope["__eq__"]  # type: ignore[assignment]
    return bool(cls.__eq__(self, other))


def _repr(self: object) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name, None)!r}' for name in _names(self))})"


def _names(value: object) -> tuple[str, ...]:
    return cast("tuple[str, ...]", type(value).__dict__["__slots__"])
