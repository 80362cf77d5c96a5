# SPDX-License-Identifier: Apache-2.0
"""The contract of a filter."""

import abc
from collections.abc import Iterable
from typing import Any
from typing import ClassVar

from oslo_config import cfg

from cellsched.conf import filter_scheduler
from cellsched.hosts import table
from cellsched import objects
from cellsched import plugins


class Filter(abc.ABC):
    """Says which hosts may take a request.

    A filter must be a function of the table and the request: no clock, no
    database, no RPC, no memory of earlier calls. It may be called for many
    requests at once. The pipeline counts, times, logs and explains; a filter
    does none of that.
    """

    #: Completes "This host …" as a short negative that begins with its verb:
    #: "lacks memory", "already runs a server". Requesters read it.
    reason: str = 'was rejected'

    #: True if the placement of one instance of a request cannot change the
    #: verdict for the next, so that the filter runs once for all of them.
    run_filter_once_per_request: ClassVar[bool] = False

    #: Scheduler hints that this filter reads. A hint that no enabled filter
    #: reads is refused.
    hints: ClassVar[frozenset[str]] = frozenset()

    #: Where the options of :meth:`opts` are registered; may be ``DEFAULT``.
    group: ClassVar[str] = filter_scheduler.GROUP.name

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this filter reads, none by default.

        An option that others read too may be returned once more as it is.
        """
        return []

    def __init__(self, options: Any) -> None:
        """Take the options of the group, as attributes."""
        self.options = options

    @property
    def name(self) -> str:
        """The name that counts and errors give this filter."""
        return type(self).__name__

    @abc.abstractmethod
    def keep(
        self, hosts: table.HostTable, request: objects.RequestSpec
    ) -> table.Mask:
        """Return True for each host that may take the request.

        The mask has one entry for each row of the table, which must not be
        changed. An exception fails the request and names this filter.
        """

    def applies(self, request: objects.RequestSpec) -> bool:
        """Return False to keep every host for this request."""
        return True

    def located(self, request: objects.RequestSpec) -> Iterable[str]:
        """Return the instances whose hosts this filter needs to know.

        What is named here is looked up in one query before the filters run,
        and is found by ``hosts.rows_of``.
        """
        return ()

    def shortfall(
        self, hosts: table.HostTable, request: objects.RequestSpec
    ) -> tuple[table.Column, str] | None:
        """Return by how much each host misses, and in which unit.

        For filters that compare amounts. Asked only after a request found no
        host, to name the nearest miss.
        """
        return None


def make(conf: cfg.ConfigOpts, names: Iterable[str]) -> list[Filter]:
    """Return the filters of these names, in this order.

    Their options must be registered.

    :raises cellsched.exception.ConfigurationInvalid: one cannot be loaded
    """
    loaded = plugins.load_all(plugins.FILTERS, names, base=Filter)
    return [plugin(conf if plugin.group == 'DEFAULT' else conf[plugin.group])
            for plugin in loaded.values()]
