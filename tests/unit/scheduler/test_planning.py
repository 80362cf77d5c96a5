# SPDX-License-Identifier: Apache-2.0
"""Plans take nothing, and are what a decision would have been."""

import json
import random

import sqlalchemy as sa

from cellsched.conf import loader
from cellsched.db.api import models
from cellsched import exception
from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware import host
from cellsched.hardware import units
from cellsched.hosts import document
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import planning
from cellsched.scheduler.selection import selector
from cellsched.testing import builders
from tests.unit import base
from tests.unit.db import samples
from tests.unit.filters import cells
from tests.unit.hosts import world as hosts
from tests.unit.scheduler.drivers import world
from tests.unit.scheduler import toys


class PlanTestCase(world.DriverTestCase):

    name = 'filter_scheduler'

    def setUp(self):
        super().setUp()
        self.world.add_host('cell1', 'a', vcpus=4)
        self.world.add_host('cell2', 'b', vcpus=8)
        self.scheduler = self.driver()

    def plan(self, planner=None, count=1, **wishes):
        """Return the hosts that are planned, and the decision."""
        places, decision = (planner or self.scheduler).plan(
            hosts.CONTEXT, builders.request(**wishes), samples.uuids(count),
            1)
        return [[each.service_host for each in place]
                for place in places], decision

    def kept(self):
        self.scheduler.parts.decisions.flush()
        with self.world.database.reader() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(
                models.scheduler_decisions))

    def table(self):
        return {name: column for name, column in document.dump(
            self.scheduler.loader.snapshot(hosts.CONTEXT))['columns'].items()}


class TestPlan(PlanTestCase):

    def test_plan_claims_and_records_no_decision(self):
        self.scheduler.loader.follow(hosts.CONTEXT)
        before = self.table()

        for count, vcpus in ((2, 2), (5, 4), (1, 9)):
            self.plan(count=count, vcpus=vcpus)

        self.assertEqual(before, self.table())
        self.assertEqual([{}, {}], [
            {name: used for name, used in usage.used.items() if used}
            for usage in self.world.claims.usages().usages])
        self.assertEqual(0, self.kept())

    def test_decision_is_recorded_with_and_without_a_host(self):
        self.select(self.scheduler, 2)
        self.assertRaises(exception.NoValidHost, self.select,
                          self.scheduler, vcpus=9)

        self.assertEqual(2, self.kept())

    def test_refusal_names_hosts_to_operators_alone(self):
        planned, decision = self.plan(vcpus=9)
        error = self.assertRaises(
            exception.NoValidHost, self.select, self.scheduler, vcpus=9)

        self.assertEqual([], planned)
        self.assertEqual({'size:VCPU': ['a', 'b']}, {
            name: sorted(names) for name, names in decision.examples.items()})
        self.assertEqual(decision.reason, error.reason)
        self.assertEqual([('size:VCPU', 2, 0)], [
            (each.by, each.entered, each.left) for each in decision.stages
            if each.by == 'size:VCPU'])
        for name in ("'a'", "'b'"):
            self.assertNotIn(name, repr(error.rejections))

    def test_at_most_ten_hosts_are_named(self):
        for number in range(20):
            self.world.add_host('cell1', f'c{number}', vcpus=1)

        _, decision = self.plan(vcpus=9)

        self.assertEqual(10, len(decision.examples['size:VCPU']))


