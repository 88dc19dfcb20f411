// Consumers of the Java client in one JVM, told on standard input when to join and leave, each polling in a thread of its
// own. Commands: `join NAME GROUP PROTOCOL INSTANCE TOPIC` (PROTOCOL is `consumer`, `classic` or `cooperative:SESSION_MS`,
// INSTANCE may be -, TOPIC may be ~PATTERN), `leave NAME`, `die NAME` (without a word to its group), `assigned`, `revoked`
// (how many partitions each had to give up), `overlaps` (partitions that somebody was given while another had them) and
// `quit`. Each is answered by one line. Driven by test_consumer_protocol.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class GroupMembers {
    /** Who owns what, by group and partition: all of this JVM. */
    private static final Map<String, String> OWNERS = new TreeMap<>();
    private static final TreeSet<String> OVERLAPS = new TreeSet<>();

    static final class Member extends Thread implements ConsumerRebalanceListener {
        private final KafkaConsumer<String, String> consumer;
        private final String group;
        private final TreeSet<String> owned = new TreeSet<>();
        private int seen = 0;
        private int revoked = 0;
        private volatile boolean silently = false;
        private String failure = null;

        Member(String bootstrap, String[] command) {
            Properties config = new Properties();
            config.put("bootstrap.servers", bootstrap);
            config.put("client.id", command[1]);
            config.put("group.id", command[2]);
            group = command[2];
            setName(command[1]);
            boolean cooperative = command[3].startsWith("cooperative:");
            config.put("group.protocol", cooperative ? "classic" : command[3]);
            config.put("auto.offset.reset", "earliest");
            config.put("key.deserializer", StringDeserializer.class.getName());
            config.put("value.deserializer", StringDeserializer.class.getName());
            if (command[3].equals("classic")) {
                config.put("heartbeat.interval.ms", "200");
                config.put("session.timeout.ms", "6000");
            }
            if (cooperative) {
                config.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
                config.put("heartbeat.interval.ms", "200");
                config.put("session.timeout.ms", command[3].substring(command[3].indexOf(':') + 1));
            }
            if (!command[4].equals("-")) config.put("group.instance.id", command[4]);
            consumer = new KafkaConsumer<>(config);
            if (command[5].startsWith("~")) {
                consumer.subscribe(new SubscriptionPattern(command[5].substring(1)), this);
            } else {
                consumer.subscribe(List.of(command[5]), this);
            }
        }

        @Override
        public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(partition -> owned.add(partition.toString()));
            synchronized (OWNERS) {
                for (TopicPartition partition : partitions) {
                    String before = OWNERS.put(group + "/" + partition, getName());
                    if (before != null && !before.equals(getName())) OVERLAPS.add(partition + "@" + before);
                }
            }
        }

        @Override
        public synchronized void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(partition -> owned.remove(partition.toString()));
            revoked += partitions.size();
            synchronized (OWNERS) {
                for (TopicPartition partition : partitions) OWNERS.remove(group + "/" + partition, getName());
            }
        }

        @Override
        public void run() {
            try {
                while (true) {
                    int count = consumer.poll(Duration.ofMillis(100)).count();
                    synchronized (this) {
                        seen += count;
                    }
                }
            } catch (WakeupException expected) {
                consumer.close(CloseOptions.groupMembershipOperation(silently
                    ? CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP
                    : CloseOptions.GroupMembershipOperation.DEFAULT));
            } catch (Exception unexpected) {
                synchronized (this) {
                    failure = unexpected.toString();
                }
            }
        }

        synchronized String shown() {
            return failure != null ? "!" + failure.replace(' ', '_') : seen + ":" + String.join(",", owned);
        }

        synchronized int revoked() {
            return revoked;
        }

        void leave() throws InterruptedException {
            consumer.wakeup();
            join();
        }

        void die() throws InterruptedException {
            silently = true;
            leave();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Member> members = new TreeMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = in.readLine()) != null && !line.equals("quit")) {
            String[] command = line.split(" ");
            switch (command[0]) {
                case "join" -> {
                    Member member = new Member(arguments[0], command);
                    members.put(command[1], member);
                    member.start();
                    System.out.println("ok");
                }
                case "leave" -> {
                    members.remove(command[1]).leave();
                    System.out.println("ok");
                }
                case "die" -> {
                    members.remove(command[1]).die();
                    System.out.println("ok");
                }
                case "revoked" -> System.out.println(members.entrySet().stream()
                    .map(entry -> entry.getKey() + "=" + entry.getValue().revoked())
                    .collect(Collectors.joining(" ")));
                case "overlaps" -> {
                    synchronized (OWNERS) {
                        System.out.println(String.join(" ", OVERLAPS));
                    }
                }
                default -> System.out.println(members.entrySet().stream()
                    .map(entry -> entry.getKey() + "=" + entry.getValue().shown())
                    .collect(Collectors.joining(" ")));
            }
        }
        for (Member member : members.values()) member.leave();
    }
}
