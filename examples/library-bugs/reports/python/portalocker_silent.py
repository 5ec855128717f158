#!/usr/bin/env python3
"""portalocker: RedisLock takes a silent holder for a living one. Usage: portalocker_silent.py HOST:PORT (password: REDISCLI_AUTH)"""
import importlib.metadata
import os
import signal
import subprocess
import sys
import time

import redis
from portalocker import exceptions
from portalocker.redis import RedisLock

host, port = sys.argv[1].rsplit(":", 1)


def client():
    return redis.Redis(host, int(port), password=os.environ.get("REDISCLI_AUTH"), decode_responses=True)


if len(sys.argv) > 2:  # the holder, a process of its own
    lock = RedisLock(sys.argv[2], client(), thread_sleep_time=0.01)
    lock.acquire()
    print("held", flush=True)
    time.sleep(60)

channel = "silent-%d" % time.time()
holder = subprocess.Popen([sys.executable, *sys.argv, channel], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
assert holder.stdout.readline() == "held\n"
holder.send_signal(signal.SIGSTOP)
print("portalocker", importlib.metadata.version("portalocker"))
try:
    RedisLock(channel, client(), timeout=5, check_interval=0.1, unavailable_timeout=1).acquire()
    print("the lock of a stopped holder was granted, as unavailable_timeout says")
except exceptions.AlreadyLocked:
    print("a stopped holder has the lock after 5 s, although unavailable_timeout is 1 s")
holder.kill()
