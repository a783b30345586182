import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.AppInfoParser;

/** kafka-clients as a driver: one operation a line on stdin, one answer a line on stdout. */
public final class Driver {
    /** An operation takes its arguments and gives its result. */
    interface Operation {
        JsonNode apply(JsonNode args) throws Exception;
    }

    private static Map<String, Operation> operations(String bootstrap) {
        Records records = new Records(bootstrap);
        Administration admin = new Administration(bootstrap);
        Transactions transactions = new Transactions(bootstrap);
        Readers readers = new Readers(bootstrap);
        Map<String, Operation> table = new HashMap<>();
        table.put("hello", args -> {
            ObjectNode hello = Wire.JSON.createObjectNode();
            hello.putObject("lacks");
            return hello.put("version", "kafka-clients " + AppInfoParser.getVersion());
        });
        table.put("produce", records::produce);
        table.put("consume", records::consume);
        table.put("init_transactions", records::initTransactions);
        table.put("member_open", records::memberOpen);
        table.put("member_state", records::memberState);
        table.put("member_close", records::memberClose);
        table.put("share_open", records::shareOpen);
        table.put("share_state", records::shareState);
        table.put("share_close", records::shareClose);
        table.put("reader_open", readers::open);
        table.put("reader_poll", readers::poll);
        table.put("reader_commit", readers::commit);
        table.put("reader_acknowledge", readers::acknowledge);
        table.put("reader_close", readers::close);
        table.put("transactor_open", transactions::transactorOpen);
        table.put("transactor_begin", transactions::transactorBegin);
        table.put("transactor_send", transactions::transactorSend);
        table.put("transactor_end", transactions::transactorEnd);
        table.put("transactor_close", transactions::transactorClose);
        table.put("pipeline_open", transactions::pipelineOpen);
        table.put("pipeline_step", transactions::pipelineStep);
        table.put("pipeline_close", transactions::pipelineClose);
        table.put("create_topic", admin::createTopic);
        table.put("delete_topic", admin::deleteTopic);
        table.put("list_topics", admin::listTopics);
        table.put("describe_topic", admin::describeTopic);
        table.put("create_partitions", admin::createPartitions);
        table.put("delete_records", admin::deleteRecords);
        table.put("describe_configs", admin::describeConfigs);
        table.put("incremental_alter", admin::incrementalAlter);
        table.put("describe_cluster", admin::describeCluster);
        table.put("list_groups", admin::listGroups);
        table.put("describe_group", admin::describeGroup);
        table.put("delete_group", admin::deleteGroup);
        table.put("alter_offsets", admin::alterOffsets);
        table.put("fetch_offsets", admin::fetchOffsets);
        table.put("delete_offsets", admin::deleteOffsets);
        table.put("list_offsets", admin::listOffsets);
        table.put("describe_log_dirs", admin::describeLogDirs);
        table.put("describe_producers", admin::describeProducers);
        table.put("describe_transaction", admin::describeTransaction);
        table.put("list_transactions", admin::listTransactions);
        table.put("abort_transaction", admin::abortTransaction);
        table.put("fence_producers", admin::fenceProducers);
        table.put("describe_quorum", admin::describeQuorum);
        table.put("describe_features", admin::describeFeatures);
        table.put("list_config_resources", admin::listConfigResources);
        return table;
    }

    private static ObjectNode answer(Map<String, Operation> table, JsonNode request) {
        ObjectNode answer = Wire.JSON.createObjectNode();
        String name = request.get("op").asText();
        Operation operation = table.get(name);
        if (operation == null) {
            return answer.put("unavailable", "the client has no call for " + name.replace('_', ' '));
        }
        try {
            answer.set("result", operation.apply(request.get("args")));
        } catch (ExecutionException failed) {
            refuse(answer, failed.getCause());
        } catch (Exception failed) {
            refuse(answer, failed);
        }
        return answer;
    }

    private static void refuse(ObjectNode answer, Throwable failed) {
        Throwable cause = failed;
        while (Errors.forException(cause) == Errors.UNKNOWN_SERVER_ERROR && cause.getCause() != null) {
            cause = cause.getCause();
        }
        if (Errors.forException(cause) != Errors.UNKNOWN_SERVER_ERROR) {
            answer.put("refused", Errors.forException(cause).name()).put("text", String.valueOf(cause.getMessage()));
        } else if (cause instanceof KafkaException) {
            answer.put("refused", cause.getClass().getSimpleName()).put("text", String.valueOf(cause.getMessage()));
        } else {
            StringWriter trace = new StringWriter();
            failed.printStackTrace(new PrintWriter(trace));
            answer.put("crashed", failed.toString()).put("text", trace.toString());
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Map<String, Operation> table = operations(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(Wire.JSON.writeValueAsString(answer(table, Wire.read(line))));
        }
        Runtime.getRuntime().halt(0);
    }
}
