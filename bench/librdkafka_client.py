"""The child process of `bench.librdkafka`: calls the librdkafka in confluent-kafka's wheel by ctypes, and prints one
line of JSON.

confluent-kafka itself makes Python objects of every message, and would be what is measured. Messages are handed over
ten thousand at a time from one prepared array; consumed ones are counted and given back.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from bench import native_load

PRODUCER: Final = 0
CONSUMER: Final = 1
CONF_OK: Final = 0
QUEUE_FULL: Final = -184
OFFSET_BEGINNING: Final = -2
BATCH: Final = 10_000
POLL_MS: Final = 100
PATIENCE_S: Final = 60.0
WORDS: Final = b"order=%08d customer=%06d state=paid lines=[sku-%05d x%d, sku-%05d x%d] total=%d.%02d EUR; "
"""The pattern of values that compress about as well as real records, each of them different."""


class _Message(ctypes.Structure):
    """librdkafka's `rd_kafka_message_t`."""

    _fields_ = (
        ("error", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


def main(arguments: list[str]) -> None:
    """Run the arguments: `produce` or `consume`, then BOOTSTRAP TOPIC COUNT SIZE [name=value...]."""
    what, bootstrap, topic, count, size = arguments[:5]
    settings = dict(word.split("=", 1) for word in arguments[5:])
    client = _Client(PRODUCER if what == "produce" else CONSUMER, {"bootstrap.servers": bootstrap, **settings}, topic)
    work = client.produce if what == "produce" else client.consume
    seconds, cpu_s = work(int(count), int(size))
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "version": client.version}))


class _Client:
    """A librdkafka handle with one topic."""

    def __init__(self, kind: int, settings: dict[str, str], topic: str) -> None:
        library = self._library = _loaded()
        said = ctypes.create_string_buffer(512)
        conf = library.rd_kafka_conf_new()
        for name, value in settings.items():
            if library.rd_kafka_conf_set(conf, name.encode(), value.encode(), said, len(said)) != CONF_OK:
                _give_up(said.value.decode())
        self._handle = library.rd_kafka_new(kind, conf, said, len(said))
        if not self._handle:
            _give_up(said.value.decode())
        self._topic = library.rd_kafka_topic_new(self._handle, topic.encode(), None)
        self.version: str = library.rd_kafka_version_str().decode()

    def produce(self, count: int, size: int) -> tuple[float, float]:
        """Produce messages. Returns the time from the first message to the acknowledgement of the last."""
        library = self._library
        values = [_value(number, size) for number in range(BATCH)]
        messages = (_Message * BATCH)()
        for message, value in zip(messages, values, strict=True):
            message.payload, message.size = ctypes.addressof(value), size
        # The topic's metadata and the connection are there before the clock starts.
        self._handed_over(messages, 1)
        if library.rd_kafka_flush(self._handle, int(PATIENCE_S * 1000)):
            _give_up("the first message is not acknowledged")
        began, cpu_before = time.perf_counter(), time.process_time()
        left = count
        while left:
            left -= self._handed_over(messages, min(left, BATCH))
            library.rd_kafka_poll(self._handle, 0)
        if library.rd_kafka_flush(self._handle, int(PATIENCE_S * 1000)):
            _give_up("not all messages are acknowledged")
        return time.perf_counter() - began, time.process_time() - cpu_before

    def _handed_over(self, messages: ctypes.Array[_Message], count: int) -> int:
        """Put messages into librdkafka's queue, and return how many fitted. They are neither copied nor freed, so they
        can be used again.
        """
        taken: int = self._library.rd_kafka_produce_batch(self._topic, 0, 0, messages, count)
        if taken < count:
            refused = {message.error for message in messages[:count]} - {0, QUEUE_FULL}
            if refused:
                _give_up(f"messages are refused: {refused}")
            self._library.rd_kafka_poll(self._handle, 1)
        return taken

    def consume(self, count: int, size: int) -> tuple[float, float]:
        """Consume partition 0 from its beginning. The time begins with the first message."""
        library, drain = self._library, _drain()
        if library.rd_kafka_consume_start(self._topic, 0, ctypes.c_int64(OFFSET_BEGINNING)) != 0:
            _give_up("cannot start to consume")
        messages = (ctypes.c_void_p * BATCH)()
        seen = 0
        deadline = time.monotonic() + PATIENCE_S
        began, cpu_before = 0.0, 0.0
        while seen < count:
            got = library.rd_kafka_consume_batch(self._topic, 0, POLL_MS, messages, BATCH)
            if got and not seen:
                began, cpu_before = time.perf_counter(), time.process_time()
            if not got and time.monotonic() > deadline:
                _give_up(f"{seen} messages of {count} have come")
            seen += drain(library, messages, got)
        result = time.perf_counter() - began, time.process_time() - cpu_before
        library.rd_kafka_consume_stop(self._topic, 0)
        return result


