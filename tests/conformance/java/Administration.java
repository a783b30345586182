import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;

/** Operations of the admin client. */
final class Administration {
    private final Admin admin;

    Administration(String bootstrap) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("default.api.timeout.ms", "30000");
        config.put("request.timeout.ms", "30000");
        admin = Admin.create(config);
    }

    private static TopicPartition partition(JsonNode args) {
        return new TopicPartition(args.get("topic").asText(), args.get("partition").asInt());
    }

    private static ConfigResource resource(JsonNode args) {
        ConfigResource.Type type = ConfigResource.Type.valueOf(args.get("kind").asText().toUpperCase());
        return new ConfigResource(type, args.get("name").asText());
    }

    private static ArrayNode ids(Collection<Node> nodes) {
        ArrayNode ids = Wire.JSON.createArrayNode();
        nodes.forEach(node -> ids.add(node.id()));
        return ids;
    }

    private static ArrayNode names(Collection<String> names) {
        ArrayNode sorted = Wire.JSON.createArrayNode();
        new TreeSet<>(names).forEach(sorted::add);
        return sorted;
    }

    JsonNode createTopic(JsonNode args) throws Exception {
        int partitions = args.get("partitions").asInt();
        int replicas = args.get("replicas").asInt();
        Map<String, String> configs = new HashMap<>();
        args.get("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        NewTopic topic = new NewTopic(
            args.get("topic").asText(),
            partitions == -1 ? Optional.empty() : Optional.of(partitions),
            replicas == -1 ? Optional.empty() : Optional.of((short) replicas));
        admin.createTopics(List.of(topic.configs(configs))).all().get();
        return null;
    }

    JsonNode deleteTopic(JsonNode args) throws Exception {
        admin.deleteTopics(List.of(args.get("topic").asText())).all().get();
        return null;
    }

    JsonNode listTopics(JsonNode args) throws Exception {
        return names(admin.listTopics().names().get());
    }

    JsonNode describeTopic(JsonNode args) throws Exception {
        String topic = args.get("topic").asText();
        TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        ObjectNode answer = Wire.JSON.createObjectNode();
        answer.put("internal", found.isInternal()).put("has id", !found.topicId().equals(Uuid.ZERO_UUID));
        ArrayNode partitions = answer.putArray("partitions");
        for (TopicPartitionInfo info : found.partitions()) {
            ObjectNode each = partitions.addObject().put("id", info.partition()).put("leader", info.leader().id());
            each.set("replicas", ids(info.replicas()));
            each.set("isr", ids(info.isr()));
            each.put("elr", String.valueOf(info.elr()));
        }
        return answer;
    }

    JsonNode createPartitions(JsonNode args) throws Exception {
        NewPartitions wanted = NewPartitions.increaseTo(args.get("total").asInt());
        admin.createPartitions(Map.of(args.get("topic").asText(), wanted)).all().get();
        return null;
    }

    JsonNode deleteRecords(JsonNode args) throws Exception {
        RecordsToDelete until = RecordsToDelete.beforeOffset(args.get("before_offset").asLong());
        TopicPartition partition = partition(args);
        long low = admin.deleteRecords(Map.of(partition, until)).lowWatermarks().get(partition).get().lowWatermark();
        return Wire.JSON.getNodeFactory().numberNode(low);
    }

    JsonNode describeConfigs(JsonNode args) throws Exception {
        ConfigResource resource = resource(args);
        ObjectNode answer = Wire.JSON.createObjectNode();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            ObjectNode each = answer.putObject(entry.name()).put("value", entry.value());
            each.put("source", entry.source().name()).put("type", entry.type().name());
            each.put("read only", entry.isReadOnly()).put("sensitive", entry.isSensitive());
        }
        return answer;
    }

    JsonNode incrementalAlter(JsonNode args) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        for (JsonNode change : args.get("changes")) {
            AlterConfigOp.OpType type = AlterConfigOp.OpType.valueOf(change.get(0).asText().toUpperCase());
            operations.add(new AlterConfigOp(new ConfigEntry(change.get(1).asText(), change.get(2).asText()), type));
        }
        admin.incrementalAlterConfigs(Map.of(resource(args), operations)).all().get();
        return null;
    }

    JsonNode describeCluster(JsonNode args) throws Exception {
        DescribeClusterResult found = admin.describeCluster();
        ObjectNode answer = Wire.JSON.createObjectNode();
        answer.set("nodes", ids(found.nodes().get()));
        answer.put("controller", found.controller().get().id());
        return answer.put("has cluster id", !found.clusterId().get().isEmpty());
    }

    JsonNode listGroups(JsonNode args) throws Exception {
        List<String> groups = new ArrayList<>();
        admin.listGroups().valid().get().forEach(group -> groups.add(group.groupId()));
        return names(groups);
    }

    JsonNode describeGroup(JsonNode args) throws Exception {
        String group = args.get("group").asText();
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        ObjectNode answer = Wire.JSON.createObjectNode();
        answer.put("state", found.groupState().name()).put("type", found.type().name());
        // Which of three brokers it is, placement decides.
        answer.put("protocol", found.partitionAssignor()).put("has coordinator", found.coordinator().id() > 0);
        ArrayNode members = answer.putArray("members");
        for (MemberDescription member : found.members()) {
            members.addObject()
                .put("instance", member.groupInstanceId().orElse(null))
                .put("partitions", member.assignment().topicPartitions().size());
        }
        return answer;
    }

    JsonNode deleteGroup(JsonNode args) throws Exception {
        admin.deleteConsumerGroups(List.of(args.get("group").asText())).all().get();
        return null;
    }

    JsonNode alterOffsets(JsonNode args) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode each : args.get("offsets")) {
            TopicPartition partition = new TopicPartition(each.get(0).asText(), each.get(1).asInt());
            offsets.put(partition, new OffsetAndMetadata(each.get(2).asLong()));
        }
        admin.alterConsumerGroupOffsets(args.get("group").asText(), offsets).all().get();
        return null;
    }

    JsonNode fetchOffsets(JsonNode args) throws Exception {
        ArrayNode answer = Wire.JSON.createArrayNode();
        admin.listConsumerGroupOffsets(args.get("group").asText()).partitionsToOffsetAndMetadata().get().forEach(
            (partition, offset) ->
                answer.addArray().add(partition.topic()).add(partition.partition()).add(offset.offset()));
        return answer;
    }

    JsonNode deleteOffsets(JsonNode args) throws Exception {
        admin.deleteConsumerGroupOffsets(args.get("group").asText(), Set.of(partition(args))).all().get();
        return null;
    }

    JsonNode listOffsets(JsonNode args) throws Exception {
        JsonNode at = args.get("at");
        OffsetSpec spec = at.isNumber() ? OffsetSpec.forTimestamp(at.asLong()) : switch (at.asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest", "last-stable" -> OffsetSpec.latest();
            case "earliest-local" -> OffsetSpec.earliestLocal();
            case "latest-tiered" -> OffsetSpec.latestTiered();
            default -> OffsetSpec.maxTimestamp();
        };
        TopicPartition partition = partition(args);
        boolean stable = at.asText().equals("last-stable");
        ListOffsetsOptions options =
            new ListOffsetsOptions(stable ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED);
        long offset = admin.listOffsets(Map.of(partition, spec), options).partitionResult(partition).get().offset();
        return Wire.JSON.getNodeFactory().numberNode(offset);
    }

    JsonNode describeLogDirs(JsonNode args) throws Exception {
        String topic = args.get("topic").asText();
        ArrayNode answer = Wire.JSON.createArrayNode();
        admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().forEach(directory ->
            directory.replicaInfos().entrySet().stream()
                .filter(entry -> entry.getKey().topic().equals(topic))
                .sorted((left, right) -> left.getKey().partition() - right.getKey().partition())
                .forEach(entry -> answer.addObject()
                    .put("partition", entry.getKey().partition())
                    .put("size", entry.getValue().size())
                    .put("lag", entry.getValue().offsetLag())
                    .put("future", entry.getValue().isFuture())));
        return answer;
    }

    JsonNode describeProducers(JsonNode args) throws Exception {
        TopicPartition partition = partition(args);
        ArrayNode answer = Wire.JSON.createArrayNode();
        for (ProducerState state : admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
            answer.addObject()
                .put("epoch", state.producerEpoch())
                .put("last sequence", state.lastSequence())
                .put("coordinator epoch", state.coordinatorEpoch().orElse(-1))
                .put("in a transaction", state.currentTransactionStartOffset().isPresent());
        }
        return answer;
    }

    JsonNode describeTransaction(JsonNode args) throws Exception {
        String id = args.get("id").asText();
        TransactionDescription found = admin.describeTransactions(List.of(id)).description(id).get();
        ObjectNode answer = Wire.JSON.createObjectNode().put("state", found.state().toString());
        answer.put("epoch", found.producerEpoch()).put("timeout ms", found.transactionTimeoutMs());
        answer.put("has begun", found.transactionStartTimeMs().isPresent());
        ArrayNode partitions = answer.putArray("partitions");
        found.topicPartitions().stream().map(TopicPartition::partition).sorted().forEach(partitions::add);
        return answer;
    }

    JsonNode listTransactions(JsonNode args) throws Exception {
        List<TransactionState> states = new ArrayList<>();
        args.get("states").forEach(state -> states.add(TransactionState.parse(state.asText())));
        ArrayNode answer = Wire.JSON.createArrayNode();
        ListTransactionsOptions options = new ListTransactionsOptions().filterStates(states);
        for (TransactionListing each : admin.listTransactions(options).all().get()) {
            answer.addArray().add(each.transactionalId()).add(each.state().toString());
        }
        return answer;
    }

    /** Ends the transaction that is open in a partition without its coordinator. */
    JsonNode abortTransaction(JsonNode args) throws Exception {
        TopicPartition partition = partition(args);
        for (ProducerState state : admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
            if (state.currentTransactionStartOffset().isPresent()) {
                int coordinatorEpoch = state.coordinatorEpoch().orElse(-1);
                admin.abortTransaction(new AbortTransactionSpec(
                    partition, state.producerId(), (short) state.producerEpoch(), coordinatorEpoch)).all().get();
            }
        }
        return null;
    }

    JsonNode fenceProducers(JsonNode args) throws Exception {
        String id = args.get("id").asText();
        return Wire.JSON.getNodeFactory().numberNode(admin.fenceProducers(List.of(id)).epochId(id).get());
    }

    JsonNode describeQuorum(JsonNode args) throws Exception {
        QuorumInfo found = admin.describeMetadataQuorum().quorumInfo().get();
        ObjectNode answer = Wire.JSON.createObjectNode().put("leader", found.leaderId());
        ArrayNode voters = answer.putArray("voters");
        found.voters().forEach(voter -> voters.addObject()
            .put("id", voter.replicaId())
            .put("has directory", !voter.replicaDirectoryId().equals(Uuid.ZERO_UUID)));
        answer.put("observers", found.observers().size()).put("nodes", found.nodes().size());
        return answer.put("has high watermark", found.highWatermark() > 0);
    }

    JsonNode describeFeatures(JsonNode args) throws Exception {
        ObjectNode answer = Wire.JSON.createObjectNode();
        admin.describeFeatures().featureMetadata().get().finalizedFeatures()
            .forEach((name, range) -> answer.put(name, range.maxVersionLevel()));
        return answer;
    }

    JsonNode listConfigResources(JsonNode args) throws Exception {
        ArrayNode answer = Wire.JSON.createArrayNode();
        admin.listConfigResources().all().get()
            .forEach(resource -> answer.addArray().add(resource.type().name()).add(resource.name()));
        return answer;
    }
}
