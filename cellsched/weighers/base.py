# SPDX-License-Identifier: Apache-2.0
"""The contract of a weigher."""

import abc
from collections.abc import Iterable
import functools
from typing import Any
from typing import ClassVar

from oslo_config import cfg

from cellsched.conf import filter_scheduler
from cellsched.hosts import view
from cellsched import objects


class Weigher(abc.ABC):
    """Scores hosts: the higher, the better.

    A weigher must be a function of the hosts and the request, as a filter
    must. It sees the hosts that passed the filters. The pipeline scales its
    scores to 0..1 over them, multiplies them by :meth:`multiplier` and adds
    up; a weigher does none of that. Where fewer than two hosts passed, or the
    multiplier is zero, it is not asked.
    """

    #: Option that holds the multiplier, and key of aggregates' metadata that
    #: overrides it for their hosts.
    multiplier_name: ClassVar[str]

    #: Default of that option.
    multiplier_default: ClassVar[float] = 1.0

    #: The least that the option may be; None for any number.
    multiplier_min: ClassVar[float | None] = None

    #: Scores are clamped to these and scaled between them; None stands for
    #: the least or greatest score at hand.
    minval: float | None = None
    maxval: float | None = None

    #: True if what is taken on one host leaves the scores of the others as
    #: they were. Between the instances of one request, such a weigher is
    #: asked about the host that was just chosen, and not about all.
    local: ClassVar[bool] = False

    #: True if what is taken changes no score at all.
    fixed: ClassVar[bool] = False

    #: True if scores depend on columns of the host table alone: not on the
    #: request, the time or facts of cells, nor on which hosts passed. They are
    #: then asked for once as long as no host changes.
    by_columns: ClassVar[bool] = False

    #: True if it must be shown only the hosts that passed, as it costs time
    #: for each or may fail for one. Others may be shown more, whose scores do
    #: not count.
    by_row: ClassVar[bool] = False

    #: Policies and rules of server groups that it stands for. A request of a
    #: group that asks for one is refused where nothing enabled serves it.
    serves: ClassVar[frozenset[str]] = frozenset()

    #: Where the options of :meth:`opts` are registered; may be ``DEFAULT``.
    group: ClassVar[str] = filter_scheduler.GROUP.name

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this weigher reads, its multiplier first."""
        return [
            cfg.FloatOpt(
                cls.multiplier_name, default=cls.multiplier_default,
                min=cls.multiplier_min, help=f"""
Multiplier of {cls.__name__}; a negative one turns the preference around.

Aggregates whose metadata has this name override it for their hosts; the least
of their numbers counts.
"""),
        ]

    def __init__(self, options: Any) -> None:
        """Take the options of the group, as attributes."""
        self.options = options

    @functools.cached_property
    def name(self) -> str:
        """The name that errors give this weigher."""
        return type(self).__name__

    def applies(self, request: objects.RequestSpec) -> bool:
        """Return False to score all hosts alike for this request."""
        return True

    def located(self, request: objects.RequestSpec) -> Iterable[str]:
        """Return the instances whose hosts this weigher needs to know."""
        return ()

    def multiplier(self, hosts: view.Hosts) -> float | view.Column:
        """Return the multiplier, for all hosts or for each."""
        return hosts.number(self.multiplier_name, self._multiplier)

    @functools.cached_property
    def _multiplier(self) -> float:
        # To ask oslo.config takes longer than all else of a multiplier.
        return float(getattr(self.options, self.multiplier_name))

    @abc.abstractmethod
    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column | None:
        """Return a score for each host, all finite numbers.

        None scores all hosts alike at no cost, whatever the request itself
        takes on them.

        An exception fails the request and names this weigher.
        """
