# SPDX-License-Identifier: Apache-2.0
"""Checks of a deployment say what is wrong, and what mends it."""

from concurrent import futures
import datetime
import threading

from oslo_upgradecheck import upgradecheck
import sqlalchemy as sa

from cellsched.audit import upgrade
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.claims import base as claims_base
from cellsched.claims import sql
from cellsched.claims.sql import schema as claims_schema
from cellsched import clock
from cellsched.db.api import host_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import objects
from cellsched.rpc import compute
from cellsched.testing import databases
from tests.unit.cells import base
from tests.unit.db import samples

SUCCESS, WARNING, FAILURE = upgradecheck.Code

AGAIN = 'run: cellsched-status upgrade check'

PASSWORD = 'secret'

DOWN_S = 60


class CheckCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.add_cell0()
        self.cell = self.add_cell('cell1')
        self.executor = futures.ThreadPoolExecutor(4)
        self.addCleanup(self.executor.shutdown)
        self.claims = self.open_claims()
        self.claims.sync()

    def open_claims(self):
        database = session.Database(
            f'sqlite:///{self.temporary_directory()}/claims.sqlite',
            'claims', clock=clock.Clock())
        self.addCleanup(database.close)
        return sql.SQLClaims(database)

    def check(self, name, database=None):
        """Return what a check says of the deployment as it is now."""
        database = database or self.database
        made = upgrade.UpgradeChecks(upgrade.CheckedDeployment(
            database, registry.CellRegistry(database, self.clock, 60.0),
            gather.Gatherer(self.executor, self.targets, clock.Clock(),
                            timeout_s=30), lambda: self.claims, DOWN_S))
        by_name = dict(made._upgrade_checks)
        return by_name[name](made)

    def assertSays(self, code, result, *texts, command=None):
        self.assertEqual(code, result.code, result.details)
        for text in texts:
            self.assertIn(text, result.details)
        if command is not None:
            self.assertTrue(result.details.endswith(command), result.details)
        self.assertNotIn(PASSWORD, result.details or '')

    def in_cell(self, query, *args):
        with self.targets.database(self.cell).writer() as connection:
            return query(connection, *args)

    def report(self, host, version):
        self.in_cell(services.report, samples.uuids(1)[0], host,
                     services.COMPUTE, 'compute', samples.NOW, version)

    def add_node(self, host):
        self.in_cell(compute_nodes.save, samples.uuids(1)[0], host, host,
                     samples.NODE, samples.NOW)

    def set_version(self, database, table, version):
        with database.writer() as connection:
            connection.execute(sa.text(
                f"UPDATE {table} SET version_num = '{version}'"))


class TestCells(CheckCase):

    def test_answering_cells_pass_the_check(self):
        self.assertSays(SUCCESS, self.check('Cells v2'))

    def test_lack_of_cell0_is_a_failure(self):
        empty = self.useFixture(databases.APIDatabase()).database

        self.assertSays(FAILURE, self.check('Cells v2', database=empty),
                        command='run: cellsched-manage cell_v2 map_cell0')

    def test_lack_of_any_other_cell_is_a_failure(self):
        empty = self.useFixture(databases.APIDatabase()).database
        samples.map_cell(empty, samples.cell(uuid=objects.CELL0_UUID))

        self.assertSays(FAILURE, self.check('Cells v2', database=empty),
                        command='run: cellsched-manage cell_v2 create_cell')

    def test_unreachable_cell_is_named_without_its_password(self):
        self.add_cell('broken', database_connection=(
            f'postgresql+psycopg2://u:{PASSWORD}@127.0.0.1:1/x'))

        self.assertSays(FAILURE, self.check('Cells v2'), 'broken',
                        '127.0.0.1:1/x', command=AGAIN)
        for name in 'Schemas', 'Host mappings', 'Compute services':
            self.assertSays(SUCCESS, self.check(name))

    def test_silent_cell_is_named(self):
        released = threading.Event()
        self.addCleanup(released.set)

        def look(cell_context):
            if cell_context.cell.uuid == self.cell.uuid:
                released.wait()

        gatherer = gather.Gatherer(
            self.executor, self.targets, clock.Clock(), timeout_s=0.1)
        # From now on it hangs.
        gatherer.gather(self.context, self.cells.all(), look)
        deployment = upgrade.CheckedDeployment(
            self.database, self.cells, gatherer, lambda: None, DOWN_S)

        self.assertSays(FAILURE, upgrade.check_cells(deployment), 'cell1',
                        'silent', command=AGAIN)

    def test_unreachable_api_database_fails_every_check(self):
        gone = session.Database('sqlite:////no/where', 'API',
                                clock=clock.Clock())

        for name in ('Cells v2', 'Host mappings', 'Compute services'):
            self.assertSays(FAILURE, self.check(name, database=gone),
                            'API database', command=AGAIN)


