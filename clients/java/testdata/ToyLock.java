import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** A lock among the users of one process, for tests. The first argument names the rule it breaks. */
public class ToyLock extends Lockquake.Lock {
    private static final Map<String, Semaphore> TABLE = new ConcurrentHashMap<>();
    private static final AtomicLong NUMBERS = new AtomicLong();
    private static String kind = "";

    ToyLock(Lockquake.Access access) {
        super(access);
        System.out.println("what a library prints is no frame");
    }

    @Override public Lockquake.Grant acquire(String name, Duration timeout) throws InterruptedException {
        Semaphore lock = TABLE.computeIfAbsent(name, n -> new Semaphore(access.permits + (kind.equals("one-more") ? 1 : 0)));
        long sent = Lockquake.now();
        if (kind.equals("deaf")) lock.acquireUninterruptibly();
        else if (!kind.equals("never-excludes") && !lock.tryAcquire(timeout.toNanos(), TimeUnit.NANOSECONDS)) throw new Lockquake.Contended();
        Lockquake.at("taken");
        Lockquake.Grant grant = grant("" + NUMBERS.incrementAndGet(), sent, NUMBERS.incrementAndGet(), lock);
        if (kind.equals("by-renew")) grant.valid = Lockquake.BY_RENEW;
        if (kind.equals("late-valid")) grant.valid += access.ttl.toNanos();
        return grant;
    }

    @Override public void release(Lockquake.Grant grant) {
        if (!kind.equals("never-excludes")) ((Semaphore) grant.handle).release();
    }

    @Override public long renew(Lockquake.Grant grant) { return Lockquake.valid(Lockquake.now(), access.ttl.toNanos()); }

    @Override public void check(Lockquake.Grant grant) {
        if (((Semaphore) grant.handle).availablePermits() > 0) throw new Lockquake.NotHeld("it is free");
    }

    /** A lock that a holder can take again: release gives back the latest grant first. forgets: the first release frees it. */
    public static class Reentrant extends ToyLock {
        private final Map<Object, Integer> entries = new ConcurrentHashMap<>(); // by the semaphore of the lock

        Reentrant(Lockquake.Access access) { super(access); }

        @Override public Lockquake.Grant reenter(Lockquake.Grant grant, Duration timeout) {
            entries.merge(grant.handle, 1, Integer::sum);
            return grant(grant.id, Lockquake.now(), grant.token, grant.handle);
        }

        @Override public void release(Lockquake.Grant grant) {
            int left = entries.getOrDefault(grant.handle, 0);
            entries.put(grant.handle, Math.max(left - 1, 0));
            if (left == 0 || kind.equals("forgets")) super.release(grant);
        }
    }

    /** A lock that several users can hold. */
    public static class Counting extends ToyLock {
        Counting(Lockquake.Access access) { super(access); }

        @Override public void permits() {}
    }

    /** A library that reports each grant as lost at once. */
    public static class Losing extends ToyLock {
        Losing(Lockquake.Access access) { super(access); }

        @Override public void onLost(Lockquake.Grant grant, Runnable tell) { tell.run(); }
    }

    /** A library that renews by itself and reports it. */
    public static class Renewing extends ToyLock {
        Renewing(Lockquake.Access access) { super(access); }

        @Override public void onRenewed(Lockquake.Grant grant, java.util.function.LongConsumer tell) {
            tell.accept(Lockquake.valid(Lockquake.now(), access.ttl.toNanos()));
        }
    }

    /** A library that renews by itself, and stops for a user that hangs. */
    @Lockquake.Hung(ttls = 3, plusMillis = 500)
    public static class Bounded extends Renewing {
        Bounded(Lockquake.Access access) { super(access); }
    }

    /** A bound of nothing. */
    @Lockquake.Hung
    public static class NoBound extends Renewing {
        NoBound(Lockquake.Access access) { super(access); }
    }

    public static void main(String[] args) {
        kind = args.length > 0 ? args[0] : "";
        Class<? extends ToyLock> lock = switch (kind) {
            case "loses" -> Losing.class;
            case "renews" -> Renewing.class;
            case "reenters", "forgets" -> Reentrant.class;
            case "bounded" -> Bounded.class;
            case "no-bound" -> NoBound.class;
            case "permits", "one-more" -> Counting.class;
            default -> ToyLock.class;
        };
        Lockquake.main("toy", lock, Map.of("toy", "1"), kind.equals("no-points") ? "no-such-point" : "taken");
    }
}
