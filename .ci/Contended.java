// SPDX-License-Identifier: MIT OR Apache-2.0
import java.util.concurrent.locks.ReentrantLock;

/** Eight threads count under a monitor, which they also wait on, and under a ReentrantLock. */
class Contended {
    static long counted;
    static final Object monitor = new Object();
    static final ReentrantLock lock = new ReentrantLock();

    static void count(int me) throws InterruptedException {
        for (int round = 0; round < 50000; round++) {
            synchronized (monitor) {
                counted++;
                if (round % 1000 == me) {
                    monitor.notifyAll();
                    monitor.wait(1);
                }
            }
        }
    }

    static long locked;

    public static void main(String[] arguments) throws InterruptedException {
        Thread[] threads = new Thread[8];
        for (int i = 0; i < threads.length; i++) {
            int me = i;
            threads[i] = new Thread(() -> {
                try {
                    count(me);
                } catch (InterruptedException never) {
                    throw new AssertionError(never);
                }
                for (int round = 0; round < 50000; round++) {
                    lock.lock();
                    try {
                        locked++;
                    } finally {
                        lock.unlock();
                    }
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("counted " + (counted + locked));
    }
}
