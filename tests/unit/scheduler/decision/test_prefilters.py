# SPDX-License-Identifier: Apache-2.0
"""What Nova has Placement sort out before its filters run."""

from cellsched.testing import builders
from tests.unit.scheduler import prefiltering


def aggregate(number, metadata):
    return builders.aggregate(number, **metadata)


class TestAlways(prefiltering.PrefilterTestCase):

    def test_disabled_host_is_out(self):
        hosts = builders.hosts(service_disabled=[True, False])

        self.assertEqual(([1], ['DisabledCompute']), self.kept(hosts))
        self.assertEqual(([1], ['DisabledCompute']), self.kept(
            hosts, builders.request(force_hosts=['host1', 'host2'])))

    def test_zone_is_that_of_the_request(self):
        hosts = builders.hosts(availability_zone=['east', 'west', 'east'])

        for zone, left in (('east', [0, 2]), ('north', [])):
            self.assertEqual(
                (left, ['AvailabilityZoneFilter']), self.kept(
                    hosts, builders.request(availability_zone=zone)))
        for zone in (None, ''):
            self.assertEqual(([0, 1, 2], []), self.kept(
                hosts, builders.request(availability_zone=zone)))

    def test_forced_request_stays_in_its_zone(self):
        self.assertEqual(([], ['AvailabilityZoneFilter']), self.kept(
            builders.hosts(), builders.request(
                availability_zone='north', force_hosts=['host1'])))


class TestTenantAggregate(prefiltering.PrefilterTestCase):

    limit = {'limit_tenants_to_placement_aggregate': True}
    required = {'placement_aggregate_required_for_tenants': True, **limit}
    hosts_ = property(lambda self: builders.hosts(aggregates=[
        (aggregate(1, {'filter_tenant_id': 'mine'}),),
        (aggregate(2, {'filter_tenant_id3': 'mine', 'x': 'y'}),),
        (aggregate(3, {'filter_tenant_id': 'yours', 'x': 'mine'}),), ()]))

    def test_project_keeps_to_its_aggregates(self):
        for project, left in ('mine', [0, 1]), ('yours', [2]):
            self.assertEqual((left, ['TenantAggregate']), self.kept(
                self.hosts_, builders.request(project_id=project),
                **self.limit))

    def test_project_without_one_may_use_all_or_none(self):
        request = builders.request(project_id='other')

        self.assertEqual(([0, 1, 2, 3], []), self.kept(
            self.hosts_, request, **self.limit))
        self.assertEqual(([], ['TenantAggregate']), self.kept(
            self.hosts_, request, **self.required))
        self.assertEqual(([], ['TenantAggregate']), self.kept(
            self.hosts_, builders.request(project_id=None), **self.required))

    def test_it_is_off_unless_it_is_switched_on(self):
        self.assertEqual(([0, 1, 2, 3], []), self.kept(
            self.hosts_, builders.request(project_id='mine'),
            placement_aggregate_required_for_tenants=True))

    def test_name_that_only_contains_the_project_is_another(self):
        self.assertEqual(([0, 1, 2, 3], []), self.kept(
            self.hosts_, builders.request(project_id='min'), **self.limit))


class TestIsolatedAggregate(prefiltering.PrefilterTestCase):

    hosts_ = property(lambda self: builders.hosts(aggregates=[
        (aggregate(1, {'trait:GPU': 'required'}),),
        (aggregate(2, {'trait:GPU': 'required', 'trait:SSD': 'required'}),),
        (aggregate(3, {'trait:GPU': 'forbidden', 'GPU': 'required'}),), ()],
        traits=frozenset({'GPU', 'SSD'})))

    def left(self, extra_specs=None, image=None, on=True):
        rows, by = self.kept(
            self.hosts_, builders.request(
                extra_specs=extra_specs or {}, image=image),
            enable_isolated_aggregate_filtering=on)
        self.assertEqual(['IsolatedAggregate'] * (len(rows) < 4), by)
        return rows

    def test_hosts_are_kept_for_who_needs_all_their_traits(self):
        both = {'trait:GPU': 'required', 'trait:SSD': 'required'}

        self.assertEqual([2, 3], self.left())
        self.assertEqual([0, 2, 3], self.left({'trait:GPU': 'required'}))
        self.assertEqual([2, 3], self.left({'trait:SSD': 'required'}))
        self.assertEqual([0, 1, 2, 3], self.left(both))

    def test_image_may_need_them_too(self):
        self.assertEqual([0, 1, 2, 3], self.left(
            {'trait:GPU': 'required'}, {'traits_required': ['SSD']}))

    def test_it_is_off_unless_it_is_switched_on(self):
        self.assertEqual([0, 1, 2, 3], self.left(on=False))
