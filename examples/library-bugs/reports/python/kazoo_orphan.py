#!/usr/bin/env python3
"""kazoo 2.8.0: Lock.acquire leaves its node in the queue if the connection breaks while the call is cleaned up. The session lives on, and nobody
gets the lock. Usage: kazoo_orphan.py HOST:PORT"""
import logging
import socket
import sys
import threading
import time

import kazoo
from kazoo.client import KazooClient

HOST, PORT = sys.argv[1].rsplit(":", 1)
silent, pairs = threading.Event(), []


def forward(source, sink):
    """Forward until an end closes. While the link is silent, drop what arrives."""
    while data := source.recv(65536):
        if not silent.is_set():
            sink.sendall(data)


def proxy(server):
    while True:
        near, far = server.accept()[0], socket.create_connection((HOST, int(PORT)))
        pairs.append((near, far))
        for ends in ((near, far), (far, near)):
            threading.Thread(target=forward, args=ends, daemon=True).start()


def client(address):
    c = KazooClient(address, timeout=10)
    c.start()
    return c


logging.disable()
threading.excepthook = lambda args: None  # of forward, when its link is cut
door = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=proxy, args=(door,), daemon=True).start()
path = "/orphan-%d" % time.time()
a, b = client(sys.argv[1]), client("127.0.0.1:%d" % door.getsockname()[1])
first = a.Lock(path, "A")
first.acquire()
threading.Timer(0.7, silent.set).start()
threading.Timer(1.5, lambda: [end.shutdown(socket.SHUT_RDWR) for pair in pairs for end in pair] + [silent.clear()]).start()
try:
    print("B's acquire within 1 s:", b.Lock(path, "B").acquire(timeout=1))
except kazoo.exceptions.LockTimeout:
    print("B's acquire within 1 s: LockTimeout")
first.release()
time.sleep(2)
try:
    print("C's acquire within 5 s, after A's release:", a.Lock(path, "C").acquire(timeout=5))
except kazoo.exceptions.LockTimeout:
    print("C's acquire within 5 s, after A's release: LockTimeout; in the queue:", b.Lock(path).contenders(), "B's session is", b.state)
