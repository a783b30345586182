import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Decisions of Apache Kafka's authorizer. Lines in, with tabs between their fields:
 *
 *   acls SUPER_USERS IS_OPEN      a new authorizer; IS_OPEN is allow.everyone.if.no.acl.found
 *   acl KIND NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION      before the first question
 *   ask PRINCIPAL HOST OPERATION KIND [NAME]      without a name: on any resource; one line out, 1 or 0
 */
final class AclOracle {
    private static final Metrics METRICS = new Metrics();

    private final Map<Uuid, StandardAcl> acls = new HashMap<>();
    private Map<String, String> settings = Map.of();
    private StandardAuthorizer authorizer = null;
    private int sets = 0;

    public static void main(String[] arguments) throws Exception {
        AclOracle oracle = new AclOracle();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "acls" -> oracle.begin(fields);
                case "acl" -> oracle.add(fields);
                case "ask" -> out.println(oracle.isAllowed(fields) ? "1" : "0");
                default -> throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }

    private void begin(String[] fields) {
        settings = Map.of("super.users", fields[1], "allow.everyone.if.no.acl.found", fields[2]);
        acls.clear();
        authorizer = null;
    }

    private void add(String[] fields) {
        acls.put(
                Uuid.randomUuid(),
                new StandardAcl(
                        ResourceType.fromCode(Byte.parseByte(fields[1])),
                        fields[2],
                        PatternType.fromCode(Byte.parseByte(fields[3])),
                        fields[4],
                        fields[5],
                        AclOperation.fromCode(Byte.parseByte(fields[6])),
                        AclPermissionType.fromCode(Byte.parseByte(fields[7]))));
    }

    private boolean isAllowed(String[] fields) throws Exception {
        if (authorizer == null) {
            authorizer = new StandardAuthorizer();
            authorizer.configure(settings);
            authorizer.withPluginMetrics(new PluginMetricsImpl(METRICS, Map.of("set", String.valueOf(++sets))));
            authorizer.loadSnapshot(acls);
            authorizer.completeInitialLoad();
        }
        int colon = fields[1].indexOf(':');
        KafkaPrincipal principal = new KafkaPrincipal(fields[1].substring(0, colon), fields[1].substring(colon + 1));
        Client client = new Client(principal, InetAddress.getByName(fields[2]));
        AclOperation operation = AclOperation.fromCode(Byte.parseByte(fields[3]));
        ResourceType kind = ResourceType.fromCode(Byte.parseByte(fields[4]));
        if (fields.length == 5) {
            return authorizer.authorizeByResourceType(client, operation, kind) == AuthorizationResult.ALLOWED;
        }
        ResourcePattern pattern = new ResourcePattern(kind, fields[5], PatternType.LITERAL);
        Action action = new Action(operation, pattern, 1, false, false);
        return authorizer.authorize(client, List.of(action)).get(0) == AuthorizationResult.ALLOWED;
    }

    private record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
