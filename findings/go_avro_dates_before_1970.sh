#!/usr/bin/env bash
# goavro 2.15.0 and hamba/avro 2.31.0 (Go) beside twmb/avro 1.9.1, seen 2026-11-30: the date of a time before 1970 that is not
# midnight is the next day, and a decimal that does not fit its scale is rounded down, not to the nearest and not towards
# zero; neither is an error. It meets Go programs that write Avro to topics: birthdays, and amounts of a division.
#   value                              goavro, hamba   twmb
#   date of 1969-12-31T12:00Z          1970-01-01      1969-12-31
#   date of 1969-12-30T23:59:59.999Z   1969-12-31      1969-12-30
#   date of 1970-01-01T12:00Z          1970-01-01      1970-01-01
#   decimal of scale 2, 2/3            0.66            refused
#   decimal of scale 2, -1/3           -0.34           refused
set -euo pipefail
command -v go >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
go mod init values >/dev/null 2>&1
go get github.com/linkedin/goavro/v2@v2.15.0 github.com/hamba/avro/v2@v2.31.0 github.com/twmb/avro@v1.9.1 >/dev/null 2>&1 || exit 2
cat >main.go <<'GO'
package main

import (
	"fmt"
	"math/big"
	"time"

	hamba "github.com/hamba/avro/v2"
	"github.com/linkedin/goavro/v2"
	twmb "github.com/twmb/avro"
)

func told(read any, err error) string {
	if err != nil {
		return "refused"
	}
	switch value := read.(type) {
	case time.Time:
		return value.Format(time.DateOnly)
	case *big.Rat:
		return value.FloatString(2)
	}
	return fmt.Sprint(read)
}

func tell(schema, name string, value any) {
	codec, _ := goavro.NewCodec(schema)
	written, err := codec.BinaryFromNative(nil, value)
	var read any
	if err == nil {
		read, _, err = codec.NativeFromBinary(written)
	}
	fmt.Println("goavro", name+":", told(read, err))

	parsed := hamba.MustParse(schema)
	read = nil
	if written, err = hamba.Marshal(parsed, value); err == nil {
		err = hamba.Unmarshal(parsed, written, &read)
	}
	fmt.Println("hamba", name+":", told(read, err))

	other, _ := twmb.Parse(schema)
	read = nil
	if written, err = other.Encode(value); err == nil {
		_, err = other.Decode(written, &read)
	}
	fmt.Println("twmb", name+":", told(read, err))
}

func main() {
	for _, text := range []string{"1969-12-31T12:00:00Z", "1969-12-30T23:59:59.999Z", "1970-01-01T12:00:00Z"} {
		moment, _ := time.Parse(time.RFC3339, text)
		tell(`{"type": "int", "logicalType": "date"}`, text, moment)
	}
	for _, value := range []*big.Rat{big.NewRat(2, 3), big.NewRat(-1, 3)} {
		tell(`{"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}`, value.String(), value)
	}
}
GO
go build -o values . || exit 2
./values | tee seen
diff seen - <<'SEEN' && echo "as seen: dates before 1970 are a day late, and decimals are rounded down"
goavro 1969-12-31T12:00:00Z: 1970-01-01
hamba 1969-12-31T12:00:00Z: 1970-01-01
twmb 1969-12-31T12:00:00Z: 1969-12-31
goavro 1969-12-30T23:59:59.999Z: 1969-12-31
hamba 1969-12-30T23:59:59.999Z: 1969-12-31
twmb 1969-12-30T23:59:59.999Z: 1969-12-30
goavro 1970-01-01T12:00:00Z: 1970-01-01
hamba 1970-01-01T12:00:00Z: 1970-01-01
twmb 1970-01-01T12:00:00Z: 1970-01-01
goavro 2/3: 0.66
hamba 2/3: 0.66
twmb 2/3: refused
goavro -1/3: -0.34
hamba -1/3: -0.34
twmb -1/3: refused
SEEN
