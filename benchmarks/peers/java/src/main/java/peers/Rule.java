package peers;

import com.google.gson.Gson;
import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** A rule of a book, as `benchmarks.peers.rule_books` writes it: one line of JSON. */
final class Rule implements Serializable {
    /** Milliseconds from the first event of a match to the last: less than this. */
    static final long WITHIN = 60_000;

    /** Events that a threshold needs. */
    static final int REACHED = 5;

    /** "single", "threshold", "sequence" or "pair". */
    String form;

    /** Steps of a sequence. */
    int steps;

    /** Number of the event type. */
    int kind;

    /** "equal", "list", "like", "range" or "lengths". */
    String condition;

    /** Number of the field that the condition is about; "lengths" is about `other`, too. */
    int field;

    int other;

    /** What the condition asks for; of "like" a part of the text. */
    List<String> values;

    /** Of "range". */
    double least;

    /** Codes of the first and of the second event of a pair. */
    int first;

    int second;

    static List<Rule> read(Path path) throws IOException {
        Gson gson = new Gson();
        return Files.readAllLines(path).stream().map(line -> gson.fromJson(line, Rule.class)).toList();
    }

    /** Whether an event fulfils the condition, for engines that are told in Java. */
    boolean admits(Record event) {
        return switch (condition) {
            case "equal" -> event.texts[field].equals(values.get(0));
            case "list" -> values.contains(event.texts[field]);
            case "like" -> event.texts[field].contains(values.get(0));
            case "range" -> event.number > least;
            case "lengths" -> event.texts[field].length() + event.texts[other].length() > 46;
            default -> throw new IllegalArgumentException(condition);
        };
    }
}
