// Reads keys in hexadecimal, one a line, and prints the partition that Java's producer chooses for each.
// Driven by test_partitioner.py; the argument is the number of partitions.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class Partitions {
    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        String line;
        while ((line = in.readLine()) != null) {
            byte[] key = HexFormat.of().parseHex(line);
            out.append(BuiltInPartitioner.partitionForKey(key, count)).append('\n');
        }
        System.out.print(out);
    }
}
