# SPDX-License-Identifier: Apache-2.0
"""Decisions are recorded with their way."""

import collections
import dataclasses
import json
import pathlib
import random
import tempfile
import threading
import time
import types

import fixtures
import nova.conf
from nova import context as nova_context
from nova import exception as nova_exception
from nova import objects as nova_objects
from nova.scheduler.filters import numa_topology_filter
from nova.scheduler.filters import pci_passthrough_filter
from nova.virt import hardware
import os_traits
from oslo_utils import uuidutils

from cellsched.conf import loader
from cellsched import exception
from cellsched.filters import server_group
from cellsched.observability.prometheus import PrometheusMetrics
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import recording
from cellsched.scheduler import replay
from cellsched.scheduler import requirements
from cellsched.scheduler.selection import lane
from cellsched.scheduler.selection.lane import Lane
from cellsched.scheduler.selection import selector
from cellsched.testing import builders
from cellsched.weighers import resources
from cellsched_nova import cells
from cellsched_nova import claims
from cellsched_nova import configuration
from cellsched_nova.decision import Components
from cellsched_nova.decision import make_lane
from cellsched_nova.decision import NOVA_TEXT
from cellsched_nova.decision import RequestDecision
from cellsched_nova import deployment
from cellsched_nova import enabled_plugins
from cellsched_nova import placement
from cellsched_nova import report_client
from tests import configuration_fixtures
from tests import test_cells
from tests import test_requests

nova_objects.register_all()

CONF = nova.conf.CONF

SERVER = test_requests.SERVER


class Hosts:
    """Hosts that only the selections of this test change."""

    silent = ()
    non_host_classes = frozenset()
    readings = 0
    silent_cells = frozenset()
    unread_reason = None
    any_without_pcpu = False

    def __init__(self, table):
        self.table = table
        # Called one after the other, at each search for freed hosts.
        self.freed = []
        self.confirmed = []
        self.asked = []

    def follow(self, context, timeout_s=0.0):
        return False

    def refresh(self, context, since=None, timeout_s=None, whole=False):
        return False

    def read_whole(self, context, since, timeout_s):
        if self.unread_reason is not None:
            raise placement.PlacementUnavailable(reason=self.unread_reason)

    def may_fit(self, context, resources):
        return True

    def find_freed(self, context, resources, readings, timeout_s=0.0):
        if self.freed:
            self.freed.pop(0)()
        return self.readings != readings

    def reported_nodes(self, instances):
        return {}

    def find_changed(
            self, context, hosts, rows, with_traits, hardware_of=()):
        self.asked.append(len(hardware_of))
        return set()

    def note_full(self, refusals):
        self.table.bound((each.provider, each.resource, each.amount - 1)
                         for each in refusals)

    def follow_aggregates(self, context):
        pass

    def expire(self, providers):
        pass

    def confirm(self, allocations, claimed=True, instances=()):
        self.table.confirm(allocations)
        self.confirmed.append(claimed)

    def claimed(self, writes):
        pass


class Plugins:
    """A filter and a weigher of memory."""

    reads = test_requests.READS

    of_placement = pipeline.Pipeline([], [])

    def reads_traits(self, request):
        return False

    def reads_states(self, spec, aggregates):
        return False

    def on_columns(self, spec, states, more=()):
        return pipeline.Pipeline(
            [builders.plugin(server_group.ServerGroupAntiAffinityFilter)],
            [builders.plugin(resources.RAMWeigher)], more)

    on_candidates = on_columns


class Manager:
    """Nova's host manager, without a cell."""

    cells = {}
    aggs_by_id = {}

    def get_host_states_by_uuids(self, context, uuids, spec):
        return ()


class Placement:
    """A Placement without allocation candidates.

    :ivar failures: statuses that it answers with before
    """

    def __init__(self):
        self.failures = []

    def get(self, path, version=None, global_request_id=None):
        return types.SimpleNamespace(
            status_code=self.failures.pop(0) if self.failures else 200,
            json=lambda: {'allocation_requests': [],
                          'provider_summaries': {}})


def refusal(provider):
    return exception.ClaimRefused(
        consumer=SERVER, provider=provider, resource='MEMORY_MB', amount=1)


def reserve(known, row, memory_mb):
    hosts = known.view(time.time())
    hosts.take(row, {'MEMORY_MB': memory_mb})
    return known.reserve(hosts)


class Store:
    """Accepts every claim, or raises an error."""

    def __init__(self):
        self.claims = []
        self.error = None
        self.is_full = False

    def claim(self, claims, is_new=False):
        if self.is_full:
            raise refusal(claims[0].provider)
        if self.error is not None:
            raise self.error
        self.claims += claims
        return len(claims)

    def release(self, consumers):
        pass


