package peers;

/**
 * SYSTEM FOLDER THREADS PASSES MARGIN PATTERN: answers the same question some times in one process; the first passes warm it up.
 *
 * <p>A system here knows one pattern only, so the last argument says nothing to it.
 */
public final class Main {
    interface Peer {
        /** One pass over the stream; gives its seconds. */
        double pass(int threads) throws Exception;
    }

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Peer peer =
                switch (arguments[0]) {
                    case "flink-by-hand" -> new FlinkByHand();
                    case "flink-cep" -> new FlinkCep();
                    case "flink-sql" -> new FlinkSql();
                    case "esper" -> new EsperPeer();
                    case "siddhi" -> new SiddhiPeer();
                    default -> throw new IllegalArgumentException(arguments[0]);
                };
        Stream.read(arguments[1] + "/stream.records");
        Stream.margin = Double.parseDouble(arguments[4]);
        for (int pass = 0; pass < Integer.parseInt(arguments[3]); pass++) {
            Answer.reset();
            Answer.print(peer.pass(Integer.parseInt(arguments[2])));
        }
        System.exit(0);
    }
}
