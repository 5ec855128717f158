#!/usr/bin/env python3
"""portalocker: RedisLock opens a connection to the server for each attempt. Usage: portalocker_connections.py HOST:PORT (password: REDISCLI_AUTH)"""
import importlib.metadata
import os
import sys
import time

import redis
from portalocker import exceptions
from portalocker.redis import RedisLock

host, port = sys.argv[1].rsplit(":", 1)


def client():
    return redis.Redis(host, int(port), password=os.environ.get("REDISCLI_AUTH"), decode_responses=True)


watch, channel = client(), "connections-%d" % time.time()
holder = RedisLock(channel, client(), thread_sleep_time=0.01)
holder.acquire()
waiter = RedisLock(channel, client(), timeout=2, check_interval=0.02, thread_sleep_time=0.01)
before = watch.info("stats")["total_connections_received"]
try:
    waiter.acquire()
except exceptions.AlreadyLocked:
    pass
opened = watch.info("stats")["total_connections_received"] - before
print("portalocker %s: one waiter asked for 2 s and opened %d connections" % (importlib.metadata.version("portalocker"), opened))
holder.release()
