import java.io.BufferedReader;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.reflect.InvocationTargetException;
import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;
import java.util.function.LongConsumer;

/**
 * The client side of lockquake's control stream (docs/protocol.md): frames, clocks, workloads, events, points.
 *
 * <p>A client is a class with acquire and release, and a call of {@link #main}:
 *
 * <pre>{@code
 * class MyLock extends Lockquake.Lock {
 *     MyLock(Lockquake.Access access) { super(access); }
 *     public Lockquake.Grant acquire(String name, Duration timeout) { ... }   // returns grant(...), or throws Contended
 *     public void release(Lockquake.Grant grant) { ... }                      // throws NotHeld if the service no longer had it
 *
 *     public static void main(String[] args) { Lockquake.main("my lock", MyLock.class, Map.of("mylib", "1.2.3")); }
 * }
 * }</pre>
 *
 * <p>Standard library only, of Java 17 or later. docs/clients.md has more.
 */
@SuppressWarnings("serial") // its exceptions are never serialized
public final class Lockquake {
    private Lockquake() {}

    private static final long VERSION = 1;
    /** Values of valid that are not a time. */
    public static final long ENDLESS = Long.MAX_VALUE, UNKNOWN = Long.MIN_VALUE;
    /** In a grant from acquire: call renew at once for the validity. */
    public static final long BY_RENEW = -1;
    private static final List<String> POINTS = List.of("before-lock", "lock-done", "before-unlock", "unlock-done"); // around acquire and release of every lock
    private static final long BEAT = 10_000_000, STALL = 20_000_000; // ns: how often a process checks that it runs, and the shortest stall that is reported
    private static final int ROOM = 128 << 10, CROWDED = 4 << 10; // events that may wait to be written; above CROWDED of them, users without a lock pause

    /**
     * Run a client of a lock, whose constructor takes an Access and connects. process is what reports call the program, libraries are the versions of its
     * lock's libraries, and points are what the lock passes to at() within acquire and release.
     */
    public static void main(String process, Class<? extends Lock> lock, Map<String, String> libraries, String... points) {
        System.setOut(System.err); // a library's output must not come between frames
        new Session(process, lock, libraries, points).serve();
    }

    /** Returns the version of a library that Maven left in its jar, or "unknown". */
    public static String version(String group, String artifact) {
        try (InputStream in = Lockquake.class.getResourceAsStream("/META-INF/maven/" + group + "/" + artifact + "/pom.properties")) {
            Properties found = new Properties();
            if (in != null) { found.load(in); }
            return found.getProperty("version", "unknown");
        } catch (IOException e) {
            return "unknown";
        }
    }

    /** The time base of a run, in ns. On Linux that is CLOCK_MONOTONIC; see {@link #isMonotonic}. */
    public static long now() { return System.nanoTime(); }

    /** Return the end of a TTL that was requested at sent, less the drift that two clocks may have. */
    public static long valid(long sent, long ttl) { return sent + ttl - ttl / 100 - 2_000_000; }

    /** Announce that the calling user has reached a point. It costs next to nothing unless a point is armed. */
    public static void at(String point) {
        User user = CURRENT.get();
        if (user != null && user.armed) { user.reached(point); }
    }

    private static final ThreadLocal<User> CURRENT = new ThreadLocal<>();

    /** The operation certainly failed. After any other exception of a lock the outcome is unknown. */
    public static class Certain extends RuntimeException {
        final String code;

        Certain(String code, String text, Throwable cause) {
            super(text, cause);
            this.code = code;
        }

        public Certain(String text) { this("other", text, null); }
    }

    /** The lock is taken, or the wait for it was given up. Certainly nothing was granted. */
    public static class Contended extends Certain {
        public Contended() { super("contended", "another user has it", null); }
    }

    /** The service certainly no longer has the grant. */
    public static class NotHeld extends Certain {
        public NotHeld(String text) { super("not-held", text, null); }
    }

    /** The grant was lost while it was held. */
    public static class Lost extends Certain {
        public Lost(String text) { super("lost", text, null); }
    }

    /** The request certainly never reached the service. */
    public static class NotSent extends Certain {
        public NotSent(Throwable cause) { super("connection", cause.toString(), cause); }
    }

    /** The service refused the request. */
    public static class Refused extends Certain {
        public Refused(String text) { super("unavailable", text, null); }
    }

    /** The check before a write found the grant lost or expired, or there is nothing left to do. It does not count as an error. */
    private static final class Stopped extends Certain {
        Stopped(String text) { super(text); }
    }

    /** The failure of an operation, which is recorded and counted already. */
    private static final class Failed extends RuntimeException {
        Failed(Throwable cause) { super(null, cause, false, false); }

        boolean gone() { return getCause() instanceof Lost || getCause() instanceof NotHeld; }
    }

    /**
     * A lock that was granted. id identifies the grant at the service, sent is when the granted request was sent (ns), valid the end of the promised
     * validity (ns, ENDLESS, UNKNOWN or BY_RENEW), token the fencing token or 0. handle is for the author's own use.
     */
    public static final class Grant {
        public String id;
        public long sent, valid, token;
        public Object handle;

        public Grant(String id, long sent, long valid, long token, Object handle) {
            this.id = id;
            this.sent = sent;
            this.valid = valid;
            this.token = token;
            this.handle = handle;
        }
    }

    /**
     * The bound from the last call of a user that hangs, while its process lives, to the next grant: a number of TTLs plus a time. Put it on the class of a
     * lock whose library renews by itself, and stops for such a user.
     */
    @Retention(RetentionPolicy.RUNTIME)
    public @interface Hung {
        int ttls() default 0;

        long plusMillis() default 0;
    }

    /**
     * One user's lock, with a connection of its own. Its methods are called one at a time. acquire and release are called in the user's own thread, always
     * the same one; renew may be called in another one. The acquire of a user that gives up is interrupted. Only close may be called in another thread
     * during another call.
     */
    public abstract static class Lock {
        protected final Access access;
        private final boolean tells = has("onLost"), tellsRenewals = has("onRenewed");

        protected Lock(Access access) { this.access = access; }

        /** Take the lock within the timeout. */
        public abstract Grant acquire(String name, Duration timeout) throws Exception;

        /** Give the lock back. */
        public abstract void release(Grant grant) throws Exception;

        /**
         * Optional: take a lock that this object holds once more, by the library's own call, and return the grant of that. Each grant is released, the
         * latest first; the lock is free after the last.
         */
        public Grant reenter(Grant grant, Duration timeout) throws Exception { throw new UnsupportedOperationException(); }

        /** Optional: extend the grant, and return the new end of the validity. NotHeld and Lost mean that the grant is gone. */
        public long renew(Grant grant) throws Exception { throw new UnsupportedOperationException(); }

        /** Optional: throw NotHeld if the service says that the grant is gone. */
        public void check(Grant grant) throws Exception { throw new UnsupportedOperationException(); }

        /**
         * Optional: release a lock that this object does not hold, by the library's own call. last is the latest grant of the lock that the object
         * released, or null. NotHeld means that the library refused.
         */
        public void releaseUnheld(String name, Grant last) throws Exception { throw new UnsupportedOperationException(); }

        /** Optional: override it if grants last as long as the process lives without calls of renew, as with a session that is kept alive. */
        public void keeps() { throw new UnsupportedOperationException(); }

        /** Optional: override it if as many users may hold the lock at once as access.permits says. */
        public void permits() { throw new UnsupportedOperationException(); }

        /** Optional: override it if the lock's key differs from the one that lockquake asks the service for. */
        public void elsewhere() { throw new UnsupportedOperationException(); }

