# SPDX-License-Identifier: Apache-2.0

from cellsched.db.api import host_mappings
from cellsched.testing import databases
from tests.unit.cli import base
from tests.unit.db import samples


class TestAggregate(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        api = self.useFixture(databases.APIDatabase())
        self.write_api_conf(api.url)
        cell = samples.map_cell(api.database, samples.cell(
            database_connection=self.useFixture(
                databases.CellDatabase()).url))
        with api.database.writer() as connection:
            host_mappings.create_missing(
                connection, ['a', 'b'], cell.id, samples.NOW)

    def run_json(self, *argv):
        return self.shell('aggregate', *argv, '-f', 'json')

    def test_aggregate_is_created_with_its_options(self):
        ran = self.run_json('create', 'fast', '--zone', 'east', '--property',
                            'ssd=true', '--property', 'note=a=b')

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertEqual(36, len(ran.data['uuid']))
        self.assertEqual(
            {'id': 1, 'name': 'fast', 'uuid': ran.data['uuid'],
             'availability_zone': 'east', 'hosts': [],
             'properties': {'ssd': 'true', 'note': 'a=b'}}, ran.data)

    def test_list_has_the_columns_of_openstackclient_and_more(self):
        self.run_json('create', 'fast', '--zone', 'east', '--property',
                      'ssd=true')
        self.run_json('add-host', 'fast', 'a', 'b')

        self.assertEqual(
            [{'ID': 1, 'Name': 'fast', 'Availability Zone': 'east',
              'Properties': {'ssd': 'true'}, 'Hosts': 2}],
            self.run_json('list').data)

    def test_properties_are_set_and_removed(self):
        self.run_json('create', 'fast', '--property', 'ssd=true')

        ran = self.run_json('set', 'fast', '--zone', 'west', '--property',
                            'gpu=true', '--no-property', 'ssd')

        self.assertEqual(({'gpu': 'true'}, 'west'), (
            ran.data['properties'], ran.data['availability_zone']))
        self.assertEqual(ran.data, self.run_json('show', '1').data)

    def test_hosts_are_added_and_removed(self):
        self.run_json('create', 'fast')

        self.assertEqual(
            ['a', 'b'], self.run_json('add-host', 'fast', 'a', 'b')
            .data['hosts'])
        self.assertEqual(
            ['b'], self.run_json('remove-host', 'fast', 'a').data['hosts'])

    def test_table_shows_properties_and_hosts(self):
        self.run_json('create', 'fast', '--property', 'ssd=true')
        self.run_json('add-host', 'fast', 'a', 'b')

        lines = self.shell('aggregate', 'show', 'fast').out.splitlines()

        self.assertIn("ssd='true'", '\n'.join(lines))
        self.assertTrue(any(line.split()[1:4] == ['hosts', '|', 'a']
                            for line in lines), lines)

    def test_deleted_aggregate_is_not_listed(self):
        self.run_json('create', 'fast')

        ran = self.shell('aggregate', 'delete', 'fast', 'slow')

        self.assertEnds(1, ran, 'There is no aggregate slow.')
        self.assertEqual([], self.run_json('list').data)

    def test_invalid_changes_are_refused(self):
        self.run_json('create', 'fast')

        self.assertEnds(1, self.run_json('create', 'fast'), 'already')
        self.assertEnds(
            1, self.run_json('add-host', 'fast', 'x'), 'x', 'not mapped')
        for option in 'ssd', 'ssd=':
            self.assertEnds(1, self.run_json(
                'set', 'fast', '--property', option), 'ssd')
        self.assertEnds(1, self.run_json(
            'set', 'fast', '--property', 'a=1', '--property', 'a=2'),
            'each key once')
