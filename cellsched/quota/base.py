# SPDX-License-Identifier: Apache-2.0
"""The contract of a quota driver."""

import abc
import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import functools
import math
import threading
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import Protocol

from oslo_config import cfg

from cellsched import exception
from cellsched import objects

#: The limited resources: servers, virtual CPUs, and memory in MB.
RESOURCES = ('instances', 'cores', 'ram')

#: The largest rounding error of a computed time, in seconds.
_ROUNDING_S = 1e-6


class QuotaBuild(NamedTuple):
    """A server to count from now on."""

    uuid: str
    vcpus: int
    memory_mb: int


class QuotaBatch(NamedTuple):
    """Servers of one request.

    :param builds: builds with build requests; a build that is deleted
        during the call uses no quota, but may cause the refusal of another
        build of the same call
    :param min_count: admit none of them if fewer than this fit
    :param limits: the limits of the project and of the user, by ``project``
        and ``user``, if they were recorded when the request was accepted. A
        driver gets only batches without recorded limits
    """

    project_id: str | None
    user_id: str | None
    builds: Sequence[QuotaBuild]
    min_count: int = 1
    limits: Mapping[str, Mapping[str, int]] | None = None


class QuotaClock(Protocol):
    """The clock of a quota driver."""

    def now(self) -> datetime.datetime:
        """Return the time in UTC and without a time zone."""

    def monotonic(self) -> float:
        """Return seconds since a fixed moment; never decreases."""


class QuotaDriver(abc.ABC):
    """Limits the resources of projects.

    There are two checks. :meth:`check` rejects a request early; concurrent
    requests may all pass it. :meth:`admit_all` is exact: callers run one after
    the other. :meth:`accept` adds a limit of the rate to the early check.

    Usage is counted, and nothing is reserved or given back. A server counts
    from the deletion of its build request, when it has a cell, until its user
    deletes it. A server in cell0 does not count. The API database has both
    facts, and each method gets a connection to it. So an unreachable cell
    makes no difference.

    Methods may be called concurrently for different requests.
    """

    #: The option group of :meth:`opts`.
    group: ClassVar[str] = 'quota'

    #: Whether the driver reads the limits in the API database, which
    #: ``cellsched quota set`` changes.
    keeps_limits: ClassVar[bool] = False

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options of this driver alone; none by default."""
        return []

    def __init__(self, conf: cfg.ConfigOpts, clock: QuotaClock) -> None:
        self.conf = conf
        self.clock = clock

    @abc.abstractmethod
    def limits(
        self, connection: Any, project_id: str | None,
        user_id: str | None = None,
    ) -> dict[str, int]:
        """Return the limit of each of :data:`RESOURCES`; omit unlimited ones.

        :param user_id: return the limits of this user in the project, in
            addition to those of the project
        """

    @abc.abstractmethod
    def check(
        self, connection: Any, project_id: str | None, user_id: str | None,
        flavor: objects.Flavor, min_count: int, max_count: int,
    ) -> int:
        """Return the number of servers to accept, at most ``max_count``.

        Accepted servers that are not admitted yet count too. Acquires no
        locks.

        :raises cellsched.exception.OverQuota: fewer than ``min_count`` fit
        """

    def accept(
        self, connection: Any, project_id: str | None, user_id: str | None,
        flavor: objects.Flavor, min_count: int, max_count: int,
    ) -> int:
        """Return the result of :meth:`check`, if the rate allows it.

        :raises cellsched.exception.OverQuota: fewer than ``min_count`` fit
        :raises cellsched.exception.RateLimitExceeded: the project requests
            too many servers in a minute
        """
        count = self.check(connection, project_id, user_id, flavor,
                           min_count, max_count)
        self._rate.take(project_id or '', count)
        return count

    @functools.cached_property
    def _rate(self) -> 'RateLimit':
        return RateLimit(self.conf.quota.servers_per_minute, self.clock)

    @abc.abstractmethod
    def admit_all(
        self, connection: Any, batches: Iterable[QuotaBatch]
    ) -> dict[str, exception.OverQuota]:
        """Return errors by uuid for builds that do not fit; admit the rest.

        Call it in the transaction that deletes the build requests of admitted
        builds, before it deletes them. The transaction locks the projects
        until it ends. To call it more than once in a transaction, sort the
        projects by id, and delete the requests in between.

        The first builds of a batch are admitted first. The refused builds of a
        batch share one error with code 413.

        :raises cellsched.exception.TransactionLost: raised by this call or by
            the transaction, after a conflict with another transaction
        """

    def admit(
        self, connection: Any, project_id: str | None, user_id: str | None,
        builds: Sequence[QuotaBuild], min_count: int = 1,
    ) -> dict[str, exception.OverQuota]:
        """Admit one batch; otherwise as :meth:`admit_all`."""
        return self.admit_all(
            connection, [QuotaBatch(project_id, user_id, builds, min_count)])


class RateLimit:
    """Limits the servers that each project requests in a minute.

    A project has a budget for one minute, which refills continuously. A
    request beyond the whole budget is accepted when the budget is full: then
    the next request waits longer. Thread-safe.

    :param per_minute: None for no limit
    """

    def __init__(self, per_minute: int | None, clock: QuotaClock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._lock = threading.Lock()
        # By project, the time when the budget is full again; the project with
        # the latest request is the last one.
        self._full_at: collections.OrderedDict[str, float] = (
            collections.OrderedDict())

    def take(self, project_id: str, count: int) -> None:
        """Count servers of a request.

        :raises cellsched.exception.RateLimitExceeded: the budget is too small
        """
        if self._per_minute is None:
            return
        with self._lock:
            now = self._clock.monotonic()
            full_at = max(now, self._full_at.get(project_id, now))
            taken_s = count * 60 / self._per_minute
            retry_s = full_at - now - 60 + min(taken_s, 60)
            if retry_s > _ROUNDING_S:
                raise exception.RateLimitExceeded(
                    project=project_id, limit=self._per_minute,
                    retry_s=math.ceil(retry_s))
            self._full_at[project_id] = full_at + taken_s
            self._full_at.move_to_end(project_id)
            # Forget projects whose budget is full.
            while next(iter(self._full_at.values())) <= now:
                self._full_at.popitem(last=False)
