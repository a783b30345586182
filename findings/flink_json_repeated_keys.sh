#!/usr/bin/env bash
# flink-json 2.3.0, seen 2026-12-01: a key that is twice in a JSON object empties another column of the row in Apache Flink's
# format `json`, without an error: the default decoder (decode.json-parser.enabled, true) stops after as many known keys as the
# row has columns. So null goes into the column whose key comes last, also in a nested row. Its other decoder takes the last
# value of a key. Keys that are no columns are not counted.
#   value (columns a, b)           default          decode.json-parser.enabled = false
#   {"a":1,"a":2,"b":3}            a=2 b=null       a=2 b=3
#   {"a":1,"b":2,"a":3}            a=1 b=2          a=3 b=2
#   {"n":{"a":1,"a":2,"b":3}}      n=(2, null)      n=(2, 3)
#   {"z":1,"z":2,"a":1,"b":3}      a=1 b=3          a=1 b=3
#   {"a":1,"b":2} {"a":3,"b":4}    a=1 b=2: one row, and the second object is lost, in both
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
    <dependency><groupId>org.apache.flink</groupId><artifactId>flink-table-runtime</artifactId><version>2.3.0</version></dependency>
    <dependency><groupId>org.apache.flink</groupId><artifactId>flink-table-api-java-bridge</artifactId><version>2.3.0</version></dependency>
  </dependencies>
</project>
XML
mvn -q dependency:copy-dependencies -DoutputDirectory=lib >/dev/null || exit 2
cat >Look.java <<'JAVA'
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.functions.util.ListCollector;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.formats.common.TimestampFormat;
import org.apache.flink.formats.json.*;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.*;

public class Look {
    static String text(RowType type, RowData row) {
        List<String> texts = new ArrayList<>();
        for (int place = 0; place < type.getFieldCount(); place++) {
            Object value = RowData.createFieldGetter(type.getTypeAt(place), place).getFieldOrNull(row);
            texts.add(value instanceof RowData nested ? text((RowType) type.getTypeAt(place), nested) : String.valueOf(value));
        }
        return "(" + String.join(", ", texts) + ")";
    }

    static void tell(RowType type, String... values) throws Exception {
        for (String value : values) {
            List<String> seen = new ArrayList<>();
            for (DeserializationSchema<RowData> decoder : List.of(
                    new JsonParserRowDataDeserializationSchema(type, InternalTypeInfo.of(type), false, false, TimestampFormat.SQL),
                    new JsonRowDataDeserializationSchema(type, InternalTypeInfo.of(type), false, false, TimestampFormat.SQL))) {
                decoder.open(null);
                List<RowData> rows = new ArrayList<>();
                decoder.deserialize(value.getBytes(), new ListCollector<>(rows));
                seen.add(String.join(" ", rows.stream().map(row -> text(type, row)).toList()));
            }
            System.out.println(value + "  " + String.join("  ", seen));
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println(JsonFormatOptions.DECODE_JSON_PARSER_ENABLED.key() + " "
            + JsonFormatOptions.DECODE_JSON_PARSER_ENABLED.defaultValue());
        RowType flat = RowType.of(new LogicalType[] {new IntType(), new IntType()}, new String[] {"a", "b"});
        tell(flat, "{\"a\":1,\"b\":3}", "{\"a\":1,\"a\":2,\"b\":3}", "{\"a\":1,\"b\":2,\"a\":3}", "{\"z\":1,\"z\":2,\"a\":1,\"b\":3}",
            "{\"a\":1,\"b\":2} {\"a\":3,\"b\":4}");
        tell(RowType.of(new LogicalType[] {flat}, new String[] {"n"}), "{\"n\":{\"a\":1,\"a\":2,\"b\":3}}");
    }
}
JAVA
java -cp 'lib/*' Look.java 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: a key that is twice empties another column"
decode.json-parser.enabled true
{"a":1,"b":3}  (1, 3)  (1, 3)
{"a":1,"a":2,"b":3}  (2, null)  (2, 3)
{"a":1,"b":2,"a":3}  (1, 2)  (3, 2)
{"z":1,"z":2,"a":1,"b":3}  (1, 3)  (1, 3)
{"a":1,"b":2} {"a":3,"b":4}  (1, 2)  (1, 2)
{"n":{"a":1,"a":2,"b":3}}  ((2, null))  ((2, 3))
SEEN
