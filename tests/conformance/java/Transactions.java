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
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Operations of transactional producers, by the names that scenarios give them. */
final class Transactions {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> transactors = new HashMap<>();
    private final Map<String, Pipeline> pipelines = new HashMap<>();

    /** The only member of a group, and the producer that writes what it reads. */
    private record Pipeline(KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer) {}

    Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    private KafkaProducer<byte[], byte[]> producer(String id, int timeoutMs) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        config.put("transactional.id", id);
        config.put("transaction.timeout.ms", timeoutMs);
        config.put("linger.ms", "20");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config);
        producer.initTransactions();
        return producer;
    }

    /** Every record is acknowledged when it returns. */
    private static ArrayNode send(KafkaProducer<byte[], byte[]> producer, List<ProducerRecord<byte[], byte[]>> records)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> record : records) {
            sent.add(producer.send(record));
        }
        producer.flush();
        ArrayNode offsets = Wire.JSON.createArrayNode();
        for (Future<RecordMetadata> each : sent) {
            offsets.add(each.get().offset());
        }
        return offsets;
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, boolean commit) {
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    private KafkaProducer<byte[], byte[]> transactor(JsonNode args) {
        return transactors.get(args.get("transactor").asText());
    }

    JsonNode transactorOpen(JsonNode args) {
        int timeoutMs = args.get("timeout_ms").asInt();
        transactors.put(args.get("transactor").asText(), producer(args.get("id").asText(), timeoutMs));
        return null;
    }

    JsonNode transactorBegin(JsonNode args) {
        transactor(args).beginTransaction();
        return null;
    }

    JsonNode transactorSend(JsonNode args) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (JsonNode wire : args.get("records")) {
            records.add(Wire.toProducerRecord(args.get("topic").asText(), wire));
        }
        return send(transactor(args), records);
    }

    JsonNode transactorEnd(JsonNode args) {
        end(transactor(args), args.get("commit").asBoolean());
        return null;
    }

    JsonNode transactorClose(JsonNode args) {
        transactors.remove(args.get("transactor").asText()).close(PATIENCE);
        return null;
    }

    JsonNode pipelineOpen(JsonNode args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("group.id", args.get("group").asText());
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("session.timeout.ms", "6000");
        config.put("heartbeat.interval.ms", "500");
        config.put("max.poll.records", "1"); // a step reads as many as it is told, and its position is after them
        KafkaProducer<byte[], byte[]> producer = producer(args.get("id").asText(), 60_000);
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config);
        consumer.subscribe(List.of(args.get("topic").asText()));
        pipelines.put(args.get("pipeline").asText(), new Pipeline(consumer, producer));
        return null;
    }

    JsonNode pipelineStep(JsonNode args) throws Exception {
        Pipeline pipeline = pipelines.get(args.get("pipeline").asText());
        List<ConsumerRecord<byte[], byte[]>> read = read(pipeline.consumer(), args.get("count").asInt());
        pipeline.producer().beginTransaction();
        List<ProducerRecord<byte[], byte[]>> written = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> each : read) {
            written.add(new ProducerRecord<>(args.get("into").asText(), each.partition(), each.key(), each.value()));
        }
        send(pipeline.producer(), written);
        Map<TopicPartition, OffsetAndMetadata> places = new HashMap<>();
        for (TopicPartition partition : pipeline.consumer().assignment()) {
            places.put(partition, new OffsetAndMetadata(pipeline.consumer().position(partition)));
        }
        pipeline.producer().sendOffsetsToTransaction(places, pipeline.consumer().groupMetadata());
        if (!args.get("end").asText().equals("leave")) {
            end(pipeline.producer(), args.get("end").asText().equals("commit"));
        }
        ArrayNode answer = Wire.JSON.createArrayNode();
        read.forEach(record -> answer.add(Wire.fromConsumerRecord(record)));
        return answer;
    }

    private static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (read.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofSeconds(1)).forEach(read::add);
        }
        return read;
    }

    JsonNode pipelineClose(JsonNode args) {
        Pipeline pipeline = pipelines.remove(args.get("pipeline").asText());
        pipeline.consumer().close();
        pipeline.producer().close(PATIENCE);
        return null;
    }
}
