#!/usr/bin/env bash
# confluent-kafka 2.16.1 with protobuf 7.36.2 and grpcio-tools 1.85.1, seen 2026-11-29. The frame of a Protobuf value names
# its message by indexes. `Inner` is the only message that is written inside `Outer`, and its path is [0, 1] and not [0, 0]:
# the entry of the map, which protoc makes a message of its own, is counted. A reader that counts the messages in the text
# of the schema decodes such a value as another one, or finds none. (The Java serializer counts so too, unless
# `normalize.schemas` is set: then it leaves entries out.)
#   00 00 00 00 01 04 00 02 08 07      (04: two indexes, 00: 0, 02: 1; the message is 08 07)
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check 'confluent-kafka[schemaregistry,protobuf]==2.16.1' protobuf==7.36.2 grpcio-tools==1.85.1 || exit 2
cd "$home"
cat >outer.proto <<'PROTO'
syntax = "proto3";
message Outer {
  map<string, int64> counts = 1;
  message Inner { int64 x = 1; }
}
PROTO
"$home/venv/bin/python" -m grpc_tools.protoc -I. --python_out=. outer.proto
export PYTHONPATH=$home
"$home/venv/bin/python" - <<'PYTHON'
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from outer_pb2 import Outer

client = SchemaRegistryClient.new_client({"url": "mock://registry"})
serializer = ProtobufSerializer(Outer.Inner, client, {"use.deprecated.format": False})
value = serializer(Outer.Inner(x=7), SerializationContext("topic", MessageField.VALUE))
print(value.hex(" "))
sys.exit(0 if value[5:] == bytes([4, 0, 2, 8, 7]) else 1)
PYTHON
