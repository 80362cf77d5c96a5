# SPDX-License-Identifier: Apache-2.0
"""The contract of a filter."""

import abc
from collections.abc import Iterable
from collections.abc import Mapping
import functools
from typing import Any
from typing import ClassVar

from oslo_config import cfg

from cellsched.conf import filter_scheduler
from cellsched.hosts import view
from cellsched import objects


class Filter(abc.ABC):
    """Says which hosts may take a request.

    A filter must be a function of the hosts and the request: no clock, no
    database, no RPC, no memory of earlier calls. It may be called for many
    requests at once. The pipeline counts, times, logs and explains; a filter
    does none of that.

    It is shown all hosts or only those that passed what came before, so its
    verdict on a host may not depend on how many others it sees, unless it is
    not :attr:`local`.
    """

    #: Completes "This host …" as a short negative that begins with its verb:
    #: "lacks memory", "already runs a server". Requesters read it.
    reason: str = 'was rejected'

    #: True if the placement of one instance of a request cannot change the
    #: verdict for the next, so that the filter runs once for all of them.
    run_filter_once_per_request: bool = False

    #: True if what is taken on one host leaves the verdicts on the others as
    #: they were. Between the instances of one request, such a filter is asked
    #: about the host that was just chosen, and not about all.
    local: ClassVar[bool] = False

    #: True if the placement of an instance can bring hosts back that were out.
    #: All hosts are then asked again for each instance of a request.
    reopens: ClassVar[bool] = False

    #: True if it costs time for each host, so that it must be shown only
    #: those that are left.
    by_row: ClassVar[bool] = False

    #: True if it is asked for a rebuild too, which stays on its host.
    run_on_rebuild: bool = False

    #: Policies and rules of server groups that it stands for. A request of a
    #: group that asks for one is refused where nothing enabled serves it.
    serves: ClassVar[frozenset[str]] = frozenset()

    #: Scheduler hints that this filter reads. A hint that no enabled filter
    #: reads is refused.
    hints: frozenset[str] = frozenset()

    #: Demands that this filter meets where it lets a host pass: what it reads
    #: of requests that changes where a server may go. A request that asks for
    #: what no enabled stage reads is refused by its name.
    #:
    #: ``flavor.extra_specs.hw:numa_nodes`` is an extra spec of the flavor,
    #: ``image.properties.hw_numa_nodes`` a property of the image, and
    #: ``requested_destination.host`` a field of the request. A ``*`` at the
    #: end stands for anything: ``flavor.extra_specs.hw:numa_mem.*``.
    #: ``flavor.extra_specs.unscoped`` stands for all extra specs without a
    #: colon. Names that are no demand may be left out; the demands are listed
    #: in the reference. One must be named only by who meets it whole, and not
    #: while an option switches that off.
    reads: frozenset[str] = frozenset()

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

    @functools.cached_property
    def name(self) -> str:
        """The name that counts and errors give this filter."""
        return type(self).__name__

    @abc.abstractmethod
    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        """Return True for each host that may take the request.

        The mask has one entry for each host; None keeps them all at no cost.
        An exception fails the request
        and names this filter; an :class:`cellsched.exception.Invalid` tells
        the requester what is wrong with the request.
        """

    def applies(self, request: objects.RequestSpec) -> bool:
        """Return False to keep every host for this request."""
        return True

    def located(self, request: objects.RequestSpec) -> Iterable[str]:
        """Return the instances whose hosts this filter needs to know.

        What is named here is looked up in one query before the filters run,
        and is found by ``hosts.rows_of`` and ``hosts.counts_of``.
        """
        return ()

    def limits(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Mapping[str, view.Column]:
        """Return what a build may use on each host, by the limit's name.

        ``memory_mb``, ``disk_gb`` and ``vcpu`` are what a compute host checks
        again when it claims.
        """
        return {}

    def shortfall(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> tuple[view.Column, str] | None:
        """Return by how much each host misses, and in which unit.

        For filters that compare amounts. Asked only after a request found no
        host, to name the nearest miss.
        """
        return None
