package peers;

/** An event of the stream. Flink needs a class with public fields; Esper reads the getters. */
public class Event {
    public int id;
    public int key;
    public long time;
    public double value;
    public boolean isFirst;

    public Event() {}

    Event(int id, int key, long time, double value, boolean isFirst) {
        this.id = id;
        this.key = key;
        this.time = time;
        this.value = value;
        this.isFirst = isFirst;
    }

    public int getId() {
        return id;
    }

    public int getKey() {
        return key;
    }

    public long getTime() {
        return time;
    }

    public double getValue() {
        return value;
    }
}
