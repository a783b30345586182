import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** One subscribed consumer with the thread that polls it. */
final class Member implements ConsumerRebalanceListener {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Thread thread;
    private final List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
    private final List<TopicPartition> revoked = new ArrayList<>();
    private final Set<TopicPartition> held = new HashSet<>();
    private int rebalances;
    private volatile boolean stopping;
    private volatile RuntimeException failure;

    Member(Properties config, String topic) {
        consumer = new KafkaConsumer<>(config);
        consumer.subscribe(List.of(topic), this);
        thread = new Thread(this::poll);
        thread.setDaemon(true);
        thread.start();
    }

    private void poll() {
        try {
            while (!stopping) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    synchronized (this) {
                        records.add(record);
                    }
                }
            }
            consumer.commitSync();
            consumer.close();
        } catch (RuntimeException error) {
            failure = error;
        }
    }

    @Override
    public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        rebalances++;
        held.addAll(partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        synchronized (this) {
            revoked.addAll(partitions);
            held.removeAll(partitions);
        }
        consumer.commitSync();
    }

    synchronized JsonNode state() {
        if (failure != null) {
            throw failure;
        }
        ObjectNode state = Wire.JSON.createObjectNode().put("rebalances", rebalances);
        ArrayNode wires = state.putArray("records");
        records.forEach(record -> wires.add(Wire.fromConsumerRecord(record)));
        records.clear();
        pairs(state.putArray("assignment"), held);
        pairs(state.putArray("revoked"), revoked);
        revoked.clear();
        return state;
    }

    private static void pairs(ArrayNode into, Collection<TopicPartition> partitions) {
        partitions.forEach(partition -> into.addArray().add(partition.topic()).add(partition.partition()));
    }

    void close() throws InterruptedException {
        stopping = true;
        thread.join();
        if (failure != null) {
            throw failure;
        }
    }
}
