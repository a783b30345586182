import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * A Kafka Streams application. The arguments are the bootstrap address, the state directory, the processing guarantee,
 * the size of a window, the greatest distance of a click and a purchase, both in milliseconds, and, where there are
 * any, a file of further properties: how to log in, the group protocol.
 *
 * <p>Nothing is late (the grace is a day), so that what each output holds for a key follows from the inputs alone:
 * `tests/conformance/streams/truth.py` computes the same.
 */
public final class ShopApplication {
    private static final Duration GRACE = Duration.ofDays(1);

    private ShopApplication() {
    }

    /** Numbers of records, and what they add up to: "count:sum". */
    private static String added(String total, long amount) {
        int colon = total.indexOf(':');
        long count = Long.parseLong(total.substring(0, colon)) + 1;
        return count + ":" + (Long.parseLong(total.substring(colon + 1)) + amount);
    }

    private static StreamsBuilder topology(Duration window, Duration distance) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> clicks = builder.stream("clicks");
        KStream<String, String> purchases = builder.stream("purchases");
        KTable<String, String> users = builder.table("users");
        users.toStream().to("regions-of-user");

        clicks.groupByKey()
            .aggregate(() -> "0:0", (user, click, total) -> added(total, Long.parseLong(click)))
            .toStream()
            .to("clicks-of-user");
        clicks.groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(window, GRACE))
            .count()
            .toStream((key, count) -> key.key() + "@" + key.window().start())
            .mapValues(String::valueOf)
            .to("clicks-of-window");
        clicks.join(purchases, (click, purchase) -> click + "&" + purchase,
                JoinWindows.ofTimeDifferenceAndGrace(distance, GRACE))
            .to("pairs");

        KStream<String, String> sales = purchases.join(users, (purchase, region) -> region + ":" + purchase);
        sales.to("sales");
        sales.map((user, sale) -> {
                int colon = sale.indexOf(':');
                return KeyValue.pair(sale.substring(0, colon), sale.substring(colon + 1));
            })
            .groupByKey()
            .aggregate(() -> "0:0", (region, purchase, total) -> added(total, Long.parseLong(purchase)))
            .toStream()
            .to("sales-of-region");
        return builder;
    }

    private static Properties config(String bootstrap, String directory, String guarantee) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "shop");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        config.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        config.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, "3");
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "1");
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        // Every update of a store is seen in the output: none that is doubled or lost hides behind a later one.
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        return config;
    }

    public static void main(String[] arguments) throws InterruptedException, IOException {
        Duration window = Duration.ofMillis(Long.parseLong(arguments[3]));
        Duration distance = Duration.ofMillis(Long.parseLong(arguments[4]));
        Properties config = config(arguments[0], arguments[1], arguments[2]);
        if (arguments.length > 5) {
            try (Reader security = Files.newBufferedReader(Path.of(arguments[5]))) {
                config.load(security);
            }
        }
        if (!"streams".equals(config.getProperty("group.protocol"))) {
            // An instance that was killed is missed after 6 s. With the streams protocol the brokers have these settings.
            config.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
            config.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "1500");
        }
        KafkaStreams streams = new KafkaStreams(topology(window, distance).build(), config);
        CountDownLatch stopped = new CountDownLatch(1);
        streams.setStateListener((to, from) -> {
            System.out.println(to);
            if (to.hasCompletedShutdown()) {
                stopped.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("REPLACED " + error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(60))));
        streams.start();
        stopped.await();
    }
}
