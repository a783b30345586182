package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(Moldau.class)
class OrdersTest {
    private static KafkaProducer<String, String> producer() {
        Map<String, Object> settings = Map.of("bootstrap.servers", Moldau.bootstrapServers());
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    @Test
    void anOrderIsRead() throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            producer.send(new ProducerRecord<>("orders", "three rolls")).get();
        }
        Map<String, Object> settings = Map.of("bootstrap.servers", Moldau.bootstrapServers(), "group.id", "kitchen",
                "group.protocol", "consumer", "auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            ConsumerRecords<String, String> records = ConsumerRecords.empty();
            for (int attempt = 0; attempt < 100 && records.isEmpty(); attempt++) {
                records = consumer.poll(Duration.ofMillis(100));
            }
            assertEquals("three rolls", records.iterator().next().value());
        }
    }

    @Test
    void aProducerTriesAgainWhereTheLeaderHasMoved() throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            Moldau.fault("""
                    {"scope": {"api": "Produce", "topic": "retried"}, "when": {"times": 2},
                     "do": {"error": "NOT_LEADER_OR_FOLLOWER"}}""");
            assertEquals(0, producer.send(new ProducerRecord<>("retried", "x")).get().offset());
        }
    }

    @Test
    void aProducerIsToldWhatItMayNotDo() throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            Moldau.fault("""
                    {"scope": {"api": "Produce", "topic": "refused"}, "do": {"error": "TOPIC_AUTHORIZATION_FAILED"}}""");
            ExecutionException refused = assertThrows(ExecutionException.class,
                    () -> producer.send(new ProducerRecord<>("refused", "x")).get());
            assertEquals(TopicAuthorizationException.class, refused.getCause().getClass());
        }
    }

    @Test
    void anIdempotentProducerWritesOnceWhereTheAnswerIsLost() throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            Moldau.fault("""
                    {"scope": {"api": "Produce", "topic": "lost"}, "when": {"once": true}, "do": {"lose_answer": true}}""");
            producer.send(new ProducerRecord<>("lost", "x")).get();
            assertEquals(1, producer.send(new ProducerRecord<>("lost", "y")).get().offset());
        }
    }
}
