#!/usr/bin/env bash
# connect-transforms 4.3.1, seen 2026-12-01: two transforms of Kafka Connect turn deletions of a compacted topic into values and
# values into deletions, without an error, and two refuse a deletion. HoistField makes a value of a tombstone, so the key is
# never deleted by the sink; ExtractField of a value without a schema makes a tombstone where the field is absent, as with a
# misspelt or renamed field: a sink deletes each row. With a schema an unknown field is an error.
#   HoistField f of a tombstone                     {"f":null}
#   ExtractField a of {"b":1}                       a tombstone
#   ExtractField a of {"a":null}                    a tombstone
#   MaskField, ValueToKey of a tombstone            an error: Only Map objects supported in absence of schema, found: null
#   InsertField, ReplaceField, Flatten, Cast        keep a tombstone
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
command -v java >/dev/null && command -v mvn >/dev/null || exit 2
cd "$home"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-transforms</artifactId><version>4.3.1</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.3.1</version></dependency>
  </dependencies>
</project>
XML
mvn -q dependency:copy-dependencies -DoutputDirectory=lib >/dev/null || exit 2
cat >Look.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.*;

public class Look {
    static JsonConverter json = new JsonConverter();

    static void tell(String name, Transformation<SourceRecord> transform, Map<String, String> settings, String value) {
        transform.configure(settings);
        byte[] before = value == null ? null : value.getBytes();
        SourceRecord record = new SourceRecord(null, null, "t", null, null, "key", null, json.toConnectData("t", before).value());
        String after;
        try {
            SourceRecord changed = transform.apply(record);
            byte[] bytes = json.fromConnectData("t", changed.valueSchema(), changed.value());
            after = bytes == null ? "tombstone" : new String(bytes);
        } catch (RuntimeException problem) {
            after = problem.getMessage();
        }
        System.out.println(name + " " + (value == null ? "tombstone" : value) + ": " + after);
    }

    public static void main(String[] arguments) {
        json.configure(Map.of("schemas.enable", "false"), false);
        tell("HoistField f", new HoistField.Value<>(), Map.of("field", "f"), null);
        tell("HoistField f", new HoistField.Value<>(), Map.of("field", "f"), "5");
        for (String value : new String[] {"{\"a\":1}", "{\"b\":1}", "{\"a\":null}", null})
            tell("ExtractField a", new ExtractField.Value<>(), Map.of("field", "a"), value);
        tell("MaskField a", new MaskField.Value<>(), Map.of("fields", "a"), null);
        tell("MaskField a", new MaskField.Value<>(), Map.of("fields", "a"), "{\"a\":null}");
        tell("ValueToKey a", new ValueToKey<>(), Map.of("fields", "a"), null);
        tell("InsertField s", new InsertField.Value<>(), Map.of("static.field", "s", "static.value", "v"), null);
        tell("ReplaceField a", new ReplaceField.Value<>(), Map.of("exclude", "a"), null);
        tell("Flatten", new Flatten.Value<>(), Map.of(), null);
        tell("Cast a", new Cast.Value<>(), Map.of("spec", "a:string"), null);
    }
}
JAVA
java -cp 'lib/*' Look.java 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: tombstones become values, and values become tombstones"
HoistField f tombstone: {"f":null}
HoistField f 5: {"f":5}
ExtractField a {"a":1}: 1
ExtractField a {"b":1}: tombstone
ExtractField a {"a":null}: tombstone
ExtractField a tombstone: tombstone
MaskField a tombstone: Only Map objects supported in absence of schema for [mask fields], found: null
MaskField a {"a":null}: {"a":null}
ValueToKey a tombstone: Only Map objects supported in absence of schema for [copying fields from value to key], found: null
InsertField s tombstone: tombstone
ReplaceField a tombstone: tombstone
Flatten tombstone: tombstone
Cast a tombstone: tombstone
SEEN
