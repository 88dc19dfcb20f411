import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Apache Kafka's command line tools, one after another, in one JVM.
 *
 * A JVM takes about a second to start and load the tools, and then tens of milliseconds per command, so the oracle tests
 * pay for the start once. Each command sees what a process of its own would give it: its standard input, captured
 * standard output and error, an exit status, and its shutdown hooks (the console producer flushes in one).
 *
 * Protocol, on standard input and output, big-endian: a request is a count and that many strings (class, standard input,
 * arguments...), each an int32 length and UTF-8 bytes; the answer is an int32 status and two such strings, output and
 * error. The end of standard input ends the server. Driven by `apache_kafka.KafkaTools`.
 */
public final class ToolServer {
    /** Unwinds a tool that asked to exit. An Error, so that fewer of the tools' own handlers swallow it. */
    private static final class ToolExit extends Error {
        ToolExit() {
            super(null, null, false, false);
        }
    }

    /** Kept as System.out for good, because Scala's Console and some tools hold on to the first one they see. */
    private static final class Redirect extends OutputStream {
        private volatile OutputStream target = OutputStream.nullOutputStream();

        @Override
        public void write(int b) throws IOException {
            target.write(b);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            target.write(bytes, offset, length);
        }
    }

    private static final Redirect OUT = new Redirect();
    private static final Redirect ERR = new Redirect();
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static volatile Integer exitStatus;

    public static void main(String[] unused) throws Exception {
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(System.out));
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.Procedure exit = (status, message) -> {
            // The first status is the tool's; handlers that catch our Error may ask for another one.
            if (exitStatus == null) {
                exitStatus = status;
                silence();
            }
            throw new ToolExit();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> {
            synchronized (HOOKS) {
                HOOKS.add(hook);
            }
        });
        while (true) {
            int count;
            try {
                count = requests.readInt();
            } catch (EOFException end) {
                System.exit(0);
                return;
            }
            String mainClass = readString(requests);
            byte[] input = readBytes(requests);
            String[] arguments = new String[count - 2];
            for (int i = 0; i < arguments.length; i++)
                arguments[i] = readString(requests);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            int status = run(mainClass, new ByteArrayInputStream(input), arguments, out, err);
            answers.writeInt(status);
            answers.writeInt(out.size());
            out.writeTo(answers);
            answers.writeInt(err.size());
            err.writeTo(answers);
            answers.flush();
        }
    }

    private static int run(String mainClass, InputStream in, String[] arguments, OutputStream out, OutputStream err) {
        System.setIn(in);
        OUT.target = out;
        ERR.target = err;
        exitStatus = null;
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException raised) {
            if (!(raised.getCause() instanceof ToolExit)) {
                raised.getCause().printStackTrace();
                if (exitStatus == null)
                    exitStatus = 1;
            }
        } catch (ReflectiveOperationException noSuchTool) {
            noSuchTool.printStackTrace();
            exitStatus = 127;
        }
        OUT.target = out;
        ERR.target = err;
        runHooks();
        silence();
        return exitStatus == null ? 0 : exitStatus;
    }

    /** What a tool prints after it asked to exit comes from handlers that caught our Error; a process would be gone. */
    private static void silence() {
        System.out.flush();
        System.err.flush();
        OUT.target = OutputStream.nullOutputStream();
        ERR.target = OutputStream.nullOutputStream();
    }

    private static void runHooks() {
        List<Runnable> hooks;
        synchronized (HOOKS) {
            hooks = new ArrayList<>(HOOKS);
            HOOKS.clear();
        }
        for (Runnable hook : hooks) {
            try {
                hook.run();
            } catch (Throwable failure) {
                failure.printStackTrace();
            }
        }
    }

    private static String readString(DataInputStream in) throws IOException {
        return new String(readBytes(in), StandardCharsets.UTF_8);
    }

    private static byte[] readBytes(DataInputStream in) throws IOException {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }
}
