#!/usr/bin/env python3
"""A lock that never excludes, for tests: SET without NX on a real Redis server, which accepts every client."""
import pathlib
import secrets
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import lockquake  # noqa: E402
import redis_lock  # noqa: E402


class NeverLock(redis_lock.RedisLock):
    points = ()

    def acquire(self, name, timeout):
        token, sent = secrets.token_hex(8), lockquake.now()
        self.redis.set("lockquake:" + name, token, px=self.access.ttl_ns // 1_000_000)
        return self.grant(token, sent, handle="lockquake:" + name)

    def release(self, grant):
        self.redis.delete(grant.handle)

    renew, check = lockquake.Lock.renew, lockquake.Lock.check


lockquake.main(NeverLock, "never")
