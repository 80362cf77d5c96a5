# SPDX-License-Identifier: Apache-2.0
"""Decisions that are kept, whatever becomes of the request."""

from cellsched import context
from cellsched import exception
from tests.unit.db import samples
from tests.unit.scheduler import schedulers
from tests.unit.scheduler import toys

REBUILD = {'_nova_check_type': 'rebuild'}


class TestRecords(schedulers.PlacingTestCase):

    def setUp(self):
        super().setUp()
        self.image = toys.Filter(None, rebuild=True)
        self.image.reason = 'is for other images'
        self.restart(filters=[self.image], first=schedulers.destinations())
        self.refresh()
        self.uuids = samples.uuids(2)

    def ask(self, uuids=None, error=None, **wishes):
        """Place a request; return what was kept of it."""
        asked = (context.RequestContext(), schedulers.request(**wishes),
                 uuids or self.uuids, 0)
        if error is None:
            self.placer.place(*asked)
        else:
            self.assertRaises(error, self.placer.place, *asked)
        [by] = self.world.contexts
        [(request, kept, decision)] = self.world.records
        self.world.contexts.clear()
        self.world.records.clear()
        self.assertIs(asked[0], by)
        self.assertIs(asked[1].flavor, request.flavor)
        self.assertEqual(asked[2], kept)
        return decision

    def test_placed_request_is_recorded(self):
        decision = self.ask()

        self.assertEqual(5, decision.hosts)
        self.assertEqual(
            [(self.uuids[0], 5, 'a1'), (self.uuids[1], 4, 'a2')],
            [(each.instance, each.candidates, each.first.host)
             for each in decision.picks])
        self.assertEqual((None, (), {}), (
            decision.reason, decision.rejections, decision.examples))

    def test_refused_request_is_recorded(self):
        decision = self.ask(error=exception.NoValidHost, vcpus=5)

        self.assertEqual(
            'There are not enough hosts available: of 5 hosts 5 are too '
            'small in CPUs (by 1 VCPU).', decision.reason)
        [rejection] = decision.rejections
        self.assertEqual(('size:VCPU', 5), (
            rejection['by'], rejection['hosts']))
        [(by, examples)] = decision.examples.items()
        self.assertEqual(('size:VCPU', [*self.hosts]), (by, sorted(examples)))

    def test_request_refused_by_the_store_is_recorded(self):
        self.world.claims.refuses = [*self.world.providers.values()]

        decision = self.ask(self.uuids[:1], exception.NoValidHost)

        self.assertEqual(
            'There are not enough hosts available: of 5 hosts 5 lost their '
            'room to another request.', decision.reason)
        self.assertEqual([('claims', 5)], [
            (each['by'], each['hosts']) for each in decision.rejections])
        self.assertEqual(
            ['a1', 'a2', 'a3', 'b1', 'b2'],
            sorted(decision.examples['claims']))

    def test_request_failed_by_a_plugin_is_recorded(self):
        self.image.answer = toys.fail

        decision = self.ask(error=exception.PluginFailed)

        self.assertEqual(('Filter Filter failed.', 5, (), ()), (
            decision.reason, decision.hosts, decision.stages,
            decision.picks))

    def test_request_with_an_unread_demand_is_recorded(self):
        decision = self.ask(
            error=exception.NoValidHost, image={'hw_numa_nodes': 2})

        self.assertEqual(
            'No enabled stage reads what is asked for: image property '
            'hw_numa_nodes (a NUMA topology).', decision.reason)
        self.assertEqual((5, (), ()), (
            decision.hosts, decision.stages, decision.picks))

    def test_rebuild_is_recorded(self):
        [uuid] = uuids = self.uuids[:1]
        self.ask(uuids)
        rebuild = {'hints': REBUILD, 'force_hosts': ['a1'],
                   'instance_uuid': uuid}

        decision = self.ask(uuids, **rebuild)
        self.assertEqual((None, 1), (decision.reason, decision.hosts))

        self.image.answer = [False] * 5
        self.assertIn('is for other images', self.ask(
            uuids, exception.NoValidHost, **rebuild).reason)

    def test_slow_plugin_of_a_plan_is_logged(self):
        def late(hosts):
            self.world.clock.advance(2)

        self.restart(filters=[toys.Filter(late)], slow_plugin_s=1)

        self.plan()

        self.assertIn('Filter Filter took 2.0 seconds', self.logs.output)
