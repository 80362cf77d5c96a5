# SPDX-License-Identifier: Apache-2.0
"""Plug-ins of Nova run on columns, or on one host at a time."""

import datetime
import types

import nova.conf
from nova import objects as nova_objects
from nova.scheduler import filters
from nova.scheduler.filters import compute_filter
from nova.scheduler.filters import numa_topology_filter
from nova.scheduler.filters import pci_passthrough_filter
from nova.scheduler import weights
from nova.scheduler.weights import image_props
from nova.scheduler.weights import metrics as nova_metrics
from nova.scheduler.weights import pci
from nova.scheduler.weights import ram
import numpy as np
from oslo_serialization import jsonutils

from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.testing import builders
from cellsched.weighers import metrics
from cellsched_nova import configuration
from cellsched_nova import enabled_plugins
from tests import configuration_fixtures

nova_objects.register_all()


class BigFilter(filters.BaseHostFilter):
    """A third-party filter."""

    def host_passes(self, host_state, spec_obj):
        return host_state.free_ram_mb >= 2048


class LabelFilter(filters.BaseHostFilter):

    def host_passes(self, host_state, spec_obj):
        return host_state.label == 'good'


class NameWeigher(weights.BaseHostWeigher):

    def _weigh_object(self, host_state, weight_properties):
        return {'a': 1, 'b': 3, 'c': 2}[host_state.host]


class HostState:
    """A host state of Nova with an attribute that no column has."""

    def __init__(self, uuid, label):
        self.uuid = uuid
        self.label = label
        self.allocation_candidates = []


