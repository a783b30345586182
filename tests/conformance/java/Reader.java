import com.fasterxml.jackson.databind.node.ArrayNode;
import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** A member of a group of any kind that reads, acknowledges and stands still when it is told, and not by itself. */
interface Reader {
    /** The offsets of what it gets until it has so many records, or the time is over. */
    ArrayNode poll(int count, Duration wait);

    /** Classic and consumer groups: commits an offset of partition 0 of a topic. */
    default void commit(String topic, long offset) {
        throw new UnsupportedOperationException("this reader commits no offset");
    }

    /** Share groups: acknowledges what the last poll brought, or the record at one offset of it (-1: all). */
    default void acknowledge(AcknowledgeType verdict, long offset) {
        throw new UnsupportedOperationException("this reader acknowledges nothing");
    }

    void close();

    /** A topic that begins and ends with a slash is an expression. */
    static Reader of(String kind, Properties config, String topic) {
        return switch (kind) {
            case "share" -> new Sharing(config, topic);
            case "streams" -> new Application(config, topic);
            default -> new Consuming(kind, config, topic);
        };
    }

    /** A member of a classic or a consumer group. */
    final class Consuming implements Reader {
        private final Consumer<byte[], byte[]> consumer;

        Consuming(String kind, Properties config, String topic) {
            config.put("group.protocol", kind);
            consumer = new KafkaConsumer<>(config);
            if (!topic.startsWith("/")) {
                consumer.subscribe(List.of(topic));
                return;
            }
            String expression = topic.substring(1, topic.length() - 1);
            if (kind.equals("classic")) {
                consumer.subscribe(Pattern.compile(expression));
            } else {
                consumer.subscribe(new SubscriptionPattern(expression));
            }
        }

        @Override
        public ArrayNode poll(int count, Duration wait) {
            ArrayNode offsets = Wire.JSON.createArrayNode();
            long deadline = System.nanoTime() + wait.toNanos();
            while (offsets.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    offsets.add(record.offset());
                }
            }
            return offsets;
        }

        @Override
        public void commit(String topic, long offset) {
            consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset)));
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    /** A member of a share group. */
    final class Sharing implements Reader {
        private final KafkaShareConsumer<byte[], byte[]> consumer;
        private Collection<ConsumerRecord<byte[], byte[]>> held = new HashSet<>();

        Sharing(Properties config, String topic) {
            config.put("share.acknowledgement.mode", "explicit");
            config.remove("enable.auto.commit");
            config.remove("auto.offset.reset");
            consumer = new KafkaShareConsumer<>(config);
            consumer.subscribe(List.of(topic));
        }

        @Override
        public ArrayNode poll(int count, Duration wait) {
            ArrayNode offsets = Wire.JSON.createArrayNode();
            long deadline = System.nanoTime() + wait.toNanos();
            while (offsets.isEmpty() && System.nanoTime() < deadline) {
                Collection<ConsumerRecord<byte[], byte[]>> found = new HashSet<>();
                consumer.poll(Duration.ofMillis(200)).forEach(found::add);
                held = found;
                held.forEach(record -> offsets.add(record.offset()));
            }
            return offsets;
        }

        @Override
        public void acknowledge(AcknowledgeType verdict, long offset) {
            held.removeIf(record -> {
                boolean isMeant = offset < 0 || record.offset() == offset;
                if (isMeant) {
                    consumer.acknowledge(record, verdict);
                }
                return isMeant;
            });
            if (held.isEmpty()) {
                consumer.commitSync();
            }
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    /** An application of Kafka Streams. It takes each record when `poll` asks for it, and stands still in between. */
    final class Application implements Reader {
        private final KafkaStreams streams;
        private final BlockingQueue<Long> wanted = new ArrayBlockingQueue<>(1_000);
        private final BlockingQueue<Long> taken = new ArrayBlockingQueue<>(1_000);

        Application(Properties config, String topic) {
            config.put("application.id", config.remove("group.id"));
            config.put("group.protocol", "streams");
            config.putIfAbsent("commit.interval.ms", "200");
            config.put("default.key.serde", Serdes.ByteArraySerde.class.getName());
            config.put("default.value.serde", Serdes.ByteArraySerde.class.getName());
            config.keySet().removeAll(Set.of("key.deserializer", "value.deserializer", "enable.auto.commit"));
            StreamsBuilder builder = new StreamsBuilder();
            builder.<byte[], byte[]>stream(topic).foreach((key, value) -> take(Long.parseLong(new String(value))));
            streams = new KafkaStreams(builder.build(), config);
            streams.start();
        }

        private void take(long value) {
            try {
                wanted.take();
                taken.add(value);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }

        @Override
        public ArrayNode poll(int count, Duration wait) {
            ArrayNode values = Wire.JSON.createArrayNode();
            long deadline = System.nanoTime() + wait.toNanos();
            try {
                for (long number = 0; number < count; number++) {
                    wanted.add(number);
                }
                while (values.size() < count) {
                    Long value = taken.poll(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
                    if (value == null) {
                        break;
                    }
                    values.add(value);
                }
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
            return values;
        }

        /** What it still holds is read on, so that its thread can end. */
        @Override
        public void close() {
            for (long number = 0; wanted.remainingCapacity() > 0; number++) {
                wanted.add(number);
            }
            streams.close(Duration.ofSeconds(30));
        }
    }
}
