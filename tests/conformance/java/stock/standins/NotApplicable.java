package standins;

/**
 * A test asked for what only a broker in its own process has. An Error, so that tests that catch
 * exceptions let it pass; where one is swallowed all the same, {@link #first} still has it.
 */
public final class NotApplicable extends Error {
    private static volatile String first;

    public NotApplicable(String reason) {
        super(reason);
        if (first == null) {
            first = reason;
        }
    }

    /** What was asked for since the last call of this, or null. */
    static String first() {
        String reason = first;
        first = null;
        return reason;
    }
}
