package peers;

import java.nio.file.Path;
import java.util.List;

/** SYSTEM FOLDER PASSES ENOUGH: a book of rules over its events, until that many passes or seconds of the processor; one line for each pass. */
public final class Books {
    interface Engine {
        /** Loads the rules, marks that, and takes all events. */
        void pass(List<Rule> rules) throws Exception;
    }

    private Books() {}

    public static void main(String[] arguments) throws Exception {
        Engine engine =
                switch (arguments[0]) {
                    case "flink-cep" -> new FlinkBook();
                    case "esper" -> new EsperBook();
                    case "siddhi" -> new SiddhiBook();
                    default -> throw new IllegalArgumentException(arguments[0]);
                };
        Path folder = Path.of(arguments[1]);
        Record.read(folder);
        List<Rule> rules = Rule.read(folder.resolve("rules.jsonl"));
        double enough = Double.parseDouble(arguments[3]);
        for (int pass = 0; pass < Integer.parseInt(arguments[2]) && Pass.processor() < enough; pass++) {
            Pass.begin(rules.size());
            engine.pass(rules);
            Pass.print();
        }
        System.exit(0);
    }
}
