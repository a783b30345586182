"""Compiles a declared message into straight-line Python: one decoder and one encoder for each version, on first use.

Runs of fixed-width fields, together with the length that follows them, become one `struct` call; nested structs and
arrays become nested loops of the same function. The source is registered in `linecache`, so tracebacks show it.

A decoder takes `(buffer, position)` and returns `(message, position after it)`. It raises only `MalformedMessage`, and
checks a length against the bytes that remain before it allocates anything for it. The decoder of a request also bounds
the memory of the decoded message. An encoder takes `(message, chunks)` and appends pieces of bytes; `records` are
appended as they are, never copied.
"""

from __future__ import annotations

import linecache
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import TypeVar, cast

from moldau.protocol.decoded_size import (
    CONTENT_CHARGE,
    CUT_FIELDS,
    DECODED_SIZE_MAX,
    SHORT_DECODED_SIZE_MAX,
    TAG_CHARGE,
    TEXT_ERRORS,
    cut_text,
    decoded_size,
    least_size,
    long_message,
    too_many_items,
    uncounted_size,
)
from moldau.protocol.primitives import (
    SMALL_UVARINTS,
    TEXT_SIZE_MAX,
    BytesLike,
    Chunk,
    MalformedMessage,
    append_tags,
    read_tag,
    read_text_size,
    read_uvarint,
    skip_tags,
    uvarint,
    wrong_length,
)
from moldau.protocol.schema import EMPTY, NEVER, Field, WireType, default_struct, fields_in, spec_of

T = TypeVar("T")

Decoder = Callable[[BytesLike, int], tuple[T, int]]
Encoder = Callable[[T, list[Chunk]], None]


def decoder_of(cls: type[T], version: int) -> Decoder[T]:
    """The compiled decoder of a message class in a version."""
    return cast("Decoder[T]", _compiled(_DecoderSource, cls, version))  # type: ignore[arg-type]


def request_decoder_of(cls: type[T], version: int) -> Decoder[T]:
    """The compiled decoder of a request class in a version. It also limits the memory of the decoded message
    (`protocol/decoded_size.py`)."""
    return cast("Decoder[T]", _compiled(_RequestDecoderSource, cls, version))  # type: ignore[arg-type]


def short_decoder_of(cls: type[T], version: int) -> Decoder[T]:
    """The compiled decoder of a request class in a version, for the event loop. The decoder raises `LongMessage` if the
    request decodes into more than `SHORT_DECODED_SIZE_MAX` bytes of objects."""
    return cast("Decoder[T]", _compiled(_ShortDecoderSource, cls, version))  # type: ignore[arg-type]


def encoder_of(cls: type[T], version: int) -> Encoder[T]:
    """The compiled encoder of a message class in a version."""
    return cast("Encoder[T]", _compiled(_EncoderSource, cls, version))  # type: ignore[arg-type]


def decode(cls: type[T], buffer: BytesLike, version: int) -> T:
    """Decode a message that fills the buffer. Raises `MalformedMessage` if the bytes do not follow the schema, or if
    bytes are left over."""
    result, position = decoder_of(cls, version)(buffer, 0)
    if position != len(buffer):
        raise MalformedMessage(f"{len(buffer) - position} bytes left over after {cls.__name__}")
    return result


def encode(message: object, version: int) -> bytes:
    """Encode a message to bytes. The message must not contain file regions."""
    chunks: list[Chunk] = []
    encoder_of(type(message), version)(message, chunks)
    return b"".join(cast("list[BytesLike]", chunks))


@cache
def _compiled(source: type[_Source], cls: type[object], version: int) -> object:
    return source(cls, version).compile()


