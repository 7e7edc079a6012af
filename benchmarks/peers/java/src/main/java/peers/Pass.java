package peers;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.stream.Collectors;

/** What a pass over the events of a book found, rule by rule, and what it took. Each rule is counted by one thread. */
final class Pass {
    private static long[] matches;
    private static long[] checksums;

    /** Nanoseconds of the clock and of the processor: at the start, with the first event, and behind the last. */
    private static final long[][] marks = new long[3][];

    private static final OperatingSystemMXBean system =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private Pass() {}

    static void begin(int rules) {
        matches = new long[rules];
        checksums = new long[rules];
        mark(0);
    }

    /** All rules are loaded, and the first event comes. */
    static void loaded() {
        mark(1);
    }

    /** All events were taken. */
    static void done() {
        mark(2);
    }

    /** Seconds of the processor since the process began. */
    static double processor() {
        return system.getProcessCpuTime() / 1e9;
    }

    private static void mark(int place) {
        marks[place] = new long[] {System.nanoTime(), system.getProcessCpuTime()};
    }

    /** A match. `rows`: its events; `benchmarks.peers.rule_books.checksum` has the same. */
    static void count(int rule, int... rows) {
        long word = rows.length;
        for (int row : rows) {
            word = (word ^ (row + 1)) * 0x9E3779B97F4A7C15L;
            word ^= word >>> 29;
        }
        matches[rule]++;
        checksums[rule] += word;
    }

    /** One line of JSON; the memory is what the process had at most. */
    static void print() throws IOException {
        System.out.printf(
                "{\"loading\": %.4f, \"loading_wall\": %.4f, \"seconds\": %.4f, \"wall\": %.4f, \"memory\": %d, \"matches\": %s, \"checksums\": [%s]}%n",
                between(0, 1, 1),
                between(0, 1, 0),
                between(1, 2, 1),
                between(1, 2, 0),
                memory(),
                Arrays.toString(matches),
                Arrays.stream(checksums).mapToObj(sum -> "\"" + Long.toUnsignedString(sum) + "\"").collect(Collectors.joining(", ")));
    }

    private static double between(int first, int second, int clock) {
        return (marks[second][clock] - marks[first][clock]) / 1e9;
    }

    private static long memory() throws IOException {
        String line = Files.readAllLines(Path.of("/proc/self/status")).stream()
                .filter(each -> each.startsWith("VmHWM"))
                .findFirst()
                .orElseThrow();
        return Long.parseLong(line.replaceAll("\\D", "")) * 1024;
    }
}
