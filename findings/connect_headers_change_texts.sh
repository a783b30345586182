#!/usr/bin/env bash
# connect-api 4.3.1, seen 2026-11-30: the default header.converter of Kafka Connect, SimpleHeaderConverter, guesses types of
# headers that are texts, and a source that writes what a sink has read writes other bytes. Its documentation speaks of
# the most appropriate representation; what gets lost on the way it does not say:
#   1:2                      -> INT8 -> 1                        the rest of the text is gone
#   007                      -> INT8 -> 7
#   1.0                      -> INT8 -> 1
#   0.1234567890123456789    -> FLOAT32 -> 0.12345679             a decimal loses digits, an integer of 20 digits none
#   2024-13-45               -> INT32 -> 2025-02-14               no date becomes a date
#   0001-01-01               -> INT32 -> 00:00:00.000Z            a date becomes a time
#   2024-01-01T00:00:00.000Z -> INT64 -> 2024-01-01               a timestamp at midnight becomes a date
#   12345678901234567890     -> BYTES -> 12345678901234567890
#   a:b                      -> STRING -> a:b
# This is with TZ=UTC: in another zone 2024-01-01 becomes 2024-01-01T00:00:00.000Z.
# org.apache.kafka.connect.storage.StringConverter as header.converter keeps each of them.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
command -v java >/dev/null && command -v mvn >/dev/null || exit 2
cd "$home"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>connect-api</artifactId><version>4.3.1</version>
  </dependency></dependencies>
</project>
XML
mvn -q dependency:copy-dependencies -DoutputDirectory=lib >/dev/null || exit 2
cat >Look.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.storage.StringConverter;

public class Look {
    static final String[] TEXTS = {
        "1:2", "007", "1.0", "0.1234567890123456789", "2024-13-45", "0001-01-01", "2024-01-01T00:00:00.000Z",
        "12345678901234567890", "a:b",
    };

    static String passed(HeaderConverter converter, String text) {
        SchemaAndValue read = converter.toConnectHeader("t", "h", text.getBytes());
        return read.schema().type() + " " + new String(converter.fromConnectHeader("t", "h", read.schema(), read.value()));
    }

    public static void main(String[] arguments) {
        SimpleHeaderConverter simple = new SimpleHeaderConverter();
        simple.configure(Map.of());
        StringConverter plain = new StringConverter();
        plain.configure(Map.of("converter.type", "header"));
        for (String text : TEXTS) {
            System.out.println(text + " " + passed(simple, text));
            if (!passed(plain, text).equals("STRING " + text)) System.out.println("StringConverter changes " + text);
        }
    }
}
JAVA
TZ=UTC java -cp 'lib/*' Look.java 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: seven of nine headers come back as other bytes"
1:2 INT8 1
007 INT8 7
1.0 INT8 1
0.1234567890123456789 FLOAT32 0.12345679
2024-13-45 INT32 2025-02-14
0001-01-01 INT32 00:00:00.000Z
2024-01-01T00:00:00.000Z INT64 2024-01-01
12345678901234567890 BYTES 12345678901234567890
a:b STRING a:b
SEEN
