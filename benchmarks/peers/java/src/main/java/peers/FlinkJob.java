package peers;

import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** What the Flink jobs share: the source, its watermarks, and the clock of a pass. */
final class FlinkJob {
    private static volatile long started;

    private FlinkJob() {}

    /** Gives the source's events; the clock starts with the first one, so that starting a cluster is not counted. */
    static final class Take implements MapFunction<Long, Event> {
        @Override
        public Event map(Long number) {
            if (number == 0) {
                started = System.nanoTime();
            }
            return Stream.events[number.intValue()];
        }
    }

    static StreamExecutionEnvironment environment(int threads) {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(threads);
        environment.getConfig().enableObjectReuse();
        return environment;
    }

    /** One microsecond of the stream is one millisecond of Flink's, whose times are no finer. */
    static DataStream<Event> events(StreamExecutionEnvironment environment) {
        return environment
                .fromSource(
                        new NumberSequenceSource(0, Stream.events.length - 1),
                        WatermarkStrategy.noWatermarks(),
                        "stream")
                .setParallelism(1)
                .map(new Take())
                .returns(Event.class)
                .setParallelism(1)
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<Event>forBoundedOutOfOrderness(Duration.ofMillis(Stream.DISORDER))
                                .withTimestampAssigner((event, before) -> event.time))
                .setParallelism(1);
    }

    static KeyedStream<Event, Integer> keyed(StreamExecutionEnvironment environment) {
        return events(environment).keyBy(event -> event.key);
    }

    static double run(StreamExecutionEnvironment environment) throws Exception {
        environment.execute();
        return (System.nanoTime() - started) / 1e9;
    }
}