def _drain() -> Callable[[ctypes.CDLL, ctypes.Array[ctypes.c_void_p], int], int]:
    """Return the function that gives messages back to librdkafka. It is compiled if possible, because a call by ctypes
    for each message takes long.
    """
    compiled = native_load.compiled_loop()

    def by_ctypes(library: ctypes.CDLL, messages: ctypes.Array[ctypes.c_void_p], count: int) -> int:
        good = 0
        for address in messages[:count]:
            assert address is not None
            good += not _Message.from_address(address).error
            library.rd_kafka_message_destroy(address)
        return good

    def by_c(library: ctypes.CDLL, messages: ctypes.Array[ctypes.c_void_p], count: int) -> int:
        assert compiled is not None
        good: int = compiled.give_back(library.rd_kafka_message_destroy, messages, ctypes.c_int64(count))
        return good

    return by_ctypes if compiled is None else by_c


def _value(number: int, size: int) -> ctypes.Array[ctypes.c_char]:
    fields = [number * prime % 99_991 for prime in (7, 31, 127, 3, 8191, 5, 131, 17)]
    text = WORDS % tuple(field % 100 if index in (3, 5, 7) else field for index, field in enumerate(fields))
    text += b"".join(WORDS % tuple((field + each) % 100 for field in fields) for each in range(size // len(text)))
    return (ctypes.c_char * size).from_buffer_copy(text[:size].ljust(size, b"."))


def _loaded() -> ctypes.CDLL:
    """Return the library that confluent-kafka's extension module has loaded."""
    import confluent_kafka

    assert confluent_kafka.version()
    found = re.search(r"(/\S*librdkafka\S*\.so\S*)", Path("/proc/self/maps").read_text())
    library = ctypes.CDLL(found.group(1) if found else confluent_kafka.cimpl.__file__)
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_topic_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_version_str.restype = ctypes.c_char_p
    library.rd_kafka_consume_batch.restype = ctypes.c_ssize_t
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    library.rd_kafka_conf_set.argtypes = (pointer, text, text, text, ctypes.c_size_t)
    library.rd_kafka_new.argtypes = (ctypes.c_int, pointer, text, ctypes.c_size_t)
    library.rd_kafka_topic_new.argtypes = (pointer, text, pointer)
    library.rd_kafka_produce_batch.argtypes = (pointer, ctypes.c_int32, ctypes.c_int, pointer, ctypes.c_int)
    library.rd_kafka_poll.argtypes = library.rd_kafka_flush.argtypes = (pointer, ctypes.c_int)
    library.rd_kafka_consume_start.argtypes = (pointer, ctypes.c_int32, ctypes.c_int64)
    library.rd_kafka_consume_stop.argtypes = (pointer, ctypes.c_int32)
    library.rd_kafka_consume_batch.argtypes = (pointer, ctypes.c_int32, ctypes.c_int, pointer, ctypes.c_size_t)
    library.rd_kafka_message_destroy.argtypes = (pointer,)
    return library


def _give_up(why: str) -> NoReturn:
    sys.exit(f"librdkafka: {why}")


if __name__ == "__main__":
    main(sys.argv[1:])
