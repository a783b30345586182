import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.Record;

/** Produces, then counts by key in a store, and prints each record behind a repartition topic: key, value, header. */
public final class Streams {
    private Streams() {
    }

    public static void main(String[] words) throws Exception {
        String topic = words[1];
        int count = Integer.parseInt(words[3]);
        Map<String, Object> servers = Map.of("bootstrap.servers", words[0]);
        try (Admin admin = Admin.create(servers)) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
        }
        try (var producer = new KafkaProducer<>(servers, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < count; n++) {
                var record = new ProducerRecord<>(topic, "key-" + n, "value " + n);
                record.headers().add("place", String.valueOf(n).getBytes(StandardCharsets.UTF_8));
                producer.send(record);
            }
        }
        CountDownLatch left = new CountDownLatch(count);
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> stream = builder.stream(topic);
        stream.groupByKey().count();
        stream.repartition().process(() -> new Printer(left));
        Properties properties = new Properties();
        properties.putAll(servers);
        properties.put("application.id", words[2]);
        properties.put("group.protocol", "streams");
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("state.dir", Files.createTempDirectory(Path.of("."), "state").toString());
        properties.put("default.key.serde", Serdes.StringSerde.class.getName());
        properties.put("default.value.serde", Serdes.StringSerde.class.getName());
        properties.put("consumer.auto.offset.reset", "earliest");
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            streams.setUncaughtExceptionHandler(problem -> {
                problem.printStackTrace();
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            left.await(50, TimeUnit.SECONDS);
        }
    }

    private record Printer(CountDownLatch left) implements Processor<String, String, Void, Void> {
        @Override
        public void process(Record<String, String> record) {
            var header = new String(record.headers().lastHeader("place").value(), StandardCharsets.UTF_8);
            System.out.println(record.key() + "\t" + record.value() + "\t" + header);
            left.countDown();
        }
    }
}
