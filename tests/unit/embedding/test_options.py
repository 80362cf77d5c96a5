# SPDX-License-Identifier: Apache-2.0
"""Options of an embedded conductor."""

from oslo_config import cfg

from cellsched.db import api
from cellsched.db import cell
from cellsched import embedding
from cellsched.embedding import options
from cellsched import exception
from tests.unit.embedding import embedded


class TestOptions(embedded.EmbeddedTestCase):

    def test_options_are_registered_beside_those_of_the_service(self):
        conf = cfg.ConfigOpts()
        conf.register_opts([
            cfg.StrOpt('host', default='theirs'), cfg.StrOpt('pit')])
        conf.register_opts(
            [cfg.StrOpt('connection', default='sqlite://')],
            group='api_database')
        for _ in range(2):
            options.register_opts(conf)

        conf([], default_config_files=[], default_config_dirs=[])
        self.assertEqual('theirs', conf.host)
        self.assertEqual('sqlite://', conf.api_database.connection)
        self.assertEqual(10, conf.conductor.build_lease)
        self.assertNotIn('filter_scheduler', conf)
        self.assertNotIn('compute_driver', conf)

    def test_configuration_has_the_arguments(self):
        conf = self.conf(conductor={'build_lease': 7},
                         DEFAULT={'service_down_time': 3})

        self.assertEqual(
            (f'local://{self.world}/api', 'embedder', 3),
            (conf.transport_url, conf.host, conf.service_down_time))
        self.assertEqual(self.url('claims'), conf.claims.connection)
        self.assertEqual(7.0, conf.conductor.build_lease)

    def test_option_that_there_is_not_is_refused(self):
        self.assertRaises(
            cfg.NoSuchOptError, self.conf, conductor={'build_leese': 7})
        self.assertRaises(
            ValueError, self.conf, conductor={'build_lease': 'long'})

    def test_two_configurations_have_nothing_in_common(self):
        first, second = self.conf(quota={'cores': 1}), self.conf()

        self.assertEqual(1, first.quota.cores)
        self.assertEqual(20, second.quota.cores)


class TestCreateSchemas(embedded.EmbeddedTestCase):

    def test_schemas_are_created_and_stay(self):
        conf = self.conf()
        for _ in range(2):
            embedding.create_schemas(conf, [self.url('cell0')])

        parts = embedding.Components(conf)
        self.addCleanup(parts.close)
        api.SCHEMA.check(parts.database)
        parts.claims.check()
        cell.SCHEMA.check(parts.databases.get(self.url('cell0'), 'cell'))

    def test_conductor_without_schema_is_refused(self):
        self.assertRaises(
            exception.SchemaOutOfDate, embedding.EmbeddedConductor,
            self.conf())
