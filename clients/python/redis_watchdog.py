#!/usr/bin/env python3
"""A lock on one Redis server whose thread renews it three times per TTL, until two TTLs after the last call of its user.

With the argument for-ever the thread never stops, as most watchdogs do: a user that hangs keeps the lock for as long as
its process lives. With undeclared it names no bound for such a user, and the suite only shows what it does.
"""
import sys
import threading
import time

import redis

import lockquake
import redis_lock

IDLE = 2  # TTLs


class RedisWatchdog(redis_lock.RedisLock):
    keeps = True  # by the thread
    hung = None if "undeclared" in sys.argv else (IDLE + 1, 1.0)
    endless = "for-ever" in sys.argv
    renew = lockquake.Lock.renew  # only the thread renews

    def __init__(self, access):
        super().__init__(access)
        self.called = time.monotonic()  # when the user made its last call

    def acquire(self, name, timeout):
        try:
            grant = super().acquire(name, timeout)
        finally:
            self.called = time.monotonic()
        grant.handle.over = threading.Event()
        return grant

    def on_renewed(self, grant, tell):
        threading.Thread(target=self.keep, args=(grant.handle, tell), daemon=True).start()

    def keep(self, lock, tell):
        while not lock.over.wait(self.access.ttl / 3):
            if not self.endless and time.monotonic() - self.called > IDLE * self.access.ttl:
                return
            sent = lockquake.now()
            try:
                lock.reacquire()
            except redis.exceptions.LockError:
                return
            except redis.exceptions.RedisError:
                continue  # it is unknown whether it was renewed; the next one tells
            tell(lockquake.valid(sent, self.access.ttl_ns))

    def check(self, grant):
        self.called = time.monotonic()
        super().check(grant)

    def release(self, grant):
        grant.handle.over.set()
        super().release(grant)


if __name__ == "__main__":
    lockquake.main(RedisWatchdog, "redis-py Lock with a watchdog", redis=redis.__version__)
