#!/usr/bin/env python3
"""redis-py's Lock on one Redis server: SET NX PX, and scripts that delete and extend only the caller's key."""
import redis
import redis.lock

import lockquake


class Timed(redis.lock.Lock):
    """The library's lock, which records when the granted request was sent, because the library retries by itself."""

    def do_acquire(self, token):
        self.sent = lockquake.now()
        return super().do_acquire(token)


class RedisLock(lockquake.Lock):
    def __init__(self, access):
        super().__init__(access)
        (host, port), = access.addresses()
        self.redis = redis.Redis(
            host, port, username=access.user or None, password=access.password or None,
            socket_timeout=access.timeout, socket_connect_timeout=access.timeout)

    def object(self, name):
        return Timed(self.redis, "lockquake:" + name, timeout=self.access.ttl, sleep=0.01, thread_local=False)

    def acquire(self, name, timeout):
        lock = self.object(name)
        if not lock.acquire(blocking_timeout=timeout):
            raise lockquake.Contended()
        return self.grant(lock.local.token.decode(), lock.sent, handle=lock)

    def release(self, grant):
        try:
            grant.handle.release()
        except redis.exceptions.LockNotOwnedError as err:
            raise lockquake.NotHeld(str(err)) from err

    def release_unheld(self, name, last):
        try:
            (last.handle if last else self.object(name)).release()
        except redis.exceptions.LockError as err:
            raise lockquake.NotHeld(str(err)) from err

    def renew(self, grant):
        sent = lockquake.now()
        try:
            grant.handle.reacquire()
        except redis.exceptions.LockNotOwnedError as err:
            raise lockquake.NotHeld(str(err)) from err
        return lockquake.valid(sent, self.access.ttl_ns)

    def check(self, grant):
        if not grant.handle.owned():
            raise lockquake.NotHeld()

    def close(self):
        self.redis.close()


if __name__ == "__main__":
    lockquake.main(RedisLock, "redis-py Lock", redis=redis.__version__)
