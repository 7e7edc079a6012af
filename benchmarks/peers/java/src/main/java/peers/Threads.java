package peers;

import java.util.ArrayList;
import java.util.List;

/** For systems that run in the caller's thread: the keys divided among some of them, a runtime each. */
final class Threads {
    interface Work {
        /** Takes the events whose key is its own, in order of time. */
        void run(int number, List<Event> own) throws Exception;
    }

    private Threads() {}

    /** Gives the seconds until the last one is done; sorting and dividing are not counted. */
    static double run(int threads, Work work) throws Exception {
        List<List<Event>> divided = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            divided.add(new ArrayList<>());
        }
        for (Event event : Stream.sorted()) {
            divided.get(event.key % threads).add(event);
        }
        List<Thread> running = new ArrayList<>();
        List<Exception> failures = new ArrayList<>();
        long started = System.nanoTime();
        for (int number = 0; number < threads; number++) {
            int own = number;
            Thread thread = new Thread(() -> {
                try {
                    work.run(own, divided.get(own));
                } catch (Exception failure) {
                    synchronized (failures) {
                        failures.add(failure);
                    }
                }
            });
            running.add(thread);
            thread.start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        if (!failures.isEmpty()) {
            throw failures.get(0);
        }
        return (System.nanoTime() - started) / 1e9;
    }
}
