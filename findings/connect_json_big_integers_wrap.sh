#!/usr/bin/env bash
# connect-json 4.3.1, seen 2026-11-30: JsonConverter with schemas.enable=false reads an integer past the range of a long as
# another number, without an error, and writes that one. A number with a fraction or an exponent becomes a double.
#   9223372036854775807        -> Long 9223372036854775807
#   9223372036854775808        -> Long -9223372036854775808
#   {"id":18446744073709551615} -> HashMap {id=-1}
#   18446744073709551615.5     -> Double 1.8446744073709552E19
# So a sink that reads unsigned 64-bit ids of JSON without a schema stores negative ones.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
command -v java >/dev/null && command -v mvn >/dev/null || exit 2
cd "$home"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.3.1</version>
  </dependency></dependencies>
</project>
XML
mvn -q dependency:copy-dependencies -DoutputDirectory=lib >/dev/null || exit 2
cat >Look.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.connect.json.JsonConverter;

public class Look {
    public static void main(String[] arguments) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), false);
        for (String given : new String[] {
            "9223372036854775807", "9223372036854775808", "{\"id\":18446744073709551615}", "18446744073709551615.5"
        }) {
            Object value = converter.toConnectData("t", given.getBytes()).value();
            System.out.println(given + " -> " + value.getClass().getSimpleName() + " " + value);
        }
    }
}
JAVA
java -cp 'lib/*' Look.java 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: integers past a long wrap around"
9223372036854775807 -> Long 9223372036854775807
9223372036854775808 -> Long -9223372036854775808
{"id":18446744073709551615} -> HashMap {id=-1}
18446744073709551615.5 -> Double 1.8446744073709552E19
SEEN
