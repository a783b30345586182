#!/usr/bin/env bash
# kafka-clients 4.3.1, seen 2026-12-01: Serdes.ListSerde, which applications of Kafka Streams use for lists, writes a list of texts
# that ends with an empty one, and cannot read it: the deserializer takes an empty element at the end of the value for the
# end of the stream. Empty texts before others come back, as do nulls.
#   ["a", ""]     01 00000002 00000001 61 00000000    End of the stream was reached prematurely
#   [""]          01 00000001 00000000                End of the stream was reached prematurely
#   ["", "a"]     01 00000002 00000000 00000001 61    the same
#   ["a", null]   01 00000002 00000001 61 ffffffff    the same
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
command -v java >/dev/null && command -v mvn >/dev/null || exit 2
cd "$home"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>4.3.1</version>
  </dependency></dependencies>
</project>
XML
mvn -q dependency:copy-dependencies -DoutputDirectory=lib >/dev/null || exit 2
cat >Look.java <<'JAVA'
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

public class Look {
    public static void main(String[] arguments) {
        Serde<List<String>> serde = Serdes.ListSerde(ArrayList.class, Serdes.String());
        for (List<String> list : List.of(List.of("a", ""), List.of("", "a"), Arrays.asList("a", null), List.of(""))) {
            byte[] value = serde.serializer().serialize("t", list);
            String read;
            try {
                read = serde.deserializer().deserialize("t", value).equals(list) ? "the same" : "another list";
            } catch (SerializationException problem) {
                read = problem.getMessage();
            }
            System.out.println(list.size() + " texts, " + list + ": " + HexFormat.of().formatHex(value) + ", " + read);
        }
    }
}
JAVA
java -cp 'lib/*' Look.java 2>/dev/null | grep -v ERROR | tee seen
diff seen - <<'SEEN' && echo "as seen: a list that ends with an empty text is not read"
2 texts, [a, ]: 0100000002000000016100000000, End of the stream was reached prematurely
2 texts, [, a]: 0100000002000000000000000161, the same
2 texts, [a, null]: 01000000020000000161ffffffff, the same
1 texts, []: 010000000100000000, End of the stream was reached prematurely
SEEN
