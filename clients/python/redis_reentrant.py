#!/usr/bin/env python3
"""A re-entrant lock on one Redis server: a hash that counts how often its holder took it, as Redisson's RLock keeps it.

With the argument forgets the first release deletes the hash, whatever its count: another user gets in before the last.
"""
import sys
import time
import uuid

import redis

import lockquake

TAKE = 'if redis.call("EXISTS", KEYS[1]) == 1 then return 0 end; '
OWN = 'if redis.call("HEXISTS", KEYS[1], ARGV[1]) == 0 then return 0 end; '
COUNT = 'redis.call("HINCRBY", KEYS[1], ARGV[1], 1); '
EXTEND = 'return redis.call("PEXPIRE", KEYS[1], ARGV[2])'
LEAVE = 'if redis.call("HINCRBY", KEYS[1], ARGV[1], -1) > 0 then return 1 end; '
DELETE = 'return redis.call("DEL", KEYS[1])'


class RedisReentrant(lockquake.Lock):
    elsewhere = True  # the fact holder:NAME reads a string
    forgets = "forgets" in sys.argv

    def __init__(self, access):
        super().__init__(access)
        (host, port), = access.addresses()
        self.redis = redis.Redis(
            host, port, username=access.user or None, password=access.password or None,
            socket_timeout=access.timeout, socket_connect_timeout=access.timeout)

    def ask(self, script, name, id):
        return self.redis.eval(script, 1, "reentrant:" + name, id, self.access.ttl_ns // 1_000_000)

    def acquire(self, name, timeout):
        id, until = str(uuid.uuid4()), time.monotonic() + timeout
        while True:
            sent = lockquake.now()
            if self.ask(TAKE + COUNT + EXTEND, name, id):
                return self.grant(id, sent, handle=name)
            if time.monotonic() > until:
                raise lockquake.Contended()
            time.sleep(0.01)

    def owned(self, script, grant):
        sent = lockquake.now()
        if not self.ask(OWN + script, grant.handle, grant.id):
            raise lockquake.NotHeld()
        return self.grant(grant.id, sent, handle=grant.handle)

    def reenter(self, grant, timeout):
        return self.owned(COUNT + EXTEND, grant)

    def release(self, grant):
        self.owned(DELETE if self.forgets else LEAVE + DELETE, grant)

    def renew(self, grant):
        return self.owned(EXTEND, grant).valid

    def check(self, grant):
        self.owned("return 1", grant)


if __name__ == "__main__":
    lockquake.main(RedisReentrant, "re-entrant lock in a hash", redis=redis.__version__)
