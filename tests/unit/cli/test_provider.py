# SPDX-License-Identifier: Apache-2.0

import os_resource_classes
import os_traits
import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.db.api import models
from cellsched.standalone import deployment
from tests.unit.cli import test_server
from tests.unit.db import samples


class ProviderTestCase(test_server.ServerTestCase):
    """A test with hosts of which one has children, and an aggregate."""

    hosts = [deployment.DeployedHost('host1', vcpus=4),
             deployment.DeployedHost('host2', vcpus=4, providers={
                 'gpu0': {'inventories': {'VGPU': 2},
                          'traits': ['CUSTOM_GPU']}})]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # A scheduler does so too, some time.
        cls.cloud.api.parts.discovery.discover()
        cls.cloud.api.aggregates.create(test_server.ADMIN, 'rack1')

    def setUp(self):
        super().setUp()
        self.addCleanup(self.delete_pools)

    def delete_pools(self):
        providers = self.cloud.api.providers
        for each in providers.list(test_server.ADMIN, 'sharing').providers:
            providers.delete(test_server.ADMIN, each.uuid)

    def provider(self, *argv):
        return self.shell('provider', *argv)

    def run_json(self, *argv):
        ran = self.provider(*argv, '-f', 'json')
        self.assertEqual((0, ''), (ran.code, ran.err))
        return ran.data

    def create_pool(self, name='pool1', *argv):
        return self.run_json('create', name, '--aggregate', 'rack1',
                             '--resource', 'DISK_GB=1000', *argv)

    def claim(self, provider, **amounts):
        [consumer] = samples.uuids(1)
        store = self.cloud.api.parts.claims
        store.claim([claims.Claim(consumer, provider, amounts)])
        self.addCleanup(store.release, [consumer])

    def take_down_cell(self):
        table = models.cell_mappings

        def point_to(url):
            with self.cloud.api.parts.database.writer() as connection:
                before = connection.execute(sa.select(
                    table.c.database_connection).where(
                    table.c.name == 'cell1')).scalar_one()
                connection.execute(sa.update(table).where(
                    table.c.name == 'cell1').values(database_connection=url))
            return before

        self.addCleanup(point_to, point_to('sqlite:////nowhere/c.sqlite'))


