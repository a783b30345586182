#!/usr/bin/env bash
# quixstreams 3.28.1, seen 2026-12-01: a topic with the serializers "json", its default, reads a tombstone as None and writes None
# as the four bytes "null". A dataframe that passes the records of a compacted topic on turns deletions into values that
# compaction keeps for ever. "str", "int" and "double" write None as a tombstone. NaN and the infinities, for which JSON
# has no form, are written as null too; Python's own json writes NaN.
#   json    tombstone -> None -> b'null'    {'x': nan} -> b'{"x":null}'    {'x': inf} -> b'{"x":null}'
#   str     tombstone -> None -> tombstone
#   double  tombstone -> None -> tombstone
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check quixstreams==3.28.1 confluent-kafka==2.12.2 || exit 2
cat >pass_on.py <<'PYTHON'
from quixstreams.models import Topic


class Tombstone:
    """A record as confluent-kafka gives it: a key, no value."""

    def __getattr__(self, name):
        given = {"topic": "t", "partition": 0, "offset": 0, "key": b"k", "timestamp": (1, 0)}
        return lambda: given.get(name)

    def __len__(self):
        return 1


for kind in ("json", "str", "double"):
    topic = Topic(name="t", key_serializer="bytes", key_deserializer="bytes", value_serializer=kind, value_deserializer=kind)
    read = topic.row_deserialize(Tombstone())
    print(f"{kind}: a tombstone is {read.value}, written as {topic.serialize(key=read.key, value=read.value).value}")
topic = Topic(name="t")
print("by default:", topic.serialize(key="k", value=None).value)
topic = Topic(name="t", value_serializer="json")
for number in ("nan", "inf"):
    print(f"json: {number} is written as", topic.serialize(key="k", value={"x": float(number)}).value)
PYTHON
venv/bin/python pass_on.py 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: None is not a tombstone in JSON"
json: a tombstone is None, written as b'null'
str: a tombstone is None, written as None
double: a tombstone is None, written as None
by default: b'null'
json: nan is written as b'{"x":null}'
json: inf is written as b'{"x":null}'
SEEN