class TestCase(configuration_fixtures.TestCase):

    def setUp(self):
        super().setUp()
        self.store = Store()
        self.recorded_calls = []
        self.parts = Components(
            Hosts(builders.table(
                host=['a', 'b'], nodename=['a', 'b'],
                free_ram_mb=[1024, 2048])),
            make_lane(), Plugins(), selector.SelectionPolicy(random.Random(0)),
            requirements.RequirementCheck(test_requests.READS),
            Manager(), Placement(), claims.ClaimComponents(
                self.store, None, claims.DeferredReleases(
                    self.store, None, None, report_client.Deadline(0.0)),
                report_client.Deadline(0.0)),
            CONF, lambda *arguments: self.recorded_calls.append(arguments))
        self.context = nova_context.RequestContext(
            user_id='user', project_id='project', request_id='req-1')

    def spec(self, memory_mb=512, **fields):
        made = test_requests.spec(**{
            'ignore_hosts': None, 'force_hosts': None, 'force_nodes': None,
            'requested_destination': None, 'user_id': 'user',
            'is_bfv': False, 'availability_zone': None, **fields})
        made.flavor.memory_mb = memory_mb
        return made

    def grouped(self):
        """Return a request that needs allocation candidates."""
        # Nova would read this from its cells first.
        return self.spec(
            extra_specs={'resources1:VGPU': '1'},
            request_level_params=nova_objects.RequestLevelParams(
                root_required={os_traits.OWNER_NOVA}))

    def select(self, spec):
        return RequestDecision(
            self.parts, self.context, spec, [SERVER], 0).select()


class TestRecord(TestCase):

    VGPU = {'resources:VGPU': '1'}

    def recorded(self, spec):
        """Return the record of a request without a valid host."""
        self.assertRaises(nova_exception.NoValidHost, self.select, spec)
        [(_, _, _, decision)] = self.recorded_calls
        return decision

    def test_selection_is_recorded_with_its_way(self):
        [[chosen]] = self.select(self.spec())

        [(context, request, uuids, decision)] = self.recorded_calls
        self.assertEqual('b', chosen.service_host)
        self.assertEqual(
            ('req-1', [SERVER], 512),
            (context.request_id, uuids, request.flavor.memory_mb))
        self.assertEqual(
            ('columns', [], 'b', 'a', None),
            (decision.way.name, decision.way.reasons,
             decision.picks[0].first.host, decision.picks[0].second.host,
             decision.reason))

    def test_refusal_by_a_filter_has_the_reason_of_nova(self):
        self.parts.hosts.silent_cells = {
            *self.parts.hosts.table.view(0.0).values_at(0, 'cell')}

        with self.assertRaisesRegex(
                nova_exception.NoValidHost, f'found. {NOVA_TEXT}$'):
            self.select(self.spec())

    def test_refusal_is_recorded_with_reasons_hidden_from_users(self):
        spec = self.spec(4096)
        with self.assertRaises(nova_exception.NoValidHost) as caught:
            self.select(spec)

        [(_, _, _, decision)] = self.recorded_calls
        # As in Nova, if Placement has no allocation candidates.
        self.assertEqual(
            'No valid host was found. ', str(caught.exception))
        self.assertIn('2048 MB', decision.reason)
        self.assertEqual({'capacity:MEMORY_MB': ['a', 'b']},
                         decision.examples)
        self.assertEqual(2, decision.rejections[0]['hosts'])

    def test_refusal_of_a_member_names_the_group(self):
        group = nova_objects.InstanceGroup(
            uuid=SERVER, policy='anti-affinity', members=[], rules={},
            hosts=['a', 'b'])

        decision = self.recorded(self.spec(instance_group=group))

        self.assertIn('share of the server group', decision.reason)

    def test_request_without_candidates_is_recorded(self):
        decision = self.recorded(self.grouped())

        self.assertEqual('allocation candidates', decision.way.name)
        self.assertIn('groups of the flavor', decision.way.reasons)
        self.assertIn('no allocation candidates', decision.reason)

    def test_class_of_child_providers_is_found_before_a_refusal(self):
        # Nova's request filters would read its databases.
        filters = fixtures.MonkeyPatch(
            'nova.scheduler.request_filter.process_reqspec',
            lambda context, spec: None)
        filters.setUp()
        self.addCleanup(filters.cleanUp)
        hosts = self.parts.hosts
        hosts.read_whole = lambda context, since, timeout_s: setattr(
            hosts, 'non_host_classes', frozenset({'VGPU'}))

        decision = self.recorded(self.spec(extra_specs=self.VGPU))

        self.assertEqual(
            ('allocation candidates', ['VGPU of child or sharing providers']),
            (decision.way.name, decision.way.reasons))
        self.assertIn('no allocation candidates', decision.reason)

    def test_class_of_no_provider_is_refused_on_columns(self):
        decision = self.recorded(self.spec(extra_specs=self.VGPU))

        self.assertEqual('columns', decision.way.name)
        self.assertIn('VGPU', decision.reason)

    def test_read_of_candidates_is_retried(self):
        self.parts.client.failures = [503, 500, 503]

        decision = self.recorded(self.grouped())

        self.assertIn('no allocation candidates', decision.reason)

    def test_placement_without_an_answer_is_recorded(self):
        self.parts.client.failures = [503] * 100
        CONF.set_override('claim_timeout', 0, 'cellsched')
        self.addCleanup(CONF.clear_override, 'claim_timeout', 'cellsched')

        decision = self.recorded(self.grouped())

        self.assertIn('was answered with 503', decision.reason)
        self.assertEqual('allocation candidates', decision.way.name)

    def test_rejected_read_of_candidates_is_not_retried(self):
        self.parts.client.failures = [400]

        self.assertIn('was answered with 400',
                      self.recorded(self.grouped()).reason)

    def test_unread_hosts_do_not_count_as_full(self):
        self.parts.hosts.unread_reason = 'it is away'

        self.assertIn('Placement cannot be read: it is away',
                      self.recorded(self.spec(4096)).reason)

    def test_host_of_a_silent_cell_is_skipped(self):
        table = self.parts.hosts.table
        table.put(list(table['uuid']), {'cell': ['one', 'two']})
        self.parts.hosts.silent_cells = {'two'}

        [[chosen]] = self.select(self.spec())

        self.assertEqual('a', chosen.service_host)
        [(_, _, _, decision)] = self.recorded_calls
        self.assertEqual(1, decision.picks[0].candidates)

    def test_invalid_request_is_not_recorded(self):
        def refuse():
            raise exception.Invalid('it makes no sense')

        spec = self.spec()
        spec.obj_to_primitive = refuse

        self.assertRaises(nova_exception.NoValidHost, self.select, spec)
        self.assertEqual([], self.recorded_calls)

    def test_claim_store_without_an_answer_is_recorded(self):
        self.store.error = exception.DatabaseUnreachable(
            schema='claims', url='', reason='it is away')

        self.assertIn('it is away', self.recorded(self.spec()).reason)

    def test_hosts_with_refused_claims_are_named(self):
        self.store.is_full = True

        self.assertEqual(['a', 'b'], sorted(
            self.recorded(self.spec()).examples['claims']))


