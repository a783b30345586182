#!/usr/bin/env bash
# connect-transforms 4.3.1, seen 2026-11-30: what transforms of Kafka Connect do to valid values without an error.
#   Cast to string, Timestamp 2024-01-01T10:00Z   2024-01-01T10:00:00.000Z
#   Cast to string, Timestamp 2024-01-01T00:00Z   2024-01-01            the form depends on the value: at midnight a date,
#   Cast to string, Timestamp 1970-01-01T10:00Z   10:00:00.000Z         on the first day of the epoch a time
#   Cast to int8, 300; to int32, 3000000000       44; -1294967296       integers wrap around, and
#   Cast to int32, 1e20; to int64, NaN            2147483647; 0         floats do not
#   Cast to boolean, "1"; "yes"; 0.5              false; false; false   and the number 2 is true
#   Flatten {"a.b":1,"a":{"b":2}}, no schema      {a.b=2}               the later field wins
#   Flatten {"c":[1],"a":{}}, no schema           {c=[1]}               an empty object leaves no field
#   ReplaceField renames=a:b {"a":1,"b":2}        {b=2}                 without a schema; with one it is an error
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
command -v java >/dev/null && command -v mvn >/dev/null || exit 2
cd "$home"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>connect-transforms</artifactId><version>4.3.1</version>
  </dependency></dependencies>
</project>
XML
mvn -q dependency:copy-dependencies -DoutputDirectory=lib >/dev/null || exit 2
cat >Look.java <<'JAVA'
import java.time.Instant;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Cast;
import org.apache.kafka.connect.transforms.Flatten;
import org.apache.kafka.connect.transforms.ReplaceField;
import org.apache.kafka.connect.transforms.Transformation;

public class Look {
    static Object applied(Transformation<SourceRecord> transform, Map<String, ?> settings, Schema schema, Object value) {
        transform.configure(settings);
        return transform.apply(new SourceRecord(null, null, "t", 0, null, null, schema, value)).value();
    }

    static void cast(String type, Schema schema, Object value) {
        Object given = value instanceof Date date ? date.toInstant() : value;
        System.out.println(given + " to " + type + ": " + applied(new Cast.Value<>(), Map.of("spec", type), schema, value));
    }

    static Map<String, Object> fields(Object... pairs) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) fields.put((String) pairs[i], pairs[i + 1]);
        return fields;
    }

    public static void main(String[] arguments) {
        for (String time : new String[] {"2024-01-01T10:00:00Z", "2024-01-01T00:00:00Z", "1970-01-01T10:00:00Z"}) {
            cast("string", Timestamp.SCHEMA, Date.from(Instant.parse(time)));
        }
        cast("int8", null, 300);
        cast("int32", null, 3000000000L);
        cast("int32", null, 1e20);
        cast("int64", null, Double.NaN);
        for (Object given : new Object[] {"1", "yes", 0.5, 2}) cast("boolean", null, given);
        System.out.println(applied(new Flatten.Value<>(), Map.of(), null, fields("a.b", 1, "a", fields("b", 2))));
        System.out.println(applied(new Flatten.Value<>(), Map.of(), null, fields("c", List.of(1), "a", fields())));
        System.out.println(applied(new ReplaceField.Value<>(), Map.of("renames", "a:b"), null, fields("a", 1, "b", 2)));
    }
}
JAVA
TZ=UTC java -cp 'lib/*' Look.java 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: values are changed without an error"
2024-01-01T10:00:00Z to string: 2024-01-01T10:00:00.000Z
2024-01-01T00:00:00Z to string: 2024-01-01
1970-01-01T10:00:00Z to string: 10:00:00.000Z
300 to int8: 44
3000000000 to int32: -1294967296
1.0E20 to int32: 2147483647
NaN to int64: 0
1 to boolean: false
yes to boolean: false
0.5 to boolean: false
2 to boolean: true
{a.b=2}
{c=[1]}
{b=2}
SEEN
