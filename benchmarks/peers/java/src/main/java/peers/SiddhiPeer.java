package peers;

import io.siddhi.core.SiddhiAppRuntime;
import io.siddhi.core.SiddhiManager;
import io.siddhi.core.event.Event;
import io.siddhi.core.stream.input.InputHandler;
import io.siddhi.core.stream.output.StreamCallback;

/** The pattern in Siddhi's language; each thread has an application of its own. */
final class SiddhiPeer implements Main.Peer {
    /** Siddhi's patterns have no policy that takes the latest A: a join gives all of them, and the latest is kept. */
    private static final String APPLICATION =
            """
            @app:playback
            define stream A (place long, key int, time long, value double);
            define stream B (id long, key int, time long, value double);
            partition with (key of A, key of B) begin
                from B#window.length(0) as b unidirectional join A#window.externalTime(time, 30000 sec) as a
                on b.value > a.value + %s and b.time - a.time < 30000000L
                select b.id as second, a.place as first
                insert into Pairs;
            end;
            """;

    @Override
    public double pass(int threads) throws Exception {
        return Threads.run(threads, (number, own) -> {
            SiddhiManager manager = new SiddhiManager();
            SiddhiAppRuntime runtime = manager.createSiddhiAppRuntime(APPLICATION.formatted(Stream.margin));
            int[] ids = new int[own.size()];
            Latest latest = new Latest(ids);
            runtime.addCallback("Pairs", latest);
            InputHandler firsts = runtime.getInputHandler("A");
            InputHandler seconds = runtime.getInputHandler("B");
            runtime.start();
            for (int place = 0; place < ids.length; place++) {
                peers.Event event = own.get(place);
                ids[place] = event.id;
                long name = event.isFirst ? place : event.id;
                Object[] data = {name, event.key, event.time, event.value};
                (event.isFirst ? firsts : seconds).send(event.time, data);
            }
            latest.count();
            Answer.add(latest.matches, latest.checksum);
            manager.shutdown();
        });
    }

    /** Keeps the latest A of the pairs of one B, which come one behind the other. */
    private static final class Latest extends StreamCallback {
        private final int[] ids;
        private long first = -1;
        private long second = -1;
        private long matches;
        private long checksum;

        Latest(int[] ids) {
            this.ids = ids;
        }

        @Override
        public void receive(Event[] pairs) {
            for (Event pair : pairs) {
                long b = (Long) pair.getData(0);
                if (b != second) {
                    count();
                    second = b;
                }
                first = Math.max(first, (Long) pair.getData(1));
            }
        }

        void count() {
            if (first >= 0) {
                matches++;
                checksum += Answer.word(ids[(int) first], second);
            }
            first = -1;
        }
    }
}
