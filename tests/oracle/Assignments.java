// Reads groups, one a line, and prints the target that Kafka's own builder and assignors work out for each, in the order
// of its records. Driven by test_assignments.py, which says what the columns are.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValue;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.TargetAssignmentBuilder;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;
import org.apache.kafka.timeline.SnapshotRegistry;

public class Assignments {
    /** The topics of one line: name:id:partitions:racks, separated by commas. */
    record Topic(String name, Uuid id, int partitionCount, List<String> racks)
        implements CoordinatorMetadataImage.TopicMetadata {
        @Override
        public List<String> partitionRacks(int partition) {
            return new ArrayList<>(racks);
        }
    }

    static final class Image implements CoordinatorMetadataImage {
        final Map<String, Topic> byName = new HashMap<>();
        final Map<Uuid, Topic> byId = new HashMap<>();

        Image(String column) {
            for (String part : split(column)) {
                String[] fields = part.split(":");
                List<String> racks = fields.length > 3 ? List.of(fields[3].split("\\+")) : List.of();
                Topic topic = new Topic(fields[0], Uuid.fromString(fields[1]), Integer.parseInt(fields[2]), racks);
                byName.put(topic.name, topic);
                byId.put(topic.id, topic);
            }
        }

        @Override
        public Set<Uuid> topicIds() {
            return byId.keySet();
        }

        @Override
        public Set<String> topicNames() {
            return byName.keySet();
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(String name) {
            return Optional.ofNullable(byName.get(name));
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(Uuid id) {
            return Optional.ofNullable(byId.get(id));
        }

        @Override
        public CoordinatorMetadataDelta emptyDelta() {
            return CoordinatorMetadataDelta.EMPTY;
        }

        @Override
        public long version() {
            return 1;
        }

        @Override
        public boolean isEmpty() {
            return byName.isEmpty();
        }
    }

    static String[] split(String column) {
        return column.equals("-") ? new String[0] : column.split(",");
    }

    static ConsumerGroupMember member(String[] fields) {
        return new ConsumerGroupMember.Builder(fields[0]).
            setInstanceId(fields[1].equals("=") ? null : fields[1]).
            setSubscribedTopicNames(fields[2].equals("=") ? List.of() : List.of(fields[2].split("\\+"))).
            setRackId(fields[3].equals("=") ? null : fields[3]).
            build();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = in.readLine()) != null) {
            System.out.println(answer(line.split(" ")));
        }
    }

    static String answer(String[] column) {
        Image image = new Image(column[1]);
        if (column[0].equals("hash")) {
            Map<String, Long> hashes = new HashMap<>();
            image.byName.keySet().forEach(name -> hashes.put(name, Utils.computeTopicHash(name, image)));
            return Long.toString(Utils.computeGroupHash(hashes));
        }
        ConsumerGroup group = new ConsumerGroup(new LogContext(), new SnapshotRegistry(new LogContext()), "g");
        for (String part : split(column[2])) {
            String[] fields = part.split(":");
            group.updateMember(member(fields));
            if (fields.length > 4) {
                ConsumerGroupTargetAssignmentMemberValue target = new ConsumerGroupTargetAssignmentMemberValue();
                for (int i = 4; i + 1 < fields.length; i += 2) {
                    List<Integer> partitions = new ArrayList<>();
                    for (String partition : fields[i + 1].split("\\+")) partitions.add(Integer.valueOf(partition));
                    target.topicPartitions().add(new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().
                        setTopicId(Uuid.fromString(fields[i])).setPartitions(partitions));
                }
                group.updateTargetAssignment(fields[0], Assignment.fromRecord(target));
            }
        }
        group.members().values().forEach(group::updateMember);
        ConsumerGroupMember updated = member(column[3].split(":"));
        Set<String> ids = new HashSet<>(group.members().keySet());
        ids.add(updated.memberId());
        String previous = group.staticMemberId(updated.instanceId());
        if (previous != null && !previous.equals(updated.memberId())) ids.remove(previous);
        ConsumerGroupPartitionAssignor assignor = column[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        ConsumerGroupMember before = group.hasMember(updated.memberId())
            ? group.getOrMaybeCreateMember(updated.memberId(), false)
            : previous == null ? null : group.getOrMaybeCreateMember(previous, false);
        var builder = new TargetAssignmentBuilder.ConsumerTargetAssignmentBuilder("g", 7, assignor).
            withTime(Time.SYSTEM).
            withMembers(group.members()).
            withStaticMembers(group.staticMembers()).
            withSubscriptionType(ConsumerGroup.subscriptionType(
                Map.of(), group.computeSubscribedTopicNames(before, updated), ids.size())).
            withTargetAssignment(group.targetAssignment()).
            withInvertedTargetAssignment(group.invertedTargetAssignment()).
            withMetadataImage(image).
            addOrUpdateMember(updated.memberId(), updated);
        if (previous != null && !previous.equals(updated.memberId())) builder.removeMember(previous);
        StringBuilder out = new StringBuilder();
        for (CoordinatorRecord record : builder.build().records()) {
            if (record.key() instanceof ConsumerGroupTargetAssignmentMemberKey key) {
                out.append(out.isEmpty() ? "" : " ").append(key.memberId());
                var value = (ConsumerGroupTargetAssignmentMemberValue) record.value().message();
                value.topicPartitions().forEach(topic ->
                    out.append(":").append(topic.topicId()).append("=").append(topic.partitions()));
            }
        }
        return out.toString().replace(", ", "+");
    }
}