class TestRecording(TestCase):
    """Decisions in Nova's place are recorded, and replayed."""

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name) / 'decisions'
        self.recorder = recording.Recorder(
            self.path, 2 ** 22, dict, time.monotonic)
        self.addCleanup(self.recorder.close)
        self.parts = dataclasses.replace(self.parts, recorder=self.recorder)

    def outcomes(self, **options):
        self.recorder.flush()
        conf = loader.load([], files=[], dirs=[], kinds=(), messages=False)
        for name, value in options.items():
            conf.set_override(name, value, 'filter_scheduler')
        policy = replay.Replay(conf, self.parts.plugins.on_columns(
            None, None, filter_scheduler.mandatory_filters(conf)))
        return [*map(policy.decide, recording.read(self.path, tables=True))]

    def test_same_policy_gives_the_recorded_answers(self):
        self.select(self.spec())
        self.parts.hosts.silent_cells = {
            *self.parts.hosts.table.view(0.0).values_at(0, 'cell')}
        self.assertRaises(nova_exception.NoValidHost, self.select, self.spec())
        self.parts.hosts.silent_cells = frozenset()
        self.assertRaises(
            nova_exception.NoValidHost, self.select, self.spec(4096))
        self.select(self.spec())

        first, silent, large, last = self.outcomes(
            rotate_best_same_weighed_hosts=False)

        self.assertEqual(
            [['b'], [], [], ['b']],
            [each.answer.hosts for each in (first, silent, large, last)])
        self.assertEqual({replay.SAME}, {
            each.change for each in (first, silent, large, last)})
        self.assertIn('lack memory', large.answer.reason)
        self.assertEqual(large.entry.answer.reason, large.answer.reason)
        self.assertIn('disabled cell', silent.answer.reason)

    def test_random_selection_is_repeated(self):
        self.parts = dataclasses.replace(
            self.parts, policy=dataclasses.replace(
                self.parts.policy, subset_size=2))
        for _ in range(8):
            self.select(self.spec(memory_mb=1))

        outcomes = self.outcomes(host_subset_size=2)

        self.assertEqual({'a', 'b'}, {
            host for each in outcomes for host in each.answer.hosts})
        self.assertEqual({replay.SAME}, {each.change for each in outcomes})

    def test_refused_claim_is_recorded(self):
        refused = []

        def refuse(claims, is_new):
            if not refused:
                refused.extend(claims)
                raise refusal(claims[0].provider)
            return len(claims)

        self.store.claim = refuse
        [[chosen]] = self.select(self.spec())

        [outcome] = self.outcomes()

        self.assertEqual(('a', ['a'], replay.SAME), (
            chosen.service_host, outcome.answer.hosts, outcome.change))

    def test_candidates_are_skipped(self):
        self.assertRaises(
            nova_exception.NoValidHost, self.select, self.grouped())

        [outcome] = self.outcomes()

        self.assertEqual(
            (replay.SKIPPED, 'it was decided on allocation candidates'),
            (outcome.change, outcome.reason))

    def test_header_names_the_plugins_of_nova(self):
        conf = configuration.ProductOptions(CONF).conf
        plugins = enabled_plugins.EnabledPlugins(
            conf, *enabled_plugins.load(CONF))

        options = plugins.header(conf)['options']['filter_scheduler']

        self.assertIn('ComputeFilter', options['enabled_filters'])
        self.assertIn('RAMWeigher', options['weight_classes'])
        self.assertEqual(1.0, options['ram_weight_multiplier'])
        self.assertEqual(1, options['evacuation_host_subset_size'])


