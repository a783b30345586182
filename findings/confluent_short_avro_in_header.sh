#!/usr/bin/env bash
# confluent-kafka 2.16.1, seen 2026-11-30: if the id of the schema is in a header (header_schema_id_serializer), the value
# is the Avro alone, and may be short. AvroDeserializer of the same library refuses values of at most 5 bytes before it
# looks at the headers, as if the five bytes of a frame had to be in them. So a topic has records that its own writer
# cannot read; the message says that they are not of a Confluent serializer. Five bytes are a name of four letters, or a
# name of three and a small number. JSONDeserializer and ProtobufDeserializer read such values.
#   4 letters, 5 bytes: SerializationError: Expecting data framing of length 6 bytes or more but total data size is 5 bytes. …
#   5 letters, 6 bytes: {'customer': 'grace'}
#   JSON, 2 bytes: {}
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check 'confluent-kafka[schemaregistry,avro,json]==2.16.1' || exit 2
cd "$home"
"$home/venv/bin/python" - <<'PYTHON' | tee seen
import json

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

client = SchemaRegistryClient.new_client({"url": "mock://registry"})
in_header = {"schema.id.serializer": header_schema_id_serializer}
customer = {"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}
anything = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Anything"}


def shown(what, topic, write, read, value):
    context = SerializationContext(topic, MessageField.VALUE, [])
    data = write(value, context)
    try:
        found = read(data, context)
    except Exception as problem:
        found = f"{type(problem).__name__}: {problem}"
    print(f"{what}, {len(data)} bytes: {found}")


write = AvroSerializer(client, json.dumps(customer), conf=in_header)
for name in ("anna", "grace"):
    shown(f"{len(name)} letters", "orders", write, AvroDeserializer(client), {"customer": name})
write = JSONSerializer(json.dumps(anything), client, conf=in_header)
shown("JSON", "others", write, JSONDeserializer(None, schema_registry_client=client), {})
PYTHON
diff seen - <<'SEEN' && echo "as seen: Avro of at most 5 bytes with its schema in a header cannot be read"
4 letters, 5 bytes: SerializationError: Expecting data framing of length 6 bytes or more but total data size is 5 bytes. This message was not produced with a Confluent Schema Registry serializer
5 letters, 6 bytes: {'customer': 'grace'}
JSON, 2 bytes: {}
SEEN
