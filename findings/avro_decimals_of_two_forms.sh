#!/usr/bin/env bash
# fastavro 1.13.1 and avro 1.12.2 (Python), hamba/avro 2.31.0 (Go) beside avro 1.12.1 (Java), goavro 2.15.0 and twmb/avro 1.9.1
# (Go), seen 2026-11-30: a decimal on bytes whose number is -2^7, -2^15 and so on is written with a byte more by the first
# three. Each library reads both forms. As a key of a topic they are two keys: the same number is compacted apart, may be
# in two partitions, and is not joined. Other numbers have one form.
#   value    Java, goavro, twmb   fastavro, avro (Python), hamba
#   -1.28    80                   ff80
#   -327.68  8000                 ff8000
#   1.28     0080                 0080
#   -1.29    ff7f                 ff7f
set -euo pipefail
command -v java >/dev/null && command -v mvn >/dev/null && command -v go >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.avro</groupId><artifactId>avro</artifactId><version>1.12.1</version>
  </dependency></dependencies>
</project>
XML
mvn -q dependency:copy-dependencies -DoutputDirectory=lib >/dev/null || exit 2
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check fastavro==1.13.1 avro==1.12.2 || exit 2
go mod init values >/dev/null 2>&1
go get github.com/linkedin/goavro/v2@v2.15.0 github.com/hamba/avro/v2@v2.31.0 github.com/twmb/avro@v1.9.1 >/dev/null 2>&1 || exit 2
cat >Look.java <<'JAVA'
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.avro.Conversions.DecimalConversion;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.SchemaBuilder;

public class Look {
    static BigDecimal read(Schema schema, String form) {
        byte[] bytes = HexFormat.of().parseHex(form);
        return new DecimalConversion().fromBytes(ByteBuffer.wrap(bytes), schema, schema.getLogicalType());
    }

    public static void main(String[] values) {
        Schema schema = LogicalTypes.decimal(10, 2).addToSchema(SchemaBuilder.builder().bytesType());
        for (String value : values) {
            ByteBuffer bytes = new DecimalConversion().toBytes(new BigDecimal(value), schema, schema.getLogicalType());
            System.out.println("Java " + value + ": " + HexFormat.of().formatHex(bytes.array()));
        }
        System.out.println("Java reads 80 and ff80: " + read(schema, "80") + " " + read(schema, "ff80"));
    }
}
JAVA
cat >look.py <<'PYTHON'
import io
import json
import sys
from decimal import Decimal

import avro.io
import avro.schema
import fastavro

schema = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
parsed, other = fastavro.parse_schema(schema), avro.schema.parse(json.dumps(schema))


def written(write, value):
    buffer = io.BytesIO()
    write(buffer, Decimal(value))
    return buffer.getvalue()[1:].hex()


for value in sys.argv[1:]:
    print(f"fastavro {value}:", written(lambda buffer, number: fastavro.schemaless_writer(buffer, parsed, number), value))
for value in sys.argv[1:]:
    write = avro.io.DatumWriter(other).write
    print(f"avro {value}:", written(lambda buffer, number: write(number, avro.io.BinaryEncoder(buffer)), value))
forms = [fastavro.schemaless_reader(io.BytesIO(each), parsed, None) for each in (b"\x02\x80", b"\x04\xff\x80")]
print("fastavro reads 80 and ff80:", *forms)
PYTHON
cat >main.go <<'GO'
package main

import (
	"fmt"
	"math/big"
	"os"

	hamba "github.com/hamba/avro/v2"
	"github.com/linkedin/goavro/v2"
	twmb "github.com/twmb/avro"
)

const schema = `{"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}`

func main() {
	codec, _ := goavro.NewCodec(schema)
	other, _ := twmb.Parse(schema)
	writers := []struct {
		name  string
		write func(value *big.Rat) ([]byte, error)
	}{
		{"goavro", func(value *big.Rat) ([]byte, error) { return codec.BinaryFromNative(nil, value) }},
		{"hamba", func(value *big.Rat) ([]byte, error) { return hamba.Marshal(hamba.MustParse(schema), value) }},
		{"twmb", func(value *big.Rat) ([]byte, error) { return other.Encode(value) }},
	}
	for _, writer := range writers {
		for _, text := range os.Args[1:] {
			value, _ := new(big.Rat).SetString(text)
			written, err := writer.write(value)
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Printf("%s %s: %x\n", writer.name, text, written[1:])
		}
	}
}
GO
go build -o values . || exit 2
numbers=(-1.28 -327.68 1.28 -1.29)
{ java -cp 'lib/*' Look.java "${numbers[@]}" 2>/dev/null; venv/bin/python look.py "${numbers[@]}"; ./values "${numbers[@]}"; } | tee seen
diff seen - <<'SEEN' && echo "as seen: -1.28 has two forms in bytes"
Java -1.28: 80
Java -327.68: 8000
Java 1.28: 0080
Java -1.29: ff7f
Java reads 80 and ff80: -1.28 -1.28
fastavro -1.28: ff80
fastavro -327.68: ff8000
fastavro 1.28: 0080
fastavro -1.29: ff7f
avro -1.28: ff80
avro -327.68: ff8000
avro 1.28: 0080
avro -1.29: ff7f
fastavro reads 80 and ff80: -1.28 -1.28
goavro -1.28: 80
goavro -327.68: 8000
goavro 1.28: 0080
goavro -1.29: ff7f
hamba -1.28: ff80
hamba -327.68: ff8000
hamba 1.28: 0080
hamba -1.29: ff7f
twmb -1.28: 80
twmb -327.68: 8000
twmb 1.28: 0080
twmb -1.29: ff7f
SEEN
