package peers;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.HeartbeatManagerOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamUtils;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * A book as one job of Flink, with an operator of its CEP library for each rule about several events.
 *
 * <p>Events are divided by their type, and filtered before they come to a rule's operator. Rules about one event are that filter. With one
 * slot there is one partition, so the stream is taken as divided by key, and no record is written as bytes between operators.
 */
final class FlinkBook implements Books.Engine {
    /** Gives the events; the rules are loaded when the first one is asked for. */
    static final class Take implements MapFunction<Long, Record> {
        @Override
        public Record map(Long number) {
            if (number == 0) {
                Pass.loaded();
            }
            return Record.all[number.intValue()];
        }
    }

    /** Counts events. */
    static final class Single extends ProcessFunction<Record, Long> {
        private final int rule;

        Single(int rule) {
            this.rule = rule;
        }

        @Override
        public void processElement(Record event, Context context, Collector<Long> out) {
            Pass.count(rule, event.row);
        }
    }

    /** Counts matches by the rows of the last events of some steps. */
    static final class Several extends PatternProcessFunction<Record, Long> {
        private final int rule;
        private final String[] steps;

        Several(int rule, String[] steps) {
            this.rule = rule;
            this.steps = steps;
        }

        @Override
        public void processMatch(Map<String, List<Record>> match, Context context, Collector<Long> out) {
            int[] rows = new int[steps.length];
            for (int step = 0; step < rows.length; step++) {
                List<Record> events = match.get(steps[step]);
                rows[step] = events.get(events.size() - 1).row;
            }
            Pass.count(rule, rows);
        }
    }

    @Override
    public void pass(List<Rule> rules) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(1, settings());
        environment.getConfig().enableObjectReuse();
        environment.setMaxParallelism(1);
        DataStream<Record> events = environment
                .fromSource(
                        new NumberSequenceSource(0, Record.all.length - 1), WatermarkStrategy.noWatermarks(), "book")
                .map(new Take())
                .returns(Record.class)
                .assignTimestampsAndWatermarks(WatermarkStrategy.<Record>forMonotonousTimestamps()
                        .withTimestampAssigner((event, before) -> event.row));
        List<DataStream<Record>> kinds = new ArrayList<>();
        for (int number = 0; number < Record.kinds; number++) {
            int kind = number;
            kinds.add(events.filter(event -> event.kind == kind));
        }
        for (int number = 0; number < rules.size(); number++) {
            Rule rule = rules.get(number);
            add(number, rule, kinds.get(rule.kind));
        }
        environment.execute();
        Pass.done();
    }

    /** Thousands of operators start on one core: nobody is to be taken for dead meanwhile. */
    private static Configuration settings() {
        Configuration settings = new Configuration();
        settings.set(HeartbeatManagerOptions.HEARTBEAT_TIMEOUT, Duration.ofMinutes(10));
        return settings;
    }

    private static void add(int number, Rule rule, DataStream<Record> events) {
        switch (rule.form) {
            case "single" -> events.filter(rule::admits).process(new Single(number)).sinkTo(new DiscardingSink<>());
            case "threshold" -> search(
                    number, events.filter(rule::admits), Pattern.<Record>begin("e").times(Rule.REACHED), "e");
            case "pair" -> search(number, events.filter(event -> event.code == rule.first || event.code == rule.second), pair(rule), "e0", "e1");
            default -> search(number, events.filter(rule::admits), sequence(rule), steps(rule));
        }
    }

    private static void search(int number, DataStream<Record> events, Pattern<Record, ?> pattern, String... steps) {
        CEP.pattern(
                        DataStreamUtils.reinterpretAsKeyedStream(events, event -> event.key),
                        pattern.within(Duration.ofMillis(Rule.WITHIN)))
                .process(new Several(number, steps))
                .sinkTo(new DiscardingSink<>());
    }

    private static Pattern<Record, ?> pair(Rule rule) {
        return Pattern.<Record>begin("e0")
                .where(SimpleCondition.of(event -> event.code == rule.first))
                .followedByAny("e1")
                .where(new IterativeCondition<>() {
                    @Override
                    public boolean filter(Record event, Context<Record> context) throws Exception {
                        return event.code == rule.second && event.number > first(context).number + 0.9;
                    }
                });
    }

    private static Pattern<Record, ?> sequence(Rule rule) {
        Pattern<Record, ?> pattern = Pattern.<Record>begin("e0").followedByAny("e1").where(new IterativeCondition<>() {
            @Override
            public boolean filter(Record event, Context<Record> context) throws Exception {
                return event.texts[0].equals(first(context).texts[0]);
            }
        });
        for (int step = 2; step < rule.steps; step++) {
            pattern = pattern.followedByAny("e" + step);
        }
        return pattern;
    }

    private static Record first(IterativeCondition.Context<Record> context) throws Exception {
        return context.getEventsForPattern("e0").iterator().next();
    }

    private static String[] steps(Rule rule) {
        String[] names = new String[rule.steps];
        for (int step = 0; step < names.length; step++) {
            names[step] = "e" + step;
        }
        return names;
    }
}
