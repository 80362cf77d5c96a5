# SPDX-License-Identifier: Apache-2.0
"""The driver that filters and weighs the hosts of a table in memory."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import math
from random import Random
from typing import Any

import numpy as np
from oslo_config import cfg

from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched.filters import base as filters_base
from cellsched.filters import compute
from cellsched.hardware import units
from cellsched.host_manager import manager
from cellsched.host_manager import mass_outage
from cellsched.host_manager.source import HostSource
from cellsched.hosts.cell_health import Cells
from cellsched.hosts.columns import AT
from cellsched.hosts.columns import AVAILABLE
from cellsched.hosts import plugin_columns
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import resources
from cellsched.observability import metrics
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.decision import registry
from cellsched.scheduler.drivers import base
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler import recording
from cellsched.scheduler import request_validation
from cellsched.scheduler import requirements
from cellsched.scheduler.selection import claims
from cellsched.scheduler.selection import placer
from cellsched.scheduler.selection import selector
from cellsched.weighers import base as weighers_base


class FilterScheduler(base.SchedulerDriver):
    """Decides on a table in memory; the claim store arbitrates.

    The filters in ``[filter_scheduler] enabled_filters`` select suitable
    hosts, and the weighers in ``weight_classes`` rank them.
    """

    # The pipeline knows the requirements that its stages read.
    reads = None

    def __init__(
        self, conf: cfg.ConfigOpts, parts: base.SchedulerParts
    ) -> None:
        super().__init__(conf, parts)
        pipeline_ = self.make_pipeline()
        # Report a broken plug-in at start, not with the first request.
        resources.load_classes()
        self.hints = pipeline_.hints | {request_validation.REBUILD}
        self.loader = self.make_source()
        self.placer = make_placer(conf, parts, self.loader, pipeline_)
        self.placer.recorder = parts.recorder
        conf.register_mutate_hook(self._follow_options)
        parts.metrics.add_source(self._metrics)
        self._networks = requirements.NetworkRequirements(
            parts.network,
            conf.scheduler.query_placement_for_routed_network_aggregates)

    def _follow_options(self, *changed: Any) -> None:
        """Decide on later requests with the changed options."""
        self.placer.follow(self.make_pipeline(), selection_policy(
            self.conf, self.parts.random))
        if self.parts.recorder is not None:
            self.parts.recorder.follow_options()

    def make_pipeline(self) -> pipeline.Pipeline:
        """Return the decision pipeline of this driver."""
        return pipeline_of(self.conf)

    def make_source(self) -> HostSource:
        """Return the source of this driver's hosts.

        A subclass may use another source.
        """
        conf, parts = self.conf, self.parts
        return manager.HostManager(
            parts.database, parts.cells, parts.gatherer, parts.discovery,
            parts.claims, parts.clock, refresh_policy(conf),
            conf.default_availability_zone, plugin_columns.load())

    def periodic(self) -> Sequence[tuple[Callable[[], None], float]]:
        tasks = [(self.parts.decisions.flush, decision_record.SPACING_S)]
        interval_s = self.conf.scheduler.refresh_interval
        if interval_s:
            tasks.append((self._refresh, interval_s))
        if self.parts.recorder is not None:
            tasks.append((self.parts.recorder.flush, recording.SPACING_S))
        return tasks

    def state(self) -> Mapping[str, Any]:
        table, now = self.loader.table, self.parts.clock.steady()
        return {
            'Host table': {
                'hosts': len(table),
                'silent_cells': list(self.loader.silent),
                'left_out': [f'{each.by}: {each.hosts}'
                             for each in self.loader.left_out()]},
            'Claims in flight': [
                {'compute_node': each.node,
                 'seconds': round(now - each.at, 3),
                 'resources': dict(each.resources)}
                for each in table.pending()]}

    def unready(self) -> str:
        options = self.conf.scheduler
        return unready(
            self.loader, self.parts.clock.timestamp(),
            options.refresh_interval, '[scheduler] stale_cell_timeout',
            options.stale_cell_timeout)

    def _metrics(self) -> list[metrics.Reading]:
        clock = self.parts.clock
        return [
            *host_metrics(self.loader, {
                cell.uuid: cell.name for cell in self.parts.cells.known()},
                clock.steady(), self.conf.service_down_time),
            (metrics.QUEUED, ('decisions',), self.parts.decisions.waiting)]

    def _refresh(self) -> None:
        self.loader.refresh(admin())

    def select_destinations(
        self, context: RequestContext, request: objects.RequestSpec,
        instance_uuids: Sequence[str], alternates: int, claim: bool = True,
    ) -> list[list[objects.Selection]]:
        request = self._networks.add(context, request)
        return self.placer_of(request, instance_uuids).place(
            context, request, instance_uuids, alternates, claim)

    def placer_of(
        self, request: objects.RequestSpec, uuids: Sequence[str]
    ) -> placer.Placer:
        """Return the placer for a request; the same for all by default."""
        return self.placer

    def update_aggregates(
        self, aggregates: Iterable[objects.Aggregate]
    ) -> None:
        self.loader.tell_aggregates(aggregates)

    def delete_aggregate(self, aggregate: int) -> None:
        self.loader.forget_aggregate(aggregate)

    def update_instances(
        self, host: str, instances: Iterable[str], complete: bool
    ) -> None:
        self.loader.tell_instances(host, instances, complete)

    def delete_instance(self, host: str, instance: str) -> None:
        self.loader.forget_instance(instance)
        self.placer.release(host, instance)

    def plan(
        self, context: RequestContext, request: objects.RequestSpec,
        instance_uuids: Sequence[str], alternates: int,
    ) -> Any:
        """Decide as :meth:`select_destinations` does, and claim nothing."""
        request = self._networks.add(context, request)
        return self.placer_of(request, instance_uuids).plan(
            context, request, instance_uuids, alternates)


def unready(
    source: HostSource, now: float, interval_s: float, option: str,
    limit_s: float,
) -> str:
    """Return why the table of a source is too old; empty if it is not.

    :param now: the time, in seconds since the epoch
    :param interval_s: seconds between reads; 0 if each request reads the hosts
    :param option: the option with the limit of the age
    """
    read_at = source.read_at()
    if not interval_s:
        return ''
    if read_at is None:
        return 'the host table was not read yet'
    if now - read_at > limit_s:
        return (f'the host table was read {now - read_at:.0f} seconds ago; '
                f'the limit is {option}, {limit_s:g}')
    return ''


#: The label of cells without a name.
_UNNAMED = 'unnamed'

#: Figures of the standard resource classes: capacity, free amount, and bytes
#: or CPUs in a unit of the class.
_STANDARD = {
    'VCPU': (metrics.CAPACITY_VCPUS, metrics.FREE_VCPUS, 1),
    'MEMORY_MB': (metrics.CAPACITY_MEMORY, metrics.FREE_MEMORY, 2 ** 20),
    'DISK_GB': (metrics.CAPACITY_DISK, metrics.FREE_DISK, 2 ** 30)}

#: The amount that hosts offer, by resource class.
_OFFERED: dict[str, Callable[[view.Hosts], view.Column]] = {
    'VCPU': lambda hosts: (
        hosts['vcpus_total'] * hosts['cpu_allocation_ratio']),
    'MEMORY_MB': lambda hosts: (
        hosts['unreserved_ram_mb'] * hosts['ram_allocation_ratio']),
    'DISK_GB': lambda hosts: (
        hosts['unreserved_disk_mb'] * hosts['disk_allocation_ratio'] / 1024)}


def host_metrics(
    source: HostSource, names: Mapping[str, str | None], now: float,
    down_s: float,
) -> Iterator[metrics.Reading]:
    """Yield the metrics of the hosts of a source, and of their cells.

    :param names: names of cells by uuid; the cells without one share a label
    :param now: as :meth:`.HostTable.view` takes it
    :param down_s: seconds without a report after which a host is down
    """
    # 1. The ages of the table and of the data of each cell.
    read_at = source.read_at()
    if read_at is not None and math.isfinite(read_at):
        yield metrics.TABLE_READ, (), read_at
    yield metrics.SILENT_CELLS, (), len(source.silent)
    yield metrics.PENDING_CLAIMS, (), len(source.table.pending())
    label = {uuid: name or _UNNAMED for uuid, name in names.items()}
    yield from cell_metrics(source.table.cells, names)
    # 2. The hosts and the capacity of each cell.
    hosts = source.table.view(now)
    try:
        yield from _capacity_metrics(hosts, label, down_s)
    finally:
        source.table.reuse(hosts)


def cell_metrics(
    cells: Cells, names: Mapping[str, str | None]
) -> Iterator[metrics.Reading]:
    """Yield the times of the last answers of cells.

    :param names: names of cells by uuid; the cells without one share a label
    """
    heard: dict[str, float] = {}
    for uuid, health in dict(cells.known).items():
        if uuid in names and health.heard_at is not None:
            name = names[uuid] or _UNNAMED
            heard[name] = min(heard.get(name, math.inf), health.heard_at)
    for name, at in heard.items():
        yield metrics.CELL_READ, (name,), at


def _capacity_metrics(
    hosts: view.Hosts, label: Mapping[str, str], down_s: float
) -> Iterator[metrics.Reading]:
    """Yield the metrics of hosts by cell.

    :param label: the labels of cells by uuid
    """
    # 1. The hosts by state.
    cells = hosts['cell']
    uuids = hosts.columns.snapshot.encoding('cell').values
    count = len(uuids) if len(hosts) else 0
    # The label of each code that a known cell or a host has.
    codes = {code: label.get(uuids[code], _UNNAMED) for code, number
             in enumerate(np.bincount(cells, minlength=count))
             if number or uuids[code] in label}
    down = hosts['forced_down'] | (
        hosts['last_seen_up'] < hosts.now - down_s)
    disabled = hosts['service_disabled'] & ~down
    up = ~(down | disabled)
    for state, mask in (('up', up), ('down', down),
                        ('disabled', disabled)):
        found = np.bincount(cells[mask], minlength=count)
        for code, name in codes.items():
            yield metrics.HOSTS, (name, state), int(found[code])
    # 2. The capacity of each cell.
    for column in hosts.names:
        if not column.startswith(AVAILABLE) or AT in column:
            continue
        resource = column.removeprefix(AVAILABLE)
        if units.named({resource: 1}):
            # A figure for each CPU would be of no use.
            continue
        free = np.bincount(
            cells, np.maximum(hosts[column], 0) * up, count)
        known = _STANDARD.get(resource)
        for code, name in codes.items():
            if known:
                yield known[1], (name,), free[code] * known[2]
            elif free[code]:
                yield metrics.FREE_RESOURCES, (name, resource), free[code]
    for resource, (figure, _, unit) in _STANDARD.items():
        offered = np.bincount(cells, _OFFERED[resource](hosts), count)
        for code, name in codes.items():
            yield figure, (name,), offered[code] * unit


def offered(hosts: view.Hosts, resource: str) -> view.Column:
    """Return the amount of a standard resource class that hosts offer."""
    return _OFFERED[resource](hosts)


def pipeline_of(
    conf: cfg.ConfigOpts, filter_names: Sequence[str] | None = None,
    weigher_names: Sequence[str] | None = None,
    weighed_by: Sequence[weighers_base.Weigher] | None = None,
) -> pipeline.Pipeline:
    """Return the configured decision pipeline.

    It begins with the stages that every request has to pass.

    :param filter_names: filters in place of the configured ones
    :param weigher_names: weighers in place of the configured ones
    :param weighed_by: the same, as objects
    """
    options = conf.filter_scheduler
    first = [*mandatory_filters(conf), mandatory_stages.InvalidMetadata()]
    enabled = registry.make_filters(
        conf, filter_names or options.enabled_filters)
    # Do not run a mandatory filter twice.
    kinds = set(map(type, first))
    if weighed_by is None:
        weighed_by = registry.make_weighers(
            conf, weigher_names or options.weight_classes)
    return pipeline.Pipeline(
        [each for each in enabled if type(each) not in kinds], weighed_by,
        first,
        packs_cells=conf.compute.packing_host_numa_cells_allocation_strategy)


def refresh_policy(conf: cfg.ConfigOpts) -> manager.RefreshPolicy:
    """Return the policy for reading hosts."""
    options = conf.scheduler
    return manager.RefreshPolicy(
        options.refresh_interval, options.full_refresh_interval,
        options.cell_failure_half_life,
        mass_outage.OutageLimits(
            conf.service_down_time, options.stale_cell_timeout),
        options.discover_hosts_in_cells_interval == 0)


def make_placer(
    conf: cfg.ConfigOpts, parts: base.SchedulerParts,
    source: HostSource, pipeline_: pipeline.Pipeline,
) -> placer.Placer:
    """Return a placer that selects from a source's hosts."""
    return placer.Placer(
        source, pipeline_,
        claims.ClaimQueue(parts.claims, parts.clock), parts.clock,
        selection_policy(conf, parts.random), conf.scheduler.claim_attempts,
        parts.decisions.record, conf.scheduler.slow_plugin_seconds,
        conf.scheduler.unmet_demands == 'ignore', conf.service_down_time,
        metrics=parts.metrics, now=parts.database.timestamp)


def selection_policy(
    conf: cfg.ConfigOpts, random: Random
) -> selector.SelectionPolicy:
    """Return the policy for selecting one of the best hosts."""
    options = conf.filter_scheduler
    rotates = options.rotate_best_same_weighed_hosts
    return selector.SelectionPolicy(
        random, options.host_subset_size,
        options.shuffle_best_same_weighed_hosts,
        start=random.random() if rotates else 0.0,
        refused_subset_size=options.refused_host_subset_size,
        evacuation_subset_size=options.evacuation_host_subset_size,
        takes_servers=compute.ComputeFilter(conf))


def mandatory_filters(conf: cfg.ConfigOpts) -> list[filters_base.Filter]:
    """Return the stages that every request has to pass."""
    options = conf.scheduler
    return [
        *mandatory_stages.destination_stages(options.stale_cell_timeout),
        *mandatory_stages.request_stages(options)]
