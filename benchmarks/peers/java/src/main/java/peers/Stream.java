package peers;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;

/** The whole stream in memory, in the order of arrival: no system but ours pays for reading it. */
final class Stream {
    static final int WITHIN = 30_000_000;
    static final int DISORDER = 5_000_000;
    private static final int BYTES = 4 + 8 + 8 + 1;

    /** Static, since Flink makes its functions from copies. */
    static Event[] events;

    /** B matches A if its value is larger by more than this. */
    static double margin;

    private Stream() {}

    /** A file of records, little-endian: key (32 bits), time in microseconds, value, whether it is an A. */
    static void read(String path) throws IOException {
        ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(Path.of(path))).order(ByteOrder.LITTLE_ENDIAN);
        events = new Event[data.capacity() / BYTES];
        for (int id = 0; id < events.length; id++) {
            int key = data.getInt();
            long time = data.getLong();
            double value = data.getDouble();
            events[id] = new Event(id, key, time, value, data.get() != 0);
        }
    }

    /** For systems that need their input in the order of time. */
    static Event[] sorted() {
        Event[] sorted = events.clone();
        Arrays.sort(sorted, Comparator.comparingLong(event -> event.time));
        return sorted;
    }
}
