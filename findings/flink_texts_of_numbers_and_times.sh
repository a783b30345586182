#!/usr/bin/env bash
# flink-json and flink-csv 2.3.0, seen 2026-12-01: Apache Flink's formats `json` and `csv` make other values of a topic's values,
# without an error, and not the same ones. In JSON a fraction is cut for INT and BIGINT (also past 2^53, by way of a double), and
# refused for TINYINT and SMALLINT; a decimal that does not fit is null; the number 1 is the boolean false. A day that does not
# exist is the last of the month in a timestamp, the one after it in a date of CSV, and refused in a date of JSON. The digits of
# TIME(0) and TIMESTAMP(3), and the length of VARCHAR(2), bind nothing but a time of CSV.
#   column          value                        json                        csv
#   INT             1.9                          1                           refused
#   TINYINT         1.9                          refused                     refused
#   BIGINT          9007199254740993.0           9007199254740992            refused
#   BOOLEAN         1, "1", "yes"                false                       false
#   DECIMAL(10, 2)  10.005; 123456789012.34      10.01; null                 10.01; null
#   DOUBLE          "1d"; "0x1p3"; 1e400         1.0; 8.0; Infinity          the same
#   STRING          {"b": 1.10}; 1.10            {"b":1.1}; 1.10             {"b": 1.10}; 1.10
#   VARCHAR(2)      abc                          abc                         abc
#   TIMESTAMP(3)    2024-01-01 00:00:00.123456   2024-01-01T00:00:00.123456  the same
#   TIMESTAMP(3)    2024-02-30 00:00:00          2024-02-29T00:00            2024-02-29T00:00
#   DATE            2024-02-30                   refused                     2024-03-01
#   TIME(0)         10:00:00.999; 24:00:00       36000999 ms; 0 ms           36000000 ms; refused
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
command -v java >/dev/null && command -v mvn >/dev/null || exit 2
cd "$home"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.flink</groupId><artifactId>flink-json</artifactId><version>2.3.0</version></dependency>
    <dependency><groupId>org.apache.flink</groupId><artifactId>flink-csv</artifactId><version>2.3.0</version></dependency>
    <dependency><groupId>org.apache.flink</groupId><artifactId>flink-table-runtime</artifactId><version>2.3.0</version></dependency>
    <dependency><groupId>org.apache.flink</groupId><artifactId>flink-table-api-java-bridge</artifactId><version>2.3.0</version></dependency>
  </dependencies>
</project>
XML
mvn -q dependency:copy-dependencies -DoutputDirectory=lib >/dev/null || exit 2
cat >Look.java <<'JAVA'
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.functions.util.ListCollector;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.formats.common.TimestampFormat;
import org.apache.flink.formats.csv.CsvRowDataDeserializationSchema;
import org.apache.flink.formats.json.JsonParserRowDataDeserializationSchema;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.*;

public class Look {
    static String read(LogicalType type, DeserializationSchema<RowData> decoder, String value) {
        try {
            decoder.open(null);
            List<RowData> rows = new ArrayList<>();
            decoder.deserialize(value.getBytes(), new ListCollector<>(rows));
            Object read = RowData.createFieldGetter(type, 0).getFieldOrNull(rows.get(0));
            return type instanceof DateType ? LocalDate.ofEpochDay((int) read).toString() : String.valueOf(read);
        } catch (Exception problem) {
            return "refused";
        }
    }

    static void tell(LogicalType type, String... values) {
        RowType row = RowType.of(new LogicalType[] {type}, new String[] {"v"});
        for (String value : values) {
            boolean text = type.is(LogicalTypeFamily.DATETIME) || value.matches("abc|yes|1d|0x1p3|'1'");
            String plain = value.replace("'", "");
            System.out.println(type + " " + value + ": "
                + read(type, new JsonParserRowDataDeserializationSchema(row, InternalTypeInfo.of(row), false, false, TimestampFormat.SQL),
                    "{\"v\":" + (text ? '"' + plain + '"' : plain) + "}") + ", "
                + read(type, new CsvRowDataDeserializationSchema.Builder(row, InternalTypeInfo.of(row)).build(), plain));
        }
    }

    public static void main(String[] arguments) {
        tell(new IntType(), "1.9");
        tell(new TinyIntType(), "1.9");
        tell(new BigIntType(), "9007199254740993.0");
        tell(new BooleanType(), "1", "'1'", "yes");
        tell(new DecimalType(10, 2), "10.005", "123456789012.34");
        tell(new DoubleType(), "1d", "0x1p3", "1e400");
        tell(new VarCharType(VarCharType.MAX_LENGTH), "{\"b\": 1.10}", "1.10");
        tell(new VarCharType(2), "abc");
        tell(new TimestampType(3), "2024-01-01 00:00:00.123456", "2024-02-30 00:00:00");
        tell(new DateType(), "2024-02-30");
        tell(new TimeType(0), "10:00:00.999", "24:00:00");
    }
}
JAVA
java -cp 'lib/*' Look.java 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: numbers and times of other values"
INT 1.9: 1, refused
TINYINT 1.9: refused, refused
BIGINT 9007199254740993.0: 9007199254740992, refused
BOOLEAN 1: false, false
BOOLEAN '1': false, false
BOOLEAN yes: false, false
DECIMAL(10, 2) 10.005: 10.01, 10.01
DECIMAL(10, 2) 123456789012.34: null, null
DOUBLE 1d: 1.0, 1.0
DOUBLE 0x1p3: 8.0, 8.0
DOUBLE 1e400: Infinity, Infinity
STRING {"b": 1.10}: {"b":1.1}, {"b": 1.10}
STRING 1.10: 1.10, 1.10
VARCHAR(2) abc: abc, abc
TIMESTAMP(3) 2024-01-01 00:00:00.123456: 2024-01-01T00:00:00.123456, 2024-01-01T00:00:00.123456
TIMESTAMP(3) 2024-02-30 00:00:00: 2024-02-29T00:00, 2024-02-29T00:00
DATE 2024-02-30: refused, 2024-03-01
TIME(0) 10:00:00.999: 36000999, 36000000
TIME(0) 24:00:00: 0, refused
SEEN
