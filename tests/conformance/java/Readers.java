import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Operations of members that do what they are told: `Reader`. */
final class Readers {
    private final String bootstrap;
    private final Map<String, Reader> readers = new HashMap<>();

    Readers(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    private static String name(JsonNode args) {
        return args.get("reader").asText();
    }

    JsonNode open(JsonNode args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", args.get("group").asText());
        config.put("client.id", name(args));
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        args.get("settings").fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
        readers.put(name(args), Reader.of(args.get("kind").asText(), config, args.get("topic").asText()));
        return null;
    }

    JsonNode poll(JsonNode args) {
        Duration wait = Duration.ofMillis(args.get("wait_ms").asLong());
        return readers.get(name(args)).poll(args.get("count").asInt(), wait);
    }

    JsonNode commit(JsonNode args) {
        readers.get(name(args)).commit(args.get("topic").asText(), args.get("offset").asLong());
        return null;
    }

    JsonNode acknowledge(JsonNode args) {
        readers.get(name(args)).acknowledge(AcknowledgeType.valueOf(args.get("verdict").asText()), args.get("offset").asLong());
        return null;
    }

    JsonNode close(JsonNode args) {
        readers.remove(name(args)).close();
        return null;
    }
}
