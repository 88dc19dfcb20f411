// Reads partitions and what is wanted of them, one a line, and prints what Kafka's own PartitionChangeBuilder makes of
// each. Driven by test_partition_changes.py, which says what the columns are.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

public class PartitionChanges {
    private static final String SAME = "=";

    static List<Integer> list(String column) {
        return column.equals("-") ? List.of() : Arrays.stream(column.split(",")).map(Integer::valueOf).toList();
    }

    static int[] array(String column) {
        return list(column).stream().mapToInt(Integer::intValue).toArray();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = in.readLine()) != null) {
            System.out.println(answer(line.split(" ")));
        }
    }

    static String answer(String[] column) {
        int[] replicas = array(column[0]);
        Uuid[] directories = Arrays.stream(replicas).mapToObj(r -> new Uuid(7, r)).toArray(Uuid[]::new);
        PartitionRegistration partition = new PartitionRegistration.Builder().
            setReplicas(replicas).
            setIsr(array(column[1])).
            setLeader(Integer.parseInt(column[2])).
            setElr(array(column[3])).
            setLastKnownElr(array(column[4])).
            setLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(column[5]))).
            setAddingReplicas(array(column[6])).
            setRemovingReplicas(array(column[7])).
            setLeaderEpoch(5).
            setPartitionEpoch(9).
            setDirectories(directories).
            build();
        Set<Integer> active = new HashSet<>(list(column[11]));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition, new Uuid(1, 1), 0, active::contains,
            MetadataVersion.fromFeatureLevel(Short.parseShort(column[18])),
            Integer.parseInt(column[8]), column[9].equals("1"));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(column[10]));
        builder.setDefaultDirProvider(broker -> new Uuid(7, broker));
        if (!column[12].equals(SAME)) builder.setTargetIsr(list(column[12]));
        if (!column[13].equals(SAME)) builder.setTargetReplicas(list(column[13]));
        if (!column[14].equals(SAME)) builder.setTargetAdding(list(column[14]));
        if (!column[15].equals(SAME)) builder.setTargetRemoving(list(column[15]));
        if (!column[16].equals(SAME))
            builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(column[16])));
        if (!column[17].equals(SAME)) builder.setUncleanShutdownReplicas(list(column[17]));
        Optional<ApiMessageAndVersion> built = builder.build();
        if (built.isEmpty()) return "none";
        PartitionChangeRecord record = (PartitionChangeRecord) built.get().message();
        return String.join("|", String.valueOf(record.isr()), String.valueOf(record.leader()),
            String.valueOf(record.replicas()), String.valueOf(record.removingReplicas()),
            String.valueOf(record.addingReplicas()), String.valueOf(record.leaderRecoveryState()),
            String.valueOf(record.eligibleLeaderReplicas()), String.valueOf(record.lastKnownElr()));
    }
}
