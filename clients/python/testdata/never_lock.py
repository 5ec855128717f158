#!/usr/bin/env python3
"""A lock that never excludes, for tests: it asks nobody, and promises all the same."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import lockquake  # noqa: E402


class NeverLock(lockquake.Lock):
    def acquire(self, name, timeout):
        return self.grant("x", lockquake.now())

    def release(self, grant):
        pass


lockquake.main(NeverLock, "never")
