package org.apache.kafka.server.log.remote.storage;

import java.util.*;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;

/**
 * Writes apache_epochs.txt in tests/unit/storage/tiered/metadata: "N" random segments and leaders. It stands in Apache
 * Kafka's package because the question is not public.
 */
public class LeaderHistoryFacts {
    static final TopicIdPartition PARTITION = new TopicIdPartition(new Uuid(7, 8), 0, "t");

    public static void main(String[] arguments) {
        Random random = new Random(3);
        for (int number = 0; number < Integer.parseInt(arguments[0]); number++) {
            long start = random.nextInt(10);
            long last = start + random.nextInt(8);
            TreeMap<Integer, Long> epochs = draw(random, start, last, 3);
            long logStart = random.nextInt(8);
            long logEnd = logStart + 1 + random.nextInt(20);
            TreeMap<Integer, Long> leader;
            if (random.nextInt(2) == 0) {
                logEnd = last + random.nextInt(4);
                leader = changed(random, epochs, last);
            } else {
                leader = draw(random, logStart, logEnd, 4);
            }
            RemoteLogSegmentMetadata segment = new RemoteLogSegmentMetadata(
                new RemoteLogSegmentId(PARTITION, new Uuid(0, 1)), start, last, 5, 1, 6, 100, epochs);
            System.out.println(start + " " + last + " " + text(epochs) + " " + logEnd + " " + text(leader) + " "
                + RemoteLogManager.isRemoteSegmentWithinLeaderEpochs(segment, logEnd, leader));
        }
    }

    static TreeMap<Integer, Long> draw(Random random, long start, long end, int countMax) {
        TreeMap<Integer, Long> epochs = new TreeMap<>();
        int epoch = random.nextInt(3);
        long offset = start;
        epochs.put(epoch, offset);
        while (epochs.size() < countMax && epoch < 5 && offset < end && random.nextInt(3) > 0) {
            epoch += 1 + random.nextInt(2);
            offset += 1 + random.nextInt((int) Math.min(6, end - offset));
            epochs.put(epoch, offset);
        }
        return epochs;
    }

    /** A leader whose epochs are nearly those of the segment. */
    static TreeMap<Integer, Long> changed(Random random, TreeMap<Integer, Long> epochs, long last) {
        TreeMap<Integer, Long> leader = new TreeMap<>(epochs);
        if (random.nextInt(2) == 0) {
            leader.put(leader.lastKey() + 1, last + 1 + random.nextInt(2));
        }
        if (random.nextInt(3) == 0) {
            leader.pollFirstEntry();
        }
        if (random.nextInt(3) == 0 && !leader.isEmpty()) {
            Map.Entry<Integer, Long> first = leader.pollFirstEntry();
            leader.put(first.getKey(), Math.max(0, first.getValue() - random.nextInt(3) + 1));
        }
        if (leader.isEmpty()) {
            leader.put(0, 0L);
        }
        return leader;
    }

    static String text(TreeMap<Integer, Long> epochs) {
        StringJoiner text = new StringJoiner(",");
        epochs.forEach((epoch, offset) -> text.add(epoch + ":" + offset));
        return text.toString();
    }
}
