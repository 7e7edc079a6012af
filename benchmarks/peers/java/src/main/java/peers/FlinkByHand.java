package peers;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.PriorityQueue;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** The pattern as an expert writes it by hand: events wait for the watermark, then each B looks back for its latest A. */
final class FlinkByHand implements Main.Peer {
    /** On the heap Flink hands out the object itself, so this is never written as bytes. */
    public static class Window {
        PriorityQueue<Event> early = new PriorityQueue<>((left, right) -> Long.compare(left.time, right.time));
        ArrayDeque<Event> firsts = new ArrayDeque<>();
    }

    static final class Match extends KeyedProcessFunction<Integer, Event, Long> {
        private transient ValueState<Window> state;
        private transient long matches;
        private transient long checksum;

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext()
                    .getState(new ValueStateDescriptor<>("window", TypeInformation.of(Window.class)));
        }

        @Override
        public void processElement(Event event, Context context, Collector<Long> out) throws Exception {
            if (event.time <= context.timerService().currentWatermark()) {
                return;
            }
            Window window = state.value();
            if (window == null) {
                window = new Window();
                state.update(window);
            }
            window.early.add(event);
            context.timerService().registerEventTimeTimer(event.time);
        }

        @Override
        public void onTimer(long time, OnTimerContext context, Collector<Long> out) throws Exception {
            Window window = state.value();
            while (!window.early.isEmpty() && window.early.peek().time <= time) {
                take(window.early.poll(), window.firsts);
            }
        }

        private void take(Event event, ArrayDeque<Event> firsts) {
            while (!firsts.isEmpty() && event.time - firsts.peekFirst().time >= Stream.WITHIN) {
                firsts.removeFirst();
            }
            if (event.isFirst) {
                firsts.addLast(event);
                return;
            }
            for (Iterator<Event> latest = firsts.descendingIterator(); latest.hasNext(); ) {
                Event first = latest.next();
                if (event.value > first.value + Stream.margin) {
                    matches++;
                    checksum += Answer.word(first.id, event.id);
                    return;
                }
            }
        }

        @Override
        public void close() {
            Answer.add(matches, checksum);
        }
    }

    @Override
    public double pass(int threads) throws Exception {
        StreamExecutionEnvironment environment = FlinkJob.environment(threads);
        FlinkJob.keyed(environment).process(new Match()).sinkTo(new DiscardingSink<>());
        return FlinkJob.run(environment);
    }
}
