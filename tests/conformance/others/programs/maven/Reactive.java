import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import reactor.core.publisher.Flux;
import reactor.kafka.receiver.KafkaReceiver;
import reactor.kafka.receiver.ReceiverOptions;
import reactor.kafka.sender.KafkaSender;
import reactor.kafka.sender.SenderOptions;
import reactor.kafka.sender.SenderRecord;

final class Reactive {
    public static void main(String[] words) throws Exception {
        String topic = words[1];
        int count = Integer.parseInt(words[3]);
        Map<String, Object> shared = Map.of("bootstrap.servers", words[0]);
        try (Admin admin = Admin.create(shared)) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
        }
        SenderOptions<String, String> sending =
                SenderOptions.<String, String>create(shared)
                        .withKeySerializer(new StringSerializer())
                        .withValueSerializer(new StringSerializer());
        KafkaSender<String, String> sender = KafkaSender.create(sending);
        sender.send(Flux.fromStream(IntStream.range(0, count).mapToObj(n -> record(topic, n)))).blockLast();
        sender.close();
        ReceiverOptions<String, String> receiving =
                ReceiverOptions.<String, String>create(shared)
                        .withKeyDeserializer(new StringDeserializer())
                        .withValueDeserializer(new StringDeserializer())
                        .consumerProperty("group.id", words[2])
                        .consumerProperty("auto.offset.reset", "earliest")
                        .subscription(List.of(topic));
        KafkaReceiver.create(receiving)
                .receive()
                .take(count)
                .doOnNext(
                        read -> {
                            String place = new String(read.headers().lastHeader("place").value());
                            System.out.println(read.key() + "\t" + read.value() + "\t" + place);
                            read.receiverOffset().acknowledge();
                        })
                .blockLast();
    }

    private static SenderRecord<String, String, Integer> record(String topic, int n) {
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, "key-" + n, "value " + n);
        record.headers().add("place", Integer.toString(n).getBytes());
        return SenderRecord.create(record, n);
    }
}
