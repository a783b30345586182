package example;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** A JUnit 5 extension: one broker for all tests of the run, which ends with the Java process. */
public final class Moldau implements BeforeAllCallback, ExtensionContext.Store.CloseableResource {
    private static Moldau shared;
    private Process process;
    private String bootstrapServers;
    private String control;

    @Override
    public void beforeAll(ExtensionContext context) throws IOException {
        if (shared == null) {
            start();
            shared = this;
            context.getRoot().getStore(ExtensionContext.Namespace.GLOBAL).put("moldau", this);
        }
    }

    private void start() throws IOException {
        String command = System.getenv().getOrDefault("MOLDAU", "moldau");
        process = new ProcessBuilder(command, "serve", "--memory", "--port", "0", "--control", "127.0.0.1:0",
                        "--greeting", "json", "--until-eof")
                .redirectError(ProcessBuilder.Redirect.DISCARD)
                .start();
        BufferedReader out = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        JsonNode greeting = new ObjectMapper().readTree(out.readLine());
        bootstrapServers = greeting.get("listeners").get("PLAINTEXT").asText();
        control = greeting.get("control").asText();
    }

    /** The address for {@code bootstrap.servers}. */
    public static String bootstrapServers() {
        return shared.bootstrapServers;
    }

    /** Puts a fault in force, which docs/faults.md describes. */
    public static void fault(String json) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(shared.control + "/v1/faults"))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(json))
                .build();
        HttpResponse<String> answer =
                HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new IllegalArgumentException(answer.body());
        }
    }

    @Override
    public void close() {
        process.destroy();
    }
}