class TestEnabledPlugins(configuration_fixtures.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = configuration.ProductOptions(nova.conf.CONF).conf
        self.spec = nova_objects.RequestSpec(
            numa_topology=None, pci_requests=None, scheduler_hints={})
        self.hosts = builders.hosts(
            host=['a', 'b', 'c'], free_ram_mb=[1024, 2048, 4096])
        self.asked = []
        self.states = enabled_plugins.HostStates(self.read, {})

    def read(self, uuids):
        self.asked.append(list(uuids))
        names = dict(zip(self.hosts['uuid'], self.hosts['host']))
        return [HostState(uuid, 'good' if names[uuid] == 'c' else 'bad')
                for uuid in uuids]

    def decide(self, nova_filters=(), nova_weighers=()):
        """Return the names of the hosts, best first."""
        self.plugins = enabled_plugins.EnabledPlugins(
            self.conf, nova_filters, nova_weighers)
        request = builders.request()
        decision = self.plugins.on_columns(self.spec, self.states)
        found = decision.candidates(self.hosts, request)
        return [self.hosts['host'][row]
                for row in decision.weigh(request, found)]

    def test_filters_of_both_packages_are_the_product_s(self):
        self.decide([compute_filter.ComputeFilter()], [ram.RAMWeigher()])

        self.assertEqual([], self.plugins.by_row)

    def test_third_party_filter_checks_hosts_singly(self):
        self.assertEqual(['b', 'c'], self.decide([BigFilter()]))
        self.assertEqual(['BigFilter'], self.plugins.by_row)
        self.assertEqual([], self.asked)

    def test_attribute_without_column_is_read_once_of_remaining_hosts(self):
        self.assertEqual(['c'], self.decide([LabelFilter(), BigFilter(),
                                             LabelFilter()]))
        [read] = self.asked
        self.assertEqual(set(self.hosts['uuid']), set(read))

    def test_third_party_weigher_orders_hosts(self):
        self.assertEqual(['b', 'c', 'a'], self.decide([], [NameWeigher()]))

    def test_row_weigher_runs_only_with_a_multiplier(self):
        weigher = image_props.ImagePropertiesWeigher()

        self.decide([], [weigher])

        self.assertEqual(['ImagePropertiesWeigher'], self.plugins.by_row)
        self.assertEqual([], self.asked)

    def test_host_state_has_the_aggregates_of_nova(self):
        aggregate = nova_objects.Aggregate(metadata={'label': 'good'})
        hosts = builders.hosts(2, aggregates=[
            (), (builders.aggregate(7),)])
        states = enabled_plugins.HostStates(self.read, {}, {7: aggregate})
        shown = []

        class Spy(filters.BaseHostFilter):
            def host_passes(self, host_state, spec_obj):
                shown.append(host_state.aggregates)
                return True

        enabled_plugins.NovaFilter(Spy(), self.spec, states).keep(
            hosts, builders.request())

        self.assertEqual([[], [aggregate]], shown)

    def test_numa_filter_runs_for_requests_with_a_topology(self):
        self.decide([numa_topology_filter.NUMATopologyFilter()])

        self.assertEqual([], self.asked)

    def test_filters_of_hardware_are_the_product_s_unless_kept(self):
        filters_ = [numa_topology_filter.NUMATopologyFilter(),
                    pci_passthrough_filter.PciPassthroughFilter()]
        kept = {'NUMATopologyFilter', 'PciPassthroughFilter'}
        for own in frozenset(), frozenset(kept):
            plugins = enabled_plugins.EnabledPlugins(
                self.conf, filters_, [], own)

            self.assertEqual(sorted(own), sorted(plugins.by_row))
            self.assertEqual(not own, 'numa_topology' in plugins.reads)
            self.assertEqual(not own, 'pci_requests' in plugins.reads)

    def test_devices_in_placement_are_checked_by_nova_s_filters(self):
        asked = nova_objects.InstancePCIRequest(
            count=1, spec=[{}], alias_name='card', request_id='id')
        group = nova_objects.RequestGroup(requester_id='id-0')
        plugins = enabled_plugins.EnabledPlugins(self.conf, [
            numa_topology_filter.NUMATopologyFilter(),
            pci_passthrough_filter.PciPassthroughFilter()], [])
        for groups, by_row in ([], False), ([group], True):
            spec = nova_objects.RequestSpec(
                numa_topology=None, requested_resources=groups,
                pci_requests=nova_objects.InstancePCIRequests(
                    requests=[asked]))

            decides = plugins.on_candidates(spec, self.states)

            self.assertEqual(
                [by_row] * 2, [each.by_row for each in decides.filters][:2])
            self.assertEqual(by_row, plugins.reads_states(spec, {}))
            self.assertEqual(by_row, decides.hardware(
                builders.request(pci_requests=documents.written_requests([
                    devices.DeviceRequest(1, ({},))]))) is None)

    def test_columns_of_hardware_are_read_for_their_plugins(self):
        def columns(filters_, weighers=()):
            return enabled_plugins.hardware_columns(
                nova.conf.CONF, types.SimpleNamespace(
                    enabled_filters=filters_, weighers=weighers))

        numa = numa_topology_filter.NUMATopologyFilter()
        self.assertEqual([], columns([compute_filter.ComputeFilter()]))
        self.assertEqual(['numa_topology', 'pci_stats'], columns([numa]))
        self.assertEqual(['pci_stats'], columns([], [pci.PCIWeigher()]))
        nova.conf.CONF.set_override('hardware_filters', 'nova', 'cellsched')
        self.addCleanup(nova.conf.CONF.clear_override, 'hardware_filters',
                        'cellsched')
        self.assertEqual([], columns([numa]))

    def reads_states(self, nova_filters=(), nova_weighers=(), **metadata):
        plugins = enabled_plugins.EnabledPlugins(
            self.conf, nova_filters, nova_weighers)
        return plugins.reads_states(self.spec, {
            1: nova_objects.Aggregate(metadata=metadata)})

    def test_decision_on_columns_reads_no_states(self):
        self.assertFalse(self.reads_states(
            [compute_filter.ComputeFilter(),
             numa_topology_filter.NUMATopologyFilter()],
            [ram.RAMWeigher(), image_props.ImagePropertiesWeigher()]))

    def test_row_plugins_read_states(self):
        self.assertTrue(self.reads_states([BigFilter()]))
        self.assertTrue(self.reads_states([], [NameWeigher()]))
        self.assertTrue(self.reads_states(
            [], [image_props.ImagePropertiesWeigher()],
            image_props_weight_multiplier='2'))

    def test_aggregates_may_change_during_the_read(self):
        aggregates = {}

        class Aggregate:
            @property
            def metadata(self):
                aggregates[len(aggregates)] = None
                return {}

        aggregates.update({0: Aggregate(), 1: Aggregate()})
        plugins = enabled_plugins.EnabledPlugins(
            self.conf, [], [image_props.ImagePropertiesWeigher()])

        self.assertFalse(plugins.reads_states(self.spec, aggregates))

    def test_host_without_accepted_candidates_is_rejected(self):
        candidate = {'allocations': {}}

        class Remover(filters.BaseHostFilter):
            def host_passes(self, host_state, spec_obj):
                if host_state.label == 'bad':
                    host_state.allocation_candidates.clear()
                return True

        states = enabled_plugins.HostStates(
            self.read, dict.fromkeys(self.hosts['uuid'], [candidate]))
        plugins = enabled_plugins.EnabledPlugins(self.conf, [Remover()], [])

        found = plugins.on_candidates(self.spec, states).candidates(
            self.hosts, builders.request())

        self.assertEqual(['c'], [
            self.hosts['host'][row] for row in found.filtered.rows[
                slice(None) if found.filtered.mask is None
                else found.filtered.mask]])

    def test_each_host_state_has_its_own_candidates(self):
        uuid = self.hosts['uuid'][0]
        candidate = {'allocations': {uuid: {'resources': {'VCPU': 1}}}}
        states = enabled_plugins.HostStates(self.read, {uuid: [candidate]})
        states.load([uuid])

        [copy] = states.get(uuid).allocation_candidates
        copy['allocations'].clear()

        self.assertTrue(candidate['allocations'])

    def test_deleted_host_is_an_error(self):
        hosts = builders.hosts(1)
        state = enabled_plugins.HostStates(lambda uuids: [], {})

        self.assertRaises(
            LookupError, enabled_plugins.NovaFilter(
                LabelFilter(), self.spec, state).keep, hosts,
            builders.request())


class TestMetrics(configuration_fixtures.TestCase):

    #: Metrics of Nova's agents, with a value and a ratio of each.
    REPORTED = {'cpu.frequency': (1700, -0.5), 'cpu.idle.percent': (7, 2.0),
                'cpu.iowait.percent': (3, 1.5), 'cpu.kernel.percent': (9, -1),
                'cpu.user.percent': (11, 0.25), 'cpu.user.time': (10 ** 9, 0)}

    def report(self, percent):
        """Return what Nova's agent stores of a host."""
        values = {name: value for name, (value, _) in self.REPORTED.items()}
        return jsonutils.dumps(nova_objects.MonitorMetricList(objects=[
            nova_objects.MonitorMetric(
                name=name, value=value, source='libvirt',
                timestamp=datetime.datetime(2026, 1, 1))
            for name, value in {**values, 'cpu.percent': percent}.items()
        ]).to_list())

    def test_reports_of_agents_are_weighed_as_by_nova(self):
        setting = ['cpu.percent=1.0', *(
            f'{name}={ratio}' for name, (_, ratio) in self.REPORTED.items())]
        nova.conf.CONF.set_override('weight_setting', setting, 'metrics')
        self.addCleanup(
            nova.conf.CONF.clear_override, 'weight_setting', 'metrics')
        texts = [self.report(percent) for percent in range(101)]
        hosts = builders.hosts(metrics=texts)
        states = enabled_plugins.HostStates(lambda uuids: [
            types.SimpleNamespace(
                uuid=uuid, metrics=nova_objects.MonitorMetricList.from_json(
                    texts[hosts.row(uuid)])) for uuid in uuids], {})
        novas = enabled_plugins.NovaWeigher(
            nova_metrics.MetricsWeigher(), None, states)

        np.testing.assert_array_equal(
            novas.score(hosts, builders.request()), builders.plugin(
                metrics.MetricsWeigher, weight_setting=setting,
            ).score(hosts, builders.request()))
