# SPDX-License-Identifier: Apache-2.0
"""What Nova has Placement sort out before its filters run."""

from oslo_config import cfg

from cellsched.conf import scheduler
from cellsched.scheduler import pipeline
from cellsched.scheduler import prefilters
from cellsched.testing import builders
from tests.unit import base
from tests.unit import strategies


def aggregate(number, metadata):
    return builders.aggregate(number, **metadata)


class PrefilterTestCase(base.TestCase):

    def kept(self, hosts, request=None, **options):
        """Return the rows that are left, and by what others were rejected."""
        conf = cfg.ConfigOpts()
        scheduler.register_opts(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        for name, value in options.items():
            conf.set_override(name, value, group='scheduler')
        stages = prefilters.stages(conf.scheduler)
        request = request or builders.request()
        for stage in stages:
            # Verdicts are the same however many hosts are seen.
            self.assertEqual(
                strategies.kept_by_columns(stage, hosts, request),
                strategies.kept_of_some(stage, hosts, request))
        found = pipeline.Pipeline([], [], stages).candidates(hosts, request)
        return found.rows.tolist(), [
            each.by for each in found.rejections(request)]


class TestAlways(PrefilterTestCase):

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


class TestTenantAggregate(PrefilterTestCase):

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


class TestIsolatedAggregate(PrefilterTestCase):

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


class TestTraits(PrefilterTestCase):

    hosts_ = property(lambda self: builders.hosts(traits=[
        frozenset({'GPU', 'SSD'}), frozenset({'GPU'}),
        frozenset({'COMPUTE_IMAGE_TYPE_QCOW2'}), frozenset()]))

    def left(self, on=False, image=None, **extra_specs):
        rows, by = self.kept(
            self.hosts_, builders.request(extra_specs={
                f'trait:{name}': value
                for name, value in extra_specs.items()}, image=image),
            query_placement_for_image_type_support=on)
        self.assertEqual(['Traits'] * (len(rows) < 4), by)
        return rows

    def test_host_has_all_required_traits(self):
        for wanted, left in (({}, [0, 1, 2, 3]), ({'GPU': 'required'}, [0, 1]),
                             ({'GPU': 'required', 'SSD': 'required'}, [0]),
                             ({'CUSTOM_X': 'required'}, [])):
            self.assertEqual(left, self.left(**wanted))

    def test_host_has_no_forbidden_trait(self):
        self.assertEqual([1, 2, 3], self.left(SSD='forbidden'))
        self.assertEqual([1], self.left(GPU='required', SSD='forbidden'))

    def test_other_values_mean_nothing(self):
        self.assertEqual([0, 1, 2, 3], self.left(GPU='preferred', SSD=''))

    def test_image_may_require_traits(self):
        self.assertEqual([0], self.left(
            image={'traits_required': ['SSD']}, GPU='required'))

    def test_format_of_the_disk_is_a_trait_where_that_is_switched_on(self):
        image = {'disk_format': 'qcow2', 'properties': {}}

        self.assertEqual([0, 1, 2, 3], self.left(image=image))
        self.assertEqual([2], self.left(True, image=image))
        self.assertEqual([], self.left(
            True, image={'disk_format': 'raw', 'properties': {}}))
        self.assertEqual([0, 1, 2, 3], self.left(
            True, image={'disk_format': None, 'properties': {}}))
        self.assertEqual([0, 1, 2, 3], self.left(True))
