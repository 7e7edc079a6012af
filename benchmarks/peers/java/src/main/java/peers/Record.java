package peers;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** An event of a book. Flink needs a class with public fields; Esper and Siddhi take `values`, which are the same. */
public class Record {
    /** Also its time, in milliseconds. */
    public int row;

    public int kind;
    public String key;
    public int code;
    public double number;
    public String[] texts;
    public Object[] values;

    /** All events in memory, static, since Flink makes its functions from copies. */
    static Record[] all;

    /** The numbers of event types and of fields of text. */
    static int kinds;

    static int fields;

    public Record() {}

    /** Little-endian: three sizes, then of each event type, key, code, number and the places of its texts in a file of values. */
    static void read(Path folder) throws IOException {
        List<String> texts = Files.readAllLines(folder.resolve("values.txt"));
        ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(folder.resolve("events.records"))).order(ByteOrder.LITTLE_ENDIAN);
        all = new Record[data.getInt()];
        kinds = data.getInt();
        fields = data.getInt();
        for (int row = 0; row < all.length; row++) {
            all[row] = next(row, data, texts);
        }
    }

    private static Record next(int row, ByteBuffer data, List<String> texts) {
        Record made = new Record();
        made.row = row;
        made.kind = data.getInt();
        made.key = "k" + data.getInt();
        made.code = data.getInt();
        made.number = data.getDouble();
        made.texts = new String[fields];
        made.values = new Object[5 + fields];
        Object[] first = {row, (long) row, made.key, made.code, made.number};
        System.arraycopy(first, 0, made.values, 0, 5);
        for (int field = 0; field < fields; field++) {
            made.texts[field] = texts.get(data.getInt());
            made.values[5 + field] = made.texts[field];
        }
        return made;
    }

    /** The names of `values`, as the texts of rules say them. */
    static String[] names() {
        String[] names = new String[5 + fields];
        System.arraycopy(new String[] {"row", "at", "key", "code", "number"}, 0, names, 0, 5);
        for (int field = 0; field < fields; field++) {
            names[5 + field] = "f" + field;
        }
        return names;
    }
}
