import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.kafka.admin.KafkaAdminClient;
import io.vertx.kafka.admin.NewTopic;
import io.vertx.kafka.client.consumer.KafkaConsumer;
import io.vertx.kafka.client.consumer.KafkaConsumerRecord;
import io.vertx.kafka.client.producer.KafkaProducer;
import io.vertx.kafka.client.producer.KafkaProducerRecord;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

final class VertxKafka {
    public static void main(String[] words) throws Exception {
        String topic = words[1];
        int count = Integer.parseInt(words[3]);
        String writes = StringSerializer.class.getName(), reads = StringDeserializer.class.getName();
        Vertx vertx = Vertx.vertx();
        KafkaAdminClient admin = KafkaAdminClient.create(vertx, Map.of("bootstrap.servers", words[0]));
        done(admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))));

        KafkaProducer<String, String> producer = KafkaProducer.create(vertx, Map.of(
                "bootstrap.servers", words[0], "key.serializer", writes, "value.serializer", writes));
        for (int n = 0; n < count; n++) {
            KafkaProducerRecord<String, String> record = KafkaProducerRecord.create(topic, "key-" + n, "value " + n);
            done(producer.send(record.addHeader("place", Integer.toString(n))));
        }

        CountDownLatch left = new CountDownLatch(count);
        KafkaConsumer<String, String> consumer = KafkaConsumer.create(vertx, Map.of(
                "bootstrap.servers", words[0], "group.id", words[2], "auto.offset.reset", "earliest",
                "key.deserializer", reads, "value.deserializer", reads));
        consumer.handler(record -> show(record, left));
        done(consumer.subscribe(topic));
        left.await();
        done(consumer.close());
        System.exit(0);
    }

    private static void show(KafkaConsumerRecord<String, String> record, CountDownLatch left) {
        System.out.println(record.key() + "\t" + record.value() + "\t" + record.headers().get(0).value());
        left.countDown();
    }

    private static void done(Future<?> future) throws Exception {
        future.toCompletionStage().toCompletableFuture().get();
    }
}
