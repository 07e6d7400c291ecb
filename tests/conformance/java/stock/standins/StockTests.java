package standins;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.junit.Test;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs JUnit classes one after another, each within a time, and prints a line per test: outcome,
 * class, test, milliseconds, reason, separated by tabs. Tests' own output goes to stderr, as far as
 * it is of some use: one of them prints a million traces.
 *
 * <p>What fails is tried once more by itself, as these tests count on times of their own; the line
 * tells it.
 *
 * <p>Arguments: the limit in seconds; classes to run; and, with a leading minus, classes of which
 * only the tests' names are wanted.
 */
public final class StockTests {
    private static final PrintStream OUT = System.out;
    private static final Bounded LOG = new Bounded(System.err);
    private static final long ENDING_MS = 5_000;

    private StockTests() {
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(new PrintStream(LOG, true));
        System.setErr(System.out);
        long limitMs = Long.parseLong(arguments[0]) * 1_000;
        for (int i = 1; i < arguments.length; i++) {
            if (arguments[i].startsWith("-")) {
                Class<?> type = load(arguments[i].substring(1));
                tests(type).forEach(test -> say(type, test, new Outcome("listed", 0, "")));
            } else {
                run(load(arguments[i]), limitMs);
            }
        }
        System.exit(0); // Clients leave threads behind that are no daemons.
    }

    private static void run(Class<?> type, long limitMs) throws InterruptedException {
        LOG.begin();
        System.err.println("== " + type.getName());
        Map<String, Outcome> outcomes = attempt(type, tests(type), Request.aClass(type), limitMs);
        for (Map.Entry<String, Outcome> each : outcomes.entrySet()) {
            String test = each.getKey();
            Outcome outcome = each.getValue();
            if (outcome.kind.equals("failed")) {
                Outcome again =
                    attempt(type, Set.of(test), Request.method(type, test), limitMs).get(test);
                outcome = again.kind.equals("passed")
                    ? new Outcome("passed", again.ms, "at the second try; first: " + outcome.reason)
                    : again;
            }
            say(type, test, outcome);
        }
    }

    /** The outcome of each of these tests, whatever becomes of the class. */
    private static Map<String, Outcome> attempt(
        Class<?> type, Set<String> tests, Request request, long limitMs)
        throws InterruptedException {
        Outcomes outcomes = new Outcomes(type);
        JUnitCore core = new JUnitCore();
        core.addListener(outcomes);
        Thread thread = new Thread(() -> core.run(request), type.getSimpleName());
        thread.start();
        thread.join(limitMs);
        boolean late = thread.isAlive();
        if (late) {
            thread.interrupt();
            thread.join(ENDING_MS);
        }
        return outcomes.of(tests, late ? "no end within " + limitMs / 1_000 + " s" : "did not run");
    }

    private static Class<?> load(String name) throws ClassNotFoundException {
        return Class.forName(name, false, StockTests.class.getClassLoader());
    }

    private static Set<String> tests(Class<?> type) {
        Set<String> names = new TreeSet<>();
        for (Method method : type.getMethods()) {
            if (method.isAnnotationPresent(Test.class)) {
                names.add(method.getName());
            }
        }
        return names;
    }

    private static void say(Class<?> type, String test, Outcome outcome) {
        String reason = outcome.reason.replaceAll("\\s+", " ");
        String ms = Long.toString(outcome.ms);
        OUT.println(String.join("\t", outcome.kind, type.getName(), test, ms, reason));
    }

    /** Drops what is written beyond so many bytes since the last begin. */
    private static final class Bounded extends FilterOutputStream {
        private static final int BYTES_MAX = 1 << 20;
        private int left;

        Bounded(OutputStream out) {
            super(out);
        }

        synchronized void begin() {
            left = BYTES_MAX;
        }

        @Override
        public synchronized void write(int one) throws IOException {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) throws IOException {
            if (left >= length) {
                left -= length;
                out.write(bytes, offset, length);
            }
        }
    }

    /** What became of a test. */
    private static final class Outcome {
        final String kind;
        final long ms;
        final String reason;

        Outcome(String kind, long ms, String reason) {
            this.kind = kind;
            this.ms = ms;
            this.reason = reason;
        }
    }

    /** Gathers what JUnit tells of a class. */
    private static final class Outcomes extends RunListener {
        private final Class<?> type;
        private final Map<String, Outcome> known = new TreeMap<>();
        private long startedMs;
        private Throwable failure;
        private boolean leftOut;

        Outcomes(Class<?> type) {
            this.type = type;
        }

        /** Those without an outcome share one, as when the class itself could not be prepared. */
        synchronized Map<String, Outcome> of(Set<String> tests, String reasonIfNone) {
            String asked = NotApplicable.first();
            String why = failure == null ? reasonIfNone : text(failure);
            Outcome rest = new Outcome("failed", 0, why);
            if (leftOut || asked != null) {
                rest = new Outcome("not applicable", 0, leftOut ? "ignored by its authors" : asked);
            }
            Map<String, Outcome> all = new TreeMap<>();
            for (String test : tests) {
                all.put(test, known.getOrDefault(test, rest));
            }
            return all;
        }

        @Override
        public synchronized void testStarted(Description test) {
            startedMs = System.currentTimeMillis();
            failure = null;
            NotApplicable.first();
        }

        @Override
        public synchronized void testFailure(Failure found) {
            failure = found.getException();
        }

        @Override
        public synchronized void testIgnored(Description test) {
            leftOut = true;
        }

        @Override
        public synchronized void testFinished(Description test) {
            long tookMs = System.currentTimeMillis() - startedMs;
            String asked = NotApplicable.first();
            Outcome outcome = new Outcome("passed", tookMs, "");
            if (asked != null) {
                outcome = new Outcome("not applicable", tookMs, asked);
            } else if (failure != null) {
                outcome = new Outcome("failed", tookMs, text(failure));
            }
            known.put(test.getMethodName(), outcome);
            failure = null;
        }

        private String text(Throwable error) {
            error.printStackTrace();
            for (StackTraceElement frame : error.getStackTrace()) {
                if (frame.getClassName().startsWith(type.getName())) {
                    return error + " (line " + frame.getLineNumber() + ")";
                }
            }
            return error.toString();
        }
    }
}