class TestProvider(ProviderTestCase):

    def test_providers_of_all_kinds_are_listed(self):
        made = self.create_pool('pool1', '--trait', 'CUSTOM_SSD')
        self.claim(made['uuid'], DISK_GB=30)

        host1, host2, gpu, pool = self.run_json('list')

        self.assertEqual(
            {'Name': 'pool1', 'UUID': made['uuid'], 'Kind': 'sharing',
             'Parent': '', 'Root': made['uuid'], 'Cell': '',
             'Aggregate': 'rack1', 'Traits': ['CUSTOM_SSD'],
             'Over Capacity': [], 'Inventories': {
                 'DISK_GB': {
                     'total': 1000, 'reserved': 0, 'allocation_ratio': 1.0,
                     'min_unit': 1, 'max_unit': 2147483647, 'step_size': 1,
                     'capacity': 1000, 'used': 30}}}, pool)
        self.assertEqual(
            ('host1', 'root', '', host1['UUID'], 'cell1', ''),
            tuple(host1[name] for name in (
                'Name', 'Kind', 'Parent', 'Root', 'Cell', 'Aggregate')))
        self.assertEqual(4, host1['Inventories']['VCPU']['total'])
        self.assertEqual(
            ('gpu0', 'child', host2['UUID'], host2['UUID'], ['CUSTOM_GPU']),
            tuple(gpu[name] for name in (
                'Name', 'Kind', 'Parent', 'Root', 'Traits')))
        self.assertEqual([pool], self.run_json('list', '--kind', 'sharing'))

    def test_table_has_usage_and_the_number_of_traits(self):
        made = self.create_pool('pool1', '--trait', 'CUSTOM_SSD')
        self.claim(made['uuid'], DISK_GB=30)

        out = self.provider('list', '--kind', 'sharing').out

        self.assertIn('DISK_GB 30/1000 |               | 1 ', out)

    def test_provider_is_created_and_shown(self):
        made = self.create_pool(
            'pool1', '--resource', 'DISK_GB:reserved=10', '--resource',
            'DISK_GB:allocation_ratio=1.5', '--resource', 'CUSTOM_X=3',
            '--trait', 'CUSTOM_SSD')

        self.assertEqual(
            ('pool1', 'sharing', '', '', 'rack1', 0, ['CUSTOM_SSD']),
            tuple(made[name] for name in (
                'name', 'kind', 'host', 'cell', 'aggregate', 'consumers',
                'traits')))
        self.assertEqual(
            (1000, 10, 1.5, 1485, 3), (
                *(made['inventories']['DISK_GB'][name] for name in (
                    'total', 'reserved', 'allocation_ratio', 'capacity')),
                made['inventories']['CUSTOM_X']['total']))
        for name in 'pool1', made['uuid']:
            self.assertEqual(made, self.run_json('show', name))
        self.assertIn('DISK_GB: total=1000, reserved=10, ',
                      self.provider('show', 'pool1').out)

    def test_provider_is_changed(self):
        made = self.create_pool('pool1', '--trait', 'CUSTOM_SSD')

        changed = self.run_json(
            'set', 'pool1', '--name', 'pool9', '--resource', 'CUSTOM_X=3',
            '--no-resource', 'DISK_GB', '--trait', 'CUSTOM_NVME',
            '--no-trait', 'CUSTOM_SSD')

        self.assertEqual(
            ('pool9', made['uuid'], ['CUSTOM_X'], ['CUSTOM_NVME']),
            (changed['name'], changed['uuid'], [*changed['inventories']],
             changed['traits']))
        self.assertEqual(changed, self.run_json('show', 'pool9'))

    def test_inventory_below_its_use_is_marked(self):
        made = self.create_pool('pool1', '--resource', 'CUSTOM_X=3')
        self.claim(made['uuid'], DISK_GB=30)

        changed = self.run_json('set', 'pool1', '--resource', 'DISK_GB=20')

        self.assertEqual(
            (['DISK_GB'], 20, 30), (
                changed['over_capacity'],
                *(changed['inventories']['DISK_GB'][name]
                  for name in ('capacity', 'used'))))
        [listed] = self.run_json('list', '--kind', 'sharing')
        self.assertEqual(['DISK_GB'], listed['Over Capacity'])
        self.assertIn('| DISK_GB       | 0 ',
                      self.provider('list', '--kind', 'sharing').out)
        self.assertEqual([], self.run_json(
            'set', 'pool1', '--resource', 'DISK_GB=30')['over_capacity'])

    def test_deleted_provider_is_not_listed(self):
        self.create_pool()

        ran = self.provider('delete', 'pool1', 'host1')

        self.assertEnds(1, ran, 'There is no sharing provider host1.')
        self.assertEqual('Deleted provider pool1\n', ran.out)
        self.assertEqual([], self.run_json('list', '--kind', 'sharing'))

    def test_provider_with_claims_is_not_deleted(self):
        made = self.create_pool()
        store = self.cloud.api.parts.claims
        [consumer] = samples.uuids(1)
        store.claim([claims.Claim(consumer, made['uuid'], {'DISK_GB': 1})])

        self.assertEnds(1, self.provider('delete', 'pool1'), 'pool1',
                        'allocations of 1 consumers')

        store.release([consumer])
        self.assertEqual(made, self.run_json('show', 'pool1'))

    def test_unreachable_cell_is_named(self):
        self.create_pool()
        self.take_down_cell()

        ran = self.provider('list', '-f', 'json')

        self.assertEqual(0, ran.code)
        self.assertEqual(['pool1'], [each['Name'] for each in ran.data])
        self.assertIn('warning: cell cell1 did not answer; its resource '
                      'providers are missing', ran.err)
        self.assertIn('cell1', self.provider('show', 'host1').err)

    def test_invalid_arguments_are_refused(self):
        self.create_pool()
        for argv, *texts in (
                (('list', '--kind', 'pool'), 'kind', 'root, child, sharing'),
                (('show', 'none'), 'There is no resource provider none.'),
                (('create', 'a'), '--aggregate'),
                (('create', 'a', '--aggregate', 'none'), 'aggregate none'),
                (('create', 'pool1', '--aggregate', 'rack1'), 'already'),
                (('set', 'pool1', '--resource', 'DISK_GB'), '--resource',
                 'CLASS=TOTAL'),
                (('set', 'pool1', '--resource', 'DISK_GB=1', '--resource',
                  'DISK_GB:total=2'), 'twice'),
                (('set', 'pool1', '--resource', 'DISK_GB=1.5'), '--resource',
                 'whole number'),
                (('set', 'pool1', '--resource', f'DISK_GB={"9" * 5000}'),
                 '--resource', 'whole number'),
                (('set', 'pool1', '--resource', 'DISK_GB=-1'),
                 'DISK_GB.total', '0 to 2147483647', '-1'),
                (('set', 'pool1', '--resource',
                  'DISK_GB:allocation_ratio=x'), 'a number'),
                (('set', 'pool1', '--resource', 'DISK_GB:size=5'),
                 'DISK_GB', 'unknown field', 'total'),
                (('set', 'pool1', '--resource', 'DISK_GB:reserved=1001'),
                 'DISK_GB.reserved', 'at most the total, 1000'),
                (('set', 'pool1', '--trait', 'SSD'), 'traits', 'CUSTOM_'),
                (('set', 'pool1', '--trait', 'CUSTOM_A', '--no-trait',
                  'CUSTOM_A'), '--no-trait', 'both set and removed'),
                (('set', 'pool1', '--resource', 'DISK_GB=1', '--no-resource',
                  'DISK_GB'), '--no-resource', 'both set and removed')):
            self.assertEnds(1, self.provider(*argv), *texts)


