import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Base64;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;

/** Records as the JSON that every driver speaks. */
final class Wire {
    static final ObjectMapper JSON = new ObjectMapper();

    private Wire() {}

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static ProducerRecord<byte[], byte[]> toProducerRecord(String topic, JsonNode wire) {
        RecordHeaders headers = new RecordHeaders();
        for (JsonNode header : wire.get("h")) {
            headers.add(header.get(0).asText(), bytes(header.get(1)));
        }
        Long timestamp = wire.get("t").isNull() ? null : wire.get("t").asLong();
        int partition = wire.get("p").asInt();
        return new ProducerRecord<>(topic, partition, timestamp, bytes(wire.get("k")), bytes(wire.get("v")), headers);
    }

    static ObjectNode fromConsumerRecord(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode wire = JSON.createObjectNode();
        ArrayNode headers = wire.putArray("h");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        wire.put("k", text(record.key())).put("v", text(record.value())).put("t", record.timestamp());
        return wire.put("p", record.partition()).put("o", record.offset());
    }

    static JsonNode read(String line) throws IOException {
        return JSON.readTree(line);
    }
}
