#!/usr/bin/env bash
# apache/iceberg-go 0.7.0 with arrow-go 18.8.0 (Go), seen 2026-12-01: a filter of a scan loses all rows of a row group in which as
# many values of the column are null as are not, without an error: it takes the column for all null. IS NULL finds its rows.
# Whether a null satisfies a filter depends on its form and on the file: `not in` of two values finds nulls and of one
# does not, but in a file that lacks the column, which was added later, it is `not (y = 1)` that finds them. A filter of a column
# whose type was promoted from int to long is refused once the table has a file from before.
#   rows                                  filter           found
#   x = 3, null                           x > 1            none
#   x = 1, 2, null, null                  x = 1; not null  none; none
#   x = 3, null, 5                        x > 1            3 5
#   x = 1, 2, 3, null                     x not in (1); x not in (1, 2)            2 3; 3 null
#   files without y; y = 1, null, 2       y not in (1, 2); y != 1; not (y = 1)     null; 2; 2 and those without y
#   x = 1, 2, then long, then 3000000000  x = 1            an error: invalid binary serialization: expected 8 bytes for int64 value, got 4
set -euo pipefail
command -v go >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
go mod init filters >/dev/null 2>&1
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

func create(rows string) *table.Table {
	made++
	schema := iceberg.NewSchema(0, iceberg.NestedField{ID: 1, Name: "x", Type: iceberg.PrimitiveTypes.Int32})
	return add(must(catalog.CreateTable(always, []string{"n", fmt.Sprint("t", made)}, schema)), rows)
}

func add(into *table.Table, rows string) *table.Table {
	schema := must(table.SchemaToArrowSchema(into.Schema(), nil, false, false))
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	if err != nil {
		panic(err)
	}
	return must(into.AppendTable(always, array.NewTableFromRecords(schema, []arrow.RecordBatch{batch}), 1000, nil))
}

func change(changed *table.Table, by func(*table.UpdateSchema) *table.UpdateSchema) *table.Table {
	transaction := changed.NewTransaction()
	if err := by(transaction.UpdateSchema(true, false)).Commit(); err != nil {
		panic(err)
	}
	return must(transaction.Commit(always))
}

func tell(label string, from *table.Table, column string, filter iceberg.BooleanExpression) {
	found, err := from.Scan(table.WithRowFilter(filter)).ToArrowTable(always)
	if err != nil {
		fmt.Println(label+":", err)
		return
	}
	values := []string{}
	for _, chunk := range found.Column(found.Schema().FieldIndices(column)[0]).Data().Chunks() {
		for place := range chunk.Len() {
			values = append(values, strings.Trim(chunk.ValueStr(place), "()"))
		}
	}
	sort.Strings(values)
	fmt.Println(label+":", strings.Join(values, " "))
}

func main() {
	catalog = must(hadoop.NewCatalog("c", os.Args[1], nil))
	if err := catalog.CreateNamespace(always, []string{"n"}, nil); err != nil {
		panic(err)
	}
	x, y := iceberg.Reference("x"), iceberg.Reference("y")
	half := create(`[{"x": 3}, {"x": null}]`)
	tell("3 null, > 1", half, "x", iceberg.GreaterThan(x, int32(1)))
	tell("3 null, is null", half, "x", iceberg.IsNull(x))
	four := create(`[{"x": 1}, {"x": 2}, {"x": null}, {"x": null}]`)
	tell("1 2 null null, = 1", four, "x", iceberg.EqualTo(x, int32(1)))
	tell("1 2 null null, not null", four, "x", iceberg.NotNull(x))
	tell("3 null 5, > 1", create(`[{"x": 3}, {"x": null}, {"x": 5}]`), "x", iceberg.GreaterThan(x, int32(1)))
	quarter := create(`[{"x": 1}, {"x": 2}, {"x": 3}, {"x": null}]`)
	tell("1 2 3 null, not in (1)", quarter, "x", iceberg.NotIn(x, int32(1)))
	tell("1 2 3 null, not in (1, 2)", quarter, "x", iceberg.NotIn(x, int32(1), int32(2)))
	later := change(create(`[{"x": 1}, {"x": 2}]`), func(update *table.UpdateSchema) *table.UpdateSchema {
		return update.AddColumn([]string{"y"}, iceberg.PrimitiveTypes.Int32, "", false, nil)
	})
	later = add(later, `[{"x": 3, "y": 1}, {"x": 4, "y": null}, {"x": 5, "y": 2}]`)
	tell("y added, not in (1, 2)", later, "y", iceberg.NotIn(y, int32(1), int32(2)))
	tell("y added, != 1", later, "y", iceberg.NotEqualTo(y, int32(1)))
	tell("y added, not (= 1)", later, "y", iceberg.NewNot(iceberg.EqualTo(y, int32(1))))
	long := change(create(`[{"x": 1}, {"x": 2}]`), func(update *table.UpdateSchema) *table.UpdateSchema {
		return update.UpdateColumn([]string{"x"}, table.ColumnUpdate{FieldType: iceberg.Optional[iceberg.Type]{Valid: true, Val: iceberg.PrimitiveTypes.Int64}})
	})
	tell("x promoted, = 1", add(long, `[{"x": 3000000000}]`), "x", iceberg.EqualTo(x, int64(1)))
}
GO
go mod tidy >/dev/null 2>&1 && go build -o filters . || exit 2
./filters "$home/warehouse" | tee seen
diff seen - <<'SEEN' && echo "as seen: a filter loses the rows of a row group with as many nulls as values"
3 null, > 1: 
3 null, is null: null
1 2 null null, = 1: 
1 2 null null, not null: 
3 null 5, > 1: 3 5
1 2 3 null, not in (1): 2 3
1 2 3 null, not in (1, 2): 3 null
y added, not in (1, 2): null
y added, != 1: 2
y added, not (= 1): 2 null null
x promoted, = 1: invalid binary serialization: expected 8 bytes for int64 value, got 4
SEEN
