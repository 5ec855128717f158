"""The client side of lockquake's control stream (docs/protocol.md): frames, clocks, workloads, events, points.

A client is a class with acquire and release, and a call of main:

    import lockquake

    class MyLock(lockquake.Lock):
        def acquire(self, name, timeout): ...    # returns self.grant(...), or raises Contended
        def release(self, grant): ...            # raises NotHeld if the service no longer had it

    lockquake.main(MyLock, "my lock", mylib="1.2.3")

Standard library only. docs/clients.md has more.
"""
import json
import os
import queue
import random
import signal
import socket
import sys
import threading
import time
import traceback

VERSION = 1
ENDLESS, UNKNOWN = "endless", "unknown"  # values of valid that are not a time
BY_RENEW = "by renew"  # in a grant from acquire: call renew at once for the validity
POINTS = ("before-lock", "lock-done", "before-unlock", "unlock-done")  # announced around acquire and release of every lock
BEAT, STALL = 10_000_000, 20_000_000  # ns: how often a process checks that it runs, and the shortest stall that is reported
ROOM, CROWDED = 128 << 10, 4 << 10  # events that may wait to be written; above CROWDED of them, users without a lock pause
now = time.monotonic_ns  # CLOCK_MONOTONIC, the time base of a run


def own_clock():
    """Return a clock with the origin of time.monotonic_ns that runs on when a fault stops that one."""
    ahead = min(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns() for _ in range(32))
    return lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ahead


class Certain(Exception):
    """The operation certainly failed. After any other exception of a lock the outcome is unknown."""

    code = "other"


class Contended(Certain):
    """The lock is taken, or the wait for it was given up. Certainly nothing was granted."""

    code = "contended"


class NotHeld(Certain):
    """The service certainly no longer has the grant."""

    code = "not-held"


class Lost(Certain):
    """The grant was lost while it was held."""

    code = "lost"


class NotSent(Certain):
    """The request certainly never reached the service."""

    code = "connection"


class Refused(Certain):
    """The service refused the request."""

    code = "unavailable"


class Fenced(Certain):
    """The resource refused the grant's token."""

    code = "fenced"


class Cancelled(Exception):
    """The wait was cancelled, and it is unknown whether the lock was granted."""


class Stopped(Certain):
    """The check before a write found the grant lost or expired, or there is nothing left to do. It does not count as an error."""


class Grant:
    """A lock that was granted. id identifies the grant at the service, sent is when the granted request was sent (ns), valid the end of the
    promised validity (ns, ENDLESS, UNKNOWN or BY_RENEW), token the fencing token or 0. handle is for the author's own use."""

    def __init__(self, id, sent, valid, token=0, handle=None):
        self.id, self.sent, self.valid, self.token, self.handle = id, sent, valid, token, handle


class Lock:
    """One user's lock, with a connection of its own. Its methods are called one at a time, in the user's own thread; renew may be
    called in another one. Only cancel and close may be called in another thread during another call."""

    keeps = False  # whether grants last as long as the process lives without calls of renew, as with a session that is kept alive
    permits = False  # whether as many users may hold the lock at once as access.permits says
    elsewhere = False  # whether the lock's key differs from the one that lockquake asks the service for
    hung = None  # (TTLs, seconds): the bound from the last call of a user that hangs to the next grant, if the library renews by itself
    points = ()  # further points that the lock passes to at(), in this order; the first one in release must begin with "before-"

    def __init__(self, access):
        self.access = access

    def acquire(self, name, timeout):
        """Take the lock within timeout seconds and return a grant."""
        raise NotImplementedError

    def release(self, grant):
        """Give the lock back."""
        raise NotImplementedError

    def reenter(self, grant, timeout):
        """Optional: take a lock that this object holds once more, by the library's own call, and return the grant of that. Each grant is released,
        the latest first; the lock is free after the last."""
        raise NotImplementedError

    def renew(self, grant):
        """Optional: extend the grant, and return the new end of the validity. NotHeld and Lost mean that the grant is gone."""
        raise NotImplementedError

    def check(self, grant):
        """Optional: raise NotHeld if the service says that the grant is gone."""
        raise NotImplementedError

    def release_unheld(self, name, last):
        """Optional: release a lock that this object does not hold, by the library's own call. last is the latest grant of the lock that the object
        released, or None. NotHeld means that the library refused."""
        raise NotImplementedError

    def on_lost(self, grant, tell):
        """Optional: have tell() called when the library reports that the grant is gone."""
        raise NotImplementedError

    def on_renewed(self, grant, tell):
        """Optional: have tell(valid) called after each renewal that the library makes by itself. valid is the new end of the validity, counted
        from when the renewal was sent, or UNKNOWN if the library does not say."""
        raise NotImplementedError

    def cancel(self):
        """Optional: end the acquire that is under way in another thread. It then raises Cancelled, or Contended if certainly nothing was granted."""
        raise NotImplementedError

    def close(self):
        """Free the lock's resources. A call under way in another thread then ends, with an exception unless it succeeded."""

    def grant(self, id, sent, token=0, handle=None):
        """Return a grant that is valid for the TTL of the run."""
        return Grant(id, sent, valid(sent, self.access.ttl_ns), token, handle)


