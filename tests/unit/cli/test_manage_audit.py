# SPDX-License-Identifier: Apache-2.0

from cellsched.cli import app
from cellsched.db.api import instance_mappings
from cellsched import objects
from cellsched.testing import databases
from tests.unit.cli import base
from tests.unit.db import samples


class TestAudit(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write_api_conf(
            claims={'connection': self.sqlite('claims')})
        self.manage('claims_db', 'sync')
        self.database = self.parts('api.conf').database
        url = self.useFixture(databases.CellDatabase()).url
        self.cell0 = samples.map_cell(self.database, samples.cell(
            'cell0', uuid=objects.CELL0_UUID, transport_url='none:///',
            database_connection=url))

    def audit(self, *argv, **options):
        return self.manage('audit', '--settle=0', '-f', 'json', *argv,
                           **options)

    def lose(self):
        """Return a server whose record in cell0 is lost."""
        [uuid] = samples.uuids(1)
        samples.accept(self.database, [uuid])
        with self.database.writer() as connection:
            instance_mappings.decide(
                connection, [uuid], self.cell0.id, samples.NOW)
            connection.execute(
                instance_mappings.models.build_requests.delete())
        return uuid

    def test_audit_without_findings_exits_with_0(self):
        self.assertEqual(base.Ran(0, '[]', ''), self.stripped(self.audit()))

    def test_finding_is_shown_and_ends_with_1(self):
        uuid = self.lose()

        ran = self.audit()

        self.assertEqual((1, ''), (ran.code, ran.err))
        self.assertEqual([{
            'Invariant': 'S3', 'Kind': 'row-lost', 'Of': uuid,
            'Cell': 'cell0',
            'Finding': 'is mapped to cell0, which does not have it',
            'Repair': 'record it in cell0, with the reason that its build '
                      'was lost',
            'State': 'left'}], ran.data)

    def test_repair_ends_with_2_and_then_with_0(self):
        uuid = self.lose()

        ran = self.audit('--fix')

        self.assertEqual(2, ran.code)
        self.assertEqual(
            [(uuid, 'repaired')],
            [(each['Of'], each['State']) for each in ran.data])
        self.assertEqual(0, self.audit().code)

    def test_column_of_the_table_can_be_selected(self):
        uuid = self.lose()

        ran = self.manage('audit', '--settle=0', '-c', 'Of', '-f', 'value')

        self.assertEqual(uuid, ran.out.strip())

    def test_unreadable_cell_ends_with_3(self):
        for argv in (['--settle=-1'], ['--settle=nan'], ['--settle=1e9'],
                     ['--settle=x'], ['--nonsense'], ['-c', 'Nonsense']):
            self.assertEnds(3, self.audit(*argv))
        self.write_api_conf(self.sqlite('empty'))
        self.assertEnds(3, self.audit(), 'api_db sync')
        self.assertEnds(3, self.audit(conf=('none.conf',)), 'none.conf')

    def test_other_commands_end_with_1_as_before(self):
        self.assertEnds(1, self.manage('cell_v2', 'list_cells', '-c', 'No'))

    def test_claims_in_memory_are_skipped(self):
        self.write_api_conf(self.database.url, claims={
            'store': 'memory', 'require': ''})

        ran = self.audit()

        self.assertEnds(0, ran, 'claims were not checked')

    def test_terminal_shows_progress(self):
        self.lose()
        stderr = base.Terminal()

        self.run_app(app.Manage, f'--config-file={self.api_conf}', 'audit',
                     '--settle=0', stderr=stderr)

        self.assertIn('auditing ━', base.without_colors(stderr.getvalue()))
        self.assertIn('1/1', stderr.getvalue())

    @staticmethod
    def stripped(ran):
        return base.Ran(ran.code, ran.out.strip(), ran.err)
