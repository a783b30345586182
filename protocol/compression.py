"""The codecs of a record batch, each with a hard bound on what a peer's bytes may expand to."""

from __future__ import annotations

from enum import IntEnum


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes; the lower-case name is Kafka's in `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
