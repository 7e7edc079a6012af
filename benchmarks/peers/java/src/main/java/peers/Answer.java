package peers;

import java.util.concurrent.atomic.AtomicLong;

/** What a run found: a number of matches, and a checksum that does not depend on their order. */
final class Answer {
    private static final AtomicLong matches = new AtomicLong();
    private static final AtomicLong checksum = new AtomicLong();

    private Answer() {}

    static void reset() {
        matches.set(0);
        checksum.set(0);
    }

    static void add(long count, long sum) {
        matches.addAndGet(count);
        checksum.addAndGet(sum);
    }

    /** A 64-bit word of a match; `benchmarks.peers.stream.checksum` has the same. */
    static long word(long first, long second) {
        long mixed = ((first + 1) * 0x9E3779B97F4A7C15L) ^ ((second + 1) * 0xC2B2AE3D27D4EB4FL);
        return (mixed ^ (mixed >>> 29)) * 0xBF58476D1CE4E5B9L;
    }

    /** One line for each pass. */
    static void print(double seconds) {
        System.out.printf(
                "{\"events\": %d, \"seconds\": %.4f, \"matches\": %d, \"checksum\": \"%s\"}%n",
                Stream.events.length, seconds, matches.get(), Long.toUnsignedString(checksum.get()));
    }
}
