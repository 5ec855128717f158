import java.time.Duration;
import java.util.Map;
import java.util.concurrent.*;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.locks.*;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's InterProcessSemaphoreV2 on ZooKeeper: an ephemeral node for each permit that is held. Each user has a session of its own. */
public class CuratorSemaphore extends Lockquake.Lock {
    private final CuratorFramework client;
    private final Map<Object, Runnable> tell = new ConcurrentHashMap<>(); // by lease
    private record Held(String name, Lease lease) {}

    CuratorSemaphore(Lockquake.Access access) throws Exception {
        super(access);
        client = CuratorFrameworkFactory.newClient(String.join(",", access.addresses()), (int) access.ttl.toMillis(),
                (int) access.timeout.toMillis(), new ExponentialBackoffRetry(100, 3));
        client.getConnectionStateListenable().addListener((c, s) -> { if (s == ConnectionState.LOST) tell.values().forEach(Runnable::run); });
        client.start();
        if (!client.blockUntilConnected(20, TimeUnit.SECONDS)) throw new Lockquake.Refused("no server answers within 20 s");
    }

    @Override public Lockquake.Grant acquire(String name, Duration timeout) throws Exception {
        long sent = Lockquake.now();
        Lease lease = new InterProcessSemaphoreV2(client, "/lockquake/" + name, access.permits).acquire(timeout.toNanos(), TimeUnit.NANOSECONDS);
        if (lease == null) throw new Lockquake.Contended(); // its node was deleted
        return new Lockquake.Grant(name, sent, Lockquake.BY_RENEW, 0, new Held(name, lease));
    }
    /** An answered request renews the session, less the time for which a server answers without its leader. The library hides its own pings. */
    @Override public long renew(Lockquake.Grant grant) throws Exception {
        long sent = Lockquake.now();
        var held = (Held) grant.handle;
        var stat = client.checkExists().forPath("/lockquake/" + held.name + "/leases/" + held.lease.getNodeName());
        if (stat == null) throw new Lockquake.NotHeld("its node is gone");
        if (stat.getEphemeralOwner() != client.getZookeeperClient().getZooKeeper().getSessionId()) throw new Lockquake.Lost("another session had it");
        grant.token = stat.getCzxid();
        grant.id = String.format("%s@%#x", held.name, stat.getCzxid());
        return Lockquake.valid(sent, access.ttl.toNanos()) - access.param("lag_ns", 0);
    }
    @Override public void check(Lockquake.Grant grant) throws Exception { renew(grant); }
    @Override public void release(Lockquake.Grant grant) throws Exception {
        tell.remove(grant.handle);
        ((Held) grant.handle).lease.close();
    }
    @Override public void onLost(Lockquake.Grant grant, Runnable lost) { tell.put(grant.handle, lost); }
    @Override public void permits() {}
    @Override public void elsewhere() {} // the nodes of its leases lie in a folder of their own
    @Override public void keeps() {} // the library's own pings keep the session alive
    @Override public void close() { client.close(); }

    public static void main(String[] args) {
        var libraries = Map.of("curator-recipes", Lockquake.version("org.apache.curator", "curator-recipes"));
        Lockquake.main("Curator InterProcessSemaphoreV2", CuratorSemaphore.class, libraries);
    }
}
