# SPDX-License-Identifier: Apache-2.0
"""Changes of a server are kept at every moment of a build."""

import fixtures

from cellsched.db.api import build_requests
from tests.functional import base

#: What is done for a server that is built, in turn.
BUILDING = ('Accept', 'Tell', 'Lease', 'Select', 'Schedule', 'FindCell',
            'Decide', 'WriteRows', 'Release', 'Cast', 'Begin', 'Spawn',
            'Finish')

#: What is done for one that no host has room for.
BURYING = ('Accept', 'Lease', 'Schedule', 'undone Schedule', 'Bury')


class TestRenaming(base.TestCase):

    def setUp(self):
        super().setUp()
        self.moment = None
        self.changed = []
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']}, reached=self.reached)

    def reached(self, step):
        """Rename and tag the server that is new when the moment has come."""
        if step != self.moment:
            return
        servers = self.world.api.servers
        new = [found.uuid for found in servers.list(base.USER).servers
               if found.name == 'old']
        if not new:
            # The one before may come to the same step late.
            return
        self.moment = None
        [uuid] = new
        servers.update(base.USER, uuid, f'at {step}')
        servers.set_tags(base.USER, uuid, ['new', f'at {step}'])
        self.changed.append(uuid)

    def changed_at(self, moment, **wishes):
        """Return a server that was changed at a moment, with its fate."""
        self.moment = moment
        [uuid] = self.create('old', tags=['old'], **wishes)
        self.until(lambda: uuid in self.changed, f'{moment} has come')
        [found] = self.settled([uuid])
        return found

    def changes_of(self, found):
        return found.status, found.name, found.tags

    def test_server_is_renamed_and_tagged_during_its_build(self):
        for moment in BUILDING:
            found = self.changed_at(moment)

            self.assertEqual(
                ('ACTIVE', f'at {moment}', (f'at {moment}', 'new')),
                self.changes_of(found))
            self.delete(found.uuid)
            self.gone(found.uuid)

    def test_server_is_renamed_and_tagged_during_its_burial(self):
        for moment in BURYING:
            found = self.changed_at(moment, flavor='huge')

            self.assertEqual(
                ('ERROR', f'at {moment}', (f'at {moment}', 'new')),
                self.changes_of(found))

    def test_built_server_is_renamed_and_tagged(self):
        for flavor, cells in (('small', ('cell1', 'cell2')),
                              ('huge', ('cell0',))):
            [found] = self.built(flavor=flavor, tags=['old'])
            servers = self.world.api.servers

            servers.update(base.USER, found.uuid, 'renamed')
            servers.set_tags(base.USER, found.uuid, [])

            found = self.get(found.uuid)
            self.assertEqual(('renamed', ()), (found.name, found.tags))
            self.assertIn(found.cell, cells)

    def test_check_of_revisions_keeps_the_change(self):
        """Without it what is changed between row and release is lost."""
        held = build_requests.held

        def careless(connection, owners):
            return dict.fromkeys(held(connection, owners), 0)

        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.db.api.build_requests.held', careless))
        lost = self.changed_at('WriteRows')

        self.assertEqual(('old', ('old',)), (lost.name, lost.tags))
