// Confluent's Java client of schema registries, as Apache Flink ships it (under another package), against one registry.
// Driven by test_java_registry.py: argument 0 is the registry, 1 a subject, 2 a record in hexadecimal that names its
// schema. Prints the record as JSON, and one of its own in hexadecimal, and what the client was told besides.

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumReader;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumWriter;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.avro.shaded.org.apache.avro.io.BinaryEncoder;
import org.apache.flink.avro.shaded.org.apache.avro.io.DecoderFactory;
import org.apache.flink.avro.shaded.org.apache.avro.io.EncoderFactory;

public class RegistryClient {
    public static void main(String[] arguments) throws Exception {
        CachedSchemaRegistryClient client = new CachedSchemaRegistryClient(arguments[0], 100);
        String subject = arguments[1];
        ByteBuffer record = ByteBuffer.wrap(HexFormat.of().parseHex(arguments[2]));
        if (record.get() != 0) {
            throw new IllegalArgumentException("no schema is named");
        }
        Schema written = ((AvroSchema) client.getSchemaById(record.getInt())).rawSchema();
        byte[] body = new byte[record.remaining()];
        record.get(body);
        GenericRecord value = new GenericDatumReader<GenericRecord>(written)
                .read(null, DecoderFactory.get().binaryDecoder(body, null));
        System.out.println("read " + value);

        AvroSchema wider = new AvroSchema("{\"type\":\"record\",\"name\":\"Order\",\"fields\":["
                + "{\"name\":\"id\",\"type\":\"long\"},{\"name\":\"note\",\"type\":\"string\",\"default\":\"\"}]}");
        System.out.println("compatible " + client.testCompatibility(subject, wider));
        int id = client.register(subject, wider);
        GenericRecord own = new GenericData.Record(wider.rawSchema());
        own.put("id", 7L);
        own.put("note", "from Java");
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(0);
        out.write(ByteBuffer.allocate(4).putInt(id).array());
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
        new GenericDatumWriter<GenericRecord>(wider.rawSchema()).write(own, encoder);
        encoder.flush();
        System.out.println("wrote " + HexFormat.of().formatHex(out.toByteArray()));
        System.out.println("versions " + client.getAllVersions(subject));
        System.out.println("latest " + client.getLatestSchemaMetadata(subject).getId());
        try {
            client.register(subject, new AvroSchema("{\"type\":\"record\",\"name\":\"Order\",\"fields\":["
                    + "{\"name\":\"id\",\"type\":\"string\"}]}"));
            System.out.println("refused nothing");
        } catch (RestClientException error) {
            System.out.println("refused " + error.getStatus() + " " + error.getErrorCode());
        }
    }
}