        /** Optional: have tell run when the library reports that the grant is gone. */
        public void onLost(Grant grant, Runnable tell) throws Exception { throw new UnsupportedOperationException(); }

        /**
         * Optional: have tell called after each renewal that the library makes by itself. Its argument is the new end of the validity, counted from when the
         * renewal was sent, or UNKNOWN if the library does not say.
         */
        public void onRenewed(Grant grant, LongConsumer tell) throws Exception { throw new UnsupportedOperationException(); }

        /** Free the lock's resources. A call under way in another thread then ends, with an exception unless it succeeded. */
        public void close() throws Exception {}

        /** Return a grant that is valid for the TTL of the run. */
        protected final Grant grant(String id, long sent, long token, Object handle) {
            return new Grant(id, sent, valid(sent, access.ttl.toNanos()), token, handle);
        }

        private boolean has(String method) { return overrides(getClass(), method); }

        /** Whether a class of locks has an optional method. */
        private static boolean overrides(Class<? extends Lock> lock, String method) {
            return Arrays.stream(lock.getMethods()).anyMatch(m -> m.getName().equals(method) && m.getDeclaringClass() != Lock.class && !m.isBridge());
        }
    }

    /** How to reach the service. */
    public static final class Access {
        public final Duration ttl;
        /** Of one request. */
        public final Duration timeout;
        public final String run, user, password;
        /** The index of this process; how many users may hold one lock at once. */
        public final int client, permits;
        private final Tree frame, params;

        private Access(Tree frame, long ttl) {
            this.frame = frame;
            this.params = frame.tree("params");
            this.ttl = Duration.ofNanos(ttl);
            this.timeout = Duration.ofNanos(param("timeout_ns", 1_000_000_000));
            this.run = frame.text("run");
            this.client = (int) frame.number("client", 0);
            this.permits = (int) frame.number("permits", 1);
            this.user = frame.text("user");
            this.password = frame.text("password");
        }

        /** Returns host:port of each server of the service. */
        public List<String> addresses() { return addresses("client"); }

        /** Returns host:port of each server that has a port of that name. */
        public List<String> addresses(String port) {
            return frame.trees("nodes").stream().map(n -> n.tree("addresses").text(port)).filter(a -> !a.isEmpty()).toList();
        }

        /** A parameter of the backend; names that end in _ns are times in ns. */
        public long param(String name, long otherwise) { return params.number(name, otherwise); }
    }

    /** An object of JSON. */
    private record Tree(Map<?, ?> keys) {
        boolean has(String key) { return keys.get(key) != null; }

        String text(String key) { return keys.get(key) instanceof String s ? s : ""; }

        boolean flag(String key) { return Boolean.TRUE.equals(keys.get(key)); }

        long number(String key, long otherwise) { return keys.get(key) instanceof Number n ? n.longValue() : otherwise; }

        double fraction(String key) { return keys.get(key) instanceof Number n ? n.doubleValue() : 0; }

        Tree tree(String key) { return keys.get(key) instanceof Map<?, ?> m ? new Tree(m) : new Tree(Map.of()); }

        List<?> list(String key) { return keys.get(key) instanceof List<?> l ? l : List.of(); }

        List<Tree> trees(String key) { return list(key).stream().map(v -> new Tree((Map<?, ?>) v)).toList(); }
    }

    /** JSON as maps, lists, strings, booleans, null and numbers. Integers are Long or BigInteger, because a double might not hold them; others are Double. */
    static final class Json {
        private final String text;
        private int at;

        private Json(String text) { this.text = text; }

        /** Parses a text that is one object. */
        static Map<?, ?> read(String text) {
            Json json = new Json(text);
            Object value = json.value();
            if (json.peek() != 0 || !(value instanceof Map<?, ?> object)) { throw json.wrong("want one object"); }
            return object;
        }

        private IllegalArgumentException wrong(String why) { return new IllegalArgumentException("not JSON at character " + at + ": " + why); }

        /** Returns the next character that is not a space, or 0 at the end. */
        private char peek() {
            while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
                at++;
            }
            return at < text.length() ? text.charAt(at) : 0;
        }

        private boolean take(char c) {
            boolean there = peek() == c;
            at += there ? 1 : 0;
            return there;
        }

        private void want(char c) {
            if (!take(c)) { throw wrong("want " + c); }
        }

        private Object value() {
            return switch (peek()) {
                case '{' -> object();
                case '[' -> list();
                case '"' -> string();
                case 't' -> word("true", true);
                case 'f' -> word("false", false);
                case 'n' -> word("null", null);
                default -> number();
            };
        }

        private Object word(String word, Object value) {
            if (!text.startsWith(word, at)) { throw wrong("want " + word); }
            at += word.length();
            return value;
        }

        private Map<String, Object> object() {
            Map<String, Object> out = new LinkedHashMap<>();
            want('{');
            if (take('}')) { return out; }
            do {
                peek();
                String key = string();
                want(':');
                out.put(key, value());
            } while (take(','));
            want('}');
            return out;
        }

        private List<Object> list() {
            List<Object> out = new ArrayList<>();
            want('[');
            if (take(']')) { return out; }
            do {
                out.add(value());
            } while (take(','));
            want(']');
            return out;
        }

        private String string() {
            StringBuilder out = new StringBuilder();
            want('"');
            while (at < text.length()) {
                char c = text.charAt(at++);
                if (c == '"') { return out.toString(); }
                out.append(c == '\\' ? escape() : c);
            }
            throw wrong("want \"");
        }

        private char escape() {
            char c = at < text.length() ? text.charAt(at++) : 0;
            if (c == 'u' && at + 4 <= text.length()) {
                at += 4;
                return (char) Integer.parseInt(text.substring(at - 4, at), 16);
            }
            int known = "\"\\/bfnrt".indexOf(c);
            if (known < 0) { throw wrong("an unknown escape"); }
            return "\"\\/\b\f\n\r\t".charAt(known);
        }

