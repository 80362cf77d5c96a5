# SPDX-License-Identifier: Apache-2.0
"""A directory where a file should be is refused, and nothing falls back.

The mount of a missing file into a container makes such a directory.
"""

from oslo_config import cfg

from cellsched.claims.etcd import client as etcd_client
from cellsched.claims.etcd import options as etcd_options
from cellsched.claims.placement import client as placement_client
from cellsched import clock
from cellsched import context
from cellsched.db import session
from cellsched import exception
from cellsched.network import fake
from cellsched.policies import enforcer
from tests.unit import base
from tests.unit.policies import test_enforcer

DELETE = 'os_compute_api:servers:delete'


class TestPolicy(test_enforcer.TestCase):

    def check(self, option, name):
        """Replace a file by a directory, before and after the start."""
        conf = f'[oslo_policy]\n{option}\n'
        file = self.directory / name
        file.mkdir(parents=True)
        self.assertIn(str(file), str(self.assertRaises(
            exception.ConfigurationInvalid, self.make, conf)))
        file.rmdir()
        file.write_text(f'"{DELETE}": "!"\n')
        rules = self.make(conf)
        file.unlink()
        file.mkdir()
        self.clock.advance(enforcer.LOOK_S)

        self.assertFalse(self.allows(
            rules, context.member('user', 'project'), DELETE))
        self.assertEqual(1, self.logs.output.count('not reloaded'))

    def test_policy_file(self):
        self.check(f'policy_file = {self.file}', 'policy.yaml')

    def test_policy_file_of_the_default_name(self):
        self.check('', 'policy.yaml')

    def test_file_in_a_policy_directory(self):
        self.check('', 'policy.d/site.yaml')

    def test_certificates_of_rules(self):
        for name in ('remote_ssl_ca_crt_file', 'remote_ssl_client_crt_file',
                     'remote_ssl_client_key_file'):
            self.assertIn(name, str(self.assertRaises(
                exception.ConfigurationInvalid, self.make,
                f'[oslo_policy]\n{name} = {self.directory}\n')))


class TestOtherFiles(base.TestCase):

    def test_files_of_claim_stores(self):
        directory = str(self.temporary_directory())
        for name in 'cafile', 'certfile', 'keyfile':
            for group, options, make in (
                    ('etcd', etcd_options.opts(), lambda conf: (
                        etcd_client.EtcdClient.from_conf(
                            conf, etcd_options.place('etcds://127.0.0.1')))),
                    ('placement', placement_client.options(), lambda conf: (
                        placement_client.KeystoneClient.from_conf(
                            conf, 'placement', clock.Clock())))):
                conf = cfg.ConfigOpts()
                conf.register_opts(options, group=group)
                conf.set_override(name, directory, group=group)
                error = self.assertRaises(
                    exception.ConfigurationInvalid, make, conf)
                self.assertEqual(f'[{group}] {name}', error.field)

    def test_records_of_networks(self):
        conf = cfg.ConfigOpts()
        conf.register_opts(fake.FakeNetworks.opts(), group='fake_network')
        conf.set_override(
            'records', str(self.temporary_directory()), group='fake_network')

        error = self.assertRaises(
            exception.ConfigurationInvalid, fake.FakeNetworks, conf)

        self.assertEqual('[fake_network] records', error.field)

    def test_files_of_databases(self):
        directory = self.temporary_directory()
        for backend, name in (
                ('postgresql+psycopg', 'sslrootcert'),
                ('postgresql+psycopg', 'sslcrl'),
                ('mysql+pymysql', 'ssl_ca')):
            for path in directory, directory / 'missing':
                database = session.Databases(clock.Clock()).get(
                    f'{backend}://me:s3cr3t@127.0.0.1/x?{name}={path}', 'API')
                error = self.assertRaises(
                    exception.ConfigurationInvalid, database.timestamp)
                self.assertEqual('API database connection', error.field)
                self.assertIn(str(path), str(error))
                self.assertNotIn('s3cr3t', str(error))