class TestMetrics(TestCase):

    def published(self, *specs):
        """Return the metrics after some requests, by name and labels."""
        metrics = PrometheusMetrics('scheduler')
        self.parts = dataclasses.replace(self.parts, metrics=metrics)
        for spec in specs:
            try:
                self.select(spec)
            except nova_exception.NoValidHost:
                pass
        lines = metrics.exposition('')[0].decode().splitlines()
        return {name: float(value) for name, value in (
            line.rsplit(' ', 1) for line in lines if line[0] != '#')}

    def results(self, name, *specs):
        found = self.published(*specs)
        return {result: found[f'cellsched_scheduler_{name}_total'
                              f'{{result="{result}"}}']
                for result in ('selected', 'no_valid_host', 'failed', 'won',
                               'lost')
                if found.get(f'cellsched_scheduler_{name}_total'
                             f'{{result="{result}"}}')}

    def test_requests_are_counted_by_result(self):
        self.assertEqual(
            {'selected': 2, 'no_valid_host': 1},
            self.results('requests', self.spec(), self.spec(),
                         self.spec(4096)))

    def test_request_without_an_answer_of_placement_has_failed(self):
        self.parts.hosts.unread_reason = 'it is away'

        self.assertEqual(
            {'failed': 1}, self.results('requests', self.spec(4096)))

    def test_claims_are_counted_by_result(self):
        self.assertEqual({'won': 1}, self.results('claims', self.spec()))

        self.store.is_full = True
        self.assertEqual({'lost': 2}, self.results('claims', self.spec()))

    def test_claim_without_an_answer_is_counted_as_failed(self):
        self.store.error = exception.DatabaseUnreachable(
            schema='claims', url='', reason='it is away')

        self.assertEqual({'failed': 1}, self.results('claims', self.spec()))

    def test_hosts_of_each_stage_are_counted(self):
        found = self.published(self.spec(), self.spec(4096))

        self.assertEqual([4, 2], [
            found[f'cellsched_scheduler_filter_hosts_{each}_total'
                  '{filter="capacity:MEMORY_MB"}']
            for each in ('entered', 'passed')])
        self.assertEqual(2, found[
            'cellsched_scheduler_request_duration_seconds_count'])


class Watcher:
    """Adds free memory to the first host."""

    def __init__(self):
        self.shown = []

    def begin(self, hosts):
        hosts.free(0, {'MEMORY_MB': 4096})

    def ranked(self, candidates, ranking):
        self.shown.append(list(ranking))


class TestWatcher(TestCase):

    def watched(self, watcher, servers=1):
        return RequestDecision(
            self.parts, self.context, self.spec(),
            [SERVER, *map(str, range(1, servers))], 0, claim=False,
            watcher=watcher).select()

    def test_change_of_a_watcher_counts_for_its_request_only(self):
        [[chosen]] = self.watched(Watcher())

        self.assertEqual('a', chosen.service_host)
        self.assertEqual([], self.store.claims)
        [[chosen]] = self.select(self.spec())
        self.assertEqual('b', chosen.service_host)

    def test_watcher_receives_the_ranking_for_the_first_server(self):
        watcher = Watcher()

        self.assertEqual(2, len(self.watched(watcher, 2)))

        self.assertEqual([[0, 1]], watcher.shown)


class TestPlan(TestCase):

    def plan(self, alternates=1, **wishes):
        return deployment.NovaPlanner(self.parts).plan(
            self.context, builders.request(**wishes), [SERVER], alternates)

    def test_plan_selects_the_best_host_without_a_claim(self):
        places, decision = self.plan()

        self.assertEqual([['b', 'a']], [
            [each.service_host for each in place] for place in places])
        self.assertEqual('columns', decision.way.name)
        self.assertEqual(([], []), (self.store.claims, self.recorded_calls))

    def test_repeated_plan_is_the_same(self):
        planner = deployment.NovaPlanner(self.parts)
        for _ in range(3):
            # If the first plan counted, the second host would be selected.
            places, _ = planner.plan(
                self.context, builders.request(memory_mb=1000), [SERVER], 0)

            self.assertEqual('b', places[0][0].service_host)

    def test_plans_of_several_processes_are_the_same(self):
        alike = Hosts(builders.table(
            host=['a', 'b', 'c'], nodename=['a', 'b', 'c'],
            free_ram_mb=[1024] * 3))
        hosts = set()
        for start in (0.0, 0.4, 0.8):
            self.parts = dataclasses.replace(
                self.parts, hosts=alike, policy=selector.SelectionPolicy(
                    random.Random(0), start=start))
            [[place]], _ = self.plan(0)
            hosts.add(place.service_host)

        self.assertEqual(1, len(hosts))

    def test_plan_without_a_host_has_a_reason(self):
        places, decision = self.plan(memory_mb=4096)

        self.assertEqual([], places)
        self.assertIn('2048 MB', decision.reason)

    def test_plan_of_an_invalid_request_is_refused(self):
        self.assertRaises(exception.Invalid, self.plan,
                          extra_specs={'hw:numa_nodes': 'many'})


