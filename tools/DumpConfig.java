// Prints the table of configuration keys of an Apache Kafka release as JSON, for tests/config/kafka-<version>-table.json:
//     java -cp '<jars of kafka_2.13>/*' tools/DumpConfig.java > tests/config/kafka-4.3.1-table.json
// It asks Kafka's own classes; nothing of Kafka's prose is printed.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

public class DumpConfig {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Set<String> SHOWN = Set.of("min", "max", "validString", "validStrings", "isEmptyAllowed");
    private static final List<String> ROWS = new ArrayList<>();

    private static void dump(String scope, ConfigDef definition) throws Exception {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            List<Object> row = new ArrayList<>();
            row.add(scope);
            row.add(key.name);
            row.add(key.type.name());
            row.add(key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            row.add(key.importance.name());
            row.add(!key.hasDefault());
            row.add(key.internalConfig);
            row.add(scope.equals("BROKER") ? modes.get(key.name) : null);
            row.add(key.validator == null ? null : key.validator.getClass().getSimpleName());
            row.add(fields(key.validator));
            ROWS.add("  " + JSON.writeValueAsString(row));
        }
    }

    private static Map<String, String> fields(Object validator) throws Exception {
        Map<String, String> found = new TreeMap<>();
        if (validator != null) {
            for (Field field : validator.getClass().getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && SHOWN.contains(field.getName())) {
                    field.setAccessible(true);
                    found.put(field.getName(), String.valueOf(field.get(validator)));
                }
            }
        }
        return found;
    }

    private static String line(String name, Object value) throws Exception {
        return " " + JSON.writeValueAsString(name) + ": " + JSON.writeValueAsString(value) + ",";
    }

    public static void main(String[] arguments) throws Exception {
        dump("BROKER", kafka.server.KafkaConfig.configDef());
        dump("BROKER", QuotaConfig.brokerQuotaConfigs());
        dump("TOPIC", LogConfig.configDefCopy());
        dump("GROUP", GroupConfig.CONFIG_DEF);
        dump("CLIENT_METRICS", ClientMetricsConfigs.configDef());
        dump("USER_QUOTA", QuotaConfig.scramMechanismsPlusUserAndClientQuotaConfigs());
        dump("IP_QUOTA", QuotaConfig.ipConfigs());

        Map<String, List<String>> ofTopics = new TreeMap<>();
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, synonyms) ->
            ofTopics.put(name, synonyms.stream().map(ConfigSynonym::name).collect(Collectors.toList())));
        Map<String, String> ofGroups = new TreeMap<>();
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach((name, synonym) -> ofGroups.put(name, synonym.orElse(null)));
        Map<String, List<String>> ofBrokers = new TreeMap<>();
        for (String name : new TreeSet<>(kafka.server.KafkaConfig.configDef().names())) {
            List<String> synonyms = DynamicBrokerConfig.brokerConfigSynonyms(name, true);
            if (synonyms.size() > 1) {
                ofBrokers.put(name, synonyms);
            }
        }
        System.out.println("{");
        System.out.println(line("columns", List.of("scope", "name", "type", "default", "importance", "required",
            "internal", "update mode", "validator", "its fields")));
        System.out.println(line("topic synonyms", ofTopics));
        System.out.println(line("group synonyms", ofGroups));
        System.out.println(line("broker synonyms", ofBrokers));
        System.out.println(" \"keys\": [\n" + String.join(",\n", ROWS) + "\n ]\n}");
    }
}
