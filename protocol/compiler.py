"""Compiles a declared message into straight-line Python: one decoder and one encoder for each version, on first use.

Runs of fixed-width fields, together with the length that follows them, become one `struct` call; nested structs and
arrays become nested loops of the same function. The source is registered in `linecache`, so tracebacks show it.

A decoder takes `(buffer, position)` and returns `(message, position after it)`; it raises only `MalformedMessage`, and
allocates nothing on the word of a length before that length was held against what remains. An encoder takes
`(message, chunks)` and appends pieces of bytes; `records` are appended as they are, never copied.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from typing import Final, TypeVar, cast

from protocol.primitives import SMALL_UVARINTS, BytesLike, Chunk, MalformedMessage, read_uvarint, uvarint
from protocol.schema import EMPTY, NEVER, Field, Wire, fields_of, spec_of

T = TypeVar("T")

Decoder = Callable[[BytesLike, int], tuple[T, int]]
Encoder = Callable[[T, list[Chunk]], None]

_decoders: Final[dict[tuple[type[object], int], Decoder[object]]] = {}
_encoders: Final[dict[tuple[type[object], int], Encoder[object]]] = {}


def decoder_of(cls: type[T], version: int) -> Decoder[T]:
    """The compiled decoder of a message class in a version."""
    known = _decoders.get((cls, version))
    if known is None:
        known = _decoders[cls, version] = cast("Decoder[object]", _DecoderSource(cls, version).compile())
    return cast("Decoder[T]", known)


def encoder_of(cls: type[T], version: int) -> Encoder[T]:
    """The compiled encoder of a message class in a version."""
    known = _encoders.get((cls, version))
    if known is None:
        known = _encoders[cls, version] = cast("Encoder[object]", _EncoderSource(cls, version).compile())
    return cast("Encoder[T]", known)


def decode(cls: type[T], buffer: BytesLike, version: int) -> T:
    """Decode a message that fills the buffer; bytes left over are malformed."""
    result, position = decoder_of(cls, version)(buffer, 0)
    if position != len(buffer):
        raise MalformedMessage(f"{len(buffer) - position} bytes left over after {cls.__name__}")
    return result


def encode(message: object, version: int) -> bytes:
    """Encode a message into one piece of bytes (not for messages with file regions)."""
    chunks: list[Chunk] = []
    encoder_of(type(message), version)(message, chunks)
    return b"".join(cast("list[BytesLike]", chunks))


def malformed(reason: object) -> MalformedMessage:
    return MalformedMessage(str(reason))


class _Source:
    """The text of one function under construction, and the names it refers to."""

    kind = ""

    def __init__(self, cls: type[object], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = version in spec_of(cls).flexible
        assert version in spec_of(cls).versions, f"{cls.__name__} has no version {version}"
        self.lines: list[str] = []
        self.indent = 1
        self.counter = 0
        self.scope: dict[str, object] = {"read_uvarint": read_uvarint, "uvarint": uvarint, "SMALL": SMALL_UVARINTS}
        self.run: list[tuple[str, str]] = []
        """Fixed-width items (format, target or expression) not yet written as a struct call."""

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def packer(self, formats: str) -> tuple[str, int]:
        """The name of a Struct in the function's scope, and its size."""
        packer = struct.Struct(">" + formats)
        name = "S_" + formats.replace("?", "_")
        self.scope[name] = packer.unpack_from if self.kind == "decode" else packer.pack
        return name, packer.size

    def here(self, field: Field) -> bool:
        return self.version in field.versions

    def parts(self, cls: type[object]) -> tuple[list[Field], list[Field], list[Field]]:
        """(plain fields, tagged fields by tag, fields absent from this version)."""
        fields = fields_of(cls)
        plain = [field for field in fields if self.here(field) and field.tag is None]
        tagged = [field for field in fields if self.here(field) and field.tag is not None]
        absent = [field for field in fields if not self.here(field)]
        return plain, sorted(tagged, key=lambda field: field.tag or 0), absent

    def finish(self, header: str, tail: str = "") -> object:
        name = f"{self.kind}_{self.cls.__name__}_v{self.version}"
        text = f"def {name}{header}\n" + "\n".join(self.lines) + "\n" + tail
        filename = f"<moldau {name}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.scope)
        return self.scope[name]


