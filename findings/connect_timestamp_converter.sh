#!/usr/bin/env bash
# connect-transforms 4.3.1, seen 2026-12-01: TimestampConverter of Kafka Connect makes other times of valid texts, without an error.
# Digits after the second are a number of milliseconds, however many there are; what the format does not reach is left out, also
# an offset; a day or month that does not exist is the one after it. Seconds before 1970 are cut towards zero, so -0.5 s is 0,
# and a number of nanoseconds that does not fit is the greatest long. Its documentation names SimpleDateFormat alone.
#   text, format                                                  time
#   2024-01-01T10:00:00.123456, yyyy-MM-dd'T'HH:mm:ss.SSSSSS      2024-01-01T10:02:03.456Z
#   2024-01-01T10:00:00.5, yyyy-MM-dd'T'HH:mm:ss.SSS              2024-01-01T10:00:00.005Z
#   2024-01-01T10:00:00+05:00, yyyy-MM-dd'T'HH:mm:ss              2024-01-01T10:00:00Z
#   2024-02-30, yyyy-MM-dd                                        2024-03-01T00:00:00Z
#   1969-12-31T23:59:58.500Z to seconds                           -1, and 1970-01-01T00:00:01.500Z is 1
#   -1 microsecond to a timestamp                                 1970-01-01T00:00:00Z
#   9999-12-31 to nanoseconds                                     9223372036854775807
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
import java.util.Date;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.TimestampConverter;

public class Look {
    static Object convert(Map<String, String> settings, Schema schema, Object value) {
        TimestampConverter.Value<SourceRecord> transform = new TimestampConverter.Value<>();
        transform.configure(settings);
        Object after = transform.apply(new SourceRecord(null, null, "t", null, schema, value)).value();
        return after instanceof Date date ? date.toInstant() : after;
    }

    public static void main(String[] arguments) {
        for (String[] each : new String[][] {
            {"yyyy-MM-dd'T'HH:mm:ss.SSSSSS", "2024-01-01T10:00:00.123456"}, {"yyyy-MM-dd'T'HH:mm:ss.SSS", "2024-01-01T10:00:00.5"},
            {"yyyy-MM-dd'T'HH:mm:ss", "2024-01-01T10:00:00+05:00"}, {"yyyy-MM-dd", "2024-02-30"}, {"yyyy-MM-dd", "2024-13-45 or so"}})
            System.out.println(each[1] + " by " + each[0] + ": "
                + convert(Map.of("target.type", "Timestamp", "format", each[0]), Schema.STRING_SCHEMA, each[1]));
        for (long millis : new long[] {-1500, 1500})
            System.out.println(new Date(millis).toInstant() + " in seconds: "
                + convert(Map.of("target.type", "unix", "unix.precision", "seconds"), Timestamp.SCHEMA, new Date(millis)));
        for (String precision : new String[] {"microseconds", "nanoseconds"})
            System.out.println("-1 in " + precision + ": "
                + convert(Map.of("target.type", "Timestamp", "unix.precision", precision), Schema.INT64_SCHEMA, -1L));
        System.out.println("9999-12-31 in nanoseconds: "
            + convert(Map.of("target.type", "unix", "unix.precision", "nanoseconds"), Timestamp.SCHEMA, new Date(253402214400000L)));
    }
}
JAVA
java -cp 'lib/*' Look.java 2>/dev/null | tee seen
diff seen - <<'SEEN' && echo "as seen: other times come out"
2024-01-01T10:00:00.123456 by yyyy-MM-dd'T'HH:mm:ss.SSSSSS: 2024-01-01T10:02:03.456Z
2024-01-01T10:00:00.5 by yyyy-MM-dd'T'HH:mm:ss.SSS: 2024-01-01T10:00:00.005Z
2024-01-01T10:00:00+05:00 by yyyy-MM-dd'T'HH:mm:ss: 2024-01-01T10:00:00Z
2024-02-30 by yyyy-MM-dd: 2024-03-01T00:00:00Z
2024-13-45 or so by yyyy-MM-dd: 2025-02-14T00:00:00Z
1969-12-31T23:59:58.500Z in seconds: -1
1970-01-01T00:00:01.500Z in seconds: 1
-1 in microseconds: 1970-01-01T00:00:00Z
-1 in nanoseconds: 1970-01-01T00:00:00Z
9999-12-31 in nanoseconds: 9223372036854775807
SEEN
