#!/usr/bin/env bash
# squirreling 0.12.11 (JavaScript), seen 2026-12-01: this SQL engine, which queries Parquet and Iceberg in the browser, takes rows
# for equal that differ, without an error: GROUP BY and DISTINCT of two columns join their texts with "|", a null is the text
# NULL, and 1 the text "1". A comparison with null is false and not null, so NOT finds nulls, as does NOT IN of a null. A sum of 64-bit
# integers is a double, also of one, and a sum or average leaves out NaN and the infinities, which a count counts.
#   query                                        answer             right
#   GROUP BY a, b of ("x|y", "z"), ("x", "y|z")  one group          two
#   GROUP BY name of null, "NULL"                one group          two
#   k WHERE NOT x = 1, of 1, null, 2             null 2             2
#   k WHERE x NOT IN (1, NULL)                   2                  none
#   SUM(x) of 9007199254740993                   9007199254740992   9007199254740993
#   SUM(x), AVG(x) of 1, NaN, Infinity           1 1                NaN NaN
set -euo pipefail
command -v npm >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
npm install --silent --no-audit --no-fund --prefix . squirreling@0.12.11 >/dev/null 2>&1 || exit 2
cat >query.mjs <<'JS'
import { collect, executeSql } from 'squirreling'

const pairs = [{ a: 'x|y', b: 'z', n: 1 }, { a: 'x', b: 'y|z', n: 2 }, { a: '1', b: 'k', n: 4 }, { a: 1, b: 'k', n: 8 }]
const numbers = [{ k: 1, x: 1 }, { k: 2, x: null }, { k: 3, x: 2 }]
const names = [{ name: null, n: 1 }, { name: 'NULL', n: 2 }]
const tables = { pairs, numbers, names, large: [{ x: 9007199254740993n }], odd: [{ x: 1 }, { x: NaN }, { x: Infinity }] }
for (const query of [
  'SELECT a, b, SUM(n) AS n FROM pairs GROUP BY a, b',
  'SELECT DISTINCT a, b FROM pairs',
  'SELECT name, SUM(n) AS n FROM names GROUP BY name',
  'SELECT k FROM numbers WHERE NOT x = 1',
  'SELECT k FROM numbers WHERE x NOT IN (1, NULL)',
  'SELECT SUM(x) AS sum, x + 0 AS same FROM large GROUP BY x',
  'SELECT SUM(x) AS sum, AVG(x) AS avg, COUNT(x) AS count FROM odd'
]) {
  const rows = await collect(executeSql({ tables, query }))
  console.log(query + ':', rows.map((row) => Object.values(row).map(String).join(' ')).join(', '))
}
JS
node query.mjs | tee seen
diff seen - <<'SEEN' && echo "as seen: rows that differ are one"
SELECT a, b, SUM(n) AS n FROM pairs GROUP BY a, b: x|y z 3, 1 k 12
SELECT DISTINCT a, b FROM pairs: x|y z, 1 k
SELECT name, SUM(n) AS n FROM names GROUP BY name: null 3
SELECT k FROM numbers WHERE NOT x = 1: 2, 3
SELECT k FROM numbers WHERE x NOT IN (1, NULL): 3
SELECT SUM(x) AS sum, x + 0 AS same FROM large GROUP BY x: 9007199254740992 9007199254740992
SELECT SUM(x) AS sum, AVG(x) AS avg, COUNT(x) AS count FROM odd: 1 1 3
SEEN
