import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;

/** Walks through the Java client's API against one cluster, so that `capture_golden.py` sees its bytes. */
public class CaptureClient {
    static final Duration SHORT = Duration.ofMillis(300);
    static String servers;

    interface Step {
        void run() throws Exception;
    }

    static void attempt(String name, Step step) {
        try {
            step.run();
        } catch (Exception failure) {
            System.err.println(name + ": " + failure);
        }
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(10, TimeUnit.SECONDS);
    }

    static Map<String, Object> with(Object... pairs) {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", servers);
        all.put("client.id", "java");
        for (int i = 0; i < pairs.length; i += 2) all.put((String) pairs[i], pairs[i + 1]);
        return all;
    }

    static Map<String, Object> strings(String role, Object... pairs) {
        Map<String, Object> all = with(pairs);
        String kind = "org.apache.kafka.common.serialization.String" + role;
        all.put("key." + role.toLowerCase(), kind);
        all.put("value." + role.toLowerCase(), kind);
        return all;
    }

    static void produce(String topic) throws Exception {
        try (var producer = new KafkaProducer<String, String>(strings("Serializer", "compression.type", "lz4"))) {
            for (int i = 0; i < 3; i++) producer.send(new ProducerRecord<>(topic, 0, "k" + i, "v" + i)).get();
        }
    }

    static void consume(String topic, String protocol) {
        String group = "java-" + protocol;
        try (var consumer = new KafkaConsumer<String, String>(strings("Deserializer", "group.id", group,
                "group.protocol", protocol, "auto.offset.reset", "earliest"))) {
            consumer.subscribe(List.of(topic));
            for (int i = 0; i < 10; i++) consumer.poll(SHORT);
            consumer.commitSync();
            var partition = new TopicPartition(topic, 0);
            consumer.committed(Set.of(partition));
            consumer.endOffsets(Set.of(partition));
            consumer.offsetsForTimes(Map.of(partition, 1L));
            consumer.listTopics();
        }
    }

    static void share(String topic) {
        try (var consumer = new KafkaShareConsumer<String, String>(strings("Deserializer", "group.id", "java-share"))) {
            consumer.subscribe(List.of(topic));
            for (int i = 0; i < 8; i++) {
                consumer.poll(SHORT);
                if (i == 4) attempt("share produce", () -> produce(topic));
                consumer.commitSync();
            }
        }
    }

