import java.time.Duration;
import java.util.Map;
import java.util.concurrent.*;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's InterProcessMutex on ZooKeeper: a queue of ephemeral nodes. Each user has a session of its own, and a new mutex for each grant. */
public class CuratorLock extends Lockquake.Lock {
    private final CuratorFramework client;
    private final Map<Object, Runnable> tell = new ConcurrentHashMap<>(); // by mutex
    /** Only the thread that took it can read its node or release it. */
    private static class Mutex extends InterProcessMutex {
        String name, node;
        Mutex(CuratorFramework client, String name) { super(client, "/lockquake/" + name); this.name = name; }
        boolean take(Duration timeout) throws Exception {
            return acquire(timeout.toNanos(), TimeUnit.NANOSECONDS) && (node = getLockPath()) != null;
        }
    }
    CuratorLock(Lockquake.Access access) throws Exception {
        super(access);
        client = CuratorFrameworkFactory.newClient(String.join(",", access.addresses()), (int) access.ttl.toMillis(),
                (int) access.timeout.toMillis(), new ExponentialBackoffRetry(100, 3));
        client.getConnectionStateListenable().addListener((c, s) -> { if (s == ConnectionState.LOST) tell.values().forEach(Runnable::run); });
        client.start();
        if (!client.blockUntilConnected(20, TimeUnit.SECONDS)) throw new Lockquake.Refused("no server answers within 20 s");
    }

    @Override public Lockquake.Grant acquire(String name, Duration timeout) throws Exception { return take(new Mutex(client, name), timeout); }
    @Override public Lockquake.Grant reenter(Lockquake.Grant grant, Duration timeout) throws Exception { return take((Mutex) grant.handle, timeout); }
    private static Lockquake.Grant take(Mutex mutex, Duration timeout) throws Exception {
        long sent = Lockquake.now();
        if (!mutex.take(timeout)) throw new Lockquake.Contended(); // its node was deleted
        return new Lockquake.Grant(mutex.name, sent, Lockquake.BY_RENEW, 0, mutex);
    }
    /** An answered request renews the session, less the time for which a server answers without its leader. The library hides its own pings. */
    @Override public long renew(Lockquake.Grant grant) throws Exception {
        long sent = Lockquake.now();
        var mutex = (Mutex) grant.handle;
        var stat = client.checkExists().forPath(mutex.node);
        if (stat == null) throw new Lockquake.NotHeld("its node is gone");
        if (stat.getEphemeralOwner() != client.getZookeeperClient().getZooKeeper().getSessionId()) throw new Lockquake.Lost("another session had it");
        grant.token = stat.getCzxid();
        grant.id = String.format("%s@%#x", mutex.name, stat.getCzxid()); // lockquake's name for a holder
        return Lockquake.valid(sent, access.ttl.toNanos()) - access.param("lag_ns", 0);
    }
    @Override public void check(Lockquake.Grant grant) throws Exception { renew(grant); }
    @Override public void release(Lockquake.Grant grant) throws Exception {
        ((Mutex) grant.handle).release();
        if (!((Mutex) grant.handle).isAcquiredInThisProcess()) tell.remove(grant.handle);
    }
    @Override public void releaseUnheld(String name, Lockquake.Grant last) throws Exception {
        try {
            (last == null ? new Mutex(client, name) : (Mutex) last.handle).release();
        } catch (IllegalMonitorStateException e) {
            throw new Lockquake.NotHeld(e.getMessage());
        }
    }
    @Override public void onLost(Lockquake.Grant grant, Runnable lost) { tell.put(grant.handle, lost); }
    @Override public void keeps() {} // the library's own pings keep the session alive
    @Override public void close() { client.close(); }

    public static void main(String[] args) {
        var libraries = Map.of("curator-recipes", Lockquake.version("org.apache.curator", "curator-recipes"));
        Lockquake.main("Curator InterProcessMutex", CuratorLock.class, libraries);
    }
}
