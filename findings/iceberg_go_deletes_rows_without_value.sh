#!/usr/bin/env bash
# apache/iceberg-go 0.7.0 with arrow-go 18.8.0 (Go), seen 2026-12-01: Table.Delete also deletes rows that a scan with the same filter
# does not find, without an error: each row whose column is null, in a file that has a row to delete. A file whose least and
# greatest value both satisfy the filter is deleted whole, with its nulls and NaNs; nulls in files without a match stay. As
# deletions of a filter are the way to erase the records of a topic's table, rows without a value go with them.
#   rows                            filter    found   left          right
#   x = 1, 2, 3, null               x = 1     1       2 3           2 3 null
#   x = 1, 2, 3, null               x != 1    2 3     1             1 null
#   x = 3, 4, null                  x > 1     3 4     none          null
#   x = 1, 2, null; 7, null         x = 1     1       2 7 null      2 7 null null
#   f = 3.0, NaN                    f > 1     3       none          NaN
#   f = 1.0, NaN, null, null, 3.0   f = 3     3       1 NaN         1 NaN null null
set -euo pipefail
command -v go >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
go mod init deletes >/dev/null 2>&1
go get github.com/apache/iceberg-go@v0.7.0 github.com/apache/arrow-go/v18@v18.8.0 >/dev/null 2>&1 || exit 2
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog/hadoop"
	"github.com/apache/iceberg-go/table"
)

var (
	always  = context.Background()
	catalog *hadoop.Catalog
	made    int
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func create(kind iceberg.Type, files ...string) *table.Table {
	made++
	schema := iceberg.NewSchema(0, iceberg.NestedField{ID: 1, Name: "x", Type: kind})
	created := must(catalog.CreateTable(always, []string{"n", fmt.Sprint("t", made)}, schema))
	for _, rows := range files {
		created = add(created, rows)
	}
	return created
}

func add(into *table.Table, rows string) *table.Table {
	schema := must(table.SchemaToArrowSchema(into.Schema(), nil, false, false))
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	if err != nil {
		panic(err)
	}
	return must(into.AppendTable(always, array.NewTableFromRecords(schema, []arrow.RecordBatch{batch}), 1000, nil))
}

func values(from *table.Table, filter iceberg.BooleanExpression) string {
	found := must(from.Scan(table.WithRowFilter(filter)).ToArrowTable(always))
	values := []string{}
	for _, chunk := range found.Column(0).Data().Chunks() {
		for place := range chunk.Len() {
			values = append(values, strings.Trim(chunk.ValueStr(place), "()"))
		}
	}
	sort.Strings(values)
	return strings.Join(values, " ")
}

func tell(from *table.Table, filter iceberg.BooleanExpression) {
	rows, found := values(from, iceberg.AlwaysTrue{}), values(from, filter)
	transaction := from.NewTransaction()
	if err := transaction.Delete(always, filter, nil); err != nil {
		panic(err)
	}
	fmt.Printf("%s: found %s, left %s\n", rows, found, values(must(transaction.Commit(always)), iceberg.AlwaysTrue{}))
}

func main() {
	catalog = must(hadoop.NewCatalog("c", os.Args[1], nil))
	if err := catalog.CreateNamespace(always, []string{"n"}, nil); err != nil {
		panic(err)
	}
	x, whole, real := iceberg.Reference("x"), iceberg.PrimitiveTypes.Int32, iceberg.PrimitiveTypes.Float64
	tell(create(whole, `[{"x": 1}, {"x": 2}, {"x": 3}, {"x": null}]`), iceberg.EqualTo(x, int32(1)))
	tell(create(whole, `[{"x": 1}, {"x": 2}, {"x": 3}, {"x": null}]`), iceberg.NotEqualTo(x, int32(1)))
	tell(create(whole, `[{"x": 3}, {"x": 4}, {"x": null}]`), iceberg.GreaterThan(x, int32(1)))
	tell(create(whole, `[{"x": 1}, {"x": 2}, {"x": null}]`, `[{"x": 7}, {"x": null}]`), iceberg.EqualTo(x, int32(1)))
	tell(create(real, `[{"x": 3.0}, {"x": "NaN"}]`), iceberg.GreaterThan(x, 1.0))
	tell(create(real, `[{"x": 1.0}, {"x": "NaN"}, {"x": null}, {"x": null}, {"x": 3.0}]`), iceberg.EqualTo(x, 3.0))
}
GO
go mod tidy >/dev/null 2>&1 && go build -o deletes . || exit 2
./deletes "$home/warehouse" | tee seen
diff seen - <<'SEEN' && echo "as seen: a deletion takes rows without a value"
1 2 3 null: found 1, left 2 3
1 2 3 null: found 2 3, left 1
3 4 null: found 3 4, left 
1 2 7 null null: found 1, left 2 7 null
3 NaN: found 3, left 
1 3 NaN null null: found 3, left 1 NaN
SEEN
