import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Operations of the producer and the consumer. */
final class Records {
    private static final Map<String, String> STRATEGIES = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "cooperative", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final String bootstrap;
    private final Map<String, Member> members = new HashMap<>();
    private final Map<String, ShareMember> sharers = new HashMap<>();

    Records(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    private Properties producerConfig() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        config.put("max.request.size", "16000000");
        config.put("buffer.memory", "64000000");
        config.put("linger.ms", "50");
        config.put("max.block.ms", "15000");
        config.put("request.timeout.ms", "30000");
        config.put("delivery.timeout.ms", "60000");
        return config;
    }

    private Properties consumerConfig() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        return config;
    }

    JsonNode produce(JsonNode args) throws Exception {
        Properties config = producerConfig();
        config.put("compression.type", args.get("codec").asText());
        config.put("acks", args.get("acks").asText());
        config.put("enable.idempotence", args.get("idempotent").asText());
        ArrayNode offsets = Wire.JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode wire : args.get("records")) {
                sent.add(producer.send(Wire.toProducerRecord(args.get("topic").asText(), wire)));
            }
            producer.flush();
            for (Future<RecordMetadata> each : sent) {
                offsets.add(each.get().offset());
            }
        }
        return offsets;
    }

    JsonNode consume(JsonNode args) {
        Properties config = consumerConfig();
        config.put("auto.offset.reset", args.get("reset").asText());
        if (!args.get("isolation").isNull()) {
            config.put("isolation.level", args.get("isolation").asText());
        }
        TopicPartition partition = new TopicPartition(args.get("topic").asText(), args.get("partition").asInt());
        int count = args.get("count").asInt();
        ArrayNode read = Wire.JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, args.get("offset").asLong());
            // A poll that comes to nothing but aborted records and markers returns at once, without a record.
            long deadline = System.nanoTime() + Duration.ofSeconds(args.get("wait_s").asLong()).toNanos();
            while (read.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (read.size() < count) {
                        read.add(Wire.fromConsumerRecord(record));
                    }
                }
            }
        }
        return read;
    }

    JsonNode initTransactions(JsonNode args) {
        Properties config = producerConfig();
        config.put("transactional.id", args.get("id").asText());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            producer.initTransactions();
        }
        return null;
    }

    JsonNode memberOpen(JsonNode args) {
        Properties config = consumerConfig();
        config.put("group.id", args.get("group").asText());
        if (args.get("strategy").asText().equals("consumer")) {
            config.put("group.protocol", "consumer");
        } else {
            config.put("partition.assignment.strategy", STRATEGIES.get(args.get("strategy").asText()));
            config.put("session.timeout.ms", args.get("session_timeout_ms").asText());
            config.put("heartbeat.interval.ms", "500");
        }
        if (!args.get("instance_id").isNull()) {
            config.put("group.instance.id", args.get("instance_id").asText());
        }
        members.put(args.get("member").asText(), new Member(config, args.get("topic").asText()));
        return null;
    }

    JsonNode memberState(JsonNode args) {
        return members.get(args.get("member").asText()).state();
    }

    JsonNode memberClose(JsonNode args) throws InterruptedException {
        Member member = members.remove(args.get("member").asText());
        member.close();
        return member.state();
    }

    JsonNode shareOpen(JsonNode args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("group.id", args.get("group").asText());
        config.put("max.poll.records", args.get("count").asText());
        sharers.put(args.get("member").asText(), new ShareMember(config, args.get("topic").asText()));
        return null;
    }

    JsonNode shareState(JsonNode args) {
        return sharers.get(args.get("member").asText()).state(args.path("last").asBoolean());
    }

    JsonNode shareClose(JsonNode args) throws InterruptedException {
        ShareMember member = sharers.remove(args.get("member").asText());
        member.close();
        return member.state(true);
    }
}
