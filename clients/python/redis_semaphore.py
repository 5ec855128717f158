#!/usr/bin/env python3
"""A semaphore on one Redis server: a sorted set of holders by the end of their TTL, on the server's clock.

With the argument check-then-add it counts the holders in one request and adds itself in another: too many get in.
"""
import sys
import time
import uuid

import redis

import lockquake

NOW = 'local t = redis.call("TIME"); local now = t[1] * 1000 + math.floor(t[2] / 1000); '
COUNT = NOW + 'redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now); local n = redis.call("ZCARD", KEYS[1]); '
ADD = 'redis.call("ZADD", KEYS[1], now + ARGV[2], ARGV[1]); return 1'
TAKE = COUNT + "if n >= tonumber(ARGV[3]) then return 0 end; " + ADD
STANDS = NOW + 'if tonumber(redis.call("ZSCORE", KEYS[1], ARGV[1]) or 0) <= now then return 0 end; '


class RedisSemaphore(lockquake.Lock):
    permits = True
    elsewhere = True  # the fact holder:NAME reads a string
    two_requests = "check-then-add" in sys.argv

    def __init__(self, access):
        super().__init__(access)
        (host, port), = access.addresses()
        self.redis = redis.Redis(
            host, port, username=access.user or None, password=access.password or None,
            socket_timeout=access.timeout, socket_connect_timeout=access.timeout)
        self.ttl = access.ttl_ns // 1_000_000  # ms

    def ask(self, script, name, *words):
        return self.redis.eval(script, 1, "semaphore:" + name, *words)

    def take(self, name, id):
        if not self.two_requests:
            return self.ask(TAKE, name, id, self.ttl, self.access.permits)
        return self.ask(COUNT + "return n", name) < self.access.permits and self.ask(NOW + ADD, name, id, self.ttl)

    def acquire(self, name, timeout):
        id, until = str(uuid.uuid4()), time.monotonic() + timeout
        while True:
            sent = lockquake.now()
            if self.take(name, id):
                return self.grant(id, sent, handle=name)
            if time.monotonic() > until:
                raise lockquake.Contended()
            time.sleep(0.01)

    def held(self, script, grant, *words):
        if not self.ask(script, grant.handle, grant.id, *words):
            raise lockquake.NotHeld()

    def release(self, grant):
        self.held(STANDS + 'return redis.call("ZREM", KEYS[1], ARGV[1])', grant)

    def renew(self, grant):
        sent = lockquake.now()
        self.held(STANDS + ADD, grant, self.ttl)
        return lockquake.valid(sent, self.access.ttl_ns)

    def check(self, grant):
        self.held(STANDS + "return 1", grant)


if __name__ == "__main__":
    lockquake.main(RedisSemaphore, "semaphore in a sorted set", redis=redis.__version__)
