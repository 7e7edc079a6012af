package peers;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

/**
 * Falls, then rises, with Flink's MATCH_RECOGNIZE.
 *
 * <p>A row pattern may not end with a greedy run there, so it ends with the row behind the rise. All that rises is in one match, and the next
 * match may begin with its last row: so both ways of reading a pattern, the leftmost beginning and the earliest end, give the same matches.
 */
final class FlinkSql implements Main.Peer {
    private static final String QUERY =
            """
            SELECT first_id, last_id FROM events MATCH_RECOGNIZE (
              PARTITION BY `key`
              ORDER BY moment
              MEASURES s.id AS first_id, o.id AS last_id
              ONE ROW PER MATCH
              AFTER MATCH SKIP TO LAST u
              PATTERN (s d+ u+ o)
              DEFINE
                d AS LAST(d.`value`, 1) IS NULL AND d.`value` < s.`value` OR d.`value` < LAST(d.`value`, 1),
                u AS LAST(u.`value`, 1) IS NULL AND u.`value` > LAST(d.`value`) OR u.`value` > LAST(u.`value`, 1),
                o AS o.`value` <= LAST(u.`value`)
            )""";

    static final class Count extends ProcessFunction<Row, Long> {
        private transient long matches;
        private transient long checksum;

        @Override
        public void open(OpenContext context) {
            matches = 0;
            checksum = 0;
        }

        @Override
        public void processElement(Row found, Context context, Collector<Long> out) {
            matches++;
            checksum += Answer.word((Integer) found.getField(0), (Integer) found.getField(1));
        }

        @Override
        public void close() {
            Answer.add(matches, checksum);
        }
    }

    @Override
    public double pass(int threads) throws Exception {
        StreamExecutionEnvironment environment = FlinkJob.environment(threads);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        tables.createTemporaryView(
                "events",
                FlinkJob.events(environment),
                Schema.newBuilder()
                        .column("id", DataTypes.INT())
                        .column("key", DataTypes.INT())
                        .column("value", DataTypes.DOUBLE())
                        .columnByMetadata("moment", DataTypes.TIMESTAMP_LTZ(3), "rowtime")
                        .watermark("moment", "SOURCE_WATERMARK()")
                        .build());
        tables.toDataStream(tables.sqlQuery(QUERY)).process(new Count()).sinkTo(new DiscardingSink<>());
        return FlinkJob.run(environment);
    }
}
