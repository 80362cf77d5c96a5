# SPDX-License-Identifier: Apache-2.0
"""Keeping each process of a service to one CPU.

Only one thread of a process runs Python at a time. When threads on several
CPUs hand it to each other, each time one CPU wakes another up and what was in
its caches stays behind. A process that does all of a build spends a third of
it on that, on two virtual CPUs, and a conductor on its own a tenth.
"""

from collections.abc import Sequence
import fcntl
import itertools
import os
import tempfile

from cellsched import exception


class Affinity:
    """The CPUs of a service, of which its processes take one each.

    It is made before they are forked. The one that takes the place of another
    that has ended gets that one's CPU.

    :param cpus: their numbers; those that are listed first are taken first,
        and where there are none the system chooses
    :raises cellsched.exception.ConfigurationInvalid: one of them may not be
        used, or does not exist
    """

    def __init__(self, cpus: Sequence[int]) -> None:
        usable = os.sched_getaffinity(0)
        for cpu in cpus:
            if cpu not in usable:
                raise exception.ConfigurationInvalid(
                    field='[DEFAULT] cpu_affinity',
                    expected='CPUs of '
                    f'{", ".join(map(str, sorted(usable)))}; not {cpu}')
        self._cpus = tuple(cpus)
        # Each byte is a place, and a process that ends unlocks its own.
        self._places = tempfile.TemporaryFile() if cpus else None

    def keep(self) -> None:
        """Keep this process to the next CPU."""
        if self._places is None:
            return
        for place in itertools.count():
            try:
                fcntl.lockf(
                    self._places, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            except (BlockingIOError, PermissionError):
                continue
            break
        cpu = self._cpus[place % len(self._cpus)]
        # Threads that are started later take it from these; libraries have
        # some by now.
        for thread in os.listdir('/proc/self/task'):
            os.sched_setaffinity(int(thread), {cpu})
