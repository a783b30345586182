#!/usr/bin/env bash
# debezium-core 3.6.1 with Kafka Connect 4.3.1, seen 2026-12-01: the outbox event router of Debezium (EventRouter with
# table.expand.json.payload) makes another kind of value of a payload for a small difference in it, without an error. Two kinds of
# number in one array (also of a short and a long one) or a blank before the brace leave the whole value a text with JSON in
# it; a field that is null or an empty array is not there; the type of a number is that of this one value, so that the schema
# of the topic changes from record to record. An array of numbers or objects alone is a DataException, which stops the task.
#   payload                    the value of the record
#   {"a":[1,2],"b":1}          {"a":[1,2],"b":1}              a an array of int32, b an int32
#   {"a":[1,2.5],"b":1}        "{\"a\":[1,2.5],\"b\":1}"      a text
#   {"a":[1,3000000000]}       "{\"a\":[1,3000000000]}"       a text
#    {"a":1}                   " {\"a\":1}"                   a text
#   {"a":null,"b":[]}          {}
#   {"a":[{"x":1},{"y":2}]}    {"a":[{"x":1,"y":null},{"x":null,"y":2}]}
#   {"a":3000000000}           {"a":3000000000}               a an int64
#   {"a":1e2}                  {"a":100.0}                    a a double
#   []                         "[]"                           a text without a schema
#   [1,2], [{"a":1}]           DataException: Invalid type for ARRAY: class java.lang.String
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
command -v java >/dev/null && command -v mvn >/dev/null || exit 2
cd "$home"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>io.debezium</groupId><artifactId>debezium-core</artifactId><version>3.6.1.Final</version></dependency>
    <dependency><groupId>io.debezium</groupId><artifactId>debezium-connect-plugins</artifactId><version>3.6.1.Final</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-api</artifactId><version>4.3.1</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-transforms</artifactId><version>4.3.1</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.3.1</version></dependency>
  </dependencies>
</project>
XML
mvn -q dependency:copy-dependencies -DoutputDirectory=lib >/dev/null || exit 2
cat >Look.java <<'JAVA'
import io.debezium.transforms.outbox.EventRouter;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

public class Look {
    static final Schema ROW = SchemaBuilder.struct().field("id", Schema.STRING_SCHEMA).field("aggregatetype", Schema.STRING_SCHEMA)
        .field("aggregateid", Schema.STRING_SCHEMA).field("type", Schema.STRING_SCHEMA)
        .field("payload", SchemaBuilder.string().name("io.debezium.data.Json").optional().build()).build();
    static final Schema SOURCE = SchemaBuilder.struct().field("ts_ms", Schema.INT64_SCHEMA).build();
    static final Schema ENVELOPE = SchemaBuilder.struct().name("outbox.Envelope").field("after", ROW).field("source", SOURCE)
        .field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.INT64_SCHEMA).build();
    static final JsonConverter JSON = new JsonConverter();
    static final EventRouter<SourceRecord> ROUTER = new EventRouter<>();

    static String text(Schema schema) {
        if (schema == null)
            return "none";
        return switch (schema.type()) {
            case STRUCT -> schema.fields().stream().map(each -> each.name() + " " + text(each.schema())).collect(Collectors.joining(", ", "{", "}"));
            case ARRAY -> "array of " + text(schema.valueSchema());
            default -> schema.type().getName();
        };
    }

    static void tell(String payload) {
        Struct row = new Struct(ROW).put("id", "1").put("aggregatetype", "order").put("aggregateid", "7").put("type", "made").put("payload", payload);
        Struct value = new Struct(ENVELOPE).put("after", row).put("source", new Struct(SOURCE).put("ts_ms", 1L)).put("op", "c").put("ts_ms", 1L);
        String told;
        try {
            SourceRecord routed = ROUTER.apply(new SourceRecord(Map.of(), Map.of(), "outbox", 0, Schema.STRING_SCHEMA, "1", ENVELOPE, value));
            told = text(routed.valueSchema()) + ": " + new String(JSON.fromConnectData("t", routed.valueSchema(), routed.value()));
        } catch (DataException problem) {
            told = "DataException: " + problem.getMessage();
        }
        System.out.println(payload + " is " + told);
    }

    public static void main(String[] arguments) {
        JSON.configure(Map.of("schemas.enable", "false"), false);
        ROUTER.configure(Map.of("table.expand.json.payload", "true"));
        for (String payload : new String[] {"{\"a\":[1,2],\"b\":1}", "{\"a\":[1,2.5],\"b\":1}", "{\"a\":[1,3000000000]}", " {\"a\":1}",
                "{\"a\":null,\"b\":[]}", "{\"a\":[{\"x\":1},{\"y\":2}]}", "{\"a\":3000000000}", "{\"a\":1e2}", "[]", "[1,2]", "[{\"a\":1}]"})
            tell(payload);
    }
}
JAVA
java -cp 'lib/*' Look.java 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: the kind of the value depends on the payload"
{"a":[1,2],"b":1} is {a array of int32, b int32}: {"a":[1,2],"b":1}
{"a":[1,2.5],"b":1} is string: "{\"a\":[1,2.5],\"b\":1}"
{"a":[1,3000000000]} is string: "{\"a\":[1,3000000000]}"
 {"a":1} is string: " {\"a\":1}"
{"a":null,"b":[]} is {}: {}
{"a":[{"x":1},{"y":2}]} is {a array of {x int32, y int32}}: {"a":[{"x":1,"y":null},{"x":null,"y":2}]}
{"a":3000000000} is {a int64}: {"a":3000000000}
{"a":1e2} is {a float64}: {"a":100.0}
[] is none: "[]"
[1,2] is DataException: Invalid type for ARRAY: class java.lang.String
[{"a":1}] is DataException: Invalid type for ARRAY: class java.lang.String
SEEN