class TestHardwareCapacity(base.TestCase):
    """The capacity is the number of servers of repeated decisions."""

    def setUp(self):
        super().setUp()
        path = self.temporary_directory() / 'conf'
        path.write_text(
            '[filter_scheduler]\nenabled_filters = NUMATopologyFilter, '
            'PciPassthroughFilter\n')
        self.conf = loader.load(files=[str(path)], dirs=[])

    @staticmethod
    def topology(*free, threads=1):
        """Return a host whose cells have these free ones of 8 CPUs each."""
        found = []
        for number, count in enumerate(free):
            cpus = range(8 * number, 8 * number + 8)
            found.append(host.HostCell(
                number, frozenset(), frozenset(cpus), 8192,
                pinned=frozenset(cpus[count:]), siblings=tuple(
                    frozenset(cpus[first:first + threads])
                    for first in range(0, 8, threads))))
        return host.HostTopology(tuple(found))

    #: Whether claims have the use of the hosts, and not their reports.
    claims = True

    def hosts(self):
        """Return hosts of several shapes, some of them half full."""
        topologies = [self.topology(8, 8, threads=2), self.topology(8, 7),
                      self.topology(8), None]
        pools = devices.pools([
            cells.pool(1, 0, dev_type='type-VF'), cells.pool(1, 1)])
        if not self.claims:
            return document.HostDocument(builders.table(
                cell=['1', '1', '2', '2'], numa_topology=topologies,
                device_pools=[pools] * 4, available={
                    'PCPU': [16, 15, 8, 8]}), builders.NOW)
        totals = [units.inventory(each and each.unused, pools, fit.Ratios())
                  for each in topologies]
        for each, total in zip(topologies, totals):
            for cell in each.cells if each else ():
                total |= dict.fromkeys(map(units.cpu, cell.pinned), 0)
        totals[1][units.device(pools[0])] = 3
        return document.HostDocument(builders.table(
            cell=['1', '1', '2', '2'],
            numa_topology=[each and each.unused for each in topologies],
            device_pools=[pools] * 4, claims_hardware=True, available={
                'PCPU': [16, 15, 8, 8], **{
                    name: [total.get(name, 0) for total in totals]
                    for name in set().union(*totals)}}), builders.NOW)

    def capacity(self, request):
        return planning.capacity(self.conf, self.hosts(), request)

    def decided(self, request):
        """Return how many servers single decisions place on a snapshot."""
        found = filter_scheduler.pipeline_of(self.conf)
        hosts_ = self.hosts().table.view(builders.NOW)
        chosen = selector.Selector(
            found, selector.SelectionPolicy(random.Random(0)), hosts_,
            request)
        return next(number for number in range(99) if not chosen.choose(
            samples.uuids(1)[0], None, last=False))

    def requests(self):
        for specs in (
                {'hw:cpu_policy': 'dedicated'},
                {'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '2'},
                {'hw:cpu_policy': 'dedicated',
                 'hw:cpu_thread_policy': 'isolate'}):
            for vcpus in 2, 4, 6:
                for count in 0, 1:
                    yield builders.request(
                        vcpus=vcpus, memory_mb=64, root_gb=0,
                        extra_specs=specs, pci_requests=cells.requested(
                            *[1] * count, affinity='required'))

    def test_capacity_equals_repeated_decisions(self):
        counts = set()
        for request in self.requests():
            with self.subTest(request.flavor.extra_specs,
                              vcpus=request.flavor.vcpus):
                found = self.capacity(request)
                counts.add(found.servers)
                self.assertEqual(self.decided(request), found.servers)
                self.assertEqual(found.servers, sum(
                    each.servers for each in found.cells))
        self.assertLess(4, len(counts))

    def test_limit_names_the_resource_of_full_hosts(self):
        dedicated = {'hw:cpu_policy': 'dedicated'}
        for fields, limits in (
                ({'vcpus': 8, 'memory_mb': 64}, [
                    'lack dedicated CPUs', 'lack dedicated CPUs']),
                ({'vcpus': 5, 'memory_mb': 64}, [
                    'have 5 free dedicated CPUs, but on 2 NUMA cells',
                    'lack dedicated CPUs']),
                ({'vcpus': 1, 'memory_mb': 64,
                  'pci_requests': cells.requested(1)}, [
                    'lack 1 PCI device of alias gpu',
                    'lack room in NUMA cells near 1 PCI device of alias '
                    'gpu'])):
            found = self.capacity(builders.request(
                root_gb=0, extra_specs=dedicated, **fields))

            self.assertEqual(limits, [each.limit for each in found.cells])


class TestReportedCapacity(TestHardwareCapacity):
    """The hosts report their use, and no claims name its parts."""

    claims = False


class TestSnapshotPlan(PlanTestCase):

    def on_snapshot(self):
        taken = self.scheduler.loader.snapshot(hosts.CONTEXT)
        again = document.load(document.parse(
            json.dumps(document.dump(taken))))
        return planning.on_snapshot(
            self.scheduler.conf, again, random.Random(0))

    def test_plan_on_a_snapshot_equals_the_live_plan(self):
        self.select(self.scheduler, vcpus=3)

        for wishes in ({}, {'count': 4, 'vcpus': 2}, {'vcpus': 9},
                       {'ignore_hosts': ['b']}):
            live, how = self.plan(**wishes)
            then, why = self.plan(self.on_snapshot(), **wishes)

            self.assertEqual(live, then)
            self.assertEqual(
                (how.stages, how.reason, how.rejections, how.examples),
                (why.stages, why.reason, why.rejections, why.examples))

    def test_other_pipeline_can_be_planned(self):
        taken = self.scheduler.loader.snapshot(hosts.CONTEXT)
        rejecting = pipeline.Pipeline([toys.Filter(
            lambda hosts: hosts['host'] == 'a')], [])

        planner = planning.on_snapshot(
            self.scheduler.conf, taken, random.Random(0), rejecting)
        room = planning.capacity(
            self.scheduler.conf, taken, builders.request(), rejecting)

        self.assertEqual([['a']], self.plan(planner)[0])
        self.assertEqual([0, 1], sorted(
            each.passing for each in room.cells))
        self.assertIn(f'1 {toys.Filter.reason}', room.reason)

    def test_time_of_the_plan_is_the_time_of_the_snapshot(self):
        planner = self.on_snapshot()
        self.world.clock.advance(10 ** 6)

        self.assertEqual([['b']], self.plan(planner)[0])
        self.assertEqual([], self.plan()[0])

    def test_plan_on_a_snapshot_chooses_at_random_from_the_best(self):
        self.scheduler.conf.set_override(
            'host_subset_size', 2, 'filter_scheduler')
        planner = self.on_snapshot()

        self.assertEqual({'a', 'b'}, {
            self.plan(planner)[0][0][0] for _ in range(20)})

    def test_unread_demand_is_handled_like_in_requests(self):
        asked = {'image': {'hw_numa_nodes': 2}}
        for setting, expected in (('refuse', []), ('ignore', [['b']])):
            self.scheduler.conf.set_override(
                'unmet_demands', setting, 'scheduler')

            planned, _ = self.plan(self.on_snapshot(), **asked)

            self.assertEqual(expected, planned, setting)

    def test_slow_plugin_is_logged(self):
        for seconds, named in (100.0, 0), (0.0, 1):
            self.scheduler.conf.set_override(
                'slow_plugin_seconds', seconds, 'scheduler')

            self.plan(self.on_snapshot())

            self.assertEqual(named, self.logs.output.count(
                'Filter ComputeFilter took 0.0 seconds'))

    def test_silent_cells_are_in_the_rejections(self):
        taken = self.scheduler.loader.snapshot(hosts.CONTEXT)
        taken.silent = ['south']

        _, decision = self.plan(planning.on_snapshot(
            self.scheduler.conf, taken, random.Random(0)), vcpus=9)

        self.assertEqual(['south'], decision.rejections[-1]['cells'])