    static void transactions(String topic) throws Exception {
        try (var producer = new KafkaProducer<String, String>(strings("Serializer", "transactional.id", "java-txn"))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, "k", "v"));
            producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1, Optional.of(0), "note")),
                new ConsumerGroupMetadata("java-txn-group"));
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, "k", "v")).get();
            producer.abortTransaction();
        }
    }

    static void administer(Admin admin, String topic) throws Exception {
        var partition = new TopicPartition(topic, 0);
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        attempt("describe topics", () -> get(admin.describeTopics(List.of(topic)).allTopicNames()));
        attempt("list topics", () -> get(admin.listTopics().names()));
        attempt("describe cluster", () -> get(admin.describeCluster().nodes()));
        attempt("describe configs", () -> get(admin.describeConfigs(List.of(resource),
            new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(false)).all()));
        attempt("alter configs", () -> get(admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "100000"), AlterConfigOp.OpType.SET)))).all()));
        attempt("list resources", () -> get(admin.listConfigResources().all()));
        attempt("create partitions", () -> get(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all()));
        attempt("list offsets", () -> get(admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all()));
        attempt("max timestamp", () -> get(admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).all()));
        attempt("log dirs", () -> get(admin.describeLogDirs(List.of(1)).allDescriptions()));
        attempt("replica dirs", () -> get(admin.describeReplicaLogDirs(
            List.of(new TopicPartitionReplica(topic, 0, 1))).all()));
        attempt("alter replica dirs", () -> get(admin.alterReplicaLogDirs(
            Map.of(new TopicPartitionReplica(topic, 0, 1), "/nowhere")).all()));
        attempt("quorum", () -> get(admin.describeMetadataQuorum().quorumInfo()));
        attempt("features", () -> get(admin.describeFeatures().featureMetadata()));
        attempt("update features", () -> get(admin.updateFeatures(
            Map.of("group.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
            new UpdateFeaturesOptions().validateOnly(true)).all()));
        attempt("producers", () -> get(admin.describeProducers(List.of(partition)).all()));
        attempt("transactions", () -> get(admin.listTransactions().all()));
        attempt("describe transactions", () -> get(admin.describeTransactions(List.of("java-txn")).all()));
        attempt("fence", () -> get(admin.fenceProducers(List.of("java-txn")).all()));
        attempt("groups", () -> get(admin.listGroups().all()));
        attempt("classic", () -> get(admin.describeClassicGroups(List.of("java-classic")).all()));
        attempt("consumer groups", () -> get(admin.describeConsumerGroups(List.of("java-consumer")).all()));
        attempt("share groups", () -> get(admin.describeShareGroups(List.of("java-share")).all()));
        attempt("streams groups", () -> get(admin.describeStreamsGroups(List.of("none")).all()));
        attempt("offsets", () -> get(admin.listConsumerGroupOffsets("java-classic").all()));
        attempt("alter offsets", () -> get(admin.alterConsumerGroupOffsets("java-classic",
            Map.of(partition, new OffsetAndMetadata(0))).all()));
        attempt("share offsets", () -> get(admin.listShareGroupOffsets(
            Map.of("java-share", new ListShareGroupOffsetsSpec())).all()));
        attempt("alter share offsets", () -> get(admin.alterShareGroupOffsets("java-share", Map.of(partition, 0L)).all()));
        attempt("delete share offsets", () -> get(admin.deleteShareGroupOffsets("java-share", Set.of(topic)).all()));
        attempt("delete offsets", () -> get(admin.deleteConsumerGroupOffsets("java-classic", Set.of(partition)).all()));
        attempt("remove members", () -> get(admin.removeMembersFromConsumerGroup("java-classic",
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody")))).all()));
        attempt("delete groups", () -> get(admin.deleteConsumerGroups(List.of("java-classic")).all()));
        attempt("elect", () -> get(admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).all()));
        attempt("reassignments", () -> get(admin.listPartitionReassignments().reassignments()));
        attempt("reassign", () -> get(admin.alterPartitionReassignments(
            Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(1))))).all()));
        attempt("scram", () -> get(admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
            "alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all()));
        attempt("describe scram", () -> get(admin.describeUserScramCredentials().all()));
        var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "alice"));
        attempt("quotas", () -> get(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1048576.0))))).all()));
        attempt("describe quotas", () -> get(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()));
        var acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
        attempt("create acls", () -> get(admin.createAcls(List.of(acl)).all()));
        attempt("describe acls", () -> get(admin.describeAcls(AclBindingFilter.ANY).values()));
        attempt("delete acls", () -> get(admin.deleteAcls(List.of(acl.toFilter())).all()));
        attempt("create token", () -> get(admin.createDelegationToken().delegationToken()));
        attempt("describe token", () -> get(admin.describeDelegationToken().delegationTokens()));
        attempt("renew token", () -> get(admin.renewDelegationToken(new byte[] {1, 2, 3}).expiryTimestamp()));
        attempt("expire token", () -> get(admin.expireDelegationToken(new byte[] {1, 2, 3}).expiryTimestamp()));
        attempt("delete records", () -> get(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(1))).all()));
        attempt("add voter", () -> get(admin.addRaftVoter(9, Uuid.ONE_UUID,
            Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1))).all()));
        attempt("remove voter", () -> get(admin.removeRaftVoter(9, Uuid.ONE_UUID).all()));
        attempt("unregister", () -> get(admin.unregisterBroker(99).all()));
        attempt("delete topic", () -> get(admin.deleteTopics(List.of("java-gone")).all()));
    }

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        String topic = "java";
        try (Admin admin = Admin.create(with())) {
            attempt("create", () -> get(admin.createTopics(List.of(
                new NewTopic(topic, 1, (short) 1), new NewTopic("java-gone", 1, (short) 1))).all()));
            attempt("share config", () -> get(admin.incrementalAlterConfigs(Map.of(
                new ConfigResource(ConfigResource.Type.GROUP, "java-share"), List.of(new AlterConfigOp(
                    new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all()));
            attempt("produce", () -> produce(topic));
            attempt("consume classic", () -> consume(topic, "classic"));
            attempt("consume consumer", () -> consume(topic, "consumer"));
            attempt("share", () -> share(topic));
            attempt("transactions", () -> transactions(topic));
            administer(admin, topic);
        }
    }
}
