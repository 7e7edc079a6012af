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

/** The pattern in Esper's language; each thread has a runtime, without locks and without a clock. */
final class EsperPeer implements Main.Peer {
    public static class A extends Event {
        public final int place;

        A(Event event, int place) {
            super(event.id, event.key, event.time, event.value, true);
            this.place = place;
        }

        public int getPlace() {
            return place;
        }
    }

    public static class B extends Event {
        B(Event event) {
            super(event.id, event.key, event.time, event.value, false);
        }
    }

    /** Esper's patterns have no policy that takes the latest A, so the latest one is looked up: by its place in time. */
    private static final String QUERY =
            """
            select b.id as closing, (
                select max(a.place) from A#ext_timed(time, 30000 seconds) as a
                where a.key = b.key and b.value > a.value + %s and b.time - a.time < 30000000
            ) as opening from B as b
            """;

    private static int runtimes;

    @Override
    public double pass(int threads) throws Exception {
        Configuration configuration = new Configuration();
        configuration.getCommon().addEventType(A.class);
        configuration.getCommon().addEventType(B.class);
        configuration.getRuntime().getThreading().setInternalTimerEnabled(false);
        configuration.getRuntime().getExecution().setDisableLocking(true);
        EPCompiled compiled =
                EPCompilerProvider.getCompiler().compile(QUERY.formatted(Stream.margin), new CompilerArguments(configuration));
        int first = runtimes;
        runtimes += threads;
        return Threads.run(threads, (number, own) -> {
            EPRuntime runtime = EPRuntimeProvider.getRuntime("peer" + (first + number), configuration);
            EPStatement statement = runtime.getDeploymentService().deploy(compiled).getStatements()[0];
            long[] found = new long[2];
            int[] ids = new int[own.size()];
            statement.addListener((added, removed, of, at) -> {
                for (EventBean match : added) {
                    Integer place = (Integer) match.get("opening");
                    if (place != null) {
                        found[0]++;
                        found[1] += Answer.word(ids[place], (Integer) match.get("closing"));
                    }
                }
            });
            EPEventService service = runtime.getEventService();
            for (int place = 0; place < ids.length; place++) {
                Event event = own.get(place);
                ids[place] = event.id;
                if (event.isFirst) {
                    service.sendEventBean(new A(event, place), "A");
                } else {
                    service.sendEventBean(new B(event), "B");
                }
            }
            Answer.add(found[0], found[1]);
            runtime.destroy();
        });
    }
}
