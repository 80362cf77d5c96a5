# SPDX-License-Identifier: Apache-2.0
"""The contract of a filter, and of one that checks a host at a time."""

import abc
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import math
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import numpy as np
from oslo_config import cfg

from cellsched.conf import filter_scheduler
from cellsched.hosts import state
from cellsched.hosts import view
from cellsched import objects


class Reason(NamedTuple):
    """A reason why a filter rejected some hosts.

    :ivar text: in the form of :attr:`Filter.reason`
    :ivar hosts: mask of these hosts among those that the filter rejected
    :ivar shortfall: as :meth:`Filter.shortfall` returns it for these hosts
    """

    text: str
    hosts: view.Mask
    shortfall: tuple[view.Column, str] | None = None


class Filter(abc.ABC):
    """Decides which hosts may take a request.

    A filter must be a pure function of the hosts and the request: no clock,
    no database, no RPC, no memory of earlier calls. One call may serve many
    requests. Counters, timing, logs and explanations are the work of the
    pipeline.

    A filter gets all hosts, or only the hosts that passed the filters before
    it. So its verdict on a host must not depend on the number of other hosts,
    unless the filter is not :attr:`local`.
    """

    #: Completes "This host …" as a short negative that begins with its verb:
    #: "lacks memory", "already runs a server". Users read it.
    reason: str = 'was rejected'

    #: True if the placement of one instance of a request cannot change the
    #: verdict for the next. The filter then runs once for all instances.
    run_filter_once_per_request: bool = False

    #: True if usage on one host does not change the verdicts on other hosts.
    #: Between the instances of one request, the filter then runs only for the
    #: host that was just selected.
    local: ClassVar[bool] = False

    #: True if the placement of an instance can make rejected hosts acceptable
    #: again. The filter then runs on all hosts for each instance.
    reopens: ClassVar[bool] = False

    #: True if the filter takes time for each host. It then gets only the
    #: hosts that passed the filters before it.
    by_row: ClassVar[bool] = False

    #: True if the filter also runs for a rebuild, which stays on its host.
    run_on_rebuild: bool = False

    #: Server group policies and rules that this filter implements. A request
    #: is refused if no enabled filter implements its group's policy or rule.
    serves: ClassVar[frozenset[str]] = frozenset()

    #: Scheduler hints that this filter reads. A hint that no enabled filter
    #: reads is refused.
    hints: frozenset[str] = frozenset()

    #: Requirements that this filter satisfies for the hosts it passes: the
    #: parts of a request that affect where a server may run. A request with a
    #: requirement that no enabled stage reads is refused, and the error names
    #: the requirement.
    #:
    #: ``flavor.extra_specs.hw:numa_nodes`` is an extra spec of the flavor,
    #: ``image.properties.hw_numa_nodes`` a property of the image, and
    #: ``requested_destination.host`` a field of the request. A ``*`` at the
    #: end matches anything: ``flavor.extra_specs.hw:numa_mem.*``.
    #: ``flavor.extra_specs.unscoped`` means all extra specs without a colon.
    #: The reference lists the requirements; other names need not be listed.
    #: Name a requirement only if the filter satisfies it completely, and not
    #: while an option disables that.
    reads: frozenset[str] = frozenset()

    #: The option group of :meth:`opts`; may be ``DEFAULT``.
    group: ClassVar[str] = filter_scheduler.GROUP.name

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this filter reads, none by default.

        The list may include an option that another filter registers too.
        """
        return []

    def __init__(self, options: Any = None) -> None:
        """Store the option group; its options are attributes."""
        self.options = options

    @functools.cached_property
    def name(self) -> str:
        """The name of this filter in counters and errors."""
        return type(self).__name__

    @abc.abstractmethod
    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        """Return True for each host that may take the request.

        The mask has one entry for each host. None keeps all hosts at no cost.
        An exception fails the request and names this filter; the text of an
        :class:`cellsched.exception.Invalid` tells the user what is wrong with
        the request.
        """

    def applies(self, request: objects.RequestSpec) -> bool:
        """Return False to keep every host for this request."""
        return True

    def cache_key(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Hashable:
        """Return what the verdicts depend on besides the hosts' own columns.

        The mask is then kept for later requests with an equal key, and the
        filter runs again only for the hosts whose columns changed. Its verdict
        on a host must not depend on other hosts. The key must have everything
        of the request, of cells and of server groups that the filter reads.
        If it runs once per request, usage must not change a verdict at all.
        None, the default, means that the filter runs for each request.
        """
        return None

    def valid_until(self, hosts: view.Hosts) -> float:
        """Return until when the verdicts on these hosts hold.

        For filters with a :meth:`cache_key` that compare columns with the
        time: seconds since the epoch, as in ``hosts.now``.
        """
        return math.inf

    def located(self, request: objects.RequestSpec) -> Iterable[str]:
        """Return the instances whose hosts this filter needs.

        One query before the filters run finds the hosts of all of them. The
        filter reads them by ``hosts.rows_of`` and ``hosts.counts_of``.
        """
        return ()

    def limits(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Mapping[str, view.Column]:
        """Return the amounts that a build may use on each host, by limit.

        A compute host checks ``memory_mb``, ``disk_gb`` and ``vcpu`` again
        when it claims, and ``numa_topology``, a document in Nova's form.
        """
        return {}

    def reason_for(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> str:
        """Return the reason why these hosts were rejected.

        Override it to name more than :attr:`reason` does, in the same form. It
        must not name hosts and cells. It is called only if no host was found.

        :param hosts: the hosts that this filter rejected, at least one
        """
        return self.reason

    def internals(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> str | None:
        """Return names that explain the reason to administrators, or None.

        Users do not see them.

        :param hosts: the hosts that this filter rejected, at least one
        """
        return None

    def shortfall(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> tuple[view.Column, str] | None:
        """Return the amount that each host lacks, and the unit.

        For filters that compare amounts. It is called only if no host was
        found, to report the host that lacks least.
        """
        return None

    def reasons(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Sequence[Reason]:
        """Return the reasons why these hosts were rejected, each host once.

        Override it if hosts lack different parts of a request. By default,
        one reason has the results of :meth:`reason_for` and :meth:`shortfall`.

        :param hosts: the hosts that this filter rejected, at least one
        """
        return [Reason(
            self.reason_for(hosts, request), np.ones(len(hosts), bool),
            self.shortfall(hosts, request))]


class BaseHostFilter:
    """The base class for filters written for Nova, with no other change.

    The filter accepts or rejects one host. It runs Python code for each
    host that passed the filters before it, so name it last in
    ``enabled_filters``.
    """

    #: See :class:`Filter`.
    reason = 'was rejected'
    run_filter_once_per_request = False
    RUN_ON_REBUILD = False
    hints: ClassVar[Iterable[str]] = ()
    reads: ClassVar[Iterable[str]] = ()

    def host_passes(
        self, host_state: state.HostState, filter_properties: Any
    ) -> bool:
        """Return whether a host may take the request.

        :param filter_properties: the request, a
            :class:`cellsched.objects.RequestSpec`
        """
        raise NotImplementedError()


class RowFilter(Filter):
    """Calls a class with ``host_passes`` for each remaining host.

    The verdict on a host must depend on that host alone.
    """

    local = True
    by_row = True

    def __init__(self, plugin: Any) -> None:
        super().__init__()
        self._plugin = plugin
        self.reason = getattr(plugin, 'reason', Filter.reason)
        self.hints = frozenset(getattr(plugin, 'hints', ()))
        # Without a declaration, the requirements that it reads are unknown.
        self.reads = frozenset(getattr(plugin, 'reads', ()))
        self.run_filter_once_per_request = bool(
            getattr(plugin, 'run_filter_once_per_request', False))
        self.run_on_rebuild = bool(getattr(plugin, 'RUN_ON_REBUILD', False))

    @property
    def name(self) -> str:
        return type(self._plugin).__name__

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        passes = self._plugin.host_passes
        return np.fromiter(
            (passes(state.HostState(hosts, place), request)
             for place in range(len(hosts))), bool, len(hosts))
