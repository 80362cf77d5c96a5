# SPDX-License-Identifier: Apache-2.0
"""The contract of a weigher."""

import abc
from collections.abc import Iterable
from typing import Any
from typing import ClassVar

from oslo_config import cfg

from cellsched.conf import filter_scheduler
from cellsched.hosts import table
from cellsched import objects
from cellsched import plugins


class Weigher(abc.ABC):
    """Scores hosts: the higher, the better.

    A weigher must be a function of the table and the request, as a filter
    must. The pipeline scales its scores to 0..1 over the hosts that passed,
    multiplies them by :meth:`multiplier` and adds up; a weigher does none of
    that. Where fewer than two hosts passed, or the multiplier is zero, it is
    not asked.
    """

    #: Option that holds the multiplier.
    multiplier_name: ClassVar[str]

    #: Default of that option.
    multiplier_default: ClassVar[float] = 1.0

    #: Scores are clamped to these and scaled between them; None stands for
    #: the least or greatest score at hand.
    minval: ClassVar[float | None] = None
    maxval: ClassVar[float | None] = None

    #: Where the options of :meth:`opts` are registered; may be ``DEFAULT``.
    group: ClassVar[str] = filter_scheduler.GROUP.name

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this weigher reads, its multiplier first."""
        return [
            cfg.FloatOpt(
                cls.multiplier_name, default=cls.multiplier_default, help=f"""
Multiplier of {cls.__name__}; a negative one turns the preference around.
"""),
        ]

    def __init__(self, options: Any) -> None:
        """Take the options of the group, as attributes."""
        self.options = options

    @property
    def name(self) -> str:
        """The name that errors give this weigher."""
        return type(self).__name__

    def multiplier(self, hosts: table.HostTable) -> float | table.Column:
        """Return the multiplier, for all hosts or for each."""
        return getattr(self.options, self.multiplier_name)

    @abc.abstractmethod
    def score(
        self, hosts: table.HostTable, request: objects.RequestSpec
    ) -> table.Column:
        """Return a score for each row of the table, all finite numbers.

        An exception fails the request and names this weigher.
        """


def make(conf: cfg.ConfigOpts, names: Iterable[str]) -> list[Weigher]:
    """Return the weighers of these names, in this order.

    ``all_weighers`` stands for every one that is installed. Their options
    must be registered.

    :raises cellsched.exception.ConfigurationInvalid: one cannot be loaded
    """
    wanted: dict[str, None] = {}
    for name in names:
        several = name == filter_scheduler.ALL_WEIGHERS
        wanted.update(dict.fromkeys(
            plugins.names(plugins.WEIGHERS) if several else [name]))
    loaded = plugins.load_all(plugins.WEIGHERS, wanted, base=Weigher)
    return [plugin(conf if plugin.group == 'DEFAULT' else conf[plugin.group])
            for plugin in loaded.values()]
