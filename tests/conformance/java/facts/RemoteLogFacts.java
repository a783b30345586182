package org.apache.kafka.server.log.remote.metadata.storage;

import java.util.*;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;

/**
 * Writes the facts in tests/unit/storage/tiered/metadata: "bytes" those of apache_bytes.txt, "cache N" the N random
 * sequences of apache_cache.txt. It stands in Apache Kafka's package because the cache is not public.
 */
public class RemoteLogFacts {
    static final int OFFSETS = 16;
    static final int EPOCHS = 4;
    static final TopicIdPartition PARTITION =
        new TopicIdPartition(new Uuid(0x0102030405060708L, 0x890a0b0c0d0e0f10L), 3, "orders");

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("bytes")) {
            writeBytes();
            return;
        }
        for (int number = 0; number < Integer.parseInt(arguments[1]); number++) {
            System.out.println("sequence " + number);
            writeSequence(new Random(number * 7919 + 13));
        }
    }

    // apache_cache.txt

    static void writeSequence(Random random) throws Exception {
        RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
        Set<Integer> finished = new HashSet<>();
        int next = 0;
        int count = 6 + random.nextInt(14);
        for (int step = 0; step < count; step++) {
            String line;
            String result = "ok";
            if (next == 0 || random.nextInt(5) < 2 && next < 12) {
                RemoteLogSegmentMetadata segment = drawSegment(random, next++);
                StringJoiner epochs = new StringJoiner(",");
                segment.segmentLeaderEpochs().forEach((epoch, offset) -> epochs.add(epoch + ":" + offset));
                line = "start " + name(segment) + " " + segment.startOffset() + " " + segment.endOffset() + " " + epochs
                    + (segment.isTxnIdxEmpty() ? " empty" : " txn");
                cache.addCopyInProgressSegment(segment);
            } else {
                int number = random.nextInt(next + (random.nextInt(20) == 0 ? 1 : 0));
                RemoteLogSegmentState state = drawState(random);
                if (state == RemoteLogSegmentState.COPY_SEGMENT_FINISHED && number < next && !finished.add(number)) {
                    continue;
                }
                line = "update " + (char) ('A' + number) + " " + state.id();
                try {
                    cache.updateRemoteLogSegmentMetadata(
                        new RemoteLogSegmentMetadataUpdate(segmentId(number), 7, Optional.empty(), state, 1));
                } catch (IllegalArgumentException refused) {
                    result = refused.getClass().getSimpleName();
                }
            }
            System.out.println(line + " = " + result + " " + describe(cache));
        }
    }

    static RemoteLogSegmentId segmentId(int number) {
        return new RemoteLogSegmentId(PARTITION, new Uuid(0, number));
    }

    static RemoteLogSegmentMetadata drawSegment(Random random, int number) {
        long start = random.nextInt(OFFSETS - 1);
        long end = start + random.nextInt((int) (OFFSETS - start));
        TreeMap<Integer, Long> epochs = new TreeMap<>();
        int epoch = random.nextInt(EPOCHS);
        long offset = start;
        epochs.put(epoch, offset);
        while (random.nextInt(3) == 0 && epoch < EPOCHS - 1 && offset < end) {
            epoch += 1 + random.nextInt(EPOCHS - 1 - epoch);
            offset += 1 + random.nextInt((int) (end - offset));
            epochs.put(epoch, offset);
        }
        boolean isTransactionIndexEmpty = random.nextInt(2) == 0;
        return new RemoteLogSegmentMetadata(
            segmentId(number), start, end, 5, 1, 6, 100, epochs, isTransactionIndexEmpty);
    }

    static RemoteLogSegmentState drawState(Random random) {
        int drawn = random.nextInt(10);
        if (drawn < 6) {
            return RemoteLogSegmentState.COPY_SEGMENT_FINISHED;
        }
        if (drawn < 8) {
            return RemoteLogSegmentState.DELETE_SEGMENT_STARTED;
        }
        return drawn < 9 || random.nextInt(3) > 0
            ? RemoteLogSegmentState.DELETE_SEGMENT_FINISHED : RemoteLogSegmentState.COPY_SEGMENT_STARTED;
    }

    static String name(RemoteLogSegmentMetadata segment) {
        return String.valueOf((char) ('A' + segment.remoteLogSegmentId().id().getLeastSignificantBits()));
    }

    static String describe(RemoteLogMetadataCache cache) throws Exception {
        List<String> states = new ArrayList<>();
        cache.listAllRemoteLogSegments().forEachRemaining(each -> states.add(name(each) + each.state().id()));
        Collections.sort(states);
        StringBuilder text = new StringBuilder(String.join("", states));
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            StringBuilder read = new StringBuilder();
            StringBuilder withTransactions = new StringBuilder();
            for (int offset = 0; offset < OFFSETS; offset++) {
                read.append(cache.remoteLogSegmentMetadata(epoch, offset).map(RemoteLogFacts::name).orElse("."));
                withTransactions.append(
                    cache.nextSegmentWithTxnIndex(epoch, offset).map(RemoteLogFacts::name).orElse("."));
            }
            StringBuilder listed = new StringBuilder();
            try {
                cache.listRemoteLogSegments(epoch).forEachRemaining(each -> listed.append(name(each)));
            } catch (RemoteResourceNotFoundException lost) {
                listed.append("?");
            }
            text.append(" | ").append(read).append(" ").append(withTransactions).append(" ")
                .append(cache.highestOffsetForEpoch(epoch).map(String::valueOf).orElse("-")).append(" ")
                .append(listed.length() == 0 ? "-" : listed);
        }
        return text.toString();
    }

    // apache_bytes.txt

    static void writeBytes() {
        RemoteLogSegmentId id = new RemoteLogSegmentId(PARTITION, new Uuid(0xf1e2d3c4b5a69788L, 0x1122334455667788L));
        TreeMap<Integer, Long> one = new TreeMap<>(Map.of(7, 100L));
        TreeMap<Integer, Long> two = new TreeMap<>(Map.of(7, 100L, 9, 150L));
        Optional<CustomMetadata> custom = Optional.of(new CustomMetadata(new byte[] {1, 2, 3}));
        long written = 1700000001000L;
        long later = 1700000002000L;
        long latest = 1700000000123L;
        write("started", new RemoteLogSegmentMetadata(id, 100, 199, latest, 2, written, 1048576, one));
        write("started_without_transactions",
            new RemoteLogSegmentMetadata(id, 100, 199, latest, 2, written, 1048576, two, true));
        write("finished_with_custom", new RemoteLogSegmentMetadata(
            id, 100, 199, -1, 2, written, 1048576, custom, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, two));
        for (RemoteLogSegmentState state : RemoteLogSegmentState.values()) {
            if (state != RemoteLogSegmentState.COPY_SEGMENT_STARTED) {
                write("update_" + state.id(), new RemoteLogSegmentMetadataUpdate(id, later, Optional.empty(), state, 4));
            }
        }
        write("update_with_custom", new RemoteLogSegmentMetadataUpdate(
            id, later, custom, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 4));
        for (RemotePartitionDeleteState state : RemotePartitionDeleteState.values()) {
            write("delete_" + state.id(), new RemotePartitionDeleteMetadata(PARTITION, state, 1700000003000L, 5));
        }
        write("snapshot", RemoteLogSegmentMetadataSnapshot.create(new RemoteLogSegmentMetadata(id, 100, 199, latest, 2,
            written, 1048576, custom, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, two, true)));
        Random random = new Random(5);
        for (int number = 0; number < 24; number++) {
            long most = random.nextLong();
            long least = random.nextLong();
            int partition = number < 4 ? number : random.nextInt(5000);
            int count = number % 3 == 0 ? 50 : 1 + random.nextInt(200);
            TopicIdPartition each = new TopicIdPartition(new Uuid(most, least), partition, "t");
            System.out.println("partition " + HexFormat.of().toHexDigits(most) + HexFormat.of().toHexDigits(least) + " "
                + partition + " " + count + " " + new RemoteLogMetadataTopicPartitioner(count).metadataPartition(each));
        }
    }

    static void write(String name, RemoteLogMetadata metadata) {
        System.out.println(name + " " + HexFormat.of().formatHex(new RemoteLogMetadataSerde().serialize(metadata)));
    }
}
