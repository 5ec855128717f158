#!/usr/bin/env python3
"""portalocker's RedisLock: the only subscriber of a channel holds the lock. Grants have no expiry; they last as long as the subscription."""
import importlib.metadata
import itertools

import redis
from portalocker import exceptions
from portalocker.redis import RedisLock

import lockquake


class Portalocker(lockquake.Lock):
    keeps = True  # as long as its connection
    elsewhere = True  # it is a subscription, not a key

    def __init__(self, access):
        super().__init__(access)
        self.number = itertools.count(1)
        (host, port), = access.addresses()
        self.redis = redis.Redis(
            host, port, username=access.user or None, password=access.password or None, decode_responses=True,
            socket_timeout=access.timeout, socket_connect_timeout=access.timeout)

    def acquire(self, name, timeout):
        lock = RedisLock("lockquake:" + name, self.redis, timeout=timeout, check_interval=0.02, thread_sleep_time=0.01)
        sent = lockquake.now()
        try:
            lock.acquire()
        except exceptions.AlreadyLocked as err:
            raise lockquake.Contended() from err
        return lockquake.Grant("%d/%d" % (id(self), next(self.number)), sent, lockquake.ENDLESS, handle=lock)

    def release(self, grant):
        grant.handle.release()

    def close(self):
        self.redis.close()


if __name__ == "__main__":
    lockquake.main(Portalocker, "portalocker RedisLock", portalocker=importlib.metadata.version("portalocker"), redis=redis.__version__)
