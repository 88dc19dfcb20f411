// Stories of transactions as Java's clients tell them; test_transactions.py says which, and reads what is printed.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Produced;

public final class Transactions {
    private static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[1];
        switch (arguments[0]) {
            case "produce" -> produce(arguments[2], arguments[3], Integer.parseInt(arguments[4]));
            case "fence" -> fence(arguments[2], arguments[3]);
            case "transform" ->
                transform(arguments[2], arguments[3], arguments[4], arguments[5], Integer.parseInt(arguments[6]));
            case "streams" -> streams(arguments[2], arguments[3], arguments[4], Integer.parseInt(arguments[5]));
            case "read" -> read(arguments[2], arguments[3]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        // Streams and its clients leave threads that would take their time to end.
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static KafkaProducer<String, String> producer(String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", "30000");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static KafkaConsumer<String, String> consumer(String isolation, Map<String, String> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** Transactions of one record in each of two partitions; every third is aborted, every fifth has two flushes. */
    private static void produce(String topic, String transactionalId, int count) {
        try (KafkaProducer<String, String> producer = producer(transactionalId)) {
            for (int number = 0; number < count; number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 2; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, Integer.toString(number)));
                    if (number % 5 == 0)
                        producer.flush();
                }
                if (number % 3 == 2) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
    }

    /** The second producer of an id ends what the first has begun. Prints what the first hears. */
    private static void fence(String topic, String transactionalId) throws Exception {
        KafkaProducer<String, String> first = producer(transactionalId);
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 0, null, "of the first")).get();
        try (KafkaProducer<String, String> second = producer(transactionalId)) {
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, 0, null, "of the second"));
            second.commitTransaction();
        }
        try {
            first.commitTransaction();
            System.out.println("committed");
        } catch (KafkaException error) {
            System.out.println(error.getClass().getSimpleName());
        }
    }

    /** Consume, transform, produce: each input appears once in the output, though every fourth attempt is aborted. */
    private static void transform(String input, String output, String group, String protocol, int count) {
        Map<String, String> settings = new HashMap<>(Map.of("group.id", group, "group.protocol", protocol));
        settings.put("max.poll.records", "7");
        try (KafkaConsumer<String, String> consumer = consumer("read_committed", settings);
             KafkaProducer<String, String> producer = producer(group + "-transform")) {
            consumer.subscribe(List.of(input));
            int done = 0;
            for (int attempt = 0; done < count; attempt++) {
                var records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty())
                    continue;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                Map<TopicPartition, Long> starts = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    producer.send(new ProducerRecord<>(output, 0, null, record.partition() + ":" + record.value()));
                    starts.putIfAbsent(partition, record.offset());
                    offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (attempt % 4 == 3) {
                    producer.flush();
                    producer.abortTransaction();
                    starts.forEach(consumer::seek);
                } else {
                    producer.commitTransaction();
                    done += records.count();
                }
            }
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
            committed.forEach((partition, offset) -> System.out.println("committed " + partition + " " + offset.offset()));
        }
    }

    /** Counts words exactly once. Ends when `count` words have been counted. */
    private static void streams(String input, String output, String application, int count) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", application);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("commit.interval.ms", "100");
        settings.put("replication.factor", "1");
        settings.put("state.dir", System.getProperty("java.io.tmpdir"));
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(input)
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.cleanUp();
            streams.start();
            Properties reading = new Properties();
            reading.put("bootstrap.servers", bootstrap);
            reading.put("isolation.level", "read_committed");
            Map<String, Long> counts = new HashMap<>();
            try (KafkaConsumer<String, Long> consumer =
                     new KafkaConsumer<>(reading, new StringDeserializer(), new LongDeserializer())) {
                TopicPartition partition = new TopicPartition(output, 0);
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
                while (counts.values().stream().mapToLong(Long::longValue).sum() < count) {
                    if (System.nanoTime() > until)
                        throw new IllegalStateException("after a minute: " + counts + ", " + streams.state());
                    for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(200)))
                        counts.put(record.key(), record.value());
                }
            }
            counts.entrySet().stream().sorted(Map.Entry.comparingByKey())
                .forEach(entry -> System.out.println(entry.getKey() + " " + entry.getValue()));
        }
    }

    /** What a consumer finds up to the end that it is told of, with the partition of each. */
    private static void read(String topic, String isolation) {
        try (KafkaConsumer<String, String> consumer = consumer(isolation, Map.of())) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(info -> partitions.add(new TopicPartition(topic, info.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            Set<TopicPartition> open = new HashSet<>(partitions);
            while (!open.isEmpty()) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100)))
                    System.out.println(record.partition() + " " + record.value());
                open.removeIf(partition -> consumer.position(partition) >= ends.get(partition));
            }
        }
    }
}
