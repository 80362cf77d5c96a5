# SPDX-License-Identifier: Apache-2.0
"""The contract of a weigher, and of one that scores a host at a time."""

import abc
from collections.abc import Iterable
import functools
from typing import Any
from typing import ClassVar

import numpy as np
from oslo_config import cfg

from cellsched.conf import filter_scheduler
from cellsched.hosts import state
from cellsched.hosts import view
from cellsched import objects


class Weigher(abc.ABC):
    """Scores hosts; a higher score is better.

    Like a filter, a weigher must be a pure function of the hosts and the
    request. It gets the hosts that passed the filters. The pipeline
    normalizes the scores to 0..1 over these hosts, multiplies them by
    :meth:`multiplier` and adds them up. It skips the weigher if fewer than
    two hosts passed or if the multiplier is zero.
    """

    #: The option of the multiplier, and the key of aggregates' metadata that
    #: overrides it for their hosts.
    multiplier_name: ClassVar[str]

    #: The default of that option.
    multiplier_default: ClassVar[float] = 1.0

    #: The minimum of the option; None for any number.
    multiplier_min: ClassVar[float | None] = None

    #: Scores are clamped to these bounds and normalized between them. None
    #: means the lowest or highest score of the hosts.
    minval: float | None = None
    maxval: float | None = None

    #: True if usage on one host does not change the scores of other hosts.
    #: Between the instances of one request, the weigher then runs only for
    #: the host that was just selected.
    local: ClassVar[bool] = False

    #: True if usage does not change any score.
    fixed: ClassVar[bool] = False

    #: True if scores depend on columns of the host table alone: not on the
    #: request, the time, values of cells, or the set of hosts that passed.
    #: None then stands for scores of 0. Scores are reused until a host
    #: changes; of a :attr:`local` weigher only the changed hosts are scored
    #: again.
    by_columns: ClassVar[bool] = False

    #: True if the weigher must get only the hosts that passed, because it
    #: takes time for each host or may fail for one. Other weighers may get
    #: more hosts, whose scores are ignored.
    by_row: ClassVar[bool] = False

    #: Server group policies and rules that this weigher implements. A request
    #: is refused if no enabled plug-in implements its group's policy or rule.
    serves: ClassVar[frozenset[str]] = frozenset()

    #: The option group of :meth:`opts`; may be ``DEFAULT``.
    group: ClassVar[str] = filter_scheduler.GROUP.name

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this weigher reads, its multiplier first."""
        return [
            cfg.FloatOpt(
                cls.multiplier_name, default=cls.multiplier_default,
                min=cls.multiplier_min, mutable=True, help=f"""
Multiplier of {cls.__name__}; a negative one turns the preference around.

Aggregates whose metadata has this name override it for their hosts; the least
of their numbers counts.
"""),
        ]

    def __init__(self, options: Any = None) -> None:
        """Store the option group; its options are attributes."""
        self.options = options

    @functools.cached_property
    def name(self) -> str:
        """The name of this weigher in errors."""
        return type(self).__name__

    def applies(self, request: objects.RequestSpec) -> bool:
        """Return False to score all hosts equally for this request."""
        return True

    def located(self, request: objects.RequestSpec) -> Iterable[str]:
        """Return the instances whose hosts this weigher needs."""
        return ()

    def multiplier(self, hosts: view.Hosts) -> float | view.Column:
        """Return the multiplier, for all hosts or for each host."""
        return hosts.number(self.multiplier_name, self._multiplier)

    @functools.cached_property
    def _multiplier(self) -> float:
        # Reading an option takes longer than the rest of this method.
        return float(getattr(self.options, self.multiplier_name))

    @abc.abstractmethod
    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column | None:
        """Return a finite score for each host.

        None scores all hosts equally at no cost, also those on which earlier
        instances of the request have used resources.

        An exception fails the request and names this weigher.
        """


class BaseHostWeigher:
    """The base class for weighers written for Nova, with no other change.

    The weigher scores one host. It runs Python code for each host that
    passed.
    """

    minval: float | None = None
    maxval: float | None = None

    def weight_multiplier(self, host_state: state.HostState) -> float:
        """Return the multiplier of a host's score."""
        return 1.0

    def _weigh_object(
        self, host_state: state.HostState, weight_properties: Any
    ) -> float:
        """Return the score of a host.

        :param weight_properties: the request, a
            :class:`cellsched.objects.RequestSpec`
        """
        raise NotImplementedError()


class RowWeigher(Weigher):
    """Calls a class with ``_weigh_object`` for each host that passed.

    The score of a host must depend on that host alone.
    """

    multiplier_name = ''
    local = True
    by_row = True

    def __init__(self, plugin: Any) -> None:
        super().__init__()
        self._plugin = plugin
        self.minval = getattr(plugin, 'minval', None)
        self.maxval = getattr(plugin, 'maxval', None)

    @property
    def name(self) -> str:
        return type(self._plugin).__name__

    def multiplier(self, hosts: view.Hosts) -> float | view.Column:
        ask = getattr(self._plugin, 'weight_multiplier', None)
        if ask is None:
            return 1.0
        return np.fromiter(
            (ask(state.HostState(hosts, place))
             for place in range(len(hosts))), 'float64', len(hosts))

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        weigh = self._plugin._weigh_object
        return np.fromiter(
            (weigh(state.HostState(hosts, place), request)
             for place in range(len(hosts))), 'float64', len(hosts))
