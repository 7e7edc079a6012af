package peers;

import io.siddhi.core.SiddhiAppRuntime;
import io.siddhi.core.SiddhiManager;
import io.siddhi.core.event.Event;
import io.siddhi.core.stream.input.InputHandler;
import io.siddhi.core.stream.output.StreamCallback;
import io.siddhi.extension.execution.string.ContainsFunctionExtension;
import io.siddhi.extension.execution.string.LengthFunctionExtension;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * A book in Siddhi's language: an application with a query for each rule, whose matches go into one stream.
 *
 * <p>Where a step behind the first has `every`, its `within` ends nothing. So several events are joined, step by step.
 */
final class SiddhiBook implements Books.Engine {
    private static final int MOST_STEPS = 4;

    @Override
    public void pass(List<Rule> rules) throws Exception {
        SiddhiManager manager = new SiddhiManager();
        manager.setExtension("str:contains", ContainsFunctionExtension.class);
        manager.setExtension("str:length", LengthFunctionExtension.class);
        SiddhiAppRuntime runtime = manager.createSiddhiAppRuntime(application(rules));
        runtime.addCallback("Matches", new StreamCallback() {
            @Override
            public void receive(Event[] matches) {
                for (Event match : matches) {
                    int rule = (Integer) match.getData(0);
                    int[] rows = new int[rules.get(rule).steps];
                    for (int step = 0; step < rows.length; step++) {
                        rows[step] = (Integer) match.getData(2 + step);
                    }
                    Pass.count(rule, rows);
                }
            }
        });
        InputHandler[] inputs = new InputHandler[Record.kinds];
        for (int kind = 0; kind < inputs.length; kind++) {
            inputs[kind] = runtime.getInputHandler("T" + kind);
        }
        runtime.start();
        Pass.loaded();
        for (Record event : Record.all) {
            inputs[event.kind].send(event.row, event.values);
        }
        Pass.done();
        manager.shutdown();
    }

    private static String application(List<Rule> rules) {
        String fields = Arrays.stream(Record.names()).map(name -> name + " " + type(name)).collect(Collectors.joining(", "));
        StringBuilder text = new StringBuilder("@app:playback\n");
        for (int kind = 0; kind < Record.kinds; kind++) {
            text.append("define stream T%d (%s);%n".formatted(kind, fields));
        }
        for (int number = 0; number < rules.size(); number++) {
            text.append(query(number, rules.get(number))).append('\n');
        }
        return text.toString();
    }

    private static String type(String name) {
        return switch (name) {
            case "row", "code" -> "int";
            case "at" -> "long";
            case "number" -> "double";
            default -> "string";
        };
    }

    private static String query(int number, Rule rule) {
        String input = "T%d[%s]".formatted(rule.kind, wanted(rule));
        return switch (rule.form) {
            case "single" -> "from %s %s;".formatted(input, select(number, 1, "1L", List.of("row"), ""));
            case "threshold" -> "from %s#window.externalTime(at, 60 sec) %s;"
                    .formatted(input, select(number, 1, "count()", List.of("row"), "group by key having many >= " + Rule.REACHED + "L "));
            case "pair" -> partition(
                    number,
                    "T0[code == %d or code == %d] select row, at, key, code, number".formatted(rule.first, rule.second),
                    join("S%d[code == %d]".formatted(number, rule.second), "S%d[code == %d]".formatted(number, rule.first))
                            + "a.row < b.row and b.at - a.at < 60000L and b.number > a.number + 0.9 "
                            + select(number, 2, "1L", List.of("a.row", "b.row"), ""));
            default -> sequence(number, rule);
        };
    }

    /** For each step a join with the events, or with what the step before has found, of the last minute. */
    private static String sequence(int number, Rule rule) {
        String stream = "S" + number;
        StringBuilder joins = new StringBuilder();
        List<String> rows = new ArrayList<>(List.of("a.row"));
        for (int step = 1; step < rule.steps; step++) {
            rows.add("b.row");
            joins.append(join(stream, step == 1 ? stream : "#P" + (step - 1)));
            joins.append("a.row < b.row and ")
                    .append(step == 1 ? "b.at - a.at < 60000L and a.f0 == b.f0 " : "b.at - a.first < 60000L ");
            if (step == rule.steps - 1) {
                joins.append(select(number, rows.size(), "1L", rows, ""));
            } else {
                String first = step == 1 ? "a.at" : "a.first";
                joins.append("select %s, b.row as row, b.at as at, %s as first insert into #P%d;%n"
                        .formatted(named(rows), first, step));
            }
            rows = new ArrayList<>(IntStream.range(0, rows.size()).mapToObj(place -> "a.r" + place).toList());
        }
        return partition(number, "T%d[%s] select row, at, key, f0".formatted(rule.kind, wanted(rule)), joins.toString());
    }

    /** Queries over a stream of their own, which is divided by key behind its filter. */
    private static String partition(int number, String input, String queries) {
        return "from %s insert into S%d;%npartition with (key of S%d) begin %s; end;".formatted(input, number, number, queries);
    }

    private static String join(String events, String before) {
        return "from %s#window.length(0) as b unidirectional join %s#window.externalTime(at, 60 sec) as a on "
                .formatted(events, before);
    }

    private static String select(int number, int steps, String many, List<String> rows, String having) {
        String all = named(rows)
                + IntStream.range(steps, MOST_STEPS).mapToObj(step -> ", -1 as r" + step).collect(Collectors.joining());
        return "select %d as rule, %s as many, %s %sinsert into Matches".formatted(number, many, all, having);
    }

    private static String named(List<String> rows) {
        return IntStream.range(0, rows.size())
                .mapToObj(step -> rows.get(step) + " as r" + step)
                .collect(Collectors.joining(", "));
    }

    private static String wanted(Rule rule) {
        String field = "f" + rule.field;
        return switch (rule.condition) {
            case "equal", "list" -> rule.values.stream()
                    .map(value -> field + " == '" + value + "'")
                    .collect(Collectors.joining(" or ", "(", ")"));
            case "like" -> "str:contains(%s, '%s')".formatted(field, rule.values.get(0));
            case "range" -> "number > " + rule.least;
            case "lengths" -> "str:length(%s) + str:length(f%d) > 46".formatted(field, rule.other);
            default -> "";
        };
    }
}
