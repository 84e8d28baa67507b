// SPDX-License-Identifier: MIT OR Apache-2.0

/** Programs of which the Java virtual machine makes code while they run: one that spins, others that compute. */
class Programs {
    static volatile boolean flag;
    static volatile long sink;

    public static void main(String[] args) throws InterruptedException {
        switch (args[0]) {
            case "wait" -> spin();
            case "sort" -> sort();
            case "random" -> random();
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static void spin() throws InterruptedException {
        Thread waiter = new Thread(() -> {
            while (!flag) {
                Thread.onSpinWait();
            }
        }, "waiter");
        waiter.start();
        waiter.join();
    }

    static void sort() {
        for (int round = 0;; round++) {
            int[] numbers = new int[100_000];
            for (int i = 0; i < numbers.length; i++) {
                numbers[i] = (i + round) * 0x9e3779b1;
            }
            java.util.Arrays.sort(numbers);
            sink = numbers[7];
        }
    }

    static void random() {
        for (long x = 1;; x++) {
            long y = x;
            for (int i = 0; i < 1_000_000; i++) {
                y = y * 6364136223846793005L + 1442695040888963407L;
            }
            sink = y;
        }
    }
}