class _DecoderSource(_Source):
    kind = "decode"

    def compile(self) -> object:
        self.scope.update(malformed=malformed, struct_error=struct.error, unpack_from=struct.unpack_from)
        self.scope["MalformedMessage"] = MalformedMessage
        self.emit("end = len(buf)")
        self.emit("try:")
        self.indent += 1
        root = self.struct_body(self.cls)
        self.flush()
        self.emit(f"return {root}, pos")
        tail = "    except (struct_error, IndexError, UnicodeDecodeError) as error:\n"
        return self.finish("(buf, pos):", tail + "        raise malformed(error) from error\n")

    def flush(self) -> None:
        if not self.run:
            return
        formats = "".join(item[0] for item in self.run)
        targets = [item[1] for item in self.run]
        self.run = []
        if formats == "B":
            self.emit(f"{targets[0]} = buf[pos]")
            self.emit("pos += 1")
            return
        name, size = self.packer(formats)
        self.emit(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {name}(buf, pos)")
        self.emit(f"pos += {size}")

    def uvarint(self, prefix: str) -> str:
        """Read an unsigned varint as the last item of the run; the name that holds it."""
        name = self.fresh(prefix)
        self.run.append(("B", name))
        self.flush()
        self.emit(f"if {name} > 127: {name}, pos = read_uvarint(buf, pos - 1)")
        return name

    def length(self, formats: str, field: Field) -> str:
        """Read a length or count; the name that holds it, -1 for null."""
        if self.flexible:
            name = self.uvarint("n")
            self.emit(f"{name} -= 1")
        else:
            name = self.fresh("n")
            self.run.append((formats, name))
            self.flush()
        floor = -1 if self.version in field.nullable else 0
        self.emit(f"if {name} < {floor}: raise malformed('{field.name} has length %d' % {name})")
        return name

    def struct_body(self, cls: type[object]) -> str:
        """Read a struct into a new object; the name that holds it."""
        plain, tagged, absent = self.parts(cls)
        target = self.fresh("m")
        new = f"new_{cls.__name__}"
        self.scope[new] = cls.__new__
        self.scope[cls.__name__] = cls
        self.emit(f"{target} = {new}({cls.__name__})")
        for field in absent + tagged:
            self.emit(f"{target}.{field.name} = {self.default(cls, field)}")
        for field in plain:
            self.field(field, f"{target}.{field.name}")
        if self.flexible:
            self.tags(tagged, target)
        return target

    def default(self, cls: type[object], field: Field) -> str:
        if field.default is EMPTY:
            return "[]"
        name = f"D_{cls.__name__}_{field.name}"
        self.scope[name] = field.default
        return name

    def field(self, field: Field, target: str) -> None:
        if field.is_array:
            self.array(field, target)
        elif field.struct is not None:
            self.struct(field, target)
        elif isinstance(field.kind, Wire) and field.kind.is_fixed:
            self.run.append((field.kind.value, target))
        else:
            self.variable(field, target)

    def struct(self, field: Field, target: str) -> None:
        assert field.struct is not None
        if self.version not in field.nullable:
            self.emit(f"{target} = {self.struct_body(field.struct)}")
            return
        mark = self.fresh("n")
        self.run.append(("b", mark))
        self.flush()
        self.emit(f"if {mark} < 0: {target} = None")
        self.emit("else:")
        self.indent += 1
        value = self.struct_body(field.struct)
        self.flush()
        self.emit(f"{target} = {value}")
        self.indent -= 1

    def variable(self, field: Field, target: str) -> None:
        size = self.length("h" if field.kind is Wire.STRING else "i", field)
        view = {Wire.STRING: "str(buf[pos:{e}], 'utf-8')", Wire.BYTES: "bytes(buf[pos:{e}])"}
        value = view.get(cast("Wire", field.kind), "buf[pos:{e}]")
        if self.version in field.nullable:
            self.emit(f"if {size} < 0: {target} = None")
            self.emit("else:")
            self.indent += 1
        stop = self.fresh("e")
        self.emit(f"{stop} = pos + {size}")
        self.emit(f"if {stop} > end: raise malformed('{field.name} ends outside the message')")
        self.emit(f"{target} = {value.format(e=stop)}")
        self.emit(f"pos = {stop}")
        if self.version in field.nullable:
            self.indent -= 1

    def array(self, field: Field, target: str) -> None:
        count = self.length("i", field)
        claim = f"malformed('{field.name} claims %d items' % {count})"
        self.emit(f"if {count} * {self.size_min(field)} > end - pos: raise {claim}")
        if self.version in field.nullable:
            self.emit(f"if {count} < 0: {target} = None")
            self.emit("else:")
            self.indent += 1
        if isinstance(field.kind, Wire) and field.kind.is_fixed and field.kind is not Wire.UUID:
            self.emit(f"{target} = list(unpack_from('>%d{field.kind.value}' % {count}, buf, pos))")
            self.emit(f"pos += {count} * {struct.calcsize('>' + field.kind.value)}")
        else:
            items = self.fresh("a")
            self.emit(f"{target} = {items} = []")
            self.emit(f"for _ in range({count}):")
            self.indent += 1
            if field.struct is not None:
                item = self.struct_body(field.struct)
            else:
                item = self.fresh("v")
                self.field(field._replace(is_array=False, nullable=NEVER), item)
            self.flush()
            self.emit(f"{items}.append({item})")
            self.indent -= 1
        if self.version in field.nullable:
            self.indent -= 1

    def size_min(self, field: Field) -> int:
        """The least number of bytes that one element takes."""
        if isinstance(field.kind, Wire):
            if field.kind.is_fixed:
                return struct.calcsize(">" + field.kind.value)
            return 1 if self.flexible else 2 if field.kind is Wire.STRING else 4
        plain, _, _ = self.parts(field.kind)
        total = 1 if self.flexible else 0
        for part in plain:
            if part.is_array:
                total += 1 if self.flexible else 4
            elif part.struct is not None and self.version in part.nullable:
                total += 1
            else:
                total += self.size_min(part)
        return max(total, 1)

    def tags(self, tagged: list[Field], target: str) -> None:
        """Read the tagged section: known tags into their fields, others skipped."""
        count = self.uvarint("t")
        self.emit(f"if {count}:")
        self.indent += 1
        number, size, stop = self.fresh("k"), self.fresh("z"), self.fresh("e")
        self.emit(f"for _ in range({count}):")
        self.indent += 1
        self.emit(f"{number}, pos = read_uvarint(buf, pos)")
        self.emit(f"{size}, pos = read_uvarint(buf, pos)")
        self.emit(f"{stop} = pos + {size}")
        self.emit(f"if {stop} > end: raise malformed('tag %d ends outside the message' % {number})")
        for branch, field in enumerate(tagged):
            self.emit(f"{'el' if branch else ''}if {number} == {field.tag}:")
            self.indent += 1
            self.field(field, f"{target}.{field.name}")
            self.flush()
            self.emit(f"if pos != {stop}: raise malformed('tag {field.tag} ({field.name}) has a wrong size')")
            self.indent -= 1
        self.emit(f"{'else: ' if tagged else ''}pos = {stop}")
        self.indent -= 2


class _EncoderSource(_Source):
    kind = "encode"

    def compile(self) -> object:
        self.scope["pack"] = struct.pack
        self.emit("append = out.append")
        self.struct_body(self.cls, "m")
        self.flush()
        return self.finish("(m, out):")

    def flush(self) -> None:
        if self.run:
            name, _ = self.packer("".join(item[0] for item in self.run))
            self.emit(f"append({name}({', '.join(item[1] for item in self.run if item[1])}))")
            self.run = []

    def uvarint(self, name: str) -> None:
        """Write an unsigned varint, as the last byte of the run where it is small."""
        if not self.run:
            self.emit(f"append(SMALL[{name}] if {name} < 128 else uvarint({name}))")
            return
        run = self.run
        self.emit(f"if {name} < 128:")
        self.indent += 1
        self.run = [*run, ("B", name)]
        self.flush()
        self.indent -= 1
        self.emit("else:")
        self.indent += 1
        self.run = run
        self.flush()
        self.emit(f"append(uvarint({name}))")
        self.indent -= 1

    def length(self, formats: str, name: str) -> None:
        """Write a length or count held by a name, -1 for null."""
        if self.flexible:
            self.emit(f"{name} += 1")
            self.uvarint(name)
        else:
            self.run.append((formats, name))
            self.flush()

    def struct_body(self, cls: type[object], value: str) -> None:
        plain, tagged, _ = self.parts(cls)
        for field in plain:
            self.field(field, f"{value}.{field.name}")
        if self.flexible:
            self.tags(cls, tagged, value)

    def field(self, field: Field, value: str) -> None:
        if field.is_array:
            self.array(field, value)
        elif field.struct is not None:
            self.struct(field, value)
        elif isinstance(field.kind, Wire) and field.kind.is_fixed:
            self.run.append((field.kind.value, value))
        else:
            self.variable(field, value)

    def struct(self, field: Field, value: str) -> None:
        assert field.struct is not None
        if self.version not in field.nullable:
            self.struct_body(field.struct, value)
            return
        self.flush()
        item = self.fresh("v")
        self.emit(f"{item} = {value}")
        self.emit(f"if {item} is None: append(b'\\xff')")
        self.emit("else:")
        self.indent += 1
        self.run.append(("b", "1"))
        self.struct_body(field.struct, item)
        self.flush()
        self.indent -= 1

    def variable(self, field: Field, value: str) -> None:
        data, size = self.fresh("s"), self.fresh("n")
        text = field.kind is Wire.STRING
        if self.version in field.nullable:
            self.emit(f"{data} = {value}")
            self.emit(f"if {data} is None: {size} = -1")
            self.emit("else:")
            self.indent += 1
            if text:
                self.emit(f"{data} = {data}.encode()")
            self.emit(f"{size} = len({data})")
            self.indent -= 1
        else:
            self.emit(f"{data} = {value}{'.encode()' if text else ''}")
            self.emit(f"{size} = len({data})")
        self.length("h" if text else "i", size)
        self.emit(f"if {data}: append({data})")

    def array(self, field: Field, value: str) -> None:
        items, count = self.fresh("a"), self.fresh("n")
        self.emit(f"{items} = {value}")
        absent = f" if {items} is not None else -1" if self.version in field.nullable else ""
        self.emit(f"{count} = len({items}){absent}")
        self.length("i", count)
        self.emit(f"if {items}:")
        self.indent += 1
        if isinstance(field.kind, Wire) and field.kind.is_fixed and field.kind is not Wire.UUID:
            self.emit(f"append(pack('>%d{field.kind.value}' % len({items}), *{items}))")
        else:
            item = self.fresh("v")
            self.emit(f"for {item} in {items}:")
            self.indent += 1
            self.field(field._replace(is_array=False, nullable=NEVER), item)
            self.flush()
            self.indent -= 1
        self.indent -= 1

    def tags(self, cls: type[object], tagged: list[Field], value: str) -> None:
        """Write the tagged section; a field that equals its default is left out."""
        if not tagged:
            self.run.append(("x", ""))
            return
        self.flush()
        self.emit(f"if {' or '.join(self.differs(cls, field, value) for field in tagged)}:")
        self.indent += 1
        section = self.fresh("section")
        self.emit(f"{section} = []")
        for field in tagged:
            self.emit(f"if {self.differs(cls, field, value)}:")
            self.indent += 1
            outer = self.fresh("append")
            self.emit(f"{outer} = append")
            part = self.fresh("part")
            self.emit(f"{part} = []")
            self.emit(f"append = {part}.append")
            self.field(field, f"{value}.{field.name}")
            self.flush()
            self.emit(f"append = {outer}")
            self.emit(f"{section}.append(({field.tag}, {part}))")
            self.indent -= 1
        self.emit(f"append(uvarint(len({section})))")
        number, chunks = self.fresh("k"), self.fresh("c")
        self.emit(f"for {number}, {chunks} in {section}:")
        self.indent += 1
        self.emit(f"append(uvarint({number}) + uvarint(sum(map(len, {chunks}))))")
        piece = self.fresh("c")
        self.emit(f"for {piece} in {chunks}: append({piece})")
        self.indent -= 1
        self.indent -= 1
        self.emit("else: append(b'\\0')")

    def differs(self, cls: type[object], field: Field, value: str) -> str:
        """The test that a tagged field is not its default."""
        target = f"{value}.{field.name}"
        if field.struct is not None and not field.is_array:
            name = f"D_{field.struct.__name__}"
            self.scope[name] = _default_object(field.struct)
            return f"({target} is not None and {target} != {name})"
        if field.default is EMPTY:
            return f"{target} != []"
        name = f"D_{cls.__name__}_{field.name}"
        self.scope[name] = field.default
        return f"{target} is not None" if field.default is None else f"{target} != {name}"


def _default_object(cls: type[object]) -> object:
    """A struct with every field at its default."""
    result = cls.__new__(cls)
    for field in fields_of(cls):
        setattr(result, field.name, [] if field.default is EMPTY else field.default)
    return result
