import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic from its start with the Java consumer's defaults, by assignment, and prints records and bytes a second.
 *
 * Kafka's own kafka-consumer-perf-test can only subscribe, so it needs consumer groups and counts their rebalance.
 *
 * Arguments: bootstrap servers, topic, partitions, records to read before the clock starts, records in all.
 */
public final class AssignedConsumer {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        int partitions = Integer.parseInt(arguments[2]);
        long warm = Long.parseLong(arguments[3]);
        long wanted = Long.parseLong(arguments[4]);
        List<TopicPartition> assigned = new ArrayList<>();
        for (int i = 0; i < partitions; i++)
            assigned.add(new TopicPartition(arguments[1], i));
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            long records = 0, bytes = 0, countedRecords = 0, countedBytes = 0, start = 0, lastSeen = System.nanoTime();
            while (records < wanted) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofSeconds(1));
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    records++;
                    bytes += record.value().length;
                }
                if (!polled.isEmpty())
                    lastSeen = System.nanoTime();
                else if (System.nanoTime() - lastSeen > 20_000_000_000L)
                    throw new IllegalStateException("no record for 20 s after " + records);
                if (start == 0 && records >= warm) {
                    start = System.nanoTime();
                    countedRecords = records;
                    countedBytes = bytes;
                }
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.printf(Locale.ROOT, "{\"records_s\":%.1f,\"mb_s\":%.3f}%n",
                (records - countedRecords) / seconds, (bytes - countedBytes) / seconds / 1e6);
        }
    }
}
