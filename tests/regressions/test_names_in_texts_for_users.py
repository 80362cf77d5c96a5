# SPDX-License-Identifier: Apache-2.0
"""No text that a member of a project gets names a part of the deployment."""

import threading

import fixtures

from cellsched.cells.maintenance import CellMaintenance
from cellsched.db.cell import server_moves
from cellsched import exception
from cellsched.standalone import deployment
from tests.functional import base
from tests.functional import moving

#: Hosts, which are nodes of the same names, and the cell.
HOSTS = 'rack7-node1', 'rack7-node2'
CELL = 'cell1'

#: What no text for a member has: names, and parts of URLs.
NAMES = (*HOSTS, CELL, 'rack7', 'sqlite', '://')


class TestTexts(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({CELL: [deployment.DeployedHost(name) for name in HOSTS]},
                   scheduler=base.READ_EACH_TIME)

    def seen(self, call, *args, **wishes):
        """Check what a member gets of a call; return its text."""
        try:
            text = repr(call(base.USER, *args, **wishes))
        except exception.CellschedException as exc:
            text = exception.user_text(exc)
        for name in NAMES:
            self.assertNotIn(name, text)
        return text

    def assertReadsSafely(self, uuid):
        """Nothing that a member can read of a server has a name."""
        api = self.world.api
        for call, *args in (
                (api.servers.get, uuid), (api.servers.list,),
                (api.details.get, uuid), (api.history.actions, uuid),
                (api.history.migrations, uuid),
                (api.server_groups.list_all,)):
            self.seen(call, *args)

    def test_refused_actions_name_no_host(self):
        uuid = self.active()
        api, host = self.world.api, self.row(uuid).host
        self.down(host)

        for action in (self.moves.shelve, self.moves.rebuild,
                       self.moves.unshelve, api.servers.retry):
            self.seen(action, uuid)
            self.assertReadsSafely(uuid)

        error = self.assertRaises(
            exception.InvalidField, self.moves.rebuild, base.ADMIN, uuid)
        self.assertIn(host, str(error))

    def test_ended_moves_name_no_host(self):
        uuid = self.active()
        host = self.row(uuid).host
        held = self.driver(host).hold_builds()
        self.addCleanup(held.set)
        self.moves.rebuild(base.USER, uuid)
        self.until(lambda: server_moves.MIGRATING in self.statuses(uuid),
                   'the message is sent')
        self.down(host)
        self.moves.evacuate(base.ADMIN, uuid)
        self.rested(uuid)

        self.assertReadsSafely(uuid)

        history = self.world.api.history
        [ended] = [each for each in history.actions(base.ADMIN, uuid)
                   if each.reason]
        self.assertIn(f'host {host}', ended.reason)
        [ended] = [each for each in history.migrations(
            base.ADMIN, uuid).migrations if each.reason]
        self.assertIn(f'host {host}', ended.reason)
        self.assertEqual(CELL, ended.cell)

    def test_failed_builds_and_moves_name_no_host(self):
        uuid = self.active()
        for name in HOSTS:
            self.driver(name).fail_builds(1)

        [failed] = self.built()
        self.assertReadsSafely(failed.uuid)
        self.driver(self.row(uuid).host).fail_builds(1)
        self.moves.rebuild(base.USER, uuid)
        self.rested(uuid)
        self.assertReadsSafely(uuid)
        self.assertEqual('ERROR', failed.status)

    def test_refused_builds_name_no_host_and_no_cell(self):
        self.world.api.parts.discovery.discover()
        for name in HOSTS:
            self.down(name)
        [found] = self.built()
        self.assertEqual('ERROR', found.status)
        self.assertReadsSafely(found.uuid)
        for name in HOSTS:
            self.down(name, False)
        parts = self.world.api.parts
        CellMaintenance(
            parts.database, parts.cells, parts.targets, parts.clock,
        ).update(self.cells()[CELL].uuid, {'disabled': True})

        [found] = self.built()

        self.assertReadsSafely(found.uuid)
        # Administrators see the names.
        self.assertIn(f'are in a disabled cell ({CELL})', found.reason)

    def test_server_groups_name_no_host_and_no_cell(self):
        groups = self.world.api.server_groups
        for what in ({'policy': 'anti-affinity'},
                     {'rules': {'spread': 'cell', 'max_skew': 1}},
                     {'policy': 'affinity'}):
            group = groups.create(base.USER, 'group', **what)
            for server in self.built(
                    min_count=1, max_count=3, hints={'group': [group.uuid]}):
                self.assertReadsSafely(server.uuid)
            self.seen(groups.get, group.uuid)

    def test_silent_cell_is_not_named(self):
        api = self.world.api
        group = api.server_groups.create(
            base.USER, 'group', policy='affinity')
        [found] = self.built(hints={'group': [group.uuid]})
        uuid = found.uuid
        self.take_down(CELL)

        self.assertReadsSafely(uuid)

        for call, *args in (
                (self.moves.rebuild, uuid), (self.moves.shelve, uuid),
                (api.servers.find, 'name'), (api.servers.retry, uuid),
                (api.servers.set_tags, uuid, ['tag']),
                (api.servers.update, uuid, 'name'),
                (api.servers.delete, uuid), (api.servers.delete, uuid),
                (api.servers.set_tags, uuid, ['tag']),
                (api.server_groups.get, group.uuid),
                (api.server_groups.delete, group.uuid)):
            self.seen(call, *args)
            self.assertReadsSafely(uuid)
        self.bring_back(CELL)

    def test_deletions_on_failing_hosts_name_no_host(self):
        api, uuid = self.world.api, self.active()
        host = self.row(uuid).host
        failed = threading.Event()

        def fail(instance):
            failed.set()
            raise exception.BuildFailed(
                uuid=instance.uuid, reason=f'host {host} does not answer')

        self.useFixture(fixtures.MockPatchObject(
            self.driver(host), 'destroy', fail))
        self.seen(api.servers.set_tags, uuid, ['tag'])
        self.seen(api.servers.delete, uuid)
        self.assertTrue(failed.wait(self.timeout_s))

        self.assertReadsSafely(uuid)
        self.down(host)
        self.seen(api.servers.delete, uuid)
        self.assertReadsSafely(uuid)
