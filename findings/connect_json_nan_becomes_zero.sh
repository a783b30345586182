#!/usr/bin/env bash
# connect-json 4.3.1, seen 2026-11-29: JsonConverter writes NaN and Infinity of a double as texts, also with a schema
# part that says double, and reads its own texts back as 0.0 without an error.
#   {"schema":{"type":"double","optional":false},"payload":"NaN"} -> 0.0
#   {"schema":{"type":"double","optional":false},"payload":"Infinity"} -> 0.0
#   {"schema":{"type":"double","optional":false},"payload":1.5} -> 1.5
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
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;

public class Look {
    public static void main(String[] arguments) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "true"), false);
        for (double given : new double[] {Double.NaN, Double.POSITIVE_INFINITY, 1.5}) {
            byte[] written = converter.fromConnectData("t", Schema.FLOAT64_SCHEMA, given);
            System.out.println(new String(written) + " -> " + converter.toConnectData("t", written).value());
        }
    }
}
JAVA
java -cp 'lib/*' Look.java 2>/dev/null | tee seen
[ "$(sed 's/.*-> //' seen | tr '\n' ' ')" = "0.0 0.0 1.5 " ]
