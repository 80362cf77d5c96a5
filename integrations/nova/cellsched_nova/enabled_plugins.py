# SPDX-License-Identifier: Apache-2.0
"""The filters and weighers that Nova's configuration enables.

Nova's own loaders find and create them. A shipped plug-in of Nova that the
product has under the same name is replaced by the product's, which reads
columns. All other plug-ins check one host at a time.

Such a plug-in receives Nova's own request. Its host states read columns where
a column has the same value, and Nova's own host state for all other
attributes.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import copy
from typing import Any

import nova.conf
from nova.filters import BaseFilter
from nova.scheduler import filters as nova_filters
from nova.scheduler import weights as nova_weights
from nova.weights import WeighedObject
import numpy as np

from cellsched.filters import base as filters_base
from cellsched.hosts import state
from cellsched.hosts import view
from cellsched import objects
from cellsched import plugins
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.decision import registry
from cellsched.scheduler.decision import required_traits
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import replay
from cellsched.weighers import base as weighers_base
from cellsched_nova import cells
from cellsched_nova import filters as nova_stages

#: Modules of Nova's plug-ins that the product can replace.
_FILTERS, _WEIGHERS = 'nova.scheduler.filters.', 'nova.scheduler.weights.'

#: Plug-ins that read facts which Nova's computes do not report.
_BY_ROW = frozenset({'ImagePropertiesWeigher'})

#: Filters that Nova's own can replace; see ``[cellsched] hardware_filters``.
_OF_HARDWARE = frozenset({'NUMATopologyFilter', 'PciPassthroughFilter'})

Plugin = Any

#: Attributes of Nova's host state that have a column.
_COLUMNS = frozenset({
    'cell_uuid', 'cpu_allocation_ratio', 'disk_allocation_ratio',
    'disk_mb_used', 'failed_builds', 'free_disk_mb', 'free_ram_mb', 'host',
    'hypervisor_hostname', 'hypervisor_type', 'hypervisor_version',
    'nodename', 'num_instances', 'num_io_ops', 'ram_allocation_ratio',
    'total_usable_disk_gb', 'total_usable_ram_mb', 'uuid', 'vcpus_total',
    'vcpus_used'})

#: For some filters of Nova: the requests that they can reject hosts for.
_NEEDS: Mapping[str, Callable[[Any], bool]] = {
    'NUMATopologyFilter': lambda spec: spec.numa_topology is not None,
    'PciPassthroughFilter': lambda spec: bool(
        spec.pci_requests is not None and spec.pci_requests.requests),
}

#: The options with the multipliers of these weighers. With an option, the
#: multiplier needs no look at each host.
_MULTIPLIERS = {'ImagePropertiesWeigher': 'image_props_weight_multiplier'}


class HostStates:
    """Nova's host states for the plug-ins of one request.

    The first use reads them from the cells.

    :param read: returns Nova's host states of compute nodes, by their uuids
    :param candidates: allocation requests of Placement, by compute node
    :param aggregates: Nova's aggregates, by id
    """

    def __init__(
        self, read: Callable[[Sequence[str]], Iterable[Any]],
        candidates: Mapping[str, Sequence[Any]],
        aggregates: Mapping[int, Any] | None = None,
    ) -> None:
        self._read = read
        self._candidates = candidates
        self.aggregates = aggregates or {}
        self._known: dict[str, Any] = {}

    def load(self, uuids: Iterable[str]) -> None:
        """Read the missing host states of these compute nodes."""
        missing = [uuid for uuid in uuids if uuid not in self._known]
        if not missing:
            return
        for one in self._read(missing):
            one.allocation_candidates = copy.deepcopy(
                list(self._candidates.get(one.uuid, ())))
            self._known[one.uuid] = one

    def get(self, uuid: str) -> Any | None:
        """Return the host state of a compute node, or None if not read."""
        return self._known.get(uuid)

    def candidates(self, uuid: str) -> Sequence[Any] | None:
        """Return the candidates that filters left, or None if not read."""
        found = self._known.get(uuid)
        return None if found is None else found.allocation_candidates


class _HostState:
    """A host with the attributes that Nova's plug-ins read and write."""

    def __init__(
        self, hosts: view.Hosts, place: int, states: HostStates
    ) -> None:
        vars(self).update(
            _row=state.HostState(hosts, place), _hosts=hosts, _states=states)

    def __getattr__(self, name: str) -> Any:
        if name in _COLUMNS:
            return getattr(self._row, name)
        if name == 'aggregates':
            known = self._states.aggregates
            return [known[each.id] for each in self._row.aggregates
                    if each.id in known]
        return getattr(self._nova(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._nova(), name, value)

    def __repr__(self) -> str:
        return repr(self._row)

    def _nova(self) -> Any:
        uuid = self._row.uuid
        if self._states.get(uuid) is None:
            # Read all hosts at once: the plug-in will read them next.
            self._states.load(self._hosts['uuid'])
        found = self._states.get(uuid)
        if found is None:
            raise LookupError(f'compute node {uuid} does not exist any more')
        return found


class NovaFilter(filters_base.Filter):
    """Runs a filter of Nova on each remaining host.

    :param plugin: Nova's filter
    :param spec: Nova's request
    """

    by_row = True

    def __init__(self, plugin: Any, spec: Any, states: HostStates) -> None:
        super().__init__()
        self._plugin = plugin
        self._spec = spec
        self._states = states
        # A filter that compares hosts overrides this method.
        self.local = (type(plugin).filter_all  # type: ignore[misc]
                      is BaseFilter.filter_all)
        self.run_filter_once_per_request = bool(
            plugin.run_filter_once_per_request)
        self.run_on_rebuild = bool(plugin.RUN_ON_REBUILD)

    @property
    def name(self) -> str:  # type: ignore[override]
        return type(self._plugin).__name__

    def applies(self, request: objects.RequestSpec) -> bool:
        needs = _NEEDS.get(self.name)
        return needs is None or needs(self._spec)

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        shown = [_HostState(hosts, place, self._states)
                 for place in range(len(hosts))]
        passed = {id(each) for each in self._plugin.filter_all(
            shown, self._spec) or ()}
        return np.fromiter((id(each) in passed for each in shown), bool,
                           len(shown))


class NovaWeigher(weighers_base.Weigher):
    """Runs a weigher of Nova on each remaining host."""

    multiplier_name = ''
    by_row = True

    def __init__(self, plugin: Any, spec: Any, states: HostStates) -> None:
        super().__init__()
        self._plugin = plugin
        self._spec = spec
        self._states = states
        self.minval = plugin.minval
        self.maxval = plugin.maxval
        self._option = _MULTIPLIERS.get(self.name)

    @property
    def name(self) -> str:  # type: ignore[override]
        return type(self._plugin).__name__

    def multiplier(self, hosts: view.Hosts) -> float | view.Column:
        if self._option is not None:
            return hosts.number(self._option, getattr(
                nova.conf.CONF.filter_scheduler, self._option))
        return np.fromiter(
            (self._plugin.weight_multiplier(
                _HostState(hosts, place, self._states))
             for place in range(len(hosts))), 'float64', len(hosts))

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        shown = [WeighedObject(
            _HostState(hosts, place, self._states), 0.0)
            for place in range(len(hosts))]
        return np.array(self._plugin.weigh_objects(shown, self._spec),
                        dtype='float64')


def own_filters(conf: Any) -> frozenset[str]:
    """Return the filters of Nova that an option keeps.

    :param conf: Nova's configuration
    """
    return (_OF_HARDWARE if conf.cellsched.hardware_filters == 'nova'
            else frozenset())


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
    :param own: names of filters of Nova that are not replaced
    """

    def __init__(
        self, conf: Any, nova_filters: Sequence[Plugin],
        nova_weighers: Sequence[Plugin], own: Set[str] = frozenset(),
    ) -> None:
        self._always = filter_scheduler.mandatory_filters(conf)
        self._destinations = mandatory_stages.destination_stages(
            conf.scheduler.stale_cell_timeout)
        kinds = set(map(type, self._always))
        self._filters = _rows_last(
            (plugin, column) for plugin, column in (
                (each, _column(conf, each, registry.make_filters, _FILTERS,
                               plugins.FILTERS, own))
                for each in nova_filters)
            if type(column) not in kinds)
        # Placement allocates the devices of some requests. Only Nova's filters
        # compare them with the allocation candidates.
        self._mapping_filters = _rows_last(
            (plugin, None if type(plugin).__name__ in _OF_HARDWARE else column)
            for plugin, column in self._filters)
        self._weighers = [
            (each, _column(conf, each, registry.make_weighers, _WEIGHERS,
                           plugins.WEIGHERS)) for each in nova_weighers]
        #: Names of the plug-ins that check one host at a time.
        self.by_row = [type(plugin).__name__ for plugin, column in (
            *self._filters, *self._weighers) if column is None]
        #: The stages in place of Nova's query for allocation candidates.
        self.of_placement = pipeline.Pipeline([], [], [
            mandatory_stages.RequestedHost(),
            mandatory_stages.RequestedAggregates(),
            mandatory_stages.ForcedHost(),
            *mandatory_stages.request_stages(conf.scheduler)])
        #: Requirements that columns cover.
        self.reads = self._pipeline(
            None, HostStates(list, {}), self._always).reads

    def header(self, conf: Any) -> dict[str, Any]:
        """Return the header of a recording; see :mod:`.replay`."""
        return replay.header_of(
            conf, self.on_columns(None, HostStates(list, {})),
            enabled_filters=[
                type(plugin).__name__ for plugin, _ in self._filters],
            weight_classes=[
                type(plugin).__name__ for plugin, _ in self._weighers],
            # Nova selects from this many in retries and evacuations, too.
            refused_host_subset_size=1, evacuation_host_subset_size=1)

    def reads_states(
        self, spec: Any, aggregates: Mapping[int, Any]
    ) -> bool:
        """Return whether a decision reads host states from the cells.

        :param spec: Nova's request
        :param aggregates: Nova's aggregates, by id
        """
        return any(
            column is None and _NEEDS.get(type(plugin).__name__, bool)(spec)
            for plugin, column in self._filters_of(spec)) or any(
            column is None and _counts(type(plugin).__name__, aggregates)
            for plugin, column in self._weighers)

    def reads_traits(self, request: objects.RequestSpec) -> bool:
        """Return whether a decision on columns depends on traits."""
        return any(each.applies(request) for each in self._always
                   if isinstance(each, required_traits.RequiredTraits))

    def on_columns(
        self, spec: Any, states: HostStates,
        more: Iterable[filters_base.Filter] = (),
    ) -> pipeline.Pipeline:
        """Return the pipeline for a request that columns cover."""
        return self._pipeline(spec, states, (*more, *self._always))

    def on_candidates(
        self, spec: Any, states: HostStates,
        more: Iterable[filters_base.Filter] = (),
    ) -> pipeline.Pipeline:
        """Return the pipeline for hosts that Placement found."""
        last = ([nova_stages.AcceptedCandidates(states.candidates)]
                if self.by_row or self._filters_of(spec) is not self._filters
                else [])
        # Placement has checked the resources.
        return self._pipeline(
            spec, states, (*more, *self._destinations),
            lambda hosts, request: (), last)

    def _pipeline(
        self, spec: Any, states: HostStates,
        first: Iterable[filters_base.Filter],
        needs: Callable[..., Iterable[filters_base.Filter]] = capacity.stages,
        last: Iterable[filters_base.Filter] = (),
    ) -> pipeline.Pipeline:
        kept = [column or NovaFilter(plugin, spec, states)
                for plugin, column in self._filters_of(spec)]
        scored = [column or NovaWeigher(plugin, spec, states)
                  for plugin, column in self._weighers]
        # The computes take the cells of a host in the same order.
        return pipeline.Pipeline(
            [*kept, *last], scored, first, needs,
            nova.conf.CONF.compute
            .packing_host_numa_cells_allocation_strategy)

    def _filters_of(self, spec: Any) -> list[tuple[Plugin, Any]]:
        """Return the filters that decide on a request, with their columns."""
        return (self._mapping_filters if maps_devices(spec)
                else self._filters)


def maps_devices(spec: Any) -> bool:
    """Return whether Placement allocates PCI devices of a request.

    :param spec: Nova's request, or None
    """
    if spec is None or spec.pci_requests is None:
        return False
    # Placement does not know the devices of ports by their request.
    prefixes = tuple(each.request_id for each in spec.pci_requests.requests
                     if each.alias_name and each.request_id)
    return bool(prefixes) and any(
        group.requester_id and group.requester_id.startswith(prefixes)
        for group in spec.requested_resources)


def _rows_last(
    found: Iterable[tuple[Plugin, Any]]
) -> list[tuple[Plugin, Any]]:
    """Return filters; those that check one host at a time come last."""
    return sorted(found, key=lambda pair: pair[1] is None)


def hardware_columns(conf: Any, manager: Any) -> list[str]:
    """Return the columns of NUMA cells and devices that are read.

    :param conf: Nova's configuration
    :param manager: Nova's host manager, with the plug-ins that may read them
    """
    names = {type(each).__name__ for each in (
        *manager.enabled_filters, *manager.weighers)} - own_filters(conf)
    found = []
    if 'NUMATopologyFilter' in names:
        found.append(cells.TOPOLOGY)
    if names & {'PCIWeigher', *_OF_HARDWARE}:
        found.append(cells.DEVICES)
    return found


def _counts(weigher: str, aggregates: Mapping[int, Any]) -> bool:
    """Return whether a weigher may have a multiplier other than 0."""
    option = _MULTIPLIERS.get(weigher)
    # Messages of nova-api change the aggregates meanwhile, so copy them.
    return option is None or bool(
        getattr(nova.conf.CONF.filter_scheduler, option)) or any(
            option in each.metadata for each in [*aggregates.values()])


def _column(
    conf: Any, plugin: Plugin, make: Callable[..., list[Any]], prefix: str,
    namespace: str, own: Set[str] = frozenset(),
) -> Any | None:
    """Return the product's plug-in that replaces one of Nova, or None.

    :param own: names of plug-ins that are not replaced
    """
    kind = type(plugin)
    name = kind.__name__
    shipped = {point.name for point in plugins.shipped(namespace)}
    if (not kind.__module__.startswith(prefix) or name in _BY_ROW | own
            or name not in shipped):
        return None
    return make(conf, [name])[0]
