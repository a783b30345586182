#!/usr/bin/env bash
# confluent-kafka 2.16.1, seen 2026-11-30: the id of a schema may be in a header (HeaderSchemaIdSerializer), and a deserializer
# believes the first such header. A program that reads a record, writes another one with another schema and passes the
# headers on (as for tracing) adds a second id, or by the default serializer one in the value: readers decode the value
# by the schema of the record that it was made from. Two schemas with the same types give wrong values without an error.
#   by {customer, city}:             {'customer': 'ada', 'city': 'rome'}
#   then {city, customer} in header: {'customer': 'rome', 'city': 'ada'}
#   then {city, customer} in value:  {'customer': '', 'city': ''}
# @confluentinc/schemaregistry 1.10.1 (JavaScript) replaces the header in the second case, and has the third one too.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check 'confluent-kafka[schemaregistry,avro]==2.16.1' || exit 2
cd "$home"
"$home/venv/bin/python" - <<'PYTHON' | tee seen
import json

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

client = SchemaRegistryClient.new_client({"url": "mock://registry"})
read = AvroDeserializer(client)
in_header = {"schema.id.serializer": header_schema_id_serializer}


def passed_on(topic, fields, row, headers, settings):
    """What a reader finds in a row that was written with these headers, and its headers."""
    schema = {"type": "record", "name": topic, "fields": [{"name": each, "type": "string"} for each in fields]}
    context = SerializationContext(topic, MessageField.VALUE, list(headers))
    value = AvroSerializer(client, json.dumps(schema), conf=settings)(row, context)
    return read(value, SerializationContext(topic, MessageField.VALUE, list(context.headers))), context.headers


row, headers = passed_on("first", ("customer", "city"), {"customer": "ada", "city": "rome"}, [], in_header)
print("by {customer, city}:            ", row)
for place, settings in (("header", in_header), ("value", {})):
    found, _ = passed_on(place, ("city", "customer"), row, headers, settings)
    print(f"{f'then {{city, customer}} in {place}:':32}", found)
PYTHON
diff seen - <<'SEEN' && echo "as seen: the first header decides"
by {customer, city}:             {'customer': 'ada', 'city': 'rome'}
then {city, customer} in header: {'customer': 'rome', 'city': 'ada'}
then {city, customer} in value:  {'customer': '', 'city': ''}
SEEN
