# SPDX-License-Identifier: Apache-2.0
"""The leases of a process: longer for as long as it lives."""

from collections.abc import Iterable
from collections.abc import Mapping
import threading

from cellsched.db.api import request_leases
from cellsched.db import session


class Leases:
    """The build requests that this process has leased.

    A lease is short, so that what a dead process had is soon another's. As
    long as this one lives it says so of all that it has, however long each
    takes. That only keeps others from trying: whoever was stopped for longer
    than a lease finds out by the fences of the steps.

    :param lease_s: seconds for which a request is ours if nothing is said
    """

    def __init__(
        self, database: session.Database, lease_s: float
    ) -> None:
        self.lease_s = lease_s
        self._database = database
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}

    def hold(self, owners: Mapping[str, str]) -> None:
        """Renew these from now on.

        :param owners: who has leased them, by instance; each try has a name
            of its own
        """
        with self._lock:
            self._owners.update(owners)

    def let_go(self, uuids: Iterable[str], owner: str) -> None:
        """Renew these no longer, unless they are held for another try."""
        with self._lock:
            for uuid in uuids:
                if self._owners.get(uuid) == owner:
                    del self._owners[uuid]

    def renew(self) -> None:
        """Lease for longer what is held, and still ours."""
        with self._lock:
            owners = dict(self._owners)
        if owners:
            with self._database.writer() as connection:
                request_leases.extend(
                    connection, owners,
                    self._database.timestamp() + self.lease_s)
