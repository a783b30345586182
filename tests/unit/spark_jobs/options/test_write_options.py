"""The options of writing."""

from __future__ import annotations

import pytest

from moldau.spark_jobs.options.write_options import parse_write_options
from moldau.tables.refusals import Refused

NAMED = {"kafka.bootstrap.servers": "h:9092,i:9093", "topic": "t"}
EXACTLY = {**NAMED, "delivery": "exactly-once"}


def test_records_are_written_at_least_once_unless_more_is_asked_for() -> None:
    options = parse_write_options({**NAMED, "kafka.Compression.Type": "zstd"}, is_stream=True)
    assert (options.brokers, options.topic, options.codec) == (("h:9092", "i:9093"), "t", "zstd")
    assert not options.is_exactly_once


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"checkpointLocation": "file:/c/d/"}, "/c/d/moldau-transactions"),
        ({"checkpointLocation": "/c"}, "/c/moldau-transactions"),
        ({"checkpointLocation": "hdfs://n/c", "transactionLog": "/d"}, "/d"),
    ],
)
def test_the_log_of_transactions_lies_with_the_checkpoint_unless_it_is_told(given: dict[str, str], place: str) -> None:
    assert parse_write_options({**EXACTLY, **given}, is_stream=True).transaction_log == place


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "t"}, "kafka.bootstrap.servers is not given"),
        ({**NAMED, "kafka.acks": "1"}, "kafka.acks: 1 is not all"),
        ({**NAMED, "kafka.enable.idempotence": "false"}, "always idempotent"),
        ({**NAMED, "delivery": "at-most-once"}, "not one of at-least-once, exactly-once"),
        ({**NAMED, "subscribe": "t"}, "the option subscribe is not supported in a write"),
        ({**NAMED, "kafka.transactional.id": "x"}, "each attempt of a task an id of its own"),
        ({**EXACTLY, "checkpointLocation": "s3a://b/c"}, "needs a directory that the driver can write"),
        (EXACTLY, "needs a directory that the driver can write"),
    ],
)
def test_what_cannot_be_honoured_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        parse_write_options(given, is_stream=True)


def test_settings_of_a_producer_without_effect_are_taken_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"the option kafka\.linger\.ms has no effect"):
        parse_write_options({**NAMED, "kafka.linger.ms": "5"}, is_stream=False)
