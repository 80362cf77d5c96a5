# SPDX-License-Identifier: Apache-2.0
"""The contract of a quota driver."""

import abc
from collections.abc import Iterable
from collections.abc import Sequence
import datetime
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import Protocol

from oslo_config import cfg

from cellsched import exception
from cellsched import objects

#: What is limited: servers, their virtual CPUs, their memory in MB.
RESOURCES = ('instances', 'cores', 'ram')


class QuotaBuild(NamedTuple):
    """A server that is to be counted from now on."""

    uuid: str
    vcpus: int
    memory_mb: int


class QuotaBatch(NamedTuple):
    """Servers that a user asked for together.

    :param builds: have build requests; what is deleted meanwhile counts for
        nothing, but may have been in the way of another of the same call
    :param min_count: admit none if it would be fewer, where that many are
        named
    """

    project_id: str | None
    user_id: str | None
    builds: Sequence[QuotaBuild]
    min_count: int = 1


class QuotaClock(Protocol):
    """The time that a quota driver may ask for."""

    def now(self) -> datetime.datetime:
        """Return the time in UTC and without a time zone."""

    def monotonic(self) -> float:
        """Return seconds since some moment; they only ever grow."""


class QuotaDriver(abc.ABC):
    """Says how many servers a project may have.

    It is asked twice. :meth:`check` tells users early that they want too
    much; requests that come at the same time may all pass it.
    :meth:`admit_all` decides, one caller after the other, so that exactly as
    many are admitted as fit.

    What is used is counted and nothing is reserved, so nothing has to be
    given back. A server counts once it has a cell and its build request is
    gone, until its user deletes it. One in cell0 holds nothing, and does not
    count. Both are in the API database alone, on which each method is handed
    a connection; whether a cell can be reached makes no difference.

    Calls for different requests may come at once.
    """

    #: Where the options of :meth:`opts` are registered.
    group: ClassVar[str] = 'quota'

    #: Whether its limits are those of the API database, where ``cellsched
    #: quota set`` sets them.
    keeps_limits: ClassVar[bool] = False

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that only this driver reads, none by default."""
        return []

    def __init__(self, conf: cfg.ConfigOpts, clock: QuotaClock) -> None:
        self.conf = conf
        self.clock = clock

    @abc.abstractmethod
    def limits(
        self, connection: Any, project_id: str | None,
        user_id: str | None = None,
    ) -> dict[str, int]:
        """Return the most that there may be of each of :data:`RESOURCES`.

        One that is not limited is left out.

        :param user_id: return the limits that this user has in the project,
            besides those of the project
        """

    @abc.abstractmethod
    def check(
        self, connection: Any, project_id: str | None, user_id: str | None,
        flavor: objects.Flavor, min_count: int, max_count: int,
    ) -> int:
        """Return how many servers may be accepted, ``max_count`` at most.

        Those that are accepted and not admitted yet are counted too. It locks
        nothing.

        :raises cellsched.exception.OverQuota: fewer than ``min_count``
        """

    @abc.abstractmethod
    def admit_all(
        self, connection: Any, batches: Iterable[QuotaBatch]
    ) -> dict[str, exception.OverQuota]:
        """Return those that do not fit, by uuid; the others are admitted.

        To be called in the transaction that deletes the build requests of
        those that are admitted, and before it deletes them. Until that
        transaction ends nobody else is admitted to these projects. Who calls
        it more than once in a transaction does so in the order of the
        projects' ids, and deletes the requests in between.

        The first ones go first. Those of a batch that are refused share one
        error, whose code is 413.

        :raises cellsched.exception.TransactionLost: by this or by the
            transaction; another one was faster
        """

    def admit(
        self, connection: Any, project_id: str | None, user_id: str | None,
        builds: Sequence[QuotaBuild], min_count: int = 1,
    ) -> dict[str, exception.OverQuota]:
        """Admit one batch; the same as :meth:`admit_all` otherwise."""
        return self.admit_all(
            connection, [QuotaBatch(project_id, user_id, builds, min_count)])
