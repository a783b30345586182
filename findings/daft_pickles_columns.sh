#!/usr/bin/env bash
# Daft 0.7.26 with pyarrow 25.0.1, seen 2026-11-29: from_arrow makes a column of string_view or of a dictionary a column of
# Python objects, without a warning; to_arrow gives it back as an extension type with a pickle of each text. A cast to
# string before it (table.cast) keeps the texts.
#   view:       Python, back as extension<daft.super_extension<DaftExtension>>: b'\x80\x05\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94.'
#   dictionary: Python, back as extension<daft.super_extension<DaftExtension>>: b'\x80\x05\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94.'
#   string:     String, back as large_string: 'a'
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check daft==0.7.26 pyarrow==25.0.1 || exit 2
"$home/venv/bin/python" - <<'PYTHON'
import pickle
import sys

import daft
import pyarrow as pa

columns = {
    "view": pa.array(["a"], pa.string_view()),
    "dictionary": pa.array(["a"], pa.dictionary(pa.int8(), pa.string())),
    "string": pa.array(["a"]),
}
frame = daft.from_arrow(pa.table(columns))
back = frame.to_arrow()
for name in columns:
    column = back.column(name)
    print(f"{name + ':':11} {frame.schema()[name].dtype}, back as {column.type}: {column[0].as_py()!r}")
values = [back.column(name)[0].as_py() for name in columns]
sys.exit(0 if values == [pickle.dumps("a")] * 2 + ["a"] or values == [pickle.dumps("a", 5)] * 2 + ["a"] else 1)
PYTHON
