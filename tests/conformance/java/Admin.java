import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs commands of the stock mqadmin, a line of stdin each, and prints what each printed, and a line with @@. */
public final class Admin {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(capture);
            System.setErr(capture);
            try {
                MQAdminStartup.main0(line.split(" "), null);
            } finally {
                System.setOut(out);
                System.setErr(err);
            }
            out.println(printed.toString(StandardCharsets.UTF_8));
            out.println("@@");
            out.flush();
        }
        System.exit(0);
    }
}
