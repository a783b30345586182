import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.listener.MessageListener;

final class Spring {
    public static void main(String[] words) throws Exception {
        String topic = words[1];
        int count = Integer.parseInt(words[3]);
        Map<String, Object> shared = Map.of("bootstrap.servers", words[0]);
        new KafkaAdmin(shared).createOrModifyTopics(new NewTopic(topic, 3, (short) 1));

        DefaultKafkaProducerFactory<String, String> producers =
                new DefaultKafkaProducerFactory<>(shared, new StringSerializer(), new StringSerializer());
        KafkaTemplate<String, String> template = new KafkaTemplate<>(producers);
        for (int n = 0; n < count; n++) {
            ProducerRecord<String, String> record = new ProducerRecord<>(topic, "key-" + n, "value " + n);
            record.headers().add("place", Integer.toString(n).getBytes());
            template.send(record).get();
        }
        producers.destroy();

        CountDownLatch left = new CountDownLatch(count);
        ContainerProperties container = new ContainerProperties(topic);
        container.setGroupId(words[2]);
        container.setMessageListener((MessageListener<String, String>) record -> show(record, left));
        Map<String, Object> reading = Map.of("bootstrap.servers", words[0], "auto.offset.reset", "earliest");
        KafkaMessageListenerContainer<String, String> listener =
                new KafkaMessageListenerContainer<>(
                        new DefaultKafkaConsumerFactory<>(reading, new StringDeserializer(), new StringDeserializer()),
                        container);
        listener.start();
        left.await();
        listener.stop();
        System.exit(0);
    }

    private static void show(ConsumerRecord<String, String> record, CountDownLatch left) {
        String place = new String(record.headers().lastHeader("place").value());
        System.out.println(record.key() + "\t" + record.value() + "\t" + place);
        left.countDown();
    }
}
