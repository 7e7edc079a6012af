package peers;

import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.EventBean;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPEventService;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import com.espertech.esper.runtime.client.EPStatement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** A book in Esper's language: a statement for each rule, whose filter is in the parentheses that Esper indexes. */
final class EsperBook implements Books.Engine {
    /** Statements that are compiled together. */
    private static final int MODULE = 100;

    private final List<EPCompiled> modules = new ArrayList<>();
    private int runtimes;

    @Override
    public void pass(List<Rule> rules) throws Exception {
        Configuration configuration = configuration();
        EPRuntime runtime = EPRuntimeProvider.getRuntime("book" + runtimes++, configuration);
        EPEventService service = runtime.getEventService();
        service.advanceTime(0);
        compile(rules, configuration);
        for (EPCompiled module : modules) {
            for (EPStatement statement : runtime.getDeploymentService().deploy(module).getStatements()) {
                listen(statement, rules.get(Integer.parseInt(statement.getName())));
            }
        }
        String[] types = IntStream.range(0, Record.kinds).mapToObj(kind -> "T" + kind).toArray(String[]::new);
        Pass.loaded();
        for (Record event : Record.all) {
            service.advanceTime(event.row);
            service.sendEventObjectArray(event.values, types[event.kind]);
        }
        Pass.done();
        runtime.destroy();
    }

    /** Once: classes of Java, which later passes deploy again. */
    private void compile(List<Rule> rules, Configuration configuration) throws Exception {
        for (int first = modules.size() * MODULE; first < rules.size(); first += MODULE) {
            String module = IntStream.range(first, Math.min(first + MODULE, rules.size()))
                    .mapToObj(number -> "@name('" + number + "') " + text(rules.get(number)))
                    .collect(Collectors.joining(";\n"));
            modules.add(EPCompilerProvider.getCompiler().compile(module, new CompilerArguments(configuration)));
        }
    }

    private static Configuration configuration() {
        Configuration configuration = new Configuration();
        Object[] types = Arrays.stream(Record.names()).map(EsperBook::type).toArray();
        for (int kind = 0; kind < Record.kinds; kind++) {
            configuration.getCommon().addEventType("T" + kind, Record.names(), types);
        }
        configuration.getRuntime().getThreading().setInternalTimerEnabled(false);
        configuration.getRuntime().getExecution().setDisableLocking(true);
        return configuration;
    }

    private static Class<?> type(String name) {
        return switch (name) {
            case "row", "code" -> Integer.class;
            case "at" -> Long.class;
            case "number" -> Double.class;
            default -> String.class;
        };
    }

    private static void listen(EPStatement statement, Rule rule) {
        int number = Integer.parseInt(statement.getName());
        String[] names = IntStream.range(0, rule.steps).mapToObj(step -> "r" + step).toArray(String[]::new);
        statement.addListener((added, removed, of, at) -> {
            for (EventBean match : added) {
                int[] rows = new int[names.length];
                for (int step = 0; step < rows.length; step++) {
                    rows[step] = (Integer) match.get(names[step]);
                }
                Pass.count(number, rows);
            }
        });
    }

    private static String text(Rule rule) {
        String wanted = wanted(rule);
        String type = "T" + rule.kind;
        return switch (rule.form) {
            case "single" -> "select row as r0 from %s(%s)".formatted(type, wanted);
            case "threshold" -> "select row as r0 from %s(%s)#time(60 sec) group by key having count(*) >= %d"
                    .formatted(type, wanted, Rule.REACHED);
            case "pair" -> """
                    select a.row as r0, b.row as r1 from pattern [
                    every a=T0(code = %d) -> (every b=T0(code = %d, key = a.key, number > a.number + 0.9)) where timer:within(60 sec)]
                    """
                    .formatted(rule.first, rule.second);
            default -> sequence(rule, type, wanted);
        };
    }

    private static String sequence(Rule rule, String type, String wanted) {
        String rows = IntStream.range(0, rule.steps)
                .mapToObj(step -> "e%d.row as r%d".formatted(step, step))
                .collect(Collectors.joining(", "));
        String behind = IntStream.range(1, rule.steps)
                .mapToObj(step -> "every e%d=%s(%s, key = e0.key%s)".formatted(step, type, wanted, step == 1 ? ", f0 = e0.f0" : ""))
                .collect(Collectors.joining(" -> "));
        return "select %s from pattern [every e0=%s(%s) -> (%s) where timer:within(60 sec)]"
                .formatted(rows, type, wanted, behind);
    }

    private static String wanted(Rule rule) {
        String field = "f" + rule.field;
        return switch (rule.condition) {
            case "equal" -> field + " = '" + rule.values.get(0) + "'";
            case "list" -> field + " in ('" + String.join("', '", rule.values) + "')";
            case "like" -> field + " like '%" + rule.values.get(0) + "%'";
            case "range" -> "number > " + rule.least;
            case "lengths" -> "%s.length() + f%d.length() > 46".formatted(field, rule.other);
            default -> "";
        };
    }
}