def valid(sent, ttl_ns):
    """Return the end of a TTL that was requested at sent, less the drift that two clocks may have."""
    return int(sent + ttl_ns - ttl_ns // 100 - 2_000_000)


class Access:
    """How to reach the service."""

    def __init__(self, frame):
        self.frame, self.ttl_ns, self.run = frame, frame.get("ttl_ns", 0), frame.get("run", "")
        self.ttl, self.client = self.ttl_ns / 1e9, frame.get("client", 0)
        self.permits = frame.get("permits", 1)  # how many users may hold one lock at once
        self.user, self.password = frame.get("user", ""), frame.get("password", "")
        self.params = frame.get("params") or {}  # of the backend; names that end in _ns are times in ns
        self.timeout = self.params.get("timeout_ns", 1_000_000_000) / 1e9  # of one request, in seconds

    def addresses(self, port="client"):
        """Return (host, port) of each server that has a port of that name."""
        found = (n["addresses"].get(port) for n in self.frame.get("nodes") or ())
        return [(host, int(number)) for host, _, number in (a.rpartition(":") for a in found if a)]


_current = threading.local()


def at(point):
    """Announce that the calling user has reached a point. It costs next to nothing unless a point is armed."""
    user = getattr(_current, "user", None)
    if user is not None and user.armed:
        user.reached(point)


class Stream:
    """Standard output. An event gets its number and its time under one lock, and events are written in that order."""

    def __init__(self):
        self.mu, self.out, self.wake = threading.Lock(), threading.Lock(), threading.Event()
        self.lines, self.seq, self.last, self.stood, self.dropped, self.silent = [], 0, 0, 0, 0, 0
        self.recording = False

    def send(self, type, content=None):
        """Writes a frame after all events so far. When it returns, the operating system has the frame."""
        frame = {"type": type} if content is None else {"type": type, type: content}
        self.flush(json.dumps(frame).encode() + b"\n")

    def flush(self, behind=b""):
        with self.out:
            with self.mu:
                lines, self.lines = self.lines, []
            data = memoryview(b"".join(lines) + behind)
            try:
                while data:
                    data = data[os.write(1, data):]
            except OSError:
                os._exit(1)  # the supervisor no longer reads

    def event(self, user, kind, phase, flush=False, **fields):
        """Records an event and returns its number and time. The number is 0 if there was no room. With flush, the event is written on return."""
        with self.mu:
            seq, t = self._add(user, kind, phase, fields)
        if flush and seq:
            self.flush()
            self.still(user, t, now())
        elif seq:
            self.wake.set()
        return seq, t

    def _add(self, user, kind, phase, fields):
        t = max(now(), self.last)
        if not self.recording:
            return 0, t
        if len(self.lines) >= ROOM:
            self.dropped, self.silent = self.dropped + 1, self.silent + 1
            return 0, t
        if self.silent:
            gone, self.silent = self.silent, 0
            self._put({"user": user, "kind": "dropped", "phase": "info", "value": gone}, t)
        self._put({"user": user, "kind": kind, "phase": phase, **fields}, t)
        return self.seq, t

    def _put(self, event, t):
        self.seq, self.last = self.seq + 1, t
        event.setdefault("op", self.seq)
        event = {"time": t, "seq": self.seq, **{k: v for k, v in event.items() if v not in (0, None)}}
        self.lines.append(b'{"type":"event","event":' + json.dumps(event).encode() + b"}\n")

    def still(self, user, since, until):
        """Records that the user or the process did not run, without the part that is on record already."""
        with self.mu:
            since = max(since, self.stood)
            if until - since > STALL:
                self.stood = self._add(user, "stall", "info", {"value": until - since})[1]
                self.wake.set()

    def end(self):
        """Stops recording, and returns how many events there were and how many were dropped for lack of room."""
        with self.mu:
            self.recording = False
            return self.seq, self.dropped

    def keep_flushing(self):
        """Writes events within a millisecond, for callers that do not wait."""
        while True:
            self.wake.wait()
            self.wake.clear()
            self.flush()
            time.sleep(0.0005)


class Register:
    """A user's connection to the resource."""

    def __init__(self, start):
        self.host, _, port = start["address"].rpartition(":")
        self.port, self.guard, self.socket, self.versions = int(port), start.get("guard", ""), None, {}

    def read(self, hold, timeout):
        return self.ask(hold, timeout, {"op": "read"})

    def write(self, hold, value, timeout):
        if self.guard == "check-then-write":
            self.ask(hold, timeout, {"op": "check", "value": value})
            at("token-checked")
        self.ask(hold, timeout, {"op": "write", "value": value})

    def ask(self, hold, timeout, request):
        request.update(lock=hold.name, user=hold.user.name, grant=hold.op, token=hold.grant.token)
        if self.guard == "cas-owner":
            request["owner"] = hold.grant.id
        if self.guard in ("cas-version", "fence-version") and self.versions.get(hold.name, (0,))[0] == hold.op:
            request["version"] = self.versions[hold.name][1]
        deadline = time.monotonic() + timeout
        try:
            if self.socket is None:
                self.socket = socket.create_connection((self.host, self.port), timeout)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as err:
            raise NotSent(str(err)) from err
        try:
            answer = json.loads(self.exchange(json.dumps(request).encode() + b"\n", deadline))
        except Exception:
            self.close()  # a late answer must never be taken for the answer to another request
            raise
        if answer["outcome"] != "ok":
            raise (Fenced if answer.get("fenced") else Certain)(answer.get("error", ""))
        self.versions[hold.name] = (hold.op, answer.get("version", 0))
        return answer.get("value", 0)

    def exchange(self, line, deadline):
        answer = b""
        self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
        self.socket.sendall(line)
        while not answer.endswith(b"\n"):
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            part = self.socket.recv(4096)
            if not part:
                raise ConnectionError("the register closed the connection")
            answer += part
        return answer

    def close(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = None


def overrides(lock, method):
    """Whether a class of locks has an optional method."""
    return getattr(lock, method) is not getattr(Lock, method)


def outcome(err):
    """Return what an exception means, fail (certainly no effect) or info (unknown), and its class."""
    if isinstance(err, Certain):
        return "fail", err.code
    names = [t.__name__.lower() for t in type(err).__mro__]
    if any("cancelled" in n for n in names):
        return "info", "cancelled"
    if any("timeout" in n for n in names):
        return "info", "timeout"
    return "info", "connection" if isinstance(err, OSError) or any("connection" in n for n in names) else "other"


def told(err):
    """Return the text of an exception, with its place in the program unless it is a Certain."""
    text = f"{type(err).__name__}: {err}"
    program = getattr(sys.modules["__main__"], "__file__", None)
    lines = [f.lineno for f in traceback.extract_tb(err.__traceback__) if f.filename == program]
    return text if isinstance(err, Certain) or not lines else f"{text} ({os.path.basename(program)}, line {lines[-1]})"


class Hold:
    """A lock that a user holds."""

    def __init__(self, user, lock, op, grant):
        self.user, self.lock, self.op, self.grant = user, lock, op, grant
        self.name, self.valid = user.session.locks[lock], grant.valid
        self.mu, self.lost, self.ended, self.over = threading.Lock(), False, False, threading.Event()
        self.fields = {"lock": self.name, "grant": op, "token": grant.token}
        self.again = []  # the grants of its re-entries

    def stands(self, margin=0):
        """Whether the grant stays valid for another margin nanoseconds."""
        return not self.lost and (self.valid == ENDLESS or self.valid != UNKNOWN and now() + margin < self.valid)

    def follow(self):
        """Subscribes to losses and renewals, and renews the grant if the start frame says so."""
        if self.user.has("on_lost"):
            self.user.lock.on_lost(self.grant, self.gone)
        if self.user.has("on_renewed"):
            self.user.lock.on_renewed(self.grant, self.renewed)
        if self.user.session.start.get("renew"):
            threading.Thread(target=self.keep, daemon=True).start()

    def keep(self):
        _current.user = self.user
        every = self.user.session.access.ttl / 3
        while not self.over.wait(every):
            try:
                self.renew()
            except (Lost, NotHeld):
                return
            except Exception:
                pass  # recorded and counted

    def renewed(self, valid):
        """The library renewed the grant by itself."""
        self.learned("renewed", valid=valid)

    def gone(self):
        """The grant is lost."""
        self.learned("lost", lost=True)

    def learned(self, kind, **change):
        """Records what the library reports about the grant, until the hold ends."""
        with self.mu:
            if not (self.ended or self.lost):
                self.__dict__.update(change)
                self.user.stream.event(self.user.name, kind, "info", valid=self.valid, value=now(), **self.fields)

    def done(self, kind, do, flush=False, deadline=0, **fields):
        """Records an operation within the hold and carries it out. do returns its result and the fields of its ok record."""
        u = self.user
        seq, _ = u.stream.event(u.name, kind, "invoke", flush, **self.fields, **fields, valid=deadline)
        try:
            result, more = do()
        except Exception as err:
            u.failed(kind, seq, err, **self.fields, **fields)
            raise
        if seq:
            u.stream.event(u.name, kind, "ok", op=seq, **{**self.fields, **fields, **more})
        return result

    def read(self, timeout=None):
        at("before-read")

        def do():
            value = self.user.register.read(self, timeout or self.user.session.timeout)
            return value, {"value": value}
        return self.done("read", do)

    def write(self, value, timeout=None):
        start = self.user.session.start
        look = start.get("check")
        if look and self.lost or look == "validity" and not self.stands(start.get("margin_ns", 0)):
            raise Stopped("stopped before the write: the grant is lost or expired")
        at("before-write")
        self.done("write", lambda: (self.user.register.write(self, value, timeout or self.user.session.timeout), {}), value=value)

    def give_away(self):
        """Ends the hold of a lock that its user closed. It is unknown whether the service still keeps it."""
        self.over.set()
        with self.mu:
            self.ended = True
            kinds = ["leave"] * len(self.again) + ["release"]
        stream, name = self.user.stream, self.user.name
        for kind in kinds:
            seq, _ = stream.event(name, kind, "invoke", True, **self.fields)
            if seq:
                stream.event(name, kind, "info", op=seq, code="cancelled", **self.fields)

    def reenter(self, timeout):
        """Takes the lock once more."""
        u = self.user

        def do():
            g = u.take(lambda: u.lock.reenter(self.grant, timeout or u.session.timeout))
            with self.mu:
                if self.ended:
                    raise Cancelled("the lock was closed meanwhile")
                self.again.append(g)
                self.valid = g.valid
            return g, {"valid": g.valid}
        with u.call:
            return self.done("reenter", do, deadline=u.deadline(timeout))

    def leave(self, timeout=None):
        """Gives back the latest re-entry."""
        with self.user.call:
            with self.mu:
                if self.ended:
                    raise Certain("the lock was closed meanwhile")
                grant = self.again.pop()
            try:
                self.done("leave", lambda: (self.user.give_back(grant), {}), flush=True, deadline=self.user.deadline(timeout))
            except (Lost, NotHeld):
                self.gone()
                raise

    def release(self, timeout=None):
        at("before-release")
        self.over.set()
        with self.user.call:  # after this no renewal is under way
            with self.mu:
                self.ended = True
            self.done("release", lambda: (self.user.give_back(self.grant), {}), flush=True, deadline=self.user.deadline(timeout))

    def renew(self, timeout=None):
        with self.user.call:
            if self.ended:
                return

            def do():
                self.valid = self.user.lock.renew(self.grant)
                return None, {"valid": self.valid}
            try:
                self.done("renew", do, deadline=self.user.deadline(timeout))
            except (Lost, NotHeld):
                self.gone()
                raise

    def check(self, timeout=None):
        with self.user.call:
            self.done("check", lambda: (self.user.lock.check(self.grant), {}))


class User:
    """One lock user. It runs a workload or carries out orders."""

    def __init__(self, session, number):
        self.session, self.number, self.stream = session, number, session.stream
        self.name = f"client-{session.start['index'] + 1}/{number}"
        self.random = random.Random(f"{session.start.get('seed', 0)}/{number}")
        self.lock = self.register = self.orders = None
        self.call, self.holds, self.cycles, self.lag, self.free = threading.RLock(), {}, 0, 0, 0
        self.armed, self.points, self.waiting, self.let = False, {}, None, threading.Event()
        self.mu, self.under, self.closed, self.given = threading.Lock(), None, False, {}

    def connect(self):
        s = self.session
        if self.lock is None:
            self.lock = s.factory(s.access)
        if self.register is None and s.start.get("resource"):
            self.register = Register(s.start["resource"])

    def has(self, method):
        return overrides(type(self.lock), method)

    def deadline(self, timeout):
        """Returns when a call that begins now must end."""
        return now() + int((timeout or self.session.timeout) * 1e9)

    def give_up(self):
        """Cancels the acquire that is under way. The cancel is recorded before the acquire learns of it."""
        with self.mu:
            if self.under is None:
                raise Certain("no acquire is under way")
            if self.under:
                self.stream.event(self.name, "cancel", "info", True, op=self.under)
            self.lock.cancel()

    def underway(self, op):
        with self.mu:
            self.under = op

    def close(self, timeout):
        """Closes the lock, possibly during another call. The user's holds end here."""
        self.connect()
        with self.mu:
            holds, self.holds, self.closed = self.holds, {}, True
        for h in holds.values():
            h.give_away()
        seq, _ = self.stream.event(self.name, "close", "invoke", True, valid=self.deadline(timeout))
        try:
            self.lock.close()
        except Exception as err:
            self.failed("close", seq, err)
            raise
        if seq:
            self.stream.event(self.name, "close", "ok", op=seq)

    def release_unheld(self, lock, hold, timeout):
        """Releases a lock that the user does not hold."""
        name = self.session.locks[lock]
        if not self.has("release_unheld"):
            raise Certain("this lock cannot release without a grant")
        if hold is not None:
            raise Certain(f"user {self.number} has {name} in hand: release it first")
        with self.call:
            seq, _ = self.stream.event(self.name, "release-unheld", "invoke", True, lock=name, valid=self.deadline(timeout))
            try:
                self.lock.release_unheld(name, self.given.get(lock))
            except Exception as err:
                self.failed("release-unheld", seq, err, lock=name)
                raise
            if seq:
                self.stream.event(self.name, "release-unheld", "ok", op=seq, lock=name)

    def acquire(self, lock, intended=0, timeout=None):
        while len(self.stream.lines) > CROWDED and not self.session.halt.is_set():
            time.sleep(0.001)
        if intended:
            self.lag = max(self.lag, now() - max(intended, self.free))
        name = self.session.locks[lock]
        seq, asked = self.stream.event(self.name, "acquire", "invoke", lock=name, value=intended, valid=self.deadline(timeout))
        self.underway(seq)
        try:
            with self.call:
                try:
                    g = self.take(lambda: self.lock.acquire(name, timeout or self.session.timeout))
                finally:
                    self.underway(None)
        except Exception as err:
            self.failed("acquire", seq, err, lock=name)
            self.free = now()
            raise
        self.cycles += 1
        h = Hold(self, lock, seq, g)
        if seq:
            self.stream.event(self.name, "acquire", "ok", True, op=seq, lock=name, grant=seq, token=g.token, valid=g.valid, value=max(g.sent, asked))
        h.follow()
        at("acquired")
        return h

    def take(self, ask):
        at("before-lock")
        g = ask()
        at("lock-done")
        if g.valid == BY_RENEW:
            try:
                g.valid = self.lock.renew(g)
            except Exception:
                self.give_back(g)
                raise
        return g

    def give_back(self, grant):
        at("before-unlock")
        self.lock.release(grant)
        at("unlock-done")

    def failed(self, kind, seq, err, **fields):
        phase, code = outcome(err)
        self.session.tally(err)
        if seq:
            self.stream.event(self.name, kind, phase, op=seq, code=code, **fields)

    def reached(self, point):
        with self.session.mu:
            action = self.points.pop(point, None)
            self.armed = bool(self.points)
            if action is None:
                return
            self.waiting = point
            self.let.clear()
        if self.session.halt.is_set():  # a later stop finds the user waiting
            return
        self.stream.send("point", {"user": self.number, "point": point, "time": now()})
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
            os._exit(137)  # if this is the first process of a pid namespace, the kernel ignores its SIGKILL
        self.let.wait()
        self.waiting = None

    def live(self):
        """Runs a user with a workload."""
        _current.user = self
        self.session.sleep_until(self.session.go)
        self.free = now()
        try:
            WORKLOADS[self.session.start["workload"]["use"]](self.session, self)
        except Exception as err:
            self.session.tally(err)

    def obey(self):
        """Runs a user that carries out orders."""
        _current.user = self
        while True:
            order = self.orders.get()
            if order is None:
                break
            self.answer(order, self.carry_out)
        for h in self.holds.values():
            while h.again:
                self.session.attempt(h.leave)
            self.session.attempt(h.release)

    def answer(self, order, do):
        """Carries out an order and sends the result."""
        answer = {"id": order["id"], "outcome": "ok"}
        try:
            if self.session.halt.is_set():
                raise Certain("the client was stopped")
            self.connect()
            answer.update(do(order))
        except Exception as err:
            answer.update(outcome=outcome(err)[0], error=told(err))
        self.stream.send("result", answer)

    def close_now(self, order):
        """Closes the lock even if another call is under way."""
        if self.closed:
            raise Certain(f"user {self.number} has closed its lock")
        self.close(order.get("timeout_ns", 0) / 1e9 or None)
        return {}

    def carry_out(self, order):
        lock, do, h = order.get("lock", 0), order["do"], self.holds.get(order.get("lock", 0))
        timeout = order.get("timeout_ns", 0) / 1e9 or None
        if self.closed:
            raise Certain(f"user {self.number} has closed its lock")
        if do in ("acquire", "reenter"):
            if order.get("mode", "exclusive") not in ("", "exclusive"):
                raise Certain("this lock is only exclusive")
            if h is not None:
                if h.stands() and do == "reenter" and self.has("reenter"):
                    g = h.reenter(timeout)
                    return {"value": h.grant.token, "grant": str(g.id)}
                if h.stands():
                    raise Certain(f"user {self.number} has {h.name} in hand already")
                h.over.set()
                h.gone()
                del self.holds[lock]
            h = self.acquire(lock, timeout=timeout)
            with self.mu:
                closed = self.closed
                if not closed:
                    self.holds[lock] = h
            if closed:
                h.give_away()
            return {"value": h.grant.token, "grant": str(h.grant.id)}
        if do == "release-unheld":
            self.release_unheld(lock, h, timeout)
            return {}
        if h is None:
            raise Certain(f"user {self.number} has no grant of {self.session.locks[lock]} in hand")
        if do in ("read", "write") and self.register is None:
            raise Certain("the run has no resource")
        if do in ("renew", "check") and not self.has(do):
            raise Certain(f"this lock has no {do}")
        if do == "release" and h.again:
            h.leave(timeout)
        elif do == "release":
            self.holds.pop(lock, None)
            self.given[lock] = h.grant
            h.release(timeout)
        elif do == "write":
            h.write(order.get("value", 0), timeout)
        elif do == "read":
            return {"value": h.read(timeout)}
        else:
            getattr(h, do)(timeout)
        return {}


# The workloads, each for one user. A cycle that has begun is finished, and its grant released.

def closed(s, u, cycle):
    """Runs cycles until the stop, and pauses after one that did not get the lock."""
    while not s.halt.is_set():
        if not s.attempt(cycle):
            s.sleep(u.random.randrange(5_000_000, 15_000_000))
        s.sleep(s.params.get("think", 0))


def inside(s, u, choose, do):
    """Runs closed cycles that do some work under the lock."""
    def cycle():
        h = u.acquire(choose())
        s.attempt(lambda: do(h))
        s.attempt(h.release)
    closed(s, u, cycle)


def any_of(s, u):
    return u.random.randrange(s.params.get("locks", 1))


def hold_time(s, u):
    hold = s.params.get("hold", 0)
    return u.random.randint(0, hold) if s.params.get("spread") else hold


def acquire_release(s, u):
    def choose():
        return s.first_user + u.number if s.params.get("own_locks") else any_of(s, u)
    if not s.params.get("rate"):
        return inside(s, u, choose, lambda h: s.sleep(hold_time(s, u)))
    while (t := s.next_arrival()) is not None:
        try:
            h = u.acquire(choose(), t)
        except Exception:
            continue
        s.sleep(hold_time(s, u))
        s.attempt(h.release)
        u.free = now()


def counter(s, u):
    def add(h):
        n = h.read()
        s.sleep(hold_time(s, u))
        h.write(n + 1)
    inside(s, u, lambda: any_of(s, u), add)


def guarded_set(s, u):
    element = [(s.first_user + u.number + 1) << 32]

    def add(h):
        h.read()
        s.sleep(hold_time(s, u))
        element[0] += 1
        h.write(element[0])
    inside(s, u, lambda: any_of(s, u), add)


def inventory(s, u):
    def sell(h):
        sold = h.read()
        if sold < s.params["stock"]:
            s.sleep(hold_time(s, u))
            h.write(sold + 1)
    inside(s, u, lambda: any_of(s, u), sell)


def booking(s, u):
    state = {"seat": 0, "made": (s.first_user + u.number + 1) << 32}

    def book(h):
        if h.read():
            state["seat"] += 1
            return
        s.sleep(hold_time(s, u))
        state["made"] += 1
        h.write(state["made"])

    def choose():
        if state["seat"] == s.params["seats"]:
            s.halt.wait()
            raise Stopped("all seats are taken")
        return state["seat"]
    inside(s, u, choose, book)


def balance(s, u):
    def transfer(first, second, amount):
        a, b = first.read(), second.read()
        s.sleep(hold_time(s, u))
        first.write(a - amount)
        second.write(b + amount)

    def cycle():
        low, high = sorted(u.random.sample(range(s.params["accounts"]), 2))  # locks are taken in order, so that no two users deadlock
        amount = u.random.randint(1, s.params["amount"]) * u.random.choice((1, -1))
        first = u.acquire(low)
        try:
            second = u.acquire(high)
            s.attempt(lambda: transfer(first, second, amount))
            s.attempt(second.release)
        finally:
            s.attempt(first.release)
    closed(s, u, cycle)


def hold_renew(s, u):
    def keep(h):
        left, touch = s.params["hold"], s.params.get("touch", 0)
        while left > 0 and not s.halt.is_set():
            s.sleep(min(touch or left, left))
            left -= touch or left
            if touch:
                h.write(h.read() + 1)
    inside(s, u, lambda: any_of(s, u), keep)


def rounds(s, u, locks, do):
    """Does some work under a lock at moments that all users share. The rounds take the locks in turn."""
    every = s.params["every"]
    while not s.halt.is_set():
        t = (now() // every + 1) * every
        if s.sleep_until(t):
            def cycle():
                h = u.acquire(t // every % locks, t)
                s.attempt(lambda: do(h, t // every))
                s.attempt(h.release)
            s.attempt(cycle)


def stampede(s, u):
    rounds(s, u, 1, lambda h, n: s.sleep(hold_time(s, u)))


def once(s, u):
    def work(h, n):
        if h.read() < n:
            s.sleep(hold_time(s, u))
            h.write(n)
    rounds(s, u, s.params["jobs"], work)


def spread(s, u):
    n, weights = s.params["locks"], None
    if s.params.get("pick") == "zipf":
        weights = [(k + 1) ** -s.params["skew"] for k in range(n)]
        for k in range(1, n):
            weights[k] += weights[k - 1]

    def choose():
        return u.random.choices(range(n), cum_weights=weights)[0] if weights else u.random.randrange(n)
    inside(s, u, choose, lambda h: s.sleep(s.params.get("hold", 0)))


WORKLOADS = {
    "acquire-release": acquire_release, "counter": counter, "guarded-set": guarded_set, "inventory": inventory, "booking": booking,
    "balance": balance, "hold-renew": hold_renew, "stampede": stampede, "spread": spread, "once": once,
}


class Session:
    """A client between its start and its end."""

    def __init__(self, factory, process, libraries):
        self.factory, self.process, self.libraries = factory, process, libraries
        self.stream, self.halt, self.mu, self.turn = Stream(), threading.Event(), threading.Lock(), threading.Lock()
        self.start, self.users, self.threads, self.errors, self.longest = None, {}, [], {}, 0
        self.go = self.cpu = self.skipped = self.arrival = 0
        self.params, self.gap = {}, None

    def serve(self):
        """Runs the client. The main thread reads frames and never waits for anything else."""
        declared = {"hung": {"ttls": self.factory.hung[0], "plus_ns": round(self.factory.hung[1] * 1e9)}} if self.factory.hung else {}
        self.stream.send("hello", {
            "version": VERSION, "process": self.process, "software": f"Python {sys.version.split()[0]}", "libraries": self.libraries,
            "boot_id": open("/proc/sys/kernel/random/boot_id").read().strip(), "time_ns": os.readlink("/proc/self/ns/time"), "now": now(),
            "formats": ["jsonl"], "pid": os.getpid(), "points": [*POINTS, *self.factory.points],
            "orders": ["close"] + [o for o in ("reenter", "renew", "check", "cancel", "release-unheld") if overrides(self.factory, o.replace("-", "_"))],
            "tells": overrides(self.factory, "on_lost"),
            "keeps": self.factory.keeps, "permits": self.factory.permits, "elsewhere": self.factory.elsewhere,
            **declared,
        })
        for line in sys.stdin.buffer:
            frame = json.loads(line)
            if frame["type"] == "ping":
                self.stream.send("pong", {"id": frame["ping"]["id"], "now": now(), "wall": time.time_ns(), "mono": time.monotonic_ns()})
            elif frame["type"] == "stop":
                threading.Thread(target=self.fatal, args=(self.finish,), daemon=True).start()
            else:
                self.fatal(getattr(self, "on_" + frame["type"]), frame[frame["type"]])
        os._exit(1)  # the supervisor is gone

    def fatal(self, do, *args):
        """Run an action; if it fails, end the client."""
        try:
            do(*args)
        except Exception as err:
            self.stream.send("failed", {"error": told(err)})
            os._exit(1)

    def on_start(self, start):
        if start["version"] != VERSION:
            raise ValueError(f"version {start['version']} of the protocol; this program speaks {VERSION}")
        if start.get("own_clock"):
            global now
            now = own_clock()
        self.start, self.locks, self.access = start, start["locks"], Access(start.get("access") or {})
        self.access.ttl_ns = self.access.ttl_ns or start.get("ttl_ns", 0)
        self.access.ttl = self.access.ttl_ns / 1e9
        self.timeout = (start.get("timeout_ns") or 10_000_000_000) / 1e9
        w, r = start.get("workload"), start.get("resource")
        if w and w["use"] not in WORKLOADS:
            raise ValueError(f"there is no workload {w['use']}")
        if r and (r["use"] != "register" or r.get("guard") == "sequencer"):
            raise ValueError(f"resource {r['use']} with guard {r.get('guard')}: this client supports only the register, without its sequencer")
        if w:
            self.params, self.first_user = w.get("params") or {}, start["index"] * w["users"]
            if self.params.get("shared"):
                raise ValueError("this lock is only exclusive")
        self.stream.recording = bool(start.get("record"))
        threading.Thread(target=self.stream.keep_flushing, daemon=True).start()
        threading.Thread(target=self.watch_self, daemon=True).start()
        for number in range(w["users"] if w else 1):
            self.person(number).connect()
        u = self.users[0]
        if start.get("renew") and not u.has("renew"):
            raise ValueError("grants of this lock cannot be extended")
        if start.get("check") == "signal" and not (u.has("on_lost") or start.get("renew")):
            raise ValueError("check is signal, but this lock reports no loss")
        self.stream.send("ready", {})

    def on_go(self, go):
        self.go, self.cpu = go["time"], time.process_time_ns()
        if self.start.get("workload"):
            for u in self.users.values():
                self.run(u.live)

    def run(self, life):
        t = threading.Thread(target=life, daemon=True)
        self.threads.append(t)
        t.start()

    def person(self, number):
        if number not in self.users:
            self.users[number] = User(self, number)
        return self.users[number]

    def on_command(self, order):
        def answer(error=None):
            done = {"id": order["id"], "outcome": "fail" if error else "ok"}
            self.stream.send("result", {**done, "error": error} if error else done)
        do, number, w = order["do"], order.get("user", 0), self.start.get("workload")
        if do not in ("acquire", "reenter", "release", "renew", "check", "read", "write", "arm", "continue", "cancel", "close", "release-unheld"):
            return answer(f"unknown order {do}")
        if not (0 <= order.get("lock", 0) < len(self.locks) and 0 <= number < 1 << 16):
            return answer(f"there is no lock {order.get('lock')} or no user {number}")
        u = self.person(number)
        if do == "arm":
            if not order.get("point") or order.get("action") not in ("wait", "die"):
                return answer("arm needs a point, and wait or die as its action")
            with self.mu:
                u.points[order["point"]], u.armed = order["action"], True
            return answer()
        if do == "continue":
            if u.waiting is None or order.get("point") not in (None, "", u.waiting):
                return answer(f"user {number} does not wait at point {order.get('point')}")
            u.let.set()
            return answer()
        if do == "cancel":
            try:
                u.give_up()
            except Certain as err:
                return answer(str(err))
            return answer()
        if w and number < w["users"]:
            return answer(f"user {number} runs a workload: it can only be armed and continued")
        if do == "close":
            return self.run(lambda: u.answer(order, u.close_now))
        if u.orders is None:
            u.orders = queue.SimpleQueue()
            self.run(u.obey)
        u.orders.put(order)

    def attempt(self, do):
        """Run an action and report whether it succeeded. An error is counted."""
        try:
            do()
            return True
        except Stopped:
            return False
        except Exception as err:
            self.tally(err)
            return False

    def tally(self, err):
        if getattr(err, "counted", False):
            return
        err.counted = True
        text = told(err)
        with self.mu:
            if text not in self.errors and len(self.errors) >= 19:
                text = "other errors"
            self.errors[text] = self.errors.get(text, 0) + 1

    def sleep(self, ns):
        """Waits, at most until the stop."""
        if ns > 0:
            self.halt.wait(ns / 1e9)

    def sleep_until(self, t):
        """Waits until a time; true if it came before the stop."""
        self.sleep(t - now())
        return not self.halt.is_set()

    def next_arrival(self):
        """Waits for the next arrival of an open loop, and returns None at the stop. One user waits for it; the others wait for their turn."""
        with self.turn:
            if self.gap is None:
                self.random = random.Random(f"{self.start.get('seed', 0)}/arrivals")
                w = self.start["workload"]
                self.gap = 1e9 / self.params["rate"] * (w.get("total") or w["users"]) / w["users"]
                self.arrival = self.go + self.step(first=True)
            t, reached = int(self.arrival), False
            if not self.halt.is_set():
                self.arrival += self.step()
                reached = self.sleep_until(t)
                self.skipped += not reached and t <= now()
            return t if reached else None

    def step(self, first=False):
        if self.params.get("arrivals") == "uniform":
            return self.gap * (self.random.random() if first else 1)
        return self.random.expovariate(1 / self.gap)

    def watch_self(self):
        """Records when the process did not run."""
        last = now()
        while True:
            time.sleep(BEAT / 1e9)
            t = now()
            self.longest = max(self.longest, t - last)
            if t - last > STALL:
                self.stream.still(f"client-{self.start['index'] + 1}/0", last, t)
            last = t

    def finish(self):
        """Ends the users, sends what is left, and says goodbye."""
        ended = now()
        self.halt.set()
        for u in list(self.users.values()):
            u.let.set()
            if u.orders is not None:
                u.orders.put(None)
        for t in self.threads:
            t.join()
        closing = threading.Thread(target=self.disconnect, daemon=True)
        closing.start()
        closing.join(3)
        while self.gap and self.arrival <= ended:
            self.arrival += self.step()
            self.skipped += 1
        users = self.users.values()
        recorded, dropped = self.stream.end()  # the thread that watches the process goes on
        self.stream.send("done", {
            "recorded": recorded, "dropped": dropped, "stall_ns": self.longest, "cycles": sum(u.cycles for u in users),
            "errors": self.errors, "lag_ns": max((u.lag for u in users), default=0), "unstarted": self.skipped,
            "cpu_ns": time.process_time_ns() - self.cpu,
        })
        os._exit(0)

    def disconnect(self):
        for u in list(self.users.values()):
            for part in (None if u.closed else u.lock, u.register):
                if part is not None:
                    self.attempt(part.close)


def main(factory, process, **libraries):
    """Run a client of a subclass of Lock. process is what reports call the program, libraries are the versions of its lock's libraries."""
    sys.setswitchinterval(0.0005)  # a computing thread must not delay those that only read the clock
    Session(factory, process, libraries).serve()
