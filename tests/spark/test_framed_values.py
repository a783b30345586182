"""`moldau_value` in a session: structs, JSON, and the place of a value that does not fit."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from moldau.protocol.record_builder import Record, build_batch
from moldau.spark_jobs.failures import reason_of
from moldau.spark_jobs.values.moldau_value import moldau_value
from tests.support.header_frames import AVRO, put_schemas
from tests.support.protobuf_messages import FRAMED, frame, put_schema
from tests.support.segments import write_checkpoints, write_partition


def test_values_become_columns(spark: SparkSession, tmp_path: Path) -> None:
    head = struct.pack(">bi", 0, 1)
    records = [Record(b"k", head + b'{"id": %d, "name": "n"}' % number, 1) for number in range(20)]
    write_partition(tmp_path, [build_batch([*records, Record(b"k", b"bare", 1)], partition_leader_epoch=0)])
    write_checkpoints(tmp_path, {("t", 0): 21})
    (tmp_path / "1.json").write_text("{}")
    rows = spark.read.format("moldau").option("subscribe", "t").load(str(tmp_path))
    good = rows.where("offset < 20")
    decoded = good.select(moldau_value(registry=str(tmp_path), returns="id bigint, name string, more int"))
    assert decoded.selectExpr("sum(value.id)", "max(value.name)", "max(value.more)").first() == (190, "n", None)
    (first,) = good.where("offset = 3").select(moldau_value(registry=str(tmp_path))).collect()
    assert first.value == '{"id": 3, "name": "n"}'
    with pytest.raises(PySparkException) as problem:
        rows.select(moldau_value(registry=str(tmp_path))).collect()
    assert reason_of(problem.value).startswith("topic t, partition 0, offset 20: the value is not framed")
    lenient = rows.select(moldau_value(registry=str(tmp_path), on_error="null", place=()))
    assert lenient.where("value IS NULL").count() == 1


def test_headers_choose_the_schemas_of_keys_and_values(spark: SparkSession, tmp_path: Path) -> None:
    schemas = put_schemas(tmp_path / "schemas")
    headers = (("__key_schema_id", AVRO.header), ("__value_schema_id", AVRO.header))
    records = [Record(AVRO.data, AVRO.data, 1, headers), Record(AVRO.data, None, 1, headers[:1])]
    write_partition(tmp_path, [build_batch(records, partition_leader_epoch=0)])
    write_checkpoints(tmp_path, {("t", 0): len(records)})
    source = spark.read.format("moldau").option("subscribe", "t").option("includeHeaders", "true")
    rows = source.load(str(tmp_path))
    returns = "customer string, count int"
    values = moldau_value(registry=schemas, returns=returns, headers="headers")
    keys = moldau_value("key", registry=schemas, returns=returns, headers="headers", place=())
    first, tombstone = rows.select("offset", keys, values).orderBy("offset").collect()
    assert tuple(first.key) == tuple(tombstone.key) == tuple(first.value) == ("ada", 3) and tombstone.value is None
    with pytest.raises(PySparkException) as problem:
        rows.select(moldau_value(registry=schemas)).collect()
    assert "no header that was read names one" in reason_of(problem.value)


def test_the_frame_chooses_the_message_of_a_row(spark: SparkSession, tmp_path: Path) -> None:
    put_schema(tmp_path)
    records = [Record(b"k", frame(value), 1) for value, _ in FRAMED.values()]
    write_partition(tmp_path, [build_batch(records, partition_leader_epoch=0)])
    write_checkpoints(tmp_path, {("t", 0): len(records)})
    rows = spark.read.format("moldau").option("subscribe", "t").load(str(tmp_path))
    decoded = rows.select("offset", moldau_value(registry=str(tmp_path))).orderBy("offset").collect()
    assert [json.loads(row.value) for row in decoded] == [expected for _, expected in FRAMED.values()]
    with pytest.raises(PySparkException) as problem:
        rows.select(moldau_value(registry=str(tmp_path), returns="id bigint, more int")).collect()
    assert reason_of(problem.value).startswith("topic t, partition 0, offset 2: the value is of another type")
    typed = moldau_value(registry=str(tmp_path), returns="id bigint, more int", on_error="null")
    found = rows.select("offset", typed).orderBy("offset").collect()
    assert [row.value and (row.value.id, row.value.more) for row in found] == [(5, None), (5, None), None, None, None]
