// Reads sets of access control entries and questions about them, and prints what Kafka's own StandardAuthorizer answers.
// Driven by test_authorizer.py. A line is a set: `rules SUPERUSERS ALLOW_WHERE_NONE`, then `acl TYPE NAME PATTERN PRINCIPAL
// HOST OPERATION PERMISSION` lines, then `may PRINCIPAL HOST OPERATION TYPE NAME` or `some PRINCIPAL HOST OPERATION TYPE`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Authorizations {
    private static StandardAuthorizer authorizer;
    private static final Map<Uuid, StandardAcl> acls = new HashMap<>();
    private static boolean loaded;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = in.readLine()) != null) {
            String[] column = line.split(" ");
            switch (column[0]) {
                case "rules" -> begin(column);
                case "acl" -> acls.put(new Uuid(3, acls.size() + 1), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(column[1])), column[2],
                    PatternType.fromCode(Byte.parseByte(column[3])), column[4], column[5],
                    AclOperation.fromCode(Byte.parseByte(column[6])),
                    AclPermissionType.fromCode(Byte.parseByte(column[7]))));
                default -> System.out.println(answer(column) == AuthorizationResult.ALLOWED ? "1" : "0");
            }
        }
    }

    static void begin(String[] column) {
        authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
            "super.users", column[1].equals("-") ? "" : column[1], "allow.everyone.if.no.acl.found", column[2]));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        acls.clear();
        loaded = false;
    }

    static AuthorizationResult answer(String[] column) throws Exception {
        if (!loaded) {
            authorizer.loadSnapshot(new HashMap<>(acls));
            authorizer.completeInitialLoad();
            loaded = true;
        }
        KafkaPrincipal principal = SecurityUtils.parseKafkaPrincipal(column[1]);
        RequestContext context = new RequestContext(
            new RequestHeader(ApiKeys.METADATA, (short) 12, "c", 1), "1", InetAddress.getByName(column[2]), principal,
            new ListenerName("L"), SecurityProtocol.PLAINTEXT, ClientInformation.EMPTY, false);
        AclOperation operation = AclOperation.fromCode(Byte.parseByte(column[3]));
        ResourceType type = ResourceType.fromCode(Byte.parseByte(column[4]));
        if (column[0].equals("some")) {
            return authorizer.authorizeByResourceType(context, operation, type);
        }
        List<Action> actions = new ArrayList<>();
        actions.add(new Action(operation, new ResourcePattern(type, column[5], PatternType.LITERAL), 1, false, false));
        return authorizer.authorize(context, actions).get(0);
    }
}
