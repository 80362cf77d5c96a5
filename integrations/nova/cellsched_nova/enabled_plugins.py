# SPDX-License-Identifier: Apache-2.0
"""The filters and weighers that Nova's configuration enables.

Nova's own loaders find and create them. A shipped plug-in of Nova that the
product has under the same name is replaced by the product's, which reads
columns. All other plug-ins check one host at a time.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import functools
from typing import Any

from nova.scheduler import filters as nova_filters
from nova.scheduler import weights as nova_weights

from cellsched.filters import base as filters_base
from cellsched.filters import registry as filters
from cellsched.hosts import view
from cellsched import objects
from cellsched import plugins
from cellsched.scheduler.decision import destinations
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.weighers import base as weighers_base
from cellsched.weighers import registry as weighers
from cellsched_nova import rows

#: Modules of Nova's plug-ins that the product can replace.
_FILTERS, _WEIGHERS = 'nova.scheduler.filters.', 'nova.scheduler.weights.'

#: Plug-ins that read facts which Nova's computes do not report.
_BY_ROW = frozenset({'ImagePropertiesWeigher'})

Plugin = Any


def load(conf: Any) -> tuple[list[Plugin], list[Plugin]]:
    """Return the enabled filters and weighers, created as in Nova.

    Unlike Nova's host manager, this reads no database.

    :param conf: Nova's configuration, without problems
    """
    options = conf.filter_scheduler
    known = {each.__name__: each for each in (
        nova_filters.HostFilterHandler().get_matching_classes(
            options.available_filters))}
    weighers_ = nova_weights.HostWeightHandler().get_matching_classes(
        options.weight_classes)
    return ([known[name]() for name in dict.fromkeys(options.enabled_filters)],
            [each() for each in weighers_])


class EnabledPlugins:
    """The plug-ins of a decision, for the product's pipeline.

    :param conf: the product's configuration
    :param nova_filters: the enabled filters of Nova, in order
    :param nova_weighers: the enabled weighers of Nova
    """

    def __init__(
        self, conf: Any, nova_filters: Sequence[Plugin],
        nova_weighers: Sequence[Plugin],
    ) -> None:
        self._always = filter_scheduler.mandatory_filters(conf)
        self._destinations = destinations.stages(
            conf.scheduler.stale_cell_timeout)
        kinds = set(map(type, self._always))
        # Filters that check one host at a time come last.
        self._filters = sorted(
            ((plugin, column) for plugin, column in (
                (each, _column(conf, each, filters.make, _FILTERS,
                               plugins.FILTERS)) for each in nova_filters)
             if type(column) not in kinds),
            key=lambda pair: pair[1] is None)
        self._weighers = [
            (each, _column(conf, each, weighers.make, _WEIGHERS,
                           plugins.WEIGHERS)) for each in nova_weighers]
        #: Names of the plug-ins that check one host at a time.
        self.by_row = [type(plugin).__name__ for plugin, column in (
            *self._filters, *self._weighers) if column is None]
        #: Requirements that columns cover.
        self.reads = self._pipeline(
            None, rows.HostStates(list, {}), self._always).reads

    def on_columns(
        self, spec: Any, states: rows.HostStates,
        more: Iterable[filters_base.Filter] = (),
    ) -> pipeline.Pipeline:
        """Return the pipeline for a request that columns cover."""
        return self._pipeline(spec, states, (*more, *self._always))

    def on_candidates(
        self, spec: Any, states: rows.HostStates,
        more: Iterable[filters_base.Filter] = (),
    ) -> pipeline.Pipeline:
        """Return the pipeline for hosts that Placement found."""
        return self._pipeline(
            spec, states, (*more, *self._destinations), _nothing)

    def _pipeline(
        self, spec: Any, states: rows.HostStates,
        first: Iterable[filters_base.Filter],
        needs: Callable[..., Iterable[filters_base.Filter]] | None = None,
    ) -> pipeline.Pipeline:
        kept: list[filters_base.Filter] = [
            column or rows.NovaFilter(plugin, spec, states)
            for plugin, column in self._filters]
        scored: list[weighers_base.Weigher] = [
            column or rows.NovaWeigher(plugin, spec, states)
            for plugin, column in self._weighers]
        make = functools.partial(pipeline.Pipeline, kept, scored, first)
        return make() if needs is None else make(needs)


def _nothing(
    hosts: view.Hosts, request: objects.RequestSpec
) -> Sequence[filters_base.Filter]:
    """Return no filter, because Placement has checked the resources."""
    return ()


def _column(
    conf: Any, plugin: Plugin, make: Callable[..., list[Any]], prefix: str,
    namespace: str,
) -> Any | None:
    """Return the product's plug-in that replaces one of Nova, or None."""
    kind = type(plugin)
    name = kind.__name__
    shipped = {point.name for point in plugins.shipped(namespace)}
    if (not kind.__module__.startswith(prefix) or name in _BY_ROW
            or name not in shipped):
        return None
    return make(conf, [name])[0]
