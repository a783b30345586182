import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Compiles against kafka-clients from 0.11 to 4: what they do not share is called by its name. */
final class Clients {
    public static void main(String[] words) throws Exception {
        String topic = words[1];
        int count = Integer.parseInt(words[3]);
        Properties config = new Properties();
        config.put("bootstrap.servers", words[0]);
        config.put("group.id", words[2]);
        config.put("auto.offset.reset", "earliest");
        config.put("acks", "all");
        for (String end : new String[] {"key", "value"}) {
            config.put(end + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            config.put(end + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        try (AdminClient admin = AdminClient.create(config)) {
            admin.createTopics(Collections.singleton(new NewTopic(topic, 3, (short) 1))).all().get();
        }
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            for (int n = 0; n < count; n++) {
                ProducerRecord<String, String> record = new ProducerRecord<>(topic, "key-" + n, "value " + n);
                record.headers().add("place", Integer.toString(n).getBytes());
                producer.send(record).get();
            }
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(Collections.singleton(topic));
            for (int left = count; left > 0; ) {
                for (ConsumerRecord<String, String> record : poll(consumer)) {
                    String place = new String(record.headers().lastHeader("place").value());
                    System.out.println(record.key() + "\t" + record.value() + "\t" + place);
                    left--;
                }
            }
            consumer.commitSync();
        }
    }

    /** `poll(Duration)` since 2.0, `poll(long)` before. */
    @SuppressWarnings("unchecked")
    private static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        Object found;
        try {
            found = KafkaConsumer.class.getMethod("poll", Duration.class).invoke(consumer, Duration.ofSeconds(1));
        } catch (NoSuchMethodException older) {
            found = KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 1000L);
        } catch (InvocationTargetException failed) {
            throw (Exception) failed.getCause();
        }
        return (ConsumerRecords<String, String>) found;
    }
}
