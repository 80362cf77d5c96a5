# SPDX-License-Identifier: Apache-2.0
"""Commands by their names."""

from importlib import metadata

import fixtures

from cellsched.cli import command_manager
from cellsched.cli import server_list
from tests.unit.cli import base


class TestCommands(base.CommandTestCase):

    def test_command_of_others_does_not_replace_one_that_is_shipped(self):
        self.useFixture(fixtures.MonkeyPatch(
            'stevedore.ExtensionManager.ENTRY_POINT_CACHE', {
                'cellsched.cli': [metadata.EntryPoint(
                    'server.list', 'tests.none:List', 'cellsched.cli')]}))

        found, _, _ = command_manager.Commands('cellsched.cli').find_command(
            ['server', 'list'])

        self.assertIs(server_list.ListServers, found)

    def test_commands_are_named_as_people_type_them(self):
        manager = command_manager.Commands('cellsched.manage')
        names = {name for name, _ in manager}

        self.assertIn('cell_v2 map_cell0', names)
        self.assertIn('api_db sync', names)