class TestSchemas(CheckCase):

    def test_newest_schemas_are_well(self):
        self.assertSays(SUCCESS, self.check('Schemas'))

    def test_old_api_database_is_a_failure(self):
        self.set_version(self.database, 'alembic_version_api', 'old')

        self.assertSays(FAILURE, self.check('Schemas'), 'API database', 'old',
                        command='run: cellsched-manage api_db sync')

    def test_cells_with_an_old_schema_are_named(self):
        self.set_version(self.targets.database(self.cell),
                         'alembic_version_cell', 'old')
        path = self.temporary_directory() / 'empty.sqlite'
        self.add_cell('empty', database_connection=f'sqlite:///{path}')

        self.assertSays(FAILURE, self.check('Schemas'), 'cell1) (old)',
                        'empty) (none)',
                        command='run: cellsched-manage db sync --all-cells')
        self.assertFalse(path.exists())

    def test_old_claim_store_is_a_failure(self):
        self.claims = self.open_claims()

        self.assertSays(FAILURE, self.check('Schemas'),
                        claims_schema.SCHEMA.head,
                        command='run: cellsched-manage claims_db sync')


class TestHosts(CheckCase):

    def test_no_host_at_all_is_no_failure(self):
        self.assertSays(
            SUCCESS, self.check('Host mappings'), 'no hosts yet',
            command='run: cellsched-manage cell_v2 discover_hosts --verbose')

    def test_unmapped_hosts_are_a_warning_with_some_names(self):
        for number in range(8):
            self.add_node(f'host{number}')
        with self.database.writer() as connection:
            host_mappings.create_missing(
                connection, ['host0'], self.cell.id, samples.NOW)

        self.assertSays(
            WARNING, self.check('Host mappings'), 'host1, ', 'and 2 more',
            'cell1',
            command='run: cellsched-manage cell_v2 discover_hosts --verbose')

    def test_mapped_hosts_pass_the_check(self):
        self.add_node('host')
        with self.database.writer() as connection:
            host_mappings.create_missing(
                connection, ['host'], self.cell.id, samples.NOW)

        self.assertSays(SUCCESS, self.check('Host mappings'))


class TestServices(CheckCase):

    def test_newest_services_are_well(self):
        self.report('host', compute.SERVICE_VERSION)

        result = self.check('Compute services')

        self.assertSays(SUCCESS, result)
        self.assertIsNone(result.details)

    def test_contacted_older_services_are_named(self):
        for host, version in (('a', compute.SERVICE_VERSION),
                              ('b', compute.SERVICE_VERSION - 1)):
            self.report(host, version)

        self.assertSays(SUCCESS, self.check('Compute services'), '1 of 2',
                        'b of cell')

    def test_unsupported_old_service_fails_the_check(self):
        self.report('a', compute.SERVICE_VERSION)
        self.report('b', min(compute.SERVICE_VERSIONS) - 1)

        self.assertSays(FAILURE, self.check('Compute services'), 'b of cell',
                        command=AGAIN)
        self.in_cell(services.set_forced_down, 'b', True, samples.NOW)
        self.assertSays(SUCCESS, self.check('Compute services'))

    def test_services_of_newer_versions_only_fail_the_check(self):
        self.report('a', compute.SERVICE_VERSION + 1)

        self.assertSays(FAILURE, self.check('Compute services'),
                        command=AGAIN)
        self.report('b', compute.SERVICE_VERSION)
        self.assertSays(SUCCESS, self.check('Compute services'))


class TestHeartbeats(CheckCase):

    def beat(self, host, binary=services.CONDUCTOR, age_s=0):
        now = self.targets.database(self.cell).now()
        self.in_cell(services.report, samples.uuids(1)[0], host, binary,
                     binary, now - datetime.timedelta(seconds=age_s))

    def test_enabled_services_without_heartbeat_are_named(self):
        self.beat('a')
        self.beat('b', services.COMPUTE)
        self.assertSays(SUCCESS, self.check('Heartbeats'))

        for host in 'b', 'c':
            self.beat(host, services.COMPUTE, age_s=2 * DOWN_S)
        self.beat('a', age_s=2 * DOWN_S)
        self.in_cell(services.set_disabled, 'c', True, None, samples.NOW)

        result = self.check('Heartbeats')
        self.assertSays(WARNING, result, 'nova-conductor of host a in cell',
                        'nova-compute of host b', command=AGAIN)
        self.assertNotIn('host c', result.details)

    def test_stopped_conductor_is_well(self):
        self.beat('a')
        self.in_cell(services.stop, 'a', services.CONDUCTOR, samples.NOW)

        self.assertSays(SUCCESS, self.check('Heartbeats'))


class TestClaims(CheckCase):

    def test_correct_claim_figures_pass_the_check(self):
        self.assertSays(SUCCESS, self.check('Claims'))

    def test_wrong_claim_figures_are_a_warning(self):
        for total in 4, 1:
            self.claims.set_inventory(
                'provider', {'VCPU': claims_base.Inventory(total)})
            if total == 4:
                self.claims.claim([claims_base.Claim(
                    'server', 'provider', {'VCPU': 2})])

        self.assertSays(WARNING, self.check('Claims'), 'provider',
                        command='run: cellsched-manage audit')

    def test_claims_of_a_single_process_are_skipped(self):
        self.claims = None

        self.assertSays(SUCCESS, self.check('Claims'), 'not checked')
