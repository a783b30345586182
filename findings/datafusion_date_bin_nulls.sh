#!/usr/bin/env bash
# DataFusion 55.0.0 (Python) with pyarrow 26.0.1, seen 2026-11-30: date_bin of a time past 2262-04-11 or before 1677-09-21 is
# NULL, without an error, for columns of milliseconds and microseconds too; date_trunc is right, and to_timestamp refuses.
# A count by date_bin of a topic puts its records with such times (9999-12-31 for "never", microseconds taken for
# milliseconds) into one row, NULL, and a filter by the bin loses them.
#   time         date_bin 1 hour       date_trunc hour
#   9999-12-31   NULL                  9999-12-31T00:00:00
#   1600-01-01   NULL                  1600-01-01T00:00:00
#   2025-06-15   2025-06-15T00:00:00   2025-06-15T00:00:00
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check datafusion==55.0.0 pyarrow==26.0.1 || exit 2
cd "$home"
venv/bin/python - <<'PYTHON' | tee seen
from datetime import datetime

import datafusion
import pyarrow as pa

times = [datetime(9999, 12, 31), datetime(1600, 1, 1), datetime(2025, 6, 15)]
for unit in ("ms", "us"):
    session = datafusion.SessionContext()
    session.register_record_batches("rows", [pa.table({"t": pa.array(times, pa.timestamp(unit))}).to_batches()])
    for function in ("date_bin(interval '1 hour', t)", "date_trunc('hour', t)", "to_timestamp(t)"):
        try:
            found = session.sql(f"SELECT cast({function} AS varchar) AS found FROM rows").to_pydict()["found"]
        except Exception as problem:
            found = [str(problem).split(": ")[2].split(" value")[0]]
        print(unit, function + ":", *found)
PYTHON
diff seen - <<'SEEN' && echo "as seen: date_bin is NULL past 2262"
ms date_bin(interval '1 hour', t): None None 2025-06-15T00:00:00
ms date_trunc('hour', t): 9999-12-31T00:00:00 1600-01-01T00:00:00 2025-06-15T00:00:00
ms to_timestamp(t): Cannot cast Timestamp(ms)
us date_bin(interval '1 hour', t): None None 2025-06-15T00:00:00
us date_trunc('hour', t): 9999-12-31T00:00:00 1600-01-01T00:00:00 2025-06-15T00:00:00
us to_timestamp(t): Cannot cast Timestamp(µs)
SEEN
