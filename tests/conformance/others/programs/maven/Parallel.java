import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

final class Parallel {
    public static void main(String[] words) throws Exception {
        String topic = words[1];
        int count = Integer.parseInt(words[3]);
        Map<String, Object> shared = Map.of("bootstrap.servers", words[0]);
        try (Admin admin = Admin.create(shared)) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
        }
        try (var producer = new KafkaProducer<>(shared, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < count; n++) {
                ProducerRecord<String, String> record = new ProducerRecord<>(topic, "key-" + n, "value " + n);
                record.headers().add("place", Integer.toString(n).getBytes());
                producer.send(record).get();
            }
        }
        Map<String, Object> reading =
                Map.of(
                        "bootstrap.servers", words[0],
                        "group.id", words[2],
                        "auto.offset.reset", "earliest",
                        "enable.auto.commit", false);
        var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
        var options =
                ParallelConsumerOptions.<String, String>builder()
                        .ordering(ProcessingOrder.KEY)
                        .maxConcurrency(8)
                        .consumer(consumer)
                        .build();
        ParallelStreamProcessor<String, String> processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(topic));
        CountDownLatch left = new CountDownLatch(count);
        processor.poll(
                context -> {
                    ConsumerRecord<String, String> read = context.getSingleConsumerRecord();
                    String place = new String(read.headers().lastHeader("place").value());
                    System.out.println(read.key() + "\t" + read.value() + "\t" + place);
                    left.countDown();
                });
        left.await();
        processor.closeDrainFirst();
        System.exit(0); // threads of the processor outlive its close
    }
}