class _Source(ABC):
    """The source of one function while it is generated, and the values of the names that the source refers to."""

    kind = ""

    def __init__(self, cls: type[object], version: int) -> None:
        assert version in spec_of(cls).versions, f"{cls.__name__} has no version {version}"
        self.cls = cls
        self.version = version
        self.flexible = version in spec_of(cls).flexible
        self.lines: list[str] = []
        self.indent = 1
        self.counter = 0
        self.scope: dict[str, object] = {"read_uvarint": read_uvarint, "uvarint": uvarint}
        self.run: list[tuple[str, str]] = []
        """The fixed-width items (format, target or expression) that are not yet part of an emitted struct call."""

    def emit(self, line: str) -> None:
        self.lines.append(" " * self.indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Emit the head of a block, and indent the lines that are emitted within the `with` statement. A run of
        fixed-width items ends at both ends of the block."""
        self.flush()
        self.emit(head)
        self.indent += 1
        yield
        self.flush()
        self.indent -= 1

    @abstractmethod
    def compile(self) -> object:
        """Generate the whole source, and compile it into a function."""

    @abstractmethod
    def flush(self) -> None:
        """Emit the struct call of the current run of fixed-width items, if the run has items."""

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def packer(self) -> tuple[str, list[str], int]:
        """End the current run of fixed-width items. Returns the name of its struct function in the scope, the operands
        of the call, and the size of the items (bytes)."""
        formats = "".join(item[0] for item in self.run)
        operands = [item[1] for item in self.run if item[1]]
        self.run = []
        packer = struct.Struct(">" + formats)
        name = f"S_{formats.replace('?', 'o')}"
        self.scope[name] = packer.unpack_from if self.kind == "decode" else packer.pack
        return name, operands, packer.size

    def is_nullable(self, field: Field) -> bool:
        return self.version in field.nullable

    def default(self, cls: type[object], field: Field) -> str:
        """A source expression for a field's default. The default of a nullable tagged struct is a struct of defaults,
        not null."""
        if field.default is EMPTY:
            return "[]"
        name = f"D_{cls.__name__}_{field.name}"
        if field.tag is not None and field.struct is not None and field.nullable != NEVER:
            self.scope[name] = partial(default_struct, field.struct)
            return f"{name}()"
        self.scope[name] = field.default
        return name

    def finish(self, header: str) -> object:
        name = f"{self.kind}_{self.cls.__name__}_v{self.version}"
        text = "\n".join([f"def {name}{header}", *self.lines, ""])
        filename = f"<moldau {name}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.scope)
        return self.scope[name]


class _DecoderSource(_Source):
    kind = "decode"

    def compile(self) -> object:
        self.scope.update(wrong_length=wrong_length, read_tag=read_tag, skip_tags=skip_tags)
        self.scope["read_text_size"] = read_text_size
        self.scope.update(MalformedMessage=MalformedMessage, struct_error=struct.error, unpack_from=struct.unpack_from)
        self.emit("end = len(buf)")
        self.begin()
        with self.block("try:"):
            root = self.struct_body(self.cls)
            self.flush()
            self.emit(f"return {root}, pos")
        with self.block("except (struct_error, IndexError) as error:"):
            self.emit("raise MalformedMessage(str(error)) from error")
        return self.finish("(buf, pos):")

    def begin(self) -> None:
        """Emit the code that runs before the first field is read."""

    def charge(self, amount: str, name: str) -> None:
        """Emit code that counts the memory of decoded objects at the field `name`; `amount` is an expression for its
        bytes. This class counts nothing."""

    def flush(self) -> None:
        if not self.run:
            return
        if self.run[0][0] == "B" and len(self.run) == 1:
            self.emit(f"{self.run.pop()[1]} = buf[pos]")
            self.emit("pos += 1")
            return
        name, targets, size = self.packer()
        self.emit(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {name}(buf, pos)")
        self.emit(f"pos += {size}")

    def uvarint(self, prefix: str, is_large: bool = False, reader: str = "read_uvarint") -> str:
        """Emit code that reads an unsigned varint. Its first byte is read together with the run of fixed-width items
        before it. Returns the name of its variable."""
        name = self.fresh(prefix)
        self.run.append(("B", name))
        self.flush()
        if is_large:
            self.emit(f"if {name} > 127 and (high := buf[pos]) < 128: {name} += (high << 7) - 128; pos += 1")
        self.emit(f"{'el' if is_large else ''}if {name} > 127: {name}, pos = {reader}(buf, pos - 1)")
        return name

    def length(self, formats: str, field: Field, item_size: int = 1) -> str:
        """Emit code that reads a length or count and checks it against the number of bytes that remain. Returns the
        name of its variable, whose value is negative for null."""
        if self.flexible:
            is_text = field.kind is WireType.STRING and not field.is_array
            reader = "read_text_size" if is_text else "read_uvarint"
            name = self.uvarint("n", field.kind is WireType.RECORDS, reader)
            self.emit(f"{name} -= 1")
        else:
            name = self.fresh("n")
            self.run.append((formats, name))
            self.flush()
        size = name if item_size == 1 else f"{name} * {item_size}"
        wrong = f"{size} > end - pos" if self.is_nullable(field) else f"not 0 <= {size} <= end - pos"
        self.emit(f"if {wrong}: raise wrong_length('{field.name}', {name})")
        return name

    def struct_body(self, cls: type[object]) -> str:
        """Emit code that reads a struct into a new object. Returns the name of its variable."""
        plain, tagged, absent = fields_in(cls, self.version)
        target = self.fresh("m")
        self.scope[f"new_{cls.__name__}"] = cls.__new__
        self.scope[cls.__name__] = cls
        self.emit(f"{target} = new_{cls.__name__}({cls.__name__})")
        for field in absent + tagged:
            self.emit(f"{target}.{field.name} = {self.default(cls, field)}")
        for field in plain:
            self.field(field, f"{target}.{field.name}")
        if self.flexible:
            self.tags(tagged, target)
        return target

    def field(self, field: Field, target: str) -> None:
        if field.is_array:
            self.array(field, target)
        elif field.struct is not None:
            self.struct(field, target)
        elif isinstance(field.kind, WireType) and field.kind.is_fixed:
            self.run.append((field.kind.value, target))
        else:
            self.variable(field, target)

    def struct(self, field: Field, target: str) -> None:
        assert field.struct is not None
        if not self.is_nullable(field):
            self.emit(f"{target} = {self.struct_body(field.struct)}")
            return
        mark = self.fresh("n")
        self.run.append(("b", mark))
        self.flush()
        null = "< 0" if field.tag is None else "== 0"
        self.emit(f"if {mark} {null}: {target} = None")
        with self.block("else:"):
            self.emit(f"{target} = {self.struct_body(field.struct)}")

    def variable(self, field: Field, target: str) -> None:
        size = self.length("h" if field.kind is WireType.STRING else "i", field)
        if field.kind is not WireType.RECORDS:
            self.charge(f"{size} * {CONTENT_CHARGE if field.kind is WireType.STRING else 1}", field.name)
        view = f"buf[pos:pos + {size}]"
        # A name that is not UTF-8 is refused later, if it is checked.
        value = {WireType.STRING: f"str({view}, 'utf-8', '{TEXT_ERRORS}')", WireType.BYTES: f"bytes({view})"}
        read = f"{target} = {value.get(cast('WireType', field.kind), view)}; pos += {size}"
        if self.is_nullable(field):
            self.emit(f"if {size} < 0: {target} = None")
            self.emit(f"else: {read}")
        else:
            self.emit(read)

    def array(self, field: Field, target: str) -> None:
        item_size = least_size(field, self.version, self.flexible)
        count = self.length("i", field, item_size)
        self.charge(f"{count} * {decoded_size(field, self.version)}", field.name)
        null = f"None if {count} < 0 else " if self.is_nullable(field) else ""
        if field.is_packed:
            self.emit(
                f"{target} = {null}list(unpack_from('>%d{cast('WireType', field.kind).value}' % {count}, buf, pos))"
            )
            self.emit(f"pos += {f'max({count}, 0)' if null else count} * {item_size}")
            return
        items = self.fresh("a")
        self.emit(f"{target} = {items} = {null}[]")
        with self.block(f"for _ in range({count}){f' if {count} > 0 else ()' if null else ''}:"):
            if field.struct is not None:
                item = self.struct_body(field.struct)
            else:
                item = self.fresh("v")
                self.field(field._replace(is_array=False, nullable=NEVER), item)
            self.flush()
            self.emit(f"{items}.append({item})")

    def tags(self, tagged: list[Field], target: str) -> None:
        """Emit code that reads the tagged section: known tags are read into their fields, and other tags are
        skipped."""
        if not tagged:
            count = self.fresh("t")
            self.run.append(("B", count))
            self.flush()
            self.skip_tags(count)
            return
        count, number, stop = self.uvarint("t"), self.fresh("k"), self.fresh("e")
        self.charge(f"{count} * {TAG_CHARGE}", "tags")
        with self.block(f"while {count}:"):
            self.emit(f"{count} -= 1")
            self.emit(f"{number}, pos, {stop} = read_tag(buf, pos)")
            for branch, field in enumerate(tagged):
                with self.block(f"{'el' if branch else ''}if {number} == {field.tag}:"):
                    self.field(field, f"{target}.{field.name}")
                    self.flush()
                    # DIVERGES: Apache Kafka does not check the size of a known tag; a wrong one is refused here.
                    self.emit(f"if pos != {stop}: raise wrong_length('tag {field.tag} {field.name}', pos - {stop})")
            self.emit(f"else: pos = {stop}")

    def skip_tags(self, count: str) -> None:
        """Emit code that skips a tagged section in which no tag is known. The emitted code runs after the first byte of
        the number of tags has been read into the variable `count`.
        """
        self.emit(f"if {count}: pos = skip_tags(buf, pos - 1)")


class _RequestDecoderSource(_DecoderSource):
    """The source of a decoder for requests. It decodes a short request without counting, and passes a request that
    could exceed the limit to the counting decoder."""

    def begin(self) -> None:
        self.scope["counted"] = partial(_decode_counted, self.cls, self.version)
        self.emit(f"if end - pos > {uncounted_size(self.cls, self.version)}: return counted(buf, pos)")


class _CountedDecoderSource(_DecoderSource):
    """The source of a decoder that counts the memory of decoded objects and raises an exception above a limit."""

    size_max = DECODED_SIZE_MAX
    error_at: Callable[[str], Exception] = staticmethod(too_many_items)
    """Makes the exception if the limit is exceeded at the field with this name."""

    def begin(self) -> None:
        self.scope["error_at"] = self.error_at
        self.emit(f"left = {self.size_max}")

    def charge(self, amount: str, name: str) -> None:
        # A null has a negative length, which must not increase the rest of the limit.
        self.emit(f"left -= max({amount}, 0)")
        self.emit(f"if left < 0: raise error_at('{name}')")

    def skip_tags(self, count: str) -> None:
        with self.block(f"if {count}:"):
            self.emit(f"{count}, _ = read_uvarint(buf, pos - 1)")
            self.charge(f"{count} * {TAG_CHARGE}", "tags")
            self.emit("pos = skip_tags(buf, pos - 1)")


class _ShortDecoderSource(_CountedDecoderSource):
    """The source of a counting decoder with a lower limit. A message above that limit is decoded in an executor
    thread."""

    size_max = SHORT_DECODED_SIZE_MAX
    error_at = staticmethod(long_message)


def _decode_counted(cls: type[object], version: int, buffer: BytesLike, position: int) -> tuple[object, int]:
    decode = cast("Decoder[object]", _compiled(_CountedDecoderSource, cls, version))  # type: ignore[arg-type]
    return decode(buffer, position)


class _EncoderSource(_Source):
    kind = "encode"
    sink = "append"
    """The name of the function, in the emitted code, that receives the next piece of bytes."""

    def compile(self) -> object:
        self.scope.update(pack=struct.pack, SMALL=SMALL_UVARINTS, append_tags=append_tags, cut_text=cut_text)
        self.emit("append = out.append")
        self.struct_body(self.cls, "m")
        self.flush()
        return self.finish("(m, out):")

    def append(self, expression: str) -> None:
        self.emit(f"{self.sink}({expression})")

    def flush(self) -> None:
        if self.run:
            name, operands, size = self.packer()
            self.append(f"{name}({', '.join(operands)})" if operands else repr(bytes(size)))

    def uvarint(self, name: str, size_max: int) -> None:
        """Emit code that writes an unsigned varint. If it has at most `size_max` bytes, it is written together with the
        run of fixed-width fields before it."""
        run, self.run = self.run, []
        if not run:
            self.append(f"SMALL[{name}] if {name} < 128 else uvarint({name})")
            return
        for size in range(1, size_max + 1):
            groups = [f"{name} >> {7 * index}{' & 127 | 128' if index < size - 1 else ''}" for index in range(size)]
            with self.block(f"{'if' if size == 1 else 'elif'} {name} < {1 << 7 * size}:"):
                self.run = run + [("B", group.replace(" >> 0", "")) for group in groups]
        with self.block("else:"):
            self.run = [*run]
            self.flush()
            self.append(f"uvarint({name})")

    def length(self, formats: str, field: Field, content: str) -> None:
        """Emit code that writes the length of the value of the variable `content`."""
        name, null = self.fresh("n"), 0 if self.flexible else -1
        size = f"len({content}){' + 1' if self.flexible else ''}"
        self.emit(f"{name} = {f'{null} if {content} is None else ' if self.is_nullable(field) else ''}{size}")
        if self.flexible:
            self.uvarint(name, 3 if field.kind is WireType.RECORDS else 1)
        else:
            self.run.append((formats, name))
            self.flush()

    def struct_body(self, cls: type[object], value: str, is_item: bool = False) -> None:
        plain, tagged, _ = fields_in(cls, self.version)
        if is_item and self.flexible and self.is_mostly_fixed(plain):
            self.item_body(cls, plain, tagged, value)
            return
        for field in plain:
            self.field(field, f"{value}.{field.name}")
        if self.flexible:
            self.tags(cls, tagged, value)

    def is_optional(self, field: Field) -> bool:
        """Whether a field is often absent and then takes one byte: an array of flat structs that is often empty, or a
        nullable string."""
        if field.struct is None:
            return field.kind is WireType.STRING and not field.is_array and self.is_nullable(field)
        return field.is_array and not any(
            part.is_array or part.struct for part in fields_in(field.struct, self.version)[0]
        )

    def is_mostly_fixed(self, plain: list[Field]) -> bool:
        rest = [field for field in plain if not self.is_optional(field)]
        wires = [field.kind for field in rest if isinstance(field.kind, WireType) and not field.is_array]
        return len(wires) == len(rest) < len(plain) and sum(wire.is_fixed for wire in wires) > 1

    def item_body(self, cls: type[object], plain: list[Field], tagged: list[Field], value: str) -> None:
        """Emit code that writes one struct of an array. If its optional and tagged fields are absent, one struct call
        writes it."""
        names = {field.name: self.fresh("o") for field in plain if self.is_optional(field)}
        for name, local in names.items():
            self.emit(f"{local} = {value}.{name}")
        present = [*names.values(), *(self.differs(cls, field, value, is_cheap=True) for field in tagged)]
        with self.block(f"if {' or '.join(present)}:"):
            for field in plain:
                self.field(field, names.get(field.name, f"{value}.{field.name}"))
            self.tags(cls, tagged, value)
        with self.block("else:"):
            for field in plain:
                if field.name in names:
                    self.run.append(("B", f"{names[field.name]} is not None" if self.is_nullable(field) else "1"))
                else:
                    self.field(field, f"{value}.{field.name}")
            self.run.append(("x", ""))

    def field(self, field: Field, value: str) -> None:
        if field.is_array:
            self.array(field, value)
        elif field.struct is not None:
            self.struct(field, value)
        elif isinstance(field.kind, WireType) and field.kind.is_fixed:
            self.run.append((field.kind.value, value))
        else:
            self.variable(field, value)

    def struct(self, field: Field, value: str) -> None:
        assert field.struct is not None
        if not self.is_nullable(field):
            self.struct_body(field.struct, value)
            return
        self.flush()
        item, null = self.fresh("v"), "\\xff" if field.tag is None else "\\0"
        self.emit(f"{item} = {value}")
        self.emit(f"if {item} is None: {self.sink}(b'{null}')")
        with self.block("else:"):
            self.run.append(("b", "1"))
            self.struct_body(field.struct, item)

    def variable(self, field: Field, value: str) -> None:
        data = self.fresh("s")
        is_text = field.kind is WireType.STRING
        self.emit(f"{data} = {value}{'.encode()' if is_text and not self.is_nullable(field) else ''}")
        if is_text and self.is_nullable(field):
            self.emit(f"if {data}: {data} = {data}.encode()")
        if field.name in CUT_FIELDS:
            self.emit(f"if {data} and len({data}) > {TEXT_SIZE_MAX}: {data} = cut_text({data})")
        self.length("h" if is_text else "i", field, data)
        self.emit(f"if {data}: {self.sink}({data})")

    def array(self, field: Field, value: str) -> None:
        items = self.fresh("a")
        self.emit(f"{items} = {value}")
        self.length("i", field, items)
        if field.is_packed:
            packed = f"pack('>%d{cast('WireType', field.kind).value}' % len({items}), *{items})"
            self.emit(f"if {items}: {self.sink}({packed})")
            return
        item = self.fresh("v")
        with self.block(f"for {item} in {items}{' or ()' if self.is_nullable(field) else ''}:"):
            if field.struct is not None:
                self.struct_body(field.struct, item, is_item=True)
            else:
                self.field(field._replace(is_array=False, nullable=NEVER), item)

    def tags(self, cls: type[object], tagged: list[Field], value: str) -> None:
        """Emit code that writes the tagged section. Fields that have their default are left out."""
        if not tagged:
            self.run.append(("x", ""))
            return
        run, outer, section = self.run, self.sink, self.fresh("section")
        self.run = []
        with self.block(f"if {' or '.join(self.differs(cls, field, value) for field in tagged)}:"):
            self.run = [*run]
            self.flush()
            self.emit(f"{section} = []")
            for field in tagged:
                with self.block(f"if {self.differs(cls, field, value)}:"):
                    part, self.sink = self.fresh("part"), self.fresh("append")
                    self.emit(f"{part} = []")
                    self.emit(f"{self.sink} = {part}.append")
                    self.field(field, f"{value}.{field.name}")
                    self.flush()
                    self.sink = outer
                    self.emit(f"{section}.append(({field.tag}, {part}))")
            self.emit(f"append_tags({outer}, {section})")
        with self.block("else:"):
            self.run = [*run, ("x", "")]

    def differs(self, cls: type[object], field: Field, value: str, is_cheap: bool = False) -> str:
        """A source expression that is true if a tagged field differs from its default.

        With `is_cheap` it may also be true for a struct of defaults, because that is cheaper to compute.
        """
        target = f"{value}.{field.name}"
        if field.struct is not None and not field.is_array:
            name = f"D_{field.struct.__name__}"
            self.scope[name] = default_struct(field.struct)
            if field.nullable != NEVER:
                return f"{target} != {name}"
            return f"{target} is not None" if is_cheap else f"({target} is not None and {target} != {name})"
        if field.default is EMPTY:
            return f"{target} != []" if self.is_nullable(field) else target
        if field.default is None:
            return f"{target} is not None"
        return f"{target} != {self.default(cls, field)}"