class TestResourceClass(ProviderTestCase):

    def listed(self):
        ran = self.shell('resource', 'class', 'list', '-f', 'json')
        self.assertEqual(0, ran.code, ran.err)
        return {each.pop('Name'): tuple(each.values()) for each in ran.data}

    def test_standard_and_used_custom_classes_are_listed(self):
        self.assertEqual(set(os_resource_classes.STANDARDS),
                         set(self.listed()))

        self.create_pool('pool1', '--resource', 'CUSTOM_X=3')

        self.assertEqual({'CUSTOM_X'}, {
            *self.listed()} - {*os_resource_classes.STANDARDS})

    def test_providers_are_added_up(self):
        before = self.listed()
        self.assertEqual(('', 0, 0, 0), before['PCPU'])
        self.assertEqual(('', 1, 2, 0), before['VGPU'])
        self.assertEqual(('', 2), before['VCPU'][:2])
        self.assertEqual('MB', before['MEMORY_MB'][0])
        self.assertEqual('kbit/s', before['NET_BW_EGR_KILOBIT_PER_SEC'][0])
        unit, providers, capacity, used = before['DISK_GB']

        made = self.create_pool()
        self.create_pool('pool2', '--resource', 'DISK_GB:reserved=200')
        self.claim(made['uuid'], DISK_GB=30)

        self.assertEqual(
            ('GB', providers + 2, capacity + 1800, used + 30),
            self.listed()['DISK_GB'])

    def test_unreachable_cell_is_named(self):
        self.take_down_cell()

        ran = self.shell('resource', 'class', 'list')

        self.assertEqual(0, ran.code)
        self.assertIn('cell1 did not answer', ran.err)


class TestTrait(ProviderTestCase):

    def listed(self, *argv):
        ran = self.shell('trait', 'list', *argv, '-f', 'json')
        self.assertEqual(0, ran.code, ran.err)
        return {each['Name']: each['Providers'] for each in ran.data}

    def test_traits_are_listed_with_the_number_of_their_providers(self):
        self.create_pool('pool1', '--trait', 'CUSTOM_GPU')
        self.create_pool('pool2', '--trait', 'STORAGE_DISK_SSD')

        listed = self.listed()

        self.assertEqual(
            (2, 1, 2), tuple(listed[name] for name in (
                'CUSTOM_GPU', 'STORAGE_DISK_SSD', 'COMPUTE_NODE')))
        self.assertNotIn(0, listed.values())

    def test_standard_traits_are_added_on_request(self):
        listed = self.listed('--standard')

        self.assertEqual({'CUSTOM_GPU', 'CUSTOM_DISK_TRANSFER'},
                         {*listed} - {*os_traits.get_traits()})
        self.assertLess(100, len(listed))
        self.assertEqual(0, listed['STORAGE_DISK_SSD'])
        self.assertEqual(self.listed(), {
            name: count for name, count in listed.items() if count})
