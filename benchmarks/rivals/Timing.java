import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Locale;

/** Clocks and output of all drivers in Java. */
final class Timing {
    private Timing() {
    }

    static double now() {
        return System.nanoTime() / 1e9;
    }

    static double cpu() {
        var bean = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return bean.getProcessCpuTime() / 1e9;
    }

    static void say(String format, Object... values) {
        System.out.println(String.format(Locale.ROOT, format, values));
        System.out.flush();
    }

    /** Prints the longest gap between two sends, every 50 ms. */
    static final class Gaps {
        private double last = now();
        private double printed = last;
        private double longest;

        void sent() {
            double at = now();
            longest = Math.max(longest, at - last);
            last = at;
            if (at - printed > 0.05) {
                say("%.6f %.6f", at, longest);
                printed = at;
                longest = 0;
            }
        }
    }
}
