# SPDX-License-Identifier: Apache-2.0
"""Loading of the configured filters and weighers.

A name is that of an entry point, or names a class: a weigher by its import
path, and a filter by the end of a path in ``[filter_scheduler]
available_filters``. A class that was written for Nova checks one host at a
time, and is wrapped.
"""

from collections.abc import Iterable
import logging
from typing import Any
from typing import NamedTuple

from oslo_config import cfg

from cellsched.conf import enabled
from cellsched.conf import filter_scheduler
from cellsched import exception
from cellsched.filters import base as filters
from cellsched import plugins
from cellsched.weighers import base as weighers

LOG = logging.getLogger(__name__)


class Kind(NamedTuple):
    """A kind of plug-ins.

    :param option: the option that enables them
    :param base: the class of a plug-in
    :param row_base: Nova's class, with the method of ``signature``
    :param row_plugin: the wrapper of a class that has such a method
    """

    noun: str
    namespace: str
    option: str
    base: Any
    row_base: Any
    row_plugin: Any
    signature: str

    def make(
        self, conf: cfg.ConfigOpts, name: str, path: str | None
    ) -> Any:
        """Return a plug-in, and register its options.

        :param path: the import path of the class, if it is no entry point
        :raises cellsched.exception.ConfigurationInvalid: it is not usable
        :raises cellsched.exception.PluginNotFound: it does not exist
        """
        plugin = plugins.load(self.namespace, name, self.option, path)
        field = f'{self.option}: {name}'
        self.check(field, plugin)
        if not issubclass(plugin, self.base):
            return plugins.attempt(field, f'a {self.noun} that can be made',
                                   lambda: self.row_plugin(plugin()))
        enabled.register_plugin(conf, plugin, field)
        return plugins.attempt(
            field, f'a {self.noun} that can be made',
            lambda: plugin(plugins.options(conf, plugin)),
            passed_on=(exception.ConfigurationInvalid,))

    def check(self, field: str, plugin: Any) -> None:
        """Check that an object is a plug-in of this kind.

        :param field: the name of the option in errors
        :raises cellsched.exception.ConfigurationInvalid: it is not
        """
        name, _, _ = self.signature.partition('(')
        if isinstance(plugin, type):
            method = getattr(plugin, name, None)
            if issubclass(plugin, self.base) or (
                    callable(method)
                    and method is not getattr(self.row_base, name)):
                return plugins.check_complete(field, plugin)
        raise exception.ConfigurationInvalid(
            field=field, problem=f'it is not a {self.noun}',
            expected=f'a subclass of {self.base.__module__}.'
                     f'{self.base.__name__}, or a class that defines '
                     f'{self.signature}')


FILTER = Kind(
    'filter', plugins.FILTERS, enabled.FILTERS_OPTION, filters.Filter,
    filters.BaseHostFilter, filters.RowFilter,
    'host_passes(host_state, spec_obj)')
WEIGHER = Kind(
    'weigher', plugins.WEIGHERS, enabled.WEIGHERS_OPTION, weighers.Weigher,
    weighers.BaseHostWeigher, weighers.RowWeigher,
    '_weigh_object(host_state, weight_properties)')


def make_filters(
    conf: cfg.ConfigOpts, names: Iterable[str]
) -> list[filters.Filter]:
    """Return the filters of these names, in this order.

    :raises cellsched.exception.CellschedException: as :meth:`Kind.make`
    """
    paths = filter_scheduler.filter_paths(conf)
    return [FILTER.make(conf, name, paths.get(name))
            for name in dict.fromkeys(names)]


def make_weighers(
    conf: cfg.ConfigOpts, names: Iterable[str]
) -> list[weighers.Weigher]:
    """Return the weighers of these names, in this order.

    ``all_weighers`` means every installed weigher that is usable; a broken
    one is skipped, because installing it does not enable it.

    :raises cellsched.exception.CellschedException: as :meth:`Kind.make`
    """
    made, skipped = _make_weighers(conf, names)
    for problem in skipped:
        LOG.error('Skipped a weigher of all_weighers: %s', problem)
    return made


def skipped_weighers(
    conf: cfg.ConfigOpts, names: Iterable[str]
) -> list[exception.ConfigurationInvalid]:
    """Return why weighers that ``all_weighers`` means are skipped.

    :raises cellsched.exception.CellschedException: as :meth:`Kind.make`
    """
    return _make_weighers(conf, names)[1]


def _make_weighers(
    conf: cfg.ConfigOpts, names: Iterable[str]
) -> tuple[list[weighers.Weigher], list[exception.ConfigurationInvalid]]:
    made: dict[str, weighers.Weigher] = {}
    problems: list[exception.ConfigurationInvalid] = []

    def make(name: str) -> Any:
        return made.get(name) or WEIGHER.make(
            conf, name, name if '.' in name else None)

    for name in names:
        if name not in filter_scheduler.ALL_WEIGHERS:
            made[name] = make(name)
            continue
        usable, broken = plugins.load_installed(plugins.WEIGHERS, make)
        made |= usable
        problems += broken.values()
    return [*made.values()], problems


def read_hints(conf: cfg.ConfigOpts) -> frozenset[str] | None:
    """Return the scheduler hints that enabled filters read; None for any."""
    if conf.scheduler.unknown_hints == 'ignore':
        return None
    return frozenset[str]().union(*(
        each.hints for each
        in make_filters(conf, conf.filter_scheduler.enabled_filters)))
