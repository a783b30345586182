import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;

/** One member of a share group with the thread that polls it; the value of a record says what becomes of it. */
final class ShareMember {
    private final KafkaShareConsumer<byte[], byte[]> consumer;
    private final Thread thread;
    private ArrayNode delivered = Wire.JSON.createArrayNode();
    private ArrayNode confirmed = Wire.JSON.createArrayNode();
    private volatile boolean stopping;
    private boolean told;
    private volatile RuntimeException failure;

    ShareMember(Properties config, String topic) {
        config.put("share.acknowledgement.mode", "explicit");
        consumer = new KafkaShareConsumer<>(config);
        consumer.setAcknowledgementCommitCallback(this::acknowledged);
        consumer.subscribe(List.of(topic));
        thread = new Thread(this::poll);
        thread.setDaemon(true);
        thread.start();
    }

    private void poll() {
        try {
            while (!stopping) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    note(record);
                    consumer.acknowledge(record, verdict(record));
                }
                consumer.commitSync();
            }
            consumer.close();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        } catch (RuntimeException error) {
            failure = error;
        }
    }

    private static String text(ConsumerRecord<byte[], byte[]> record) {
        return new String(record.value(), StandardCharsets.UTF_8);
    }

    private static AcknowledgeType verdict(ConsumerRecord<byte[], byte[]> record) {
        String verb = text(record).split(":")[1];
        boolean isReleased = verb.equals("release") || verb.equals("late") && record.deliveryCount().orElseThrow() == 1;
        return verb.equals("reject") ? AcknowledgeType.REJECT : isReleased ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
    }

    /** A record that can not be told any more is not acknowledged. */
    private synchronized void note(ConsumerRecord<byte[], byte[]> record) throws InterruptedException {
        while (told) {
            wait();
        }
        place(delivered, record.partition(), record.offset())
            .put("n", (int) record.deliveryCount().orElseThrow()).put("v", text(record));
    }

    private static ObjectNode place(ArrayNode into, int partition, long offset) {
        return into.addObject().put("p", partition).put("o", offset).put("t", System.currentTimeMillis());
    }

    private synchronized void acknowledged(Map<TopicIdPartition, Set<Long>> offsets, Exception error) {
        if (error == null) {
            offsets.forEach((partition, each) -> each.forEach(offset -> place(confirmed, partition.partition(), offset)));
        }
    }

    /** What happened since the last call; after the last one no further record is acknowledged. */
    synchronized JsonNode state(boolean isLast) {
        if (failure != null) {
            throw failure;
        }
        told = isLast;
        ObjectNode state = Wire.JSON.createObjectNode();
        state.set("delivered", delivered);
        state.set("confirmed", confirmed);
        delivered = Wire.JSON.createArrayNode();
        confirmed = Wire.JSON.createArrayNode();
        return state;
    }

    void close() throws InterruptedException {
        stopping = true;
        thread.join();
    }
}
