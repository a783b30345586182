import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.pekko.actor.ActorSystem;
import org.apache.pekko.kafka.CommitterSettings;
import org.apache.pekko.kafka.ConsumerMessage.CommittableMessage;
import org.apache.pekko.kafka.ConsumerSettings;
import org.apache.pekko.kafka.ProducerSettings;
import org.apache.pekko.kafka.Subscriptions;
import org.apache.pekko.kafka.javadsl.Committer;
import org.apache.pekko.kafka.javadsl.Consumer;
import org.apache.pekko.kafka.javadsl.Producer;
import org.apache.pekko.stream.javadsl.Source;

final class Pekko {
    public static void main(String[] words) throws Exception {
        String topic = words[1];
        int count = Integer.parseInt(words[3]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", words[0]))) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
        }
        ActorSystem system = ActorSystem.create("other");
        ProducerSettings<String, String> writing =
                ProducerSettings.create(system, new StringSerializer(), new StringSerializer())
                        .withBootstrapServers(words[0]);
        Source.from(IntStream.range(0, count).boxed().toList())
                .map(n -> record(topic, n))
                .runWith(Producer.plainSink(writing), system)
                .toCompletableFuture()
                .get();
        ConsumerSettings<String, String> reading =
                ConsumerSettings.create(system, new StringDeserializer(), new StringDeserializer())
                        .withBootstrapServers(words[0])
                        .withGroupId(words[2])
                        .withProperty("auto.offset.reset", "earliest");
        Consumer.committableSource(reading, Subscriptions.topics(topic))
                .take(count)
                .map(Pekko::shown)
                .map(CommittableMessage::committableOffset)
                .runWith(Committer.sink(CommitterSettings.create(system)), system)
                .toCompletableFuture()
                .get();
        system.terminate();
    }

    private static ProducerRecord<String, String> record(String topic, int n) {
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, "key-" + n, "value " + n);
        record.headers().add("place", Integer.toString(n).getBytes());
        return record;
    }

    private static CommittableMessage<String, String> shown(CommittableMessage<String, String> read) {
        String place = new String(read.record().headers().lastHeader("place").value());
        System.out.println(read.record().key() + "\t" + read.record().value() + "\t" + place);
        return read;
    }
}
