"""Bytewax: a dataflow into the topic, and one out of it."""

import sys

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSource, run_main

bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[4])
messages = [KafkaSinkMessage(f"key-{n}", f"value {n}", headers=[("place", str(n))]) for n in range(count)]
writes = Dataflow("writes")
op.output("out", op.input("in", writes, TestingSource(messages)), KafkaSink([bootstrap], topic))
run_main(writes)


def line(message: object) -> str:
    return f"{message.key.decode()}\t{message.value.decode()}\t{message.headers[0][1].decode()}"


reads = Dataflow("reads")
read = op.input("in", reads, KafkaSource([bootstrap], [topic], tail=False))
op.output("out", op.map("line", read, line), StdOutSink())
run_main(reads)
