"""The cost of checking a batch before its append: header and checksum, the record walk in its two forms, and reading
values.

Run `python -m bench.micro.record_walk`; the compiled column needs `python -m building` before it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from timeit import Timer
from types import ModuleType

from moldau.protocol.compression import Codec, decompress
from moldau.protocol.record_batch import HEADER_SIZE, crc_is_valid, parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of

SOURCE = Path(__file__).parents[2] / "protocol" / "record_batch.py"
SIZE_MAX = 64 << 20


def load(path: Path, name: str) -> ModuleType:
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def forms() -> dict[str, ModuleType]:
    """The two forms of the walk by name. The pure one is loaded beside the compiled one."""
    found = {"pure": load(SOURCE, "pure_record_walk")}
    if any(SOURCE.with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES):
        import moldau.protocol.record_batch

        found["compiled"] = moldau.protocol.record_batch
    return found


def batch_of(count: int, value_size: int, codec: Codec) -> bytes:
    """Make a batch of records with text words, which codecs can compress."""
    rng = random.Random(count)
    words = [rng.randbytes(rng.randint(3, 9)).hex().encode() for _ in range(500)]
    records = []
    for index in range(count):
        value = b" ".join(rng.choice(words) for _ in range(value_size // 6))[:value_size]
        records.append(Record(b"key-%d" % (index % 50), value, 1_700_000_000_000 + index))
    return build_batch(records, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0)


CASES = {
    "1 x 100 B": batch_of(1, 100, Codec.NONE),
    "16 KiB of 100 B": batch_of(145, 100, Codec.NONE),
    "16 KiB of 1 KiB": batch_of(16, 1000, Codec.NONE),
    "1 MiB of 1 KiB": batch_of(1010, 1000, Codec.NONE),
    "1 MiB of 100 B": batch_of(9300, 100, Codec.NONE),
    "16 KiB of 100 B, lz4": batch_of(145, 100, Codec.LZ4),
    "16 KiB of 100 B, zstd": batch_of(145, 100, Codec.ZSTD),
}


def microseconds(work: Callable[[], object]) -> float:
    """Return the best time of many short runs, because other work on the machine only adds time."""
    timer = Timer(work)
    number, _ = timer.autorange()
    number = max(1, number // 20)
    return min(timer.repeat(60, number)) / number * 1e6


def figures_of(data: bytes, walks: dict[str, ModuleType]) -> list[float]:
    view = memoryview(bytearray(data))
    header = parse_header(view)
    stored = view[HEADER_SIZE:]
    body = decompress(header.codec, stored, size_max=SIZE_MAX)

    def walked(walk: ModuleType) -> float:
        return microseconds(lambda: walk.walk_records(body, 0, len(body), header.records_count))

    return [
        microseconds(lambda: parse_header(view)),
        microseconds(lambda: crc_is_valid(view, 0, parse_header(view))),
        microseconds(lambda: decompress(header.codec, stored, size_max=SIZE_MAX)) if header.is_compressed else 0.0,
        *(walked(walk) for walk in walks.values()),
        microseconds(lambda: sum(1 for _ in records_of(view))),
    ]


def main() -> None:
    walks = forms()
    columns = ["header", "+ crc", "expand", *(f"walk {name}" for name in walks), "read values"]
    print(f"{'µs a batch, Python ' + sys.version.split()[0]:32}" + "".join(f"{column:>15}" for column in columns))
    for name, data in CASES.items():
        figures = figures_of(data, walks)
        print(f"{name + f' ({len(data)} B)':32}" + "".join(f"{figure:15.2f}" for figure in figures))


if __name__ == "__main__":
    main()