class TestHardware(TestCase):
    """Requests for NUMA cells and devices on columns."""

    SERVERS = [f'10000000-0000-4000-8000-00000000001{number}'
               for number in range(6)]

    def setUp(self):
        super().setUp()
        topology = cells.parse_topology(test_cells.numa_topology(count=2))
        pools = cells.parse_pools(test_cells.pci_stats((0, 2), (1, 2)))
        self.parts = dataclasses.replace(self.parts, hosts=Hosts(
            builders.table(
                host=['a', 'b'], nodename=['a', 'b'], numa_topology=topology,
                device_pools=[pools, ()], available={
                    'PCPU': 100, 'VCPU': 100})), plugins=self.plugins())
        self.parts = dataclasses.replace(
            self.parts, unsupported=requirements.RequirementCheck(
                self.parts.plugins.reads))

    def plugins(self, own=frozenset()):
        return enabled_plugins.EnabledPlugins(
            configuration.ProductOptions(CONF).conf, [
                numa_topology_filter.NUMATopologyFilter(),
                pci_passthrough_filter.PciPassthroughFilter()], [], own)

    def pinned(self, vcpus=2, **fields):
        """Return a request for dedicated CPUs in one cell."""
        specs = {'hw:cpu_policy': 'dedicated'}
        flavor = nova_objects.Flavor(
            vcpus=vcpus, memory_mb=512, extra_specs=specs)
        image = nova_objects.ImageMeta(
            properties=nova_objects.ImageMetaProps())
        made = self.spec(
            extra_specs=specs, numa_topology=hardware.numa_get_constraints(
                flavor, image), **fields)
        made.flavor.vcpus = vcpus
        return made

    def place(self, spec, count):
        """Return the hosts of servers of one request."""
        return [first.service_host for first, *_ in RequestDecision(
            self.parts, self.context, spec, self.SERVERS[:count], 0).select()]

    def way(self):
        [*_, (_, _, _, decision)] = self.recorded_calls
        return decision.way.name, decision.way.reasons

    def test_servers_of_a_request_fill_the_cells_of_hosts(self):
        self.assertEqual(
            {'a': 2, 'b': 2}, collections.Counter(
                self.place(self.pinned(), 4)))
        self.assertEqual(('columns', []), self.way())
        # Placement knows no cells, and the hosts have not reported yet.
        self.assertRaises(
            nova_exception.NoValidHost, self.place, self.pinned(), 1)
        self.assertEqual(
            {'PCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 1},
            dict(self.store.claims[0].resources))
        self.assertNotIn(0, self.parts.hosts.asked)

    def test_cells_of_alternates_are_not_compared(self):
        [selections] = RequestDecision(
            self.parts, self.context, self.pinned(), self.SERVERS[:1],
            1).select()

        self.assertEqual(2, len(selections))
        self.assertEqual([1], self.parts.hosts.asked)

    def test_refusal_names_the_missing_part(self):
        with self.assertRaises(nova_exception.NoValidHost):
            self.place(self.pinned(3), 1)

        [(_, _, _, decision)] = self.recorded_calls
        self.assertIn('3 free dedicated CPUs', decision.reason)

    def test_selection_has_the_limits_of_nova(self):
        networks = nova_objects.NetworkMetadata(
            physnets={'red'}, tunneled=False)
        [[chosen]] = self.select(self.pinned(network_metadata=networks))

        limits = chosen.limits.numa_topology
        self.assertIsInstance(limits, nova_objects.NUMATopologyLimits)
        self.assertEqual((4.0, 1.0, {'red'}), (
            limits.cpu_allocation_ratio, limits.ram_allocation_ratio,
            limits.network_metadata.physnets))

    def devices(self, count, **fields):
        return nova_objects.InstancePCIRequests(requests=[
            nova_objects.InstancePCIRequest(
                count=count, spec=[{'vendor_id': '8086'}], alias_name='card',
                request_id=SERVER, numa_policy=None, **fields)])

    def test_servers_take_devices_of_hosts(self):
        spec = self.pinned(pci_requests=self.devices(2))

        self.assertEqual(['a', 'a'], self.place(spec, 2))
        self.assertEqual(('columns', []), self.way())
        self.assertRaises(nova_exception.NoValidHost, self.place, self.spec(
            pci_requests=self.devices(1)), 1)

    def test_dedicated_cpus_may_be_virtual_cpus_of_a_host(self):
        self.parts.hosts.any_without_pcpu = True

        self.assertIn('dedicated CPUs, which some hosts offer as VCPU',
                      self.why(self.pinned()))
        self.assertEqual([], self.why(self.spec()))
        CONF.set_override('disable_fallback_pcpu_query', True, 'workarounds')
        self.addCleanup(CONF.clear_override, 'disable_fallback_pcpu_query',
                        'workarounds')
        self.assertEqual([], self.why(self.pinned()))

    def test_first_host_with_virtual_cpus_only_is_found_by_a_refusal(self):
        hosts = self.parts.hosts
        hosts.may_fit = lambda context, resources: False
        hosts.read_whole = lambda *arguments: setattr(
            hosts, 'any_without_pcpu', True)

        self.assertIn('dedicated CPUs, which some hosts offer as VCPU',
                      self.why(self.pinned()))

    def why(self, spec):
        """Return why a request is not decided on columns."""
        # Nova would read these from its databases first.
        spec.request_level_params = nova_objects.RequestLevelParams(
            root_required={os_traits.OWNER_NOVA})
        with fixtures.MonkeyPatch(
                'nova.scheduler.request_filter.process_reqspec',
                lambda context, spec: None):
            self.assertRaises(
                nova_exception.NoValidHost, self.select, spec)
        return self.way()[1]

    def test_servers_of_a_request_use_pages_of_all_sizes(self):
        # Nova keeps the page size of the first server for the others.
        pages = [nova_objects.NUMAPagesTopology(
            size_kb=size, total=total, used=0, reserved=0)
            for size, total in ((4, 0), (2048, 1024), (1048576, 2))]
        text = json.dumps(nova_objects.NUMATopology(cells=[
            nova_objects.NUMACell(
                id=0, cpuset=set(range(8)), pcpuset=set(), memory=4096,
                cpu_usage=0, memory_usage=0, siblings=[], pinned_cpus=set(),
                mempages=pages, socket=0)]).obj_to_primitive())
        hosts = self.parts.hosts
        hosts.table.put(
            hosts.table['uuid'], {'numa_topology': [
                cells.parse_topology(text), None]})
        specs = {'hw:mem_page_size': 'large'}
        flavor = nova_objects.Flavor(
            vcpus=1, memory_mb=1024, extra_specs=specs)

        def spec():
            return self.spec(
                memory_mb=1024, extra_specs=specs,
                numa_topology=hardware.numa_get_constraints(
                    flavor, nova_objects.ImageMeta(
                        properties=nova_objects.ImageMetaProps())))

        self.assertEqual(['a'] * 4, self.place(spec(), 4))
        self.assertRaises(
            nova_exception.NoValidHost, self.place, spec(), 1)

    def test_own_filters_of_nova_need_candidates(self):
        plugins = self.plugins(frozenset({'NUMATopologyFilter'}))
        self.parts = dataclasses.replace(
            self.parts, plugins=plugins, unsupported=(
                requirements.RequirementCheck(plugins.reads)))

        self.assertIn('numa_topology', ' '.join(self.why(self.pinned())))
        self.assertEqual([], self.why(self.spec(
            pci_requests=self.devices(1))))


class TestFreedCapacity(TestCase):

    def read(self, free_mb):
        """Simulate a read of hosts with this much free memory."""
        hosts = self.parts.hosts
        hosts.table.put(hosts.table.view(0)['uuid'][:1], {
            'free_ram_mb': free_mb, 'available:MEMORY_MB': free_mb})
        hosts.readings += 1

    def test_late_freed_capacity_is_used(self):
        self.parts.hosts.freed = [
            lambda: self.read(1024), lambda: self.read(4096)]

        [[chosen]] = self.select(self.spec(4096))

        self.assertEqual('a', chosen.service_host)

    def test_request_without_freed_capacity_is_refused(self):
        self.parts.hosts.freed = [
            lambda: self.read(1024), lambda: None, lambda: self.read(4096)]

        self.assertRaises(
            nova_exception.NoValidHost, self.select, self.spec(4096))

    def test_search_for_freed_capacity_is_limited(self):
        self.parts.hosts.freed = looks = [
            lambda: self.read(1024) for _ in range(20)]

        self.assertRaises(
            nova_exception.NoValidHost, self.select, self.spec(4096))
        self.assertGreater(len(looks), 10)

    def test_hosts_are_not_read_again_if_placement_is_full(self):
        asked = []
        hosts = self.parts.hosts
        hosts.may_fit = lambda context, resources: (
            asked.append(resources) or False)
        hosts.read_whole = hosts.find_freed = None

        self.assertRaises(
            nova_exception.NoValidHost, self.select, self.spec(4096))
        self.assertEqual([4096], [each['MEMORY_MB'] for each in asked])

    def test_doubtful_claims_are_awaited_before_the_query(self):
        hosts = self.parts.hosts
        pending = reserve(hosts.table, 0, 1)
        watch, order = hosts.table.watch, []

        def end(allocations, make):
            watch(allocations, make)
            order.append('awaited')
            hosts.table.rollback(pending)

        hosts.table.watch = end
        hosts.may_fit = lambda context, resources: (
            order.append('asked') or False)

        self.assertRaises(
            nova_exception.NoValidHost, self.select, self.spec(4096))
        self.assertEqual(['awaited', 'asked'], order)


class TestPendingSelection(TestCase):

    def test_claimed_selection_counts_as_claimed(self):
        self.select(self.spec())

        self.assertEqual([True], self.parts.hosts.confirmed)
        self.assertEqual(1, len(self.store.claims))

    def test_selection_without_instances_counts_as_not_claimed(self):
        RequestDecision(
            self.parts, self.context, self.spec(num_instances=1), None, 0
        ).select()

        self.assertEqual([False], self.parts.hosts.confirmed)
        self.assertEqual([], self.store.claims)


class TestPendingClaims(TestCase):
    """Requests during the claim of another one; only host b has room."""

    SERVER = '20000000-0000-4000-8000-000000000002'

    def during(self, claim, servers=1, memory_mb=1500):
        """Select for a request, in whose claim others are made.

        :param claim: called in the first claim
        :returns: the nodes of the claims
        """
        before = self.store.claim

        def claim_once(claims, is_new):
            self.store.claim = before
            claim()
            return before(claims)

        self.store.claim = claim_once
        RequestDecision(self.parts, self.context, self.spec(
            memory_mb, num_instances=servers), [SERVER, self.SERVER][:servers],
            0).select()
        return [each.provider for each in self.store.claims]

    def other(self, memory_mb=1500):
        return RequestDecision(
            self.parts, self.context, self.spec(memory_mb),
            ['30000000-0000-4000-8000-000000000003'], 0).select()

    def test_selected_host_counts_as_taken(self):
        [b, a] = [self.parts.hosts.table['uuid'][row] for row in (1, 0)]

        self.assertEqual(
            [a, b], self.during(lambda: self.other(800), memory_mb=1500))

    def test_all_claims_of_a_request_are_pending(self):
        pending = []

        self.during(lambda: pending.extend(
            self.parts.hosts.table.pending()), 2, 900)

        self.assertEqual(2, len(pending))

    def test_unfinished_claim_causes_no_refusal(self):
        self.addCleanup(setattr, lane, 'PENDING_S', lane.PENDING_S)
        lane.PENDING_S = 0

        # Placement decides which of the two claims it accepts.
        self.during(self.other)

        self.assertEqual(2, len(self.store.claims))

    def test_refused_claim_frees_its_host(self):
        def refuse():
            raise refusal(self.parts.hosts.table['uuid'][1])

        self.assertRaises(
            nova_exception.NoValidHost, self.during, refuse)
        self.assertEqual([], self.parts.hosts.table.pending())

    def test_hosts_are_read_before_the_next_claim(self):
        [b, a] = [self.parts.hosts.table['uuid'][row] for row in (1, 0)]
        claim, refused = self.store.claim, []

        def refuse(claims, is_new):
            self.store.claim = claim
            refused.append(claims)
            raise refusal(b)

        # Another scheduler has filled b.
        self.store.claim = refuse
        self.parts.hosts.note_full = lambda refusals: None
        self.parts.hosts.refresh = lambda *args: self.parts.hosts.table.put(
            [b], {'free_ram_mb': 0})
        RequestDecision(self.parts, self.context, self.spec(
            500, num_instances=2), [SERVER, self.SERVER], 0).select()

        self.assertEqual(1, len(refused))
        self.assertEqual([a, a], [
            each.provider for each in self.store.claims])

    def test_error_of_a_release_frees_its_host(self):
        self.store.error = exception.DatabaseUnreachable(
            schema='claims', url='', reason='')

        def fail(claims, added=()):
            raise RuntimeError

        self.parts.claims.deferred.add = fail

        self.assertRaises(RuntimeError, self.other)
        self.assertEqual([], self.parts.hosts.table.pending())

    def test_error_of_a_claim_frees_its_host(self):
        def fail():
            raise exception.DatabaseUnreachable(
                schema='claims', url='', reason='')

        self.assertRaises(nova_exception.NoValidHost, self.during, fail)
        self.assertEqual([], self.parts.hosts.table.pending())

    def test_claim_refused_after_the_selection_causes_no_refusal(self):
        hosts = self.parts.hosts
        reserved = reserve(hosts.table, 1, 1500)
        # It is called after the selection.
        hosts.read_whole = lambda *args: hosts.table.rollback(reserved)

        self.other()

        self.assertEqual(1, len(self.store.claims))

    def test_claim_begun_after_the_wait_causes_no_refusal(
        self
    ):
        known = self.parts.hosts.table
        watch = known.watch

        def end_and_begin(allocations, make_watcher):
            watch(allocations, make_watcher)
            known.rollback(reserved)
            reserved[:] = reserve(known, 1, 1500)

        reserved = reserve(known, 1, 1500)
        known.watch = end_and_begin

        self.other()

        self.assertEqual(1, len(self.store.claims))

    def test_request_waits_for_a_failing_claim(self):
        found = []

        def fail():
            waiting = threading.Thread(target=lambda: found.append(
                self.other()))
            watched = threading.Event()
            self.parts.hosts.table.watch = lambda allocations, make: (
                watch(allocations, make), watched.set())
            waiting.start()
            self.addCleanup(waiting.join)
            watched.wait(60)
            raise exception.DatabaseUnreachable(
                schema='claims', url='', reason='')

        watch = self.parts.hosts.table.watch
        self.assertRaises(
            nova_exception.NoValidHost, self.during, fail)
        self.doCleanups()
        self.assertEqual(1, len(found))


class TestLane(TestCase):
    """Requests while the decision on another one takes long."""

    def setUp(self):
        super().setUp()
        self.addCleanup(setattr, lane, 'WAIT_S', lane.WAIT_S)
        lane.WAIT_S = 0.01
        entered, self.ending = threading.Event(), threading.Event()
        slow = RequestDecision(
            self.parts, self.context, self.spec(), [SERVER], 0)

        def wait():
            entered.set()
            self.ending.wait(60)
            return False

        slow.advance = wait
        self.thread = threading.Thread(
            target=lambda: self.parts.lane.take(slow))
        self.parts = dataclasses.replace(self.parts, lane=Lane(
            lambda request: request.advance(), lambda requests: None,
            RequestDecision.undo))
        self.thread.start()
        self.addCleanup(self.thread.join)
        self.addCleanup(self.ending.set)
        entered.wait(60)

    def test_busy_request_is_refused_without_a_reservation(self):
        with self.assertRaises(nova_exception.NoValidHost) as caught:
            self.select(self.spec())

        self.assertIsInstance(
            caught.exception.__cause__, exception.ServiceBusy)
        self.assertEqual([], self.parts.hosts.table.pending())
        self.assertEqual([], self.store.claims)

    def test_request_with_host_states_does_not_wait(self):
        self.parts.plugins.reads_states = lambda spec, aggregates: True

        [[chosen]] = self.select(self.spec())

        self.assertEqual('b', chosen.service_host)


class TestThreads(TestCase):
    """Requests of many threads for hosts with one place each."""

    def test_each_place_is_selected_once(self):
        names = [f'h{number}' for number in range(12)]
        self.parts = dataclasses.replace(self.parts, hosts=Hosts(
            builders.table(
                host=names, nodename=names, free_ram_mb=[512] * 12)))
        found = []

        def select():
            try:
                [[first]] = RequestDecision(
                    self.parts, self.context, self.spec(512),
                    [uuidutils.generate_uuid()], 0).select()
                found.append(first.service_host)
            except nova_exception.NoValidHost:
                found.append('')

        threads = [threading.Thread(target=select) for _ in range(16)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)

        self.assertEqual(sorted([*[''] * 4, *names]), sorted(found))
        table = self.parts.hosts.table
        self.assertEqual([], table.pending())
        self.assertEqual([0] * 12, [*table['free_ram_mb']])


class TestCandidates(TestCase):
    """Servers with a device that each host has once."""

    def setUp(self):
        super().setUp()
        # Nova's request filters would read its databases.
        filters = fixtures.MonkeyPatch(
            'nova.scheduler.request_filter.process_reqspec',
            lambda context, spec: None)
        filters.setUp()
        self.addCleanup(filters.cleanUp)
        self.nodes = [*self.parts.hosts.table['uuid']]
        children = {node: uuidutils.generate_uuid() for node in self.nodes}
        self.free = {child: 1 for child in children.values()}
        self.parts.client.get = lambda path, **named: types.SimpleNamespace(
            status_code=200, json=lambda: {
                'allocation_requests': [{'allocations': {
                    node: {'resources': {'MEMORY_MB': 64}},
                    child: {'resources': {'VGPU': 1}}},
                    'mappings': {'': [node], '1': [child]}}
                    for node, child in children.items()]})
        self.parts.plugins.on_candidates = (
            lambda spec, states, more=(): pipeline.Pipeline(
                [], [builders.plugin(resources.RAMWeigher)], more,
                lambda hosts, request: ()))
        self.store.claim = self.claim

    def claim(self, claims, is_new=False):
        taken = collections.Counter(
            each.provider for each in claims if each.provider in self.free)
        for child, number in taken.items():
            if number > self.free[child]:
                raise exception.ClaimRefused(
                    consumer=SERVER, provider=child, resource='VGPU',
                    amount=1)
        self.store.claims += claims
        for child, number in taken.items():
            self.free[child] -= number
        return len(claims)

    def select(self, count):
        spec = self.grouped()
        spec.flavor.memory_mb, spec.requested_resources = 64, []
        found = RequestDecision(
            self.parts, self.context, spec,
            [uuidutils.generate_uuid() for _ in range(count)], 0).select()
        return sorted(first.service_host for [first] in found)

    def test_servers_spread_after_a_refusal(self):
        self.parts.hosts.table.put(
            [self.nodes[1]], {'free_ram_mb': 1024 * 1024})

        self.assertEqual(['a', 'b'], self.select(2))

    def test_more_servers_than_devices_are_refused(self):
        self.assertRaises(nova_exception.NoValidHost, self.select, 3)
        self.assertEqual([], self.parts.hosts.table.pending())


class TestChangedHosts(TestCase):

    def select(self, count=1):
        uuids = [uuidutils.generate_uuid() for _ in range(count)]
        return RequestDecision(
            self.parts, self.context, self.spec(64, num_instances=count),
            uuids, 1
        ).select()

    def disable(self, *names):
        """Disable hosts that the table still has as enabled."""
        hosts, disabled = self.parts.hosts, set(names)
        uuids = dict(zip(hosts.table['host'], hosts.table['uuid']))

        def find_changed(context, view, rows, *facts):
            return {row for row in rows if view['host'][row] in disabled}

        def refresh(context, since=None, timeout_s=None, whole=False):
            hosts.table.put([uuids[name] for name in disabled],
                            {'free_ram_mb': 0})
            disabled.clear()
            return True

        hosts.find_changed, hosts.refresh = find_changed, refresh

    def test_changed_host_is_not_selected(self):
        for count in 1, 2:
            self.disable('b')

            for first, *_ in self.select(count):
                self.assertEqual('a', first.service_host)

    def test_changed_alternate_is_excluded(self):
        self.disable('a')

        [[selection]] = self.select()

        self.assertEqual('b', selection.service_host)


class TestClaimTimeout(TestCase):

    def test_request_with_claims_waits_for_the_claim_timeout(self):
        waited = []
        self.parts.hosts.unread_reason = 'it is away'
        self.parts.hosts.read_whole = (
            lambda context, since, remaining_s: waited.append(remaining_s))
        CONF.set_override('claim_timeout', 50.0, 'cellsched')
        self.addCleanup(CONF.clear_override, 'claim_timeout',
                        'cellsched')

        for claim in True, False:
            self.assertRaises(
                nova_exception.NoValidHost, RequestDecision(
                    self.parts, self.context, self.spec(4096),
                    [SERVER], 0, claim).select)

        claiming, planned = waited
        self.assertEqual((True, 0.0), (0.0 < claiming <= 50.0, planned))
