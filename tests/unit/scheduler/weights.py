# SPDX-License-Identifier: Apache-2.0
"""Weights in plain Python, host after host, as Nova makes them.

Also random hosts, requests and settings that all weighers care for.
"""

from hypothesis import strategies as st

from cellsched.hosts import state
from cellsched import objects
from cellsched import plugins
from cellsched.testing import builders
from tests.unit import strategies
from tests.unit.weighers import test_cells
from tests.unit.weighers import test_image_properties
from tests.unit.weighers import test_metrics

WEIGHERS = plugins.load_shipped(plugins.WEIGHERS)

#: vCPUs, memory in MB and percentage: the default mix of flavors.
MIX = ((1, 2048, 12), (1, 4096, 16.6), (2, 8192, 29.5), (4, 16384, 23),
       (8, 32768, 12), (16, 65536, 6.9))

#: Multiplier's name, its sign, and the score of a host.
PLAIN = {
    'BuildFailureWeigher': (
        'build_failure_weight_multiplier', -1,
        lambda host, _: host.failed_builds),
    'CPUWeigher': (
        'cpu_weight_multiplier', 1,
        lambda host, _: host.vcpus_total * host.cpu_allocation_ratio
        - host.vcpus_used),
    'CellFailureWeigher': (
        'cell_failure_weight_multiplier', -1,
        lambda host, world: world.failures.get(host.cell, 0)),
    'CellFreeWeigher': (
        'cell_free_weight_multiplier', 1,
        lambda host, world: test_cells.free_share(
            [each for each in world.hosts if each.cell == host.cell])),
    'CrossCellWeigher': (
        'cross_cell_move_weight_multiplier', 1,
        lambda host, world: 0 if world.preferred is None
        else 1 if host.cell == world.preferred else -1),
    'DiskWeigher': (
        'disk_weight_multiplier', 1, lambda host, _: host.free_disk_mb),
    'FragmentationWeigher': (
        'fragmentation_weight_multiplier', 1,
        lambda host, world: world.usable_room(host)),
    'HypervisorVersionWeigher': (
        'hypervisor_version_weight_multiplier', 1,
        lambda host, _: host.hypervisor_version),
    'ImagePropertiesWeigher': (
        'image_props_weight_multiplier', 1,
        lambda host, world: sum(
            count for name, value in world.image.items()
            for said, text, count in host.image_props
            if (said, text) == (name, str(value)))),
    'IoOpsWeigher': (
        'io_ops_weight_multiplier', 1, lambda host, _: host.num_io_ops),
    'MetricsWeigher': (
        'metrics_weight_multiplier', 1,
        lambda host, _: sum(
            {each['name']: each['value'] for each in host.metrics}[name]
            * ratio for name, ratio in (('cpu', 1.0), ('net', -1.5)))
        if {'cpu', 'net'} <= {each['name'] for each in host.metrics}
        else -10000.0),
    'NumInstancesWeigher': (
        'num_instances_weight_multiplier', 1,
        lambda host, _: host.num_instances),
    'PCIWeigher': (
        'pci_weight_multiplier', 1,
        lambda host, _: 100 - min(host.free_pci_devices, 99)),
    'RAMWeigher': (
        'ram_weight_multiplier', 1, lambda host, _: host.free_ram_mb),
    'ServerGroupSoftAffinityWeigher': (
        'soft_affinity_weight_multiplier', 1,
        lambda host, world: world.members_on(host, 'soft-affinity')),
    'ServerGroupSoftAntiAffinityWeigher': (
        'soft_anti_affinity_weight_multiplier', 1,
        lambda host, world: -world.members_on(host, 'soft-anti-affinity')),
}

#: Between what scores are scaled, where that is not what is at hand.
BOUNDS = {
    'CPUWeigher': (0, None), 'CellFailureWeigher': (0, 100),
    'CellFreeWeigher': (0, None), 'DiskWeigher': (0, None),
    'IoOpsWeigher': (0, None), 'RAMWeigher': (0, None),
}