        private Number number() {
            int from = at;
            while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
                at++;
            }
            String digits = text.substring(from, at);
            if (digits.isEmpty()) { throw wrong("want a value"); }
            if (digits.matches("-?\\d{1,18}")) { return Long.valueOf(digits); }
            return digits.matches("-?\\d+") ? (Number) new BigInteger(digits) : Double.valueOf(digits);
        }

        static void write(StringBuilder out, Object value) {
            if (value instanceof Map<?, ?> object) {
                String before = "{";
                for (Map.Entry<?, ?> e : object.entrySet()) {
                    quote(out.append(before), e.getKey().toString());
                    write(out.append(':'), e.getValue());
                    before = ",";
                }
                out.append(object.isEmpty() ? "{}" : "}");
            } else if (value instanceof List<?> list) {
                String before = "";
                out.append('[');
                for (Object v : list) {
                    write(out.append(before), v);
                    before = ",";
                }
                out.append(']');
            } else if (value instanceof String s) {
                quote(out, s);
            } else {
                out.append(value);
            }
        }

        static void quote(StringBuilder out, String s) {
            out.append('"');
            for (int i = 0; i < s.length(); i++) {
                char c = s.charAt(i);
                if (c == '"' || c == '\\') {
                    out.append('\\').append(c);
                } else if (c < ' ' || Character.isSurrogate(c)) {
                    out.append(String.format("\\u%04x", (int) c)); // half of a surrogate pair is not valid UTF-8
                } else {
                    out.append(c);
                }
            }
            out.append('"');
        }
    }

    /** The fields of an event except time, number, user, kind and phase. Zero values are omitted. */
    private static final class Fields {
        final String lock;
        String code = "";
        long op, grant, token, value, valid;

        Fields(String lock) { this.lock = lock; }

        Fields value(long value) {
            this.value = value;
            return this;
        }

        void write(StringBuilder out, long own) {
            add(out, "op", op == 0 ? own : op);
            add(out, "lock", lock);
            add(out, "code", code);
            add(out, "grant", grant);
            add(out, "token", token);
            add(out, "value", value);
            if (valid == ENDLESS || valid == UNKNOWN) {
                add(out, "valid", valid == ENDLESS ? "endless" : "unknown");
            } else {
                add(out, "valid", valid);
            }
        }

        private static void add(StringBuilder out, String key, long value) {
            if (value != 0) { out.append(",\"").append(key).append("\":").append(value); }
        }

        private static void add(StringBuilder out, String key, String value) {
            if (!value.isEmpty()) { Json.quote(out.append(",\"").append(key).append("\":"), value); }
        }
    }

    /** The number and time of an event. The number is 0 if there was no room for it. */
    private record Stamp(long seq, long time) {}

    /** Standard output. An event gets its number and its time under one lock, and events are written in that order. */
    private static final class Stream {
        private final Object mu = new Object(), out = new Object();
        private final FileOutputStream file = new FileOutputStream(FileDescriptor.out);
        private StringBuilder lines = new StringBuilder(), spare = new StringBuilder();
        private volatile int waiting;
        private long seq, last, stood, dropped, silent;
        private boolean recording;
        private volatile boolean unwritten;
        private Thread flusher;

        /** Writes a frame after all events so far. When it returns, the operating system has the frame. */
        void send(String type, Map<String, ?> content) {
            StringBuilder frame = new StringBuilder();
            Map<String, Object> keys = new LinkedHashMap<>(Map.of("type", type));
            keys.put(type, content);
            Json.write(frame, keys);
            flush(frame.append('\n').toString());
        }

        private void flush(String behind) {
            synchronized (out) {
                StringBuilder full;
                synchronized (mu) {
                    full = lines;
                    lines = spare;
                    waiting = 0;
                }
                byte[] bytes = full.append(behind).toString().getBytes(StandardCharsets.UTF_8);
                full.setLength(0);
                spare = full;
                try {
                    file.write(bytes);
                } catch (IOException e) {
                    Runtime.getRuntime().halt(1); // the supervisor no longer reads
                }
            }
        }

        /** Records an event. With flush, it is written on return. */
        Stamp event(String user, String kind, String phase, boolean flush, Fields f) {
            Stamp s;
            synchronized (mu) {
                s = add(user, kind, phase, f);
            }
            if (flush && s.seq > 0) {
                flush("");
                still(user, s.time, now());
            } else if (s.seq > 0) {
                wake();
            }
            return s;
        }

        private Stamp add(String user, String kind, String phase, Fields f) {
            long t = Math.max(now(), last);
            if (!recording) { return new Stamp(0, t); }
            if (waiting >= ROOM) {
                dropped++;
                silent++;
                return new Stamp(0, t);
            }
            if (silent > 0) {
                put(user, "dropped", "info", new Fields("").value(silent), t);
                silent = 0;
            }
            put(user, kind, phase, f, t);
            return new Stamp(seq, t);
        }

        private void put(String user, String kind, String phase, Fields f, long t) {
            last = t;
            lines.append("{\"type\":\"event\",\"event\":{\"time\":").append(t).append(",\"seq\":").append(++seq).append(",\"user\":\"").append(user);
            lines.append("\",\"kind\":\"").append(kind).append("\",\"phase\":\"").append(phase).append('"');
            f.write(lines, seq);
            lines.append("}}\n");
            waiting++;
        }

        /** Records that the user or the process did not run, without the part that is on record already. */
        void still(String user, long since, long until) {
            synchronized (mu) {
                since = Math.max(since, stood);
                if (until - since > STALL) {
                    stood = add(user, "stall", "info", new Fields("").value(until - since)).time;
                    wake();
                }
            }
        }

        void begin(boolean record) {
            synchronized (mu) {
                recording = record;
            }
            flusher = daemon(this::keepFlushing);
        }

        /** Stops recording. */
        void end() {
            synchronized (mu) {
                recording = false;
            }
        }

        private void wake() {
            if (!unwritten) {
                unwritten = true;
                LockSupport.unpark(flusher);
            }
        }

        /** Writes events within a millisecond, for callers that do not wait. */
        private void keepFlushing() {
            while (true) {
                while (!unwritten) {
                    LockSupport.park();
                }
                unwritten = false;
                flush("");
                LockSupport.parkNanos(500_000);
            }
        }
    }

    private static Thread daemon(Runnable life) {
        Thread t = new Thread(life);
        t.setDaemon(true);
        t.start();
        return t;
    }

    /** A user's connection to the resource. */
    private static final class Register {
        private final InetSocketAddress address;
        private final String guard;
        private final Map<String, long[]> versions = new LinkedHashMap<>(); // by lock: the hold that read or wrote it, and the version
        private Socket socket;

        Register(Tree start) {
            String text = start.text("address");
            int colon = text.lastIndexOf(':');
            address = new InetSocketAddress(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
            guard = start.text("guard");
        }

        long read(Hold h, long timeout) throws IOException { return ask(h, timeout, "read", null); }

        void write(Hold h, long value, long timeout) throws IOException {
            if (guard.equals("check-then-write")) {
                ask(h, timeout, "check", value);
                at("token-checked");
            }
            ask(h, timeout, "write", value);
        }

        private long ask(Hold h, long timeout, String op, Long value) throws IOException {
            Map<String, Object> request = new LinkedHashMap<>();
            request.put("op", op);
            request.put("lock", h.name);
            request.put("user", h.user.name);
            request.put("grant", h.op);
            request.put("token", h.grant.token);
            if (value != null) { request.put("value", value); }
            if (guard.equals("cas-owner")) { request.put("owner", h.grant.id); }
            long[] version = versions.get(h.name);
            if (guard.equals("cas-version") && version != null && version[0] == h.op) { request.put("version", version[1]); }
            StringBuilder line = new StringBuilder();
            Json.write(line, request);
            long deadline = now() + timeout;
            connect(deadline);
            Tree answer;
            try {
                answer = new Tree(Json.read(exchange(line.append('\n').toString(), deadline)));
            } catch (IOException | RuntimeException e) {
                close(); // a late answer must never be taken for the answer to another request
                throw e;
            }
            if (!answer.text("outcome").equals("ok")) { throw new Certain(answer.flag("fenced") ? "fenced" : "other", answer.text("error"), null); }
            versions.put(h.name, new long[] {h.op, answer.number("version", 0)});
            return answer.number("value", 0);
        }

        private void connect(long deadline) {
            if (socket != null) { return; }
            try {
                socket = new Socket();
                socket.setTcpNoDelay(true);
                socket.connect(address, left(deadline));
            } catch (IOException e) {
                close();
                throw new NotSent(e);
            }
        }

        private String exchange(String line, long deadline) throws IOException {
            socket.getOutputStream().write(line.getBytes(StandardCharsets.UTF_8));
            byte[] answer = new byte[4096];
            int length = 0;
            while (length == 0 || answer[length - 1] != '\n') {
                socket.setSoTimeout(left(deadline));
                int n = socket.getInputStream().read(answer, length, answer.length - length);
                if (n <= 0) { throw new EOFException("the register closed the connection"); }
                length += n;
            }
            return new String(answer, 0, length, StandardCharsets.UTF_8);
        }

        /** In ms, at least one: 0 would mean no timeout. */
        private static int left(long deadline) { return (int) Math.max((deadline - now()) / 1_000_000, 1); }

        void close() {
            try {
                if (socket != null) { socket.close(); }
            } catch (IOException e) {
                // it is closed nevertheless
            }
            socket = null;
        }
    }

    /** Returns what an exception means: fail (certainly no effect) or info (unknown). */
    private static String outcome(Throwable e) { return e instanceof Certain ? "fail" : "info"; }

    /** Returns the class of an exception, from its type and supertypes. */
    private static String code(Throwable e) {
        if (e instanceof Certain c) { return c.code; }
        if (e instanceof InterruptedException) { return "cancelled"; } // the user gave up
        String names = "";
        for (Class<?> c = e.getClass(); c != null; c = c.getSuperclass()) {
            names += c.getSimpleName().toLowerCase(Locale.ROOT) + " ";
        }
        if (names.contains("timeout")) { return "timeout"; }
        return e instanceof IOException || names.contains("connection") ? "connection" : "other";
    }

    private static String words(Throwable e) {
        Throwable what = e instanceof Failed ? e.getCause() : e;
        return what.getClass().getSimpleName() + ": " + what.getMessage();
    }

    /** An action with a number as its result. */
    private interface Asked {
        long get() throws Exception;
    }

    /** An action that fills in the answer to an order. */
    private interface Answering {
        void run(Map<String, Object> answer) throws Exception;
    }

    /** An action. */
    private interface Act {
        void run() throws Exception;
    }

    /** A lock that a user holds. */
    private static final class Hold {
        private final User user;
        private final String name;
        private final long op;
        private final Grant grant;
        private final Object mu = new Object();
        private final CountDownLatch over = new CountDownLatch(1);
        private final ArrayDeque<Grant> again = new ArrayDeque<>(); // its re-entries, the latest first; guarded by mu
        private volatile long valid;
        private volatile boolean lost, ended;

        Hold(User user, String name, long op, Grant grant) {
            this.user = user;
            this.name = name;
            this.op = op;
            this.grant = grant;
            this.valid = grant.valid;
        }

        private Fields fields() {
            Fields f = new Fields(name);
            f.grant = op;
            f.token = grant.token;
            return f;
        }

        boolean stands() { return stands(0); }

        /** Whether the grant stays valid for another margin nanoseconds. */
        boolean stands(long margin) {
            return !lost && now() + margin < valid; // ENDLESS is later than any time, UNKNOWN earlier
        }

        /** Subscribes to losses and renewals, and renews the grant if the start frame says so. */
        void follow() throws Exception {
            if (user.lock.tells) { user.lock.onLost(grant, this::gone); }
            if (user.lock.tellsRenewals) { user.lock.onRenewed(grant, this::renewed); }
            if (user.session.start.flag("renew")) { daemon(this::keep); }
        }

        private void keep() {
            CURRENT.set(user);
            try {
                while (!over.await(user.session.access.ttl.toNanos() / 3, TimeUnit.NANOSECONDS)) {
                    try {
                        renew(user.session.timeout);
                    } catch (Failed e) { // recorded and counted
                        if (e.gone()) { return; }
                    }
                }
            } catch (InterruptedException e) {
                user.session.tally(e); // never interrupted
            }
        }

        /** The library renewed the grant by itself. */
        void renewed(long until) { learned("renewed", () -> valid = until); }

        /** The grant is lost. */
        void gone() { learned("lost", () -> lost = true); }

        /** Records what the library reports about the grant, until the hold ends. */
        private void learned(String kind, Runnable change) {
            synchronized (mu) {
                if (ended || lost) { return; }
                change.run();
                Fields f = fields().value(now());
                f.valid = valid;
                user.stream.event(user.name, kind, "info", false, f);
            }
        }

        /** Records an operation within the hold and carries it out. */
        private long done(String kind, boolean flush, long value, Asked what) { return done(kind, flush, value, 0, what); }

        /** Does the same with a deadline, a time, which the invoke carries; 0: none. */
        private long done(String kind, boolean flush, long value, long deadline, Asked what) {
            Fields f = fields().value(value);
            f.valid = deadline;
            long seq = user.stream.event(user.name, kind, "invoke", flush, f).seq;
            f.valid = 0;
            long result;
            try {
                result = what.get();
            } catch (Throwable e) {
                throw user.failed(kind, seq, e, f);
            }
            f.op = seq;
            if (kind.equals("read")) {
                f.value = result;
            } else if (kind.equals("renew") || kind.equals("reenter")) {
                f.valid = result;
            }
            if (seq > 0) { user.stream.event(user.name, kind, "ok", false, f); }
            return result;
        }

        long read(long timeout) {
            at("before-read");
            return done("read", false, 0, () -> user.register.read(this, timeout));
        }

        long read() { return read(user.session.timeout); }

        void write(long value, long timeout) {
            String look = user.session.start.text("check");
            if (!look.isEmpty() && lost || look.equals("validity") && !stands(user.session.start.number("margin_ns", 0))) {
                throw new Stopped("stopped before the write: the grant is lost or expired");
            }
            at("before-write");
            done("write", false, value, () -> {
                user.register.write(this, value, timeout);
                return 0;
            });
        }

        void write(long value) { write(value, user.session.timeout); }

        void release() { release(user.session.timeout); }

        void release(long timeout) {
            at("before-release");
            over.countDown();
            synchronized (user.call) { // after this no renewal is under way
                synchronized (mu) {
                    ended = true;
                }
                done("release", true, 0, now() + timeout, () -> {
                    user.giveBack(grant);
                    return 0;
                });
            }
        }

        /** Ends the hold of a lock that its user closed. */
        void giveAway() {
            over.countDown();
            int left;
            synchronized (mu) {
                ended = true;
                left = again.size();
            }
            for (; left >= 0; left--) {
                String kind = left > 0 ? "leave" : "release";
                Fields f = fields();
                f.op = user.stream.event(user.name, kind, "invoke", true, f).seq;
                f.code = "cancelled";
                if (f.op > 0) { user.stream.event(user.name, kind, "info", false, f); }
            }
        }

        boolean isReentered() {
            synchronized (mu) {
                return !again.isEmpty();
            }
        }

        /** Takes the lock once more, and returns the grant of that. */
        Grant reenter(long timeout) {
            synchronized (user.call) {
                Grant[] got = new Grant[1];
                done("reenter", false, 0, now() + timeout, () -> {
                    got[0] = user.take(() -> user.lock.reenter(grant, Duration.ofNanos(timeout)));
                    synchronized (mu) {
                        if (ended) { throw new InterruptedException("the lock was closed meanwhile"); }
                        again.push(got[0]);
                        return valid = got[0].valid;
                    }
                });
                return got[0];
            }
        }

        /** Gives back the latest re-entry. */
        void leave(long timeout) {
            synchronized (user.call) {
                Grant latest;
                synchronized (mu) {
                    if (ended) { throw new Certain("the lock was closed meanwhile"); }
                    latest = again.pop();
                }
                try {
                    done("leave", true, 0, now() + timeout, () -> {
                        user.giveBack(latest);
                        return 0;
                    });
                } catch (Failed e) {
                    if (e.gone()) { gone(); }
                    throw e;
                }
            }
        }

        void renew(long timeout) {
            synchronized (user.call) {
                if (ended) { return; }
                try {
                    done("renew", false, 0, now() + timeout, () -> valid = user.lock.renew(grant));
                } catch (Failed e) {
                    if (e.gone()) { gone(); }
                    throw e;
                }
            }
        }

        void check() {
            synchronized (user.call) {
                done("check", false, 0, () -> {
                    user.lock.check(grant);
                    return 0;
                });
            }
        }
    }

    /** One lock user. It runs a workload or carries out orders. */
    private static final class User {
        private final Session session;
        private final Stream stream;
        private final int number;
        private final String name;
        private final SplittableRandom random;
        private final Object call = new Object();
        private final Map<Integer, Hold> holds = new LinkedHashMap<>();
        private final Map<Integer, Grant> given = new LinkedHashMap<>(); // the grant it released last, by lock
        private final Map<String, String> points = new LinkedHashMap<>(); // armed points and their actions; guarded by the session
        private final Semaphore let = new Semaphore(0);
        private volatile boolean armed;
        private String waiting; // at a point; guarded by the session
        private LinkedBlockingQueue<Tree> orders; // of a user that carries out orders; an empty order is the last
        private volatile Lock lock;
        private volatile Register register;
        private final Object mu = new Object();
        private volatile long cycles, lag;
        private long free;
        private Thread asking; // the thread whose acquire is under way, or null; guarded by mu
        private long under; // the number of its invoke; 0 if there was no room for it
        private volatile boolean closed;

        User(Session session, int number) {
            this.session = session;
            this.stream = session.stream;
            this.number = number;
            this.name = "client-" + (session.start.number("index", 0) + 1) + "/" + number;
            this.random = new SplittableRandom(session.start.number("seed", 0) + number);
        }

        void connect() throws Exception {
            if (lock == null) { lock = session.connected(); }
            if (register == null && session.start.has("resource")) { register = new Register(session.start.tree("resource")); }
        }

        Hold acquire(int index, long intended, long timeout) throws Exception {
            while (stream.waiting > CROWDED && !session.halted()) {
                Thread.sleep(1);
            }
            if (intended != 0) { lag = Math.max(lag, now() - Math.max(intended, free)); }
            String of = session.locks.get(index);
            Fields invoke = new Fields(of).value(intended);
            invoke.valid = now() + timeout; // deadline
            Stamp asked = stream.event(name, "acquire", "invoke", false, invoke);
            Grant g;
            try {
                underway(Thread.currentThread(), asked.seq);
                try {
                    synchronized (call) {
                        g = take(() -> lock.acquire(of, Duration.ofNanos(timeout)));
                    }
                } finally {
                    underway(null, 0);
                }
            } catch (Throwable e) {
                Failed failed = failed("acquire", asked.seq, e, new Fields(of));
                free = now();
                throw failed;
            }
            cycles++;
            Hold h = new Hold(this, of, asked.seq, g);
            if (asked.seq > 0) {
                Fields f = h.fields().value(Math.max(g.sent, asked.time));
                f.op = asked.seq;
                f.valid = g.valid;
                stream.event(name, "acquire", "ok", true, f);
            }
            h.follow();
            at("acquired");
            return h;
        }

        private Grant take(Callable<Grant> ask) throws Exception {
            at("before-lock");
            Grant g = ask.call();
            at("lock-done");
            if (g.valid == BY_RENEW) {
                try {
                    g.valid = lock.renew(g);
                } catch (Exception e) {
                    giveBack(g);
                    throw e;
                }
            }
            return g;
        }

        void giveBack(Grant grant) throws Exception {
            at("before-unlock");
            lock.release(grant);
            at("unlock-done");
        }

        private void underway(Thread thread, long op) {
            synchronized (mu) {
                asking = thread;
                under = op;
                if (thread == null) { Thread.interrupted(); } // the acquire may have ended without noticing the interrupt
            }
        }

        /** Interrupts the acquire that is under way. The cancel is recorded before the interrupt. */
        void giveUp() {
            synchronized (mu) {
                if (asking == null) { throw new Certain("no acquire is under way"); }
                Fields f = new Fields("");
                f.op = under;
                if (under > 0) { stream.event(name, "cancel", "info", true, f); }
                asking.interrupt();
            }
        }

        /** Closes the lock, possibly during another call. The user's holds end here, because it is unknown whether the service still keeps them. */
        private void close(long timeout) {
            List<Hold> held;
            synchronized (mu) {
                if (closed) { throw new Certain("user " + number + " has closed its lock"); }
                closed = true;
                held = List.copyOf(holds.values());
                holds.clear();
            }
            held.forEach(Hold::giveAway);
            Fields f = new Fields("");
            f.valid = now() + timeout; // deadline
            long seq = stream.event(name, "close", "invoke", true, f).seq;
            f.valid = 0;
            try {
                lock.close();
            } catch (Throwable e) {
                throw failed("close", seq, e, f);
            }
            f.op = seq;
            if (seq > 0) { stream.event(name, "close", "ok", false, f); }
        }

        /** Releases a lock that the user does not hold. */
        private void releaseUnheld(int index, Hold hold, long timeout) {
            String of = session.locks.get(index);
            if (!lock.has("releaseUnheld")) { throw new Certain("this lock cannot release without a grant"); }
            if (hold != null) { throw new Certain("user " + number + " has " + of + " in hand: release it first"); }
            synchronized (call) {
                Fields f = new Fields(of);
                f.valid = now() + timeout; // deadline
                long seq = stream.event(name, "release-unheld", "invoke", true, f).seq;
                f.valid = 0;
                try {
                    lock.releaseUnheld(of, given.get(index));
                } catch (Throwable e) {
                    throw failed("release-unheld", seq, e, f);
                }
                f.op = seq;
                if (seq > 0) { stream.event(name, "release-unheld", "ok", false, f); }
            }
        }

        Hold acquire(int index, long intended) throws Exception { return acquire(index, intended, session.timeout); }

        Failed failed(String kind, long seq, Throwable e, Fields f) {
            session.tally(e);
            f.op = seq;
            f.code = code(e);
            if (seq > 0) { stream.event(name, kind, outcome(e), false, f); }
            return new Failed(e);
        }

        void reached(String point) {
            String action;
            synchronized (session) {
                action = points.remove(point);
                armed = !points.isEmpty();
                if (action == null) { return; }
                waiting = point;
                let.drainPermits();
            }
            if (session.halted()) { // a later stop finds the user waiting
                return;
            }
            stream.send("point", Map.of("user", number, "point", point, "time", now()));
            if (action.equals("die")) {
                Runtime.getRuntime().halt(137); // Java cannot send itself a signal; halt runs no hooks and closes nothing either
            }
            let.acquireUninterruptibly();
            synchronized (session) {
                waiting = null;
            }
        }

        /** Runs a user with a workload. */
        void live() {
            CURRENT.set(this);
            try {
                session.sleepUntil(session.go);
                free = now();
                WORKLOADS.get(session.start.tree("workload").text("use")).run(session, this);
            } catch (Throwable e) {
                session.tally(e);
            }
        }

        /** Runs a user that carries out orders. */
        void obey() {
            CURRENT.set(this);
            try {
                for (Tree order; !(order = orders.take()).keys.isEmpty(); ) {
                    Tree one = order;
                    answer(order, answer -> carryOut(one, answer));
                }
            } catch (InterruptedException e) {
                session.tally(e); // never interrupted
            }
            for (Hold h : holds.values()) {
                while (h.isReentered()) {
                    session.attempt(() -> h.leave(session.timeout));
                }
                session.attempt(h::release);
            }
        }

        /** Carries out an order and sends the result. */
        private void answer(Tree order, Answering what) {
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("id", order.number("id", 0));
            try {
                if (session.halted()) { throw new Certain("the client was stopped"); }
                connect();
                what.run(answer);
                answer.put("outcome", "ok");
            } catch (Throwable e) {
                answer.put("outcome", outcome(e instanceof Failed ? e.getCause() : e));
                answer.put("error", words(e));
            }
            stream.send("result", answer);
        }

        /** Closes the lock even if another call is under way. */
        void closeNow(Tree order) { answer(order, answer -> close(timeoutOf(order))); }

        private long timeoutOf(Tree order) { return order.number("timeout_ns", 0) > 0 ? order.number("timeout_ns", 0) : session.timeout; }

        private void carryOut(Tree order, Map<String, Object> answer) throws Exception {
            int index = (int) order.number("lock", 0);
            String what = order.text("do");
            long timeout = timeoutOf(order);
            Hold h = holds.get(index);
            if (closed) { throw new Certain("user " + number + " has closed its lock"); }
            if (what.equals("acquire") || what.equals("reenter")) {
                if (order.text("mode").equals("shared")) { throw new Certain("this lock is only exclusive"); }
                if (h != null && what.equals("reenter") && h.stands() && lock.has("reenter")) {
                    answer.put("grant", h.reenter(timeout).id);
                    answer.put("value", h.grant.token);
                    return;
                }
                if (h != null) {
                    abandon(h);
                    holds.remove(index);
                }
                h = acquire(index, 0, timeout);
                keep(index, h);
                answer.put("value", h.grant.token);
                answer.put("grant", h.grant.id);
                return;
            }
            if (what.equals("release-unheld")) {
                releaseUnheld(index, h, timeout);
                return;
            }
            if (h == null) { throw new Certain("user " + number + " has no grant of " + session.locks.get(index) + " in hand"); }
            if ((what.equals("read") || what.equals("write")) && register == null) { throw new Certain("the run has no resource"); }
            if ((what.equals("renew") || what.equals("check")) && !lock.has(what)) { throw new Certain("this lock has no " + what); }
            switch (what) {
                case "release" -> {
                    if (h.isReentered()) {
                        h.leave(timeout);
                        return;
                    }
                    holds.remove(index);
                    given.put(index, h.grant);
                    h.release(timeout);
                }
                case "read" -> answer.put("value", h.read(timeout));
                case "write" -> h.write(order.number("value", 0), timeout);
                case "renew" -> h.renew(timeout);
                default -> h.check();
            }
        }

        /** Keeps a new hold, unless the lock was closed meanwhile. */
        private void keep(int index, Hold h) {
            boolean late;
            synchronized (mu) {
                late = closed;
                if (!late) { holds.put(index, h); }
            }
            if (late) { h.giveAway(); }
        }

        /** Forgets a grant that is lost or expired. */
        private void abandon(Hold h) {
            if (h.stands()) { throw new Certain("user " + number + " has " + h.name + " in hand already"); }
            h.over.countDown();
            h.gone();
        }
    }

    // The workloads, each for one user. A cycle that has begun is finished, and its grant released.

    private interface Life {
        void run(Session s, User u) throws Exception;
    }

    private interface Inside {
        void run(Hold h) throws Exception;
    }

    private static final Map<String, Life> WORKLOADS = Map.of(
            "acquire-release", Lockquake::acquireRelease, "counter", Lockquake::counter, "guarded-set", Lockquake::guardedSet,
            "inventory", Lockquake::inventory, "booking", Lockquake::booking, "balance", Lockquake::balance,
            "hold-renew", Lockquake::holdRenew, "stampede", Lockquake::stampede, "spread", Lockquake::spread, "once", Lockquake::once);

    /** Runs cycles until the stop, and pauses after one that did not get the lock. */
    private static void closed(Session s, User u, Act cycle) throws Exception {
        while (!s.halted()) {
            if (!s.attempt(cycle)) { s.sleep(u.random.nextLong(5_000_000, 15_000_000)); }
            s.sleep(s.params.number("think", 0));
        }
    }

    /** Runs closed cycles that do some work under the lock. */
    private static void inside(Session s, User u, IntSupplier choose, Inside work) throws Exception {
        closed(s, u, () -> {
            Hold h = u.acquire(choose.getAsInt(), 0);
            s.attempt(() -> work.run(h));
            s.attempt(h::release);
        });
    }

    private static int anyOf(Session s, User u) { return u.random.nextInt((int) s.params.number("locks", 1)); }

    private static long holdTime(Session s, User u) {
        long hold = s.params.number("hold", 0);
        return s.params.flag("spread") ? u.random.nextLong(hold + 1) : hold;
    }

    private static void acquireRelease(Session s, User u) throws Exception {
        IntSupplier choose = () -> s.params.flag("own_locks") ? s.firstUser + u.number : anyOf(s, u);
        if (s.params.fraction("rate") == 0) {
            inside(s, u, choose, h -> s.sleep(holdTime(s, u)));
            return;
        }
        for (long t; (t = s.nextArrival()) != 0; ) {
            long intended = t;
            s.attempt(() -> {
                Hold h = u.acquire(choose.getAsInt(), intended);
                s.sleep(holdTime(s, u));
                s.attempt(h::release);
                u.free = now();
            });
        }
    }

    private static void counter(Session s, User u) throws Exception {
        inside(s, u, () -> anyOf(s, u), h -> {
            long n = h.read();
            s.sleep(holdTime(s, u));
            h.write(n + 1);
        });
    }

    private static void guardedSet(Session s, User u) throws Exception {
        long[] element = {(s.firstUser + u.number + 1L) << 32};
        inside(s, u, () -> anyOf(s, u), h -> {
            h.read();
            s.sleep(holdTime(s, u));
            h.write(++element[0]);
        });
    }

    private static void inventory(Session s, User u) throws Exception {
        inside(s, u, () -> anyOf(s, u), h -> {
            long sold = h.read();
            if (sold < s.params.number("stock", 0)) {
                s.sleep(holdTime(s, u));
                h.write(sold + 1);
            }
        });
    }

    private static void booking(Session s, User u) throws Exception {
        int[] seat = {0};
        long[] made = {(s.firstUser + u.number + 1L) << 32};
        inside(s, u, () -> {
            if (seat[0] == s.params.number("seats", 0)) {
                s.sleep(Long.MAX_VALUE);
                throw new Stopped("all seats are taken");
            }
            return seat[0];
        }, h -> {
            if (h.read() != 0) {
                seat[0]++;
                return;
            }
            s.sleep(holdTime(s, u));
            h.write(++made[0]);
        });
    }

    private static void balance(Session s, User u) throws Exception {
        int accounts = (int) s.params.number("accounts", 0);
        closed(s, u, () -> {
            int one = u.random.nextInt(accounts), other = (one + 1 + u.random.nextInt(accounts - 1)) % accounts;
            long amount = u.random.nextLong(1, s.params.number("amount", 1) + 1) * (u.random.nextBoolean() ? 1 : -1);
            Hold first = u.acquire(Math.min(one, other), 0); // locks are taken in order, so that no two users deadlock
            try {
                Hold second = u.acquire(Math.max(one, other), 0);
                s.attempt(() -> {
                    long a = first.read(), b = second.read();
                    s.sleep(holdTime(s, u));
                    first.write(a - amount);
                    second.write(b + amount);
                });
                s.attempt(second::release);
            } finally {
                s.attempt(first::release);
            }
        });
    }

    private static void holdRenew(Session s, User u) throws Exception {
        long touch = s.params.number("touch", 0);
        inside(s, u, () -> anyOf(s, u), h -> {
            for (long left = s.params.number("hold", 0); left > 0 && !s.halted(); left -= touch > 0 ? touch : left) {
                s.sleep(touch > 0 ? Math.min(touch, left) : left);
                if (touch > 0) { h.write(h.read() + 1); }
            }
        });
    }

    private interface Round {
        void run(Hold h, long at) throws Exception;
    }

    /** Does some work under a lock at moments that all users share. The rounds take the locks in turn. */
    private static void rounds(Session s, User u, long locks, Round round) throws Exception {
        long every = s.params.number("every", 1);
        while (!s.halted()) {
            long t = (now() / every + 1) * every;
            if (s.sleepUntil(t)) {
                s.attempt(() -> {
                    Hold h = u.acquire((int) (t / every % locks), t);
                    s.attempt(() -> round.run(h, t / every));
                    s.attempt(h::release);
                });
            }
        }
    }

    private static void stampede(Session s, User u) throws Exception {
        rounds(s, u, 1, (h, n) -> s.sleep(holdTime(s, u)));
    }

    private static void once(Session s, User u) throws Exception {
        rounds(s, u, s.params.number("jobs", 1), (h, n) -> {
            if (h.read() < n) {
                s.sleep(holdTime(s, u));
                h.write(n);
            }
        });
    }

    private static void spread(Session s, User u) throws Exception {
        double[] upTo = new double[(int) s.params.number("locks", 1)]; // the sum of the weights up to each lock
        double skew = s.params.text("pick").equals("zipf") ? s.params.fraction("skew") : 0, sum = 0;
        for (int k = 0; k < upTo.length; k++) {
            upTo[k] = sum += Math.pow(k + 1, -skew);
        }
        double all = sum;
        inside(s, u, () -> {
            int k = Arrays.binarySearch(upTo, u.random.nextDouble() * all);
            return Math.min(k < 0 ? -k - 1 : k + 1, upTo.length - 1);
        }, h -> s.sleep(s.params.number("hold", 0)));
    }

    /** A client between its start and its end. */
    private static final class Session {
        private final String process;
        private final Class<? extends Lock> lock;
        private final Map<String, String> libraries;
        private final List<String> announced = new ArrayList<>(POINTS);
        private final Stream stream = new Stream();
        private final CountDownLatch halt = new CountDownLatch(1), ready = new CountDownLatch(1);
        private final Map<Integer, User> users = new ConcurrentHashMap<>();
        private final Queue<Thread> threads = new ConcurrentLinkedQueue<>();
        private final Map<String, Long> errors = new LinkedHashMap<>(); // guarded by itself
        private final Object turn = new Object();
        private volatile Tree start = new Tree(Map.of()), params = start;
        private volatile List<String> locks = List.of();
        private volatile Access access;
        private volatile long timeout, go, longest;
        private volatile int firstUser;
        private Duration cpu = Duration.ZERO;
        private SplittableRandom arrivals; // of an open loop; guarded by turn, as are the next fields
        private double gap, arrival;
        private long skipped;

        Session(String process, Class<? extends Lock> lock, Map<String, String> libraries, String[] points) {
            this.process = process;
            this.lock = lock;
            this.libraries = libraries;
            this.announced.addAll(Arrays.asList(points));
        }

        /** Runs the client. The main thread reads frames and never waits for anything else. */
        void serve() {
            fatal(() -> {
                stream.send("hello", hello());
                BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
                for (String line; (line = in.readLine()) != null; ) {
                    Tree frame = new Tree(Json.read(line));
                    take(frame.text("type"), frame);
                }
                Runtime.getRuntime().halt(1); // the supervisor is gone
            });
        }

        private void take(String type, Tree frame) throws Exception {
            Tree content = frame.tree(type);
            switch (type) {
                case "ping" -> {
                    Instant wall = Instant.now();
                    stream.send("pong", Map.of("id", content.number("id", 0), "now", now(), "mono", now(), "wall", wall.getEpochSecond() * 1_000_000_000 + wall.getNano()));
                }
                case "start" -> daemon(() -> fatal(() -> onStart(content)));
                case "go" -> {
                    ready.await();
                    onGo(content);
                }
                case "command" -> {
                    ready.await();
                    onCommand(content);
                }
                case "stop" -> daemon(() -> fatal(this::finish));
                default -> throw new IllegalArgumentException("a frame of type " + type);
            }
        }

        private Map<String, Object> hello() throws IOException {
            Map<String, Object> h = new LinkedHashMap<>();
            boolean shared = isMonotonic();
            h.put("version", VERSION);
            h.put("process", process);
            h.put("software", "Java " + System.getProperty("java.version"));
            h.put("libraries", libraries);
            h.put("boot_id", shared ? Files.readString(Path.of("/proc/sys/kernel/random/boot_id")).strip() : ""); // without it lockquake measures the clock
            h.put("time_ns", shared ? Files.readSymbolicLink(Path.of("/proc/self/ns/time")).toString() : "");
            h.put("now", now());
            h.put("formats", List.of("jsonl"));
            h.put("pid", ProcessHandle.current().pid());
            h.put("points", announced);
            List<String> orders = new ArrayList<>(List.of("cancel", "close"));
            for (String o : List.of("reenter", "renew", "check")) {
                if (Lock.overrides(lock, o)) { orders.add(o); }
            }
            if (Lock.overrides(lock, "releaseUnheld")) { orders.add("release-unheld"); }
            h.put("orders", orders);
            h.put("tells", Lock.overrides(lock, "onLost"));
            h.put("keeps", Lock.overrides(lock, "keeps"));
            h.put("permits", Lock.overrides(lock, "permits"));
            h.put("elsewhere", Lock.overrides(lock, "elsewhere"));
            Hung hung = lock.getAnnotation(Hung.class);
            if (hung != null) { h.put("hung", Map.of("ttls", hung.ttls(), "plus_ns", hung.plusMillis() * 1_000_000)); }
            return h;
        }

        /** Returns a connected lock for a user. */
        Lock connected() throws Exception {
            try {
                var constructor = lock.getDeclaredConstructor(Access.class);
                constructor.setAccessible(true); // its class may be private
                return constructor.newInstance(access);
            } catch (InvocationTargetException e) {
                throw e.getCause() instanceof Exception cause ? cause : e;
            }
        }

        /** Run an action; if it fails, end the client. */
        private void fatal(Act what) {
            try {
                what.run();
            } catch (Throwable e) {
                stream.send("failed", Map.of("error", words(e)));
                Runtime.getRuntime().halt(1);
            }
        }

        private void onStart(Tree st) throws Exception {
            if (st.number("version", 0) != VERSION) {
                throw new IllegalArgumentException("version " + st.number("version", 0) + " of the protocol; this program speaks " + VERSION);
            }
            start = st;
            locks = st.list("locks").stream().map(Object::toString).toList();
            long ttl = st.tree("access").number("ttl_ns", 0);
            access = new Access(st.tree("access"), ttl > 0 ? ttl : st.number("ttl_ns", 0));
            timeout = st.number("timeout_ns", 0) > 0 ? st.number("timeout_ns", 0) : 10_000_000_000L;
            Tree w = st.tree("workload"), r = st.tree("resource");
            if (st.has("workload") && !WORKLOADS.containsKey(w.text("use"))) {
                throw new IllegalArgumentException("there is no workload " + w.text("use"));
            }
            if (st.has("resource") && (!r.text("use").equals("register") || r.text("guard").equals("sequencer"))) {
                throw new IllegalArgumentException(
                        "resource " + r.text("use") + " with guard " + r.text("guard") + ": this client supports only the register, without its sequencer");
            }
            params = w.tree("params");
            firstUser = (int) (st.number("index", 0) * w.number("users", 0));
            if (params.fraction("shared") > 0) { throw new IllegalArgumentException("this lock is only exclusive"); }
            stream.begin(st.flag("record"));
            daemon(this::watchSelf);
            for (int number = 0; number < w.number("users", 1); number++) {
                person(number).connect();
            }
            Lock first = users.get(0).lock;
            if (st.flag("renew") && !first.has("renew")) { throw new IllegalArgumentException("grants of this lock cannot be extended"); }
            if (st.text("check").equals("signal") && !first.tells && !st.flag("renew")) {
                throw new IllegalArgumentException("check is signal, but this lock reports no loss");
            }
            stream.send("ready", Map.of());
            ready.countDown();
        }

        private void onGo(Tree content) {
            go = content.number("time", 0);
            cpu = spent();
            if (start.has("workload")) { users.values().forEach(u -> threads.add(daemon(u::live))); }
        }

        private static Duration spent() { return ProcessHandle.current().info().totalCpuDuration().orElse(Duration.ZERO); }

        private User person(int number) { return users.computeIfAbsent(number, n -> new User(this, n)); }

        private void onCommand(Tree order) {
            String wrong = takeOrder(order);
            if (wrong == null) { return; }
            Map<String, Object> answer = new LinkedHashMap<>(Map.of("id", order.number("id", 0), "outcome", wrong.isEmpty() ? "ok" : "fail"));
            if (!wrong.isEmpty()) { answer.put("error", wrong); }
            stream.send("result", answer);
        }

        /** Returns what is wrong with an order, "" if it was carried out, or null if its user will answer it. */
        private String takeOrder(Tree order) {
            String what = order.text("do"), point = order.text("point"), action = order.text("action");
            long number = order.number("user", 0), lock = order.number("lock", 0);
            if (!List.of("acquire", "reenter", "release", "renew", "check", "read", "write", "arm", "continue", "cancel", "close", "release-unheld").contains(what)) {
                return "unknown order " + what;
            }
            if (lock < 0 || lock >= locks.size() || number < 0 || number >= 1 << 16) { return "there is no lock " + lock + " or no user " + number; }
            User u = person((int) number);
            synchronized (this) {
                if (what.equals("arm")) {
                    if (point.isEmpty() || !List.of("wait", "die").contains(action)) { return "arm needs a point, and wait or die as its action"; }
                    u.points.put(point, action);
                    u.armed = true;
                    return "";
                }
                if (what.equals("continue")) {
                    if (u.waiting == null || !point.isEmpty() && !point.equals(u.waiting)) {
                        return "user " + number + " does not wait at point " + point;
                    }
                    u.let.release();
                    return "";
                }
            }
            if (what.equals("cancel")) {
                try {
                    u.giveUp();
                    return "";
                } catch (Certain e) {
                    return e.getMessage();
                }
            }
            if (number < start.tree("workload").number("users", 0)) {
                return "user " + number + " runs a workload: it can only be armed and continued";
            }
            if (what.equals("close")) {
                threads.add(daemon(() -> u.closeNow(order)));
                return null;
            }
            if (u.orders == null) {
                u.orders = new LinkedBlockingQueue<>();
                threads.add(daemon(u::obey));
            }
            u.orders.add(order);
            return null;
        }

        /** Run an action and report whether it succeeded. An error is counted. */
        boolean attempt(Act what) {
            try {
                what.run();
                return true;
            } catch (Failed | Stopped e) {
                return false;
            } catch (Throwable e) {
                tally(e);
                return false;
            }
        }

        void tally(Throwable e) {
            String text = words(e);
            synchronized (errors) {
                errors.merge(errors.containsKey(text) || errors.size() < 19 ? text : "other errors", 1L, Long::sum);
            }
        }

        boolean halted() { return halt.getCount() == 0; }

        /** Waits, at most until the stop. */
        void sleep(long ns) {
            try {
                if (ns > 0) { halt.await(ns, TimeUnit.NANOSECONDS); }
            } catch (InterruptedException e) {
                tally(e); // never interrupted
            }
        }

        /** Waits until a time; true if it came before the stop. */
        boolean sleepUntil(long t) {
            sleep(t - now());
            return !halted();
        }

        /** Waits for the next arrival of an open loop, and returns 0 at the stop. One user waits for it; the others wait for their turn. */
        long nextArrival() {
            synchronized (turn) {
                if (arrivals == null) {
                    arrivals = new SplittableRandom(start.number("seed", 0) - 1);
                    Tree w = start.tree("workload");
                    double here = w.number("users", 1);
                    gap = 1e9 / params.fraction("rate") * w.number("total", w.number("users", 1)) / here;
                    arrival = go + step(true);
                }
                if (halted()) { return 0; }
                long t = (long) arrival;
                arrival += step(false);
                if (sleepUntil(t)) { return t; }
                skipped += t <= now() ? 1 : 0;
                return 0;
            }
        }

        private double step(boolean first) {
            if (params.text("arrivals").equals("uniform")) { return gap * (first ? arrivals.nextDouble() : 1); }
            return arrivals.nextExponential() * gap;
        }

        /** Records when the process did not run. */
        private void watchSelf() {
            String user = "client-" + (start.number("index", 0) + 1) + "/0";
            for (long last = now(), t; ; last = t) {
                LockSupport.parkNanos(BEAT);
                t = now();
                longest = Math.max(longest, t - last);
                if (t - last > STALL) { stream.still(user, last, t); }
            }
        }

        /** Ends the users, sends what is left, and says goodbye. */
        private void finish() throws InterruptedException {
            long ended = now();
            halt.countDown();
            for (User u : users.values()) {
                u.let.release();
                if (u.orders != null) { u.orders.add(new Tree(Map.of())); }
            }
            for (Thread t : threads) {
                t.join();
            }
            daemon(this::disconnect).join(3000);
            while (gap > 0 && arrival <= ended) {
                arrival += step(false);
                skipped++;
            }
            stream.end();
            Map<String, Object> done = new LinkedHashMap<>();
            done.put("recorded", stream.seq);
            done.put("dropped", stream.dropped);
            done.put("stall_ns", longest);
            done.put("cycles", users.values().stream().mapToLong(u -> u.cycles).sum());
            synchronized (errors) {
                done.put("errors", errors);
                done.put("lag_ns", users.values().stream().mapToLong(u -> u.lag).max().orElse(0));
                done.put("unstarted", skipped);
                done.put("cpu_ns", spent().minus(cpu).toNanos());
                stream.send("done", done);
            }
            Runtime.getRuntime().halt(0);
        }

        private void disconnect() {
            for (User u : users.values()) {
                if (u.lock != null && !u.closed) { attempt(u.lock::close); }
                if (u.register != null) { attempt(u.register::close); }
            }
        }
    }

    /**
     * Whether now() is CLOCK_MONOTONIC. Java does not specify the origin of nanoTime; HotSpot reads that clock on Linux. So nanoTime is compared with
     * /proc/uptime, which has hundredths of a second. After a suspend the two differ on any JVM, and lockquake measures the clock instead.
     */
    private static boolean isMonotonic() throws IOException {
        long before = now();
        String[] uptime = Files.readString(Path.of("/proc/uptime")).split("[. ]");
        long told = Long.parseLong(uptime[0]) * 1_000_000_000 + Long.parseLong(uptime[1]) * 10_000_000;
        return before < told + 10_000_000 && told <= now();
    }
}
