import java.io.BufferedReader;
import java.io.FileReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/** Reads lines of name, version and hex; prints what Kafka writes after it has read the bytes, or the failure. */
public class Reencode {
    static final String[] PLACES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.common.metadata.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
        "org.apache.kafka.raft.generated.%s",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.%s",
        "org.apache.kafka.storage.internals.log.generated.%s",
        "org.apache.kafka.server.storage.log.generated.%s",
    };

    static Message make(String name) throws Exception {
        for (String place : PLACES) {
            try {
                return (Message) Class.forName(String.format(place, name)).getDeclaredConstructor().newInstance();
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new IllegalArgumentException("no class for " + name);
    }

    static String write(Message message, short version) {
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    public static void main(String[] arguments) throws Exception {
        try (var lines = new BufferedReader(new FileReader(arguments[0]))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split(" ", -1);
                short version = Short.parseShort(parts[1]);
                try {
                    Message message = make(parts[0]);
                    if (!parts[2].equals("default")) {
                        var data = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(parts[2])));
                        message.read(data, version);
                        if (data.remaining() > 0) throw new IllegalStateException(data.remaining() + " bytes left");
                    }
                    System.out.println(write(message, version));
                } catch (Exception failure) {
                    System.out.println(failure);
                }
            }
        }
    }
}