class World:
    """Hosts and a request, in a form that plain Python reads.

    :param table: the hosts as columns
    """

    def __init__(self, table, request, failures, image, group, preferred):
        self.table = table
        self.request = request
        self.failures = failures
        self.image = image
        self.group = group
        self.preferred = preferred

    @property
    def hosts(self):
        """All hosts, as objects."""
        return [state.HostState(self.table, place)
                for place in range(len(self.table))]

    def members_on(self, host, policy):
        """Return how many members of a group of a policy a host has."""
        if self.group.get('policy') != policy:
            return 0
        return sum(uuid in host.instances
                   for uuid in set(self.group['members']))

    def usable_room(self, host):
        """Return how much less room of a host is unusable with the server."""
        row = self.table.row(host.uuid)
        free = [int(self.table.available(resource)[row])
                for resource in ('VCPU', 'MEMORY_MB')]
        taken = self.request.resources()
        after = [free[0] - taken['VCPU'], free[1] - taken['MEMORY_MB']]
        total = 0.0
        for place in 0, 1:
            mean = sum(size[place] * share for *size, share in MIX) / 100
            for *size, share in MIX:
                before, then = (
                    room[place] - size[place] * min(
                        each // amount for each, amount in zip(room, size))
                    for room in (free, after))
                total += share / 100 * (before - then) / mean
        return round(total, 9)

    def weights(self, rows, multipliers):
        """Return the weights of the hosts that passed, by Nova's formula.

        :param rows: where these are among the hosts
        :param multipliers: as by :func:`settings`
        """
        hosts = [self.hosts[row] for row in rows]
        totals = [0.0] * len(hosts)
        for name in PLAIN if len(hosts) > 1 else ():
            if name == 'MetricsWeigher' and multipliers[name] is None:
                continue
            scaled = self._scaled(name, hosts)
            for place, host in enumerate(hosts):
                totals[place] += scaled[place] * self._multiplier(
                    name, host, multipliers)
        return totals

    def _scaled(self, name, hosts):
        score = PLAIN[name][2]
        scores = [score(host, self) for host in hosts]
        low, high = BOUNDS.get(name, (None, None))
        if low is not None:
            scores = [max(each, low) for each in scores]
        if high is not None:
            scores = [min(each, high) for each in scores]
        low = min(scores) if low is None else low
        high = max(scores) if high is None else high
        if low == high:
            return [0.0] * len(scores)
        return [(each - low) / (high - low) for each in scores]

    @staticmethod
    def _multiplier(name, host, multipliers):
        key, sign, _ = PLAIN[name]
        said = [each.metadata[key] for each in host.aggregates
                if key in each.metadata]
        # As in Nova, no aggregate counts if one has no number.
        numbers = ([] if {'much', ''}.intersection(said)
                   else [float(text) for text in said])
        default = WEIGHERS[name].multiplier_default
        if multipliers[name] is not None:
            default = multipliers[name]
        return sign * min(numbers, default=default)


_FAILURES = st.dictionaries(
    st.sampled_from(test_cells.CELLS), st.sampled_from([1, 7, 150]),
    max_size=2)

#: There is room on all, so that there is something to weigh.
_ROOM = {
    'vcpus_total': st.integers(4, 64),
    'total_usable_ram_mb': st.integers(1024, 8192),
    'total_usable_disk_gb': st.integers(3, 50),
    **{f'available:{resource}': st.just(10 ** 6)
       for resource in ('VCPU', 'MEMORY_MB', 'DISK_GB')}}

_GROUPS = st.none() | st.fixed_dictionaries({
    'policy': st.sampled_from(['soft-affinity', 'soft-anti-affinity', None]),
    'members': st.lists(st.sampled_from(strategies.UUIDS))})

_METADATA = {key: st.sampled_from(['0.5', '3', '7.25', 'much', ''])
             for key, _, _ in PLAIN.values()}


@st.composite
def settings(draw):
    """Draw the multipliers of all weighers; some keep their defaults."""
    some = {'MetricsWeigher': [-1.5, 1.0]}  # With zero, it scores otherwise.
    return {name: draw(st.none() | st.sampled_from(some.get(
        name, [0.0, 1.0, 2.5] if kind.multiplier_min == 0.0
        else [-1.5, 0.0, 1.0, 2.5]))) for name, kind in WEIGHERS.items()}


def weighers(multipliers):
    """Return all weighers with these multipliers.

    That of metrics has something to weigh only where it is given one: with it,
    all see only the hosts that passed.
    """
    made = []
    for name, kind in WEIGHERS.items():
        options = {} if multipliers[name] is None else {
            kind.multiplier_name: multipliers[name]}
        if name == 'MetricsWeigher' and options:
            options |= {'weight_setting': 'cpu=1.0,net=-1.5',
                        'required': False}
        made.append(builders.plugin(kind, **options))
    return made


@st.composite
def worlds(draw):
    """Draw hosts with a request; see :class:`World`."""
    failures = draw(_FAILURES)
    image = draw(st.dictionaries(
        st.sampled_from(test_image_properties.NAMES),
        st.sampled_from(test_image_properties.VALUES)))
    group = draw(_GROUPS)
    preferred = draw(st.none() | st.sampled_from(test_cells.CELLS))
    hosts = draw(strategies.hosts(
        metadata=_METADATA, failures=failures,
        cell=st.sampled_from(test_cells.CELLS),
        metrics=test_metrics.METRICS,
        image_props=test_image_properties.SERVERS,
        **_ROOM))
    fields = {'image': image, 'vcpus': draw(st.integers(1, 4)),
              'memory_mb': draw(st.integers(1, 1024)),
              'root_gb': draw(st.integers(0, 3))}
    if group is not None:
        fields['group'] = group
    if preferred is not None:
        fields['requested_destination'] = objects.Destination(
            cell=objects.CellMapping(uuid=preferred),
            allow_cross_cell_move=True)
    return World(hosts, builders.request(**fields), failures, image,
                 group or {}, preferred)
