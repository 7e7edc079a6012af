package peers;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * The pattern with Flink's own library.
 *
 * <p>It has no policy that takes the latest A. It gives every pair, all pairs of one B behind each other, and
 * the latest of them is kept.
 */
final class FlinkCep implements Main.Peer {
    static final class Latest extends PatternProcessFunction<Event, Long> {
        private transient Event first;
        private transient Event second;
        private transient long matches;
        private transient long checksum;

        @Override
        public void open(OpenContext context) {
            first = null;
        }

        @Override
        public void processMatch(Map<String, List<Event>> match, Context context, Collector<Long> out) {
            Event a = match.get("a").get(0);
            Event b = match.get("b").get(0);
            if (second != null && second.id != b.id) {
                count();
            }
            if (first == null || second.id != b.id || a.time > first.time) {
                first = a;
            }
            second = b;
        }

        private void count() {
            matches++;
            checksum += Answer.word(first.id, second.id);
            first = null;
        }

        @Override
        public void close() {
            if (second != null) {
                count();
            }
            Answer.add(matches, checksum);
        }
    }

    @Override
    public double pass(int threads) throws Exception {
        StreamExecutionEnvironment environment = FlinkJob.environment(threads);
        Pattern<Event, ?> pattern =
                Pattern.<Event>begin("a")
                        .where(SimpleCondition.of(event -> event.isFirst))
                        .followedByAny("b")
                        .where(
                                new IterativeCondition<>() {
                                    @Override
                                    public boolean filter(Event event, Context<Event> context) throws Exception {
                                        if (event.isFirst) {
                                            return false;
                                        }
                                        Event first = context.getEventsForPattern("a").iterator().next();
                                        return event.value > first.value + Stream.margin;
                                    }
                                })
                        .within(Duration.ofMillis(Stream.WITHIN));
        CEP.pattern(FlinkJob.keyed(environment), pattern).process(new Latest()).sinkTo(new DiscardingSink<>());
        return FlinkJob.run(environment);
    }
}
