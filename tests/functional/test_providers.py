# SPDX-License-Identifier: Apache-2.0
"""A pool that the hosts of an aggregate share, from first to last."""

import pathlib
import re
import shlex

from cellsched.claims import base as claims
from cellsched import exception
from cellsched.standalone import deployment
from tests.functional import base
from tests.unit.cli import base as cli_base
from tests.unit.db import samples
from tests.unit import racing

PAGE = (pathlib.Path(__file__).resolve().parents[2]
        / 'doc/source/admin/providers.rst')


class TestPool(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': [deployment.DeployedHost('a1', providers={
            'gpu0': {'inventories': {'VGPU': 2}}})], 'cell2': ['b1']})
        self.providers = self.world.api.providers
        self.store = self.world.api.parts.claims
        self.world.api.aggregates.create(base.ADMIN, 'rack1')

    def create(self):
        return self.providers.create(
            base.ADMIN, 'pool1', 'rack1', {'DISK_GB': {'total': 1000}})

    def named(self):
        return [each.name for each
                in self.providers.list(base.ADMIN).providers]

    def claim(self, provider):
        [consumer] = samples.uuids(1)
        self.store.claim([claims.Claim(consumer, provider, {'DISK_GB': 10})])
        return consumer

    def test_pool_is_created_taken_given_back_and_deleted(self):
        pool = self.create()
        self.assertEqual(['a1', 'gpu0', 'b1', 'pool1'], self.named())

        consumer = self.claim(pool.uuid)
        shown = self.providers.get(base.ADMIN, 'pool1')
        self.assertEqual((1, 10), (
            shown.consumers, shown.inventories['DISK_GB'].used))
        self.assertRaises(exception.ResourceProviderInUse,
                          self.providers.delete, base.ADMIN, 'pool1')
        self.assertRaises(exception.AggregateInUse,
                          self.world.api.aggregates.delete, base.ADMIN,
                          'rack1')

        self.store.release([consumer])
        self.providers.delete(base.ADMIN, 'pool1')
        self.world.api.aggregates.delete(base.ADMIN, 'rack1')

        self.assertEqual(['a1', 'gpu0', 'b1'], self.named())
        self.assertRaises(exception.ClaimRefused, self.claim, pool.uuid)

    def test_pool_is_taken_or_deleted_and_never_both(self):
        for _ in range(5):
            pool = self.create()

            deletion, *outcomes = racing.race(
                lambda: self.providers.delete(base.ADMIN, 'pool1'),
                *[lambda: self.claim(pool.uuid)] * 5)

            taken = [each for each in outcomes if isinstance(each, str)]
            self.assertEqual(
                len(outcomes) - len(taken), sum(
                    isinstance(each, exception.ClaimRefused)
                    for each in outcomes), outcomes)
            if taken:
                self.assertIsInstance(
                    deletion, exception.ResourceProviderInUse)
                shown = self.providers.get(base.ADMIN, 'pool1')
                self.assertEqual(
                    (len(taken), 1000), (
                        shown.consumers,
                        shown.inventories['DISK_GB'].inventory.total))
                self.store.release(taken)
                self.providers.delete(base.ADMIN, 'pool1')
            self.assertNotIn('pool1', self.named())


class TestPage(cli_base.CommandTestCase):
    """The commands of the page, one by one."""

    def test_commands_of_the_page_work(self):
        cloud = deployment.Deployment(
            self.directory / 'cloud', [deployment.DeployedCell('cell1', [
                deployment.DeployedHost('compute1'),
                deployment.DeployedHost('compute2')])])
        cloud.start()
        self.addCleanup(cloud.stop)
        cloud.api.parts.discovery.discover()
        self.api_conf = cloud.directory / 'etc' / 'api.conf'
        text = PAGE.read_text().replace('\\\n', ' ')
        commands = re.findall(r'^ +\$ cellsched (.+)$', text, re.MULTILINE)

        rans = {command: self.shell(*shlex.split(command))
                for command in commands}

        self.assertLess(8, len(rans))
        self.assertEqual(
            {}, {command: ran.err for command, ran in rans.items()
                 if ran.code})
        self.assertEqual([], cloud.api.providers.list(
            base.ADMIN, 'sharing').providers)
