#!/usr/bin/env python3
"""A lock among the users of one process, for tests. The first argument names the rule it breaks."""
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import lockquake  # noqa: E402

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
TABLE, MU, NUMBERS = {}, threading.Lock(), iter(range(1, 1 << 62))


class ToyLock(lockquake.Lock):
    points = ("no-such-point",) if KIND == "no-points" else ("taken",)

    def __init__(self, access):
        super().__init__(access)
        if KIND == "never-ready":
            time.sleep(60)
        if KIND == "crashes":
            raise OSError("no way to the service")

    def acquire(self, name, timeout):
        with MU:
            permits = self.access.permits + (KIND == "one-more")
            lock = TABLE.setdefault(name, threading.Lock() if permits == 1 else threading.BoundedSemaphore(permits))
        sent, until, self.given_up = lockquake.now(), time.monotonic() + timeout, False
        while KIND != "never-excludes" and not lock.acquire(timeout=0.01):
            if KIND == "dies-waiting":
                os._exit(1)
            if self.given_up and KIND != "deaf" or time.monotonic() > until:
                raise lockquake.Contended()
        lockquake.at("taken")
        grant = self.grant(next(NUMBERS), sent, token=next(NUMBERS), handle=lock)
        if KIND == "no-valid":
            grant.valid = 0
        if KIND == "by-renew":
            grant.valid = lockquake.BY_RENEW
        if KIND == "late-valid":
            grant.valid += self.access.ttl_ns
        return grant

    def release(self, grant):
        if KIND == "hangs":
            time.sleep(600)
        if KIND != "never-excludes":
            grant.handle.release()

    def renew(self, grant):
        if KIND == "renews-nothing":
            raise lockquake.NotHeld()
        return lockquake.valid(lockquake.now(), self.access.ttl_ns)

    def cancel(self):
        self.given_up = True

    def check(self, grant):
        if KIND != "never-excludes" and not grant.handle.locked():
            raise lockquake.NotHeld()


class Reentrant(ToyLock):
    """A lock that a holder can take again. forgets: the first release frees it."""

    def reenter(self, grant, timeout):
        self.entries = getattr(self, "entries", 0) + 1
        return self.grant(grant.id, lockquake.now(), token=grant.token, handle=grant.handle)

    def release(self, grant):
        left = getattr(self, "entries", 0)
        self.entries = max(left - 1, 0)
        if left == 0 or KIND == "forgets":
            super().release(grant)


class Counting(ToyLock):
    """A lock that several users can hold."""

    permits = True


class Losing(ToyLock):
    """A library that reports each grant as lost at once."""

    def on_lost(self, grant, tell):
        tell()


class Renewing(ToyLock):
    """A library that renews by itself and reports it."""

    def on_renewed(self, grant, tell):
        tell(lockquake.valid(lockquake.now(), self.access.ttl_ns))


class Bounded(Renewing):
    """A library that renews by itself, and stops for a user that hangs."""

    hung = (3, 0.5) if KIND == "bounded" else (0, 0)


if KIND == "silent":
    sys.stdin.read()
    sys.exit(0)
if KIND == "garbage":
    print("hello, I am a lock", flush=True)
if KIND == "another-clock":
    lockquake.now = lambda: time.monotonic_ns() + 10**10
if KIND == "endures":
    leave = os._exit
    os._exit = lambda status: time.sleep(60)
if KIND == "miscounts":
    send = lockquake.Stream.send

    def miscount(stream, type, content=None):
        if type == "done":
            content["recorded"] += 1
        send(stream, type, content)
    lockquake.Stream.send = miscount
if KIND == "answers-late":
    answer = lockquake.Stream.send

    def late(stream, type, content=None):
        if type == "result":
            time.sleep(4)
        answer(stream, type, content)
    lockquake.Stream.send = late
if KIND == "floods-a-line":
    os.write(1, b"{")
    while True:
        os.write(1, b"x" * 4096)
if KIND in ("floods", "unasked-grant", "unasked-result", "dies"):
    begin = lockquake.Session.on_start

    def unasked(session, start):
        begin(session, start)
        if KIND == "dies":
            os._exit(1)
        while KIND == "floods":
            session.stream.send("log", {"level": "info", "text": "I am a lock"})
        if KIND == "unasked-result":
            return session.stream.send("result", {"id": 99, "outcome": "ok", "grant": "mine"})
        user = start["name"] + "/1"
        seq, _ = session.stream.event(user, "acquire", "invoke", lock=0)
        session.stream.event(user, "acquire", "ok", True, op=seq, lock=0, grant=seq, token=1, valid=lockquake.now() + 10**9, value=lockquake.now())
    lockquake.Session.on_start = unasked
if KIND in ("leaves-children", "holds-output"):
    def leave():
        """A grandchild in a session of its own, with an empty environment."""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for fd in (0, 2) if KIND == "holds-output" else (0, 1, 2):
                    os.dup2(os.open(os.devnull, os.O_RDWR), fd)
                os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", *sys.argv[2:]], {})
            os._exit(0)
        os.wait()
    for _ in range(3):
        leave()
if KIND == "any-version":
    class Any(int):
        def __ne__(self, other):
            return False
    lockquake.VERSION = Any(1)
TOYS = {
    "loses": Losing, "renews": Renewing, "reenters": Reentrant, "forgets": Reentrant, "permits": Counting, "one-more": Counting,
    "bounded": Bounded, "no-bound": Bounded,
}
lockquake.main(TOYS.get(KIND, ToyLock), "" if KIND == "nameless" else "toy", toy="1")
