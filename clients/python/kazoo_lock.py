#!/usr/bin/env python3
"""kazoo's Lock on ZooKeeper: a queue of ephemeral nodes. Each user has a session of its own."""
import kazoo
from kazoo.client import KazooClient, KazooState
from kazoo.recipe.lock import Lock

import lockquake


class KazooLock(lockquake.Lock):
    keeps = True  # the library's own pings keep the session alive

    def __init__(self, access):
        super().__init__(access)
        self.tell, self.asked = {}, None  # by lock; the one requested
        self.client = KazooClient(",".join("%s:%d" % a for a in access.addresses()), timeout=access.ttl)
        self.client.add_listener(self.changed)
        self.client.start(timeout=20)

    def acquire(self, name, timeout):
        lock = self.asked = Lock(self.client, "/lockquake/" + name)
        sent = lockquake.now()
        if not lock.acquire(timeout=timeout):
            raise TimeoutError()  # its node may remain
        return lockquake.Grant(name, sent, lockquake.BY_RENEW, handle=lock)

    def renew(self, grant):
        """An answered request renews the session, less the time for which a server answers without its leader. The library hides its own pings."""
        sent, lock = lockquake.now(), grant.handle
        stat = self.client.exists(lock.path + "/" + lock.node)
        if stat is None:
            raise lockquake.NotHeld("its node is gone")
        grant.token, grant.id = stat.czxid, "%s@%#x" % (lock.path.split("/", 2)[2], stat.czxid)  # lockquake's name for a holder
        return lockquake.valid(sent, self.access.ttl_ns) - self.access.params.get("lag_ns", 0)
    check = renew

    def release(self, grant):
        self.tell.pop(grant.handle, None)
        grant.handle.release()

    def release_unheld(self, name, last):
        if not (last.handle if last else Lock(self.client, "/lockquake/" + name)).release():
            raise lockquake.NotHeld("the library has no node")

    def cancel(self):
        self.asked.cancel()

    def close(self):
        self.client.stop()
        self.client.close()

    def on_lost(self, grant, tell):
        self.tell[grant.handle] = tell

    def changed(self, state):
        for tell in list(self.tell.values()) if state == KazooState.LOST else ():
            tell()


if __name__ == "__main__":
    lockquake.main(KazooLock, "kazoo Lock", kazoo=kazoo.__version__)
