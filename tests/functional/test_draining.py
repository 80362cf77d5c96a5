# SPDX-License-Identifier: Apache-2.0
"""Hosts are emptied: drained while they live, evacuated when they are down."""

from cellsched.api import host_drain
from cellsched import context
from cellsched import exception
from tests.functional import base
from tests.functional import moving

#: Seconds that emptying a host takes at most.
LONG_S = 600

#: Servers of a host that dies.
SERVERS = 12


class TestCase(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', 'a2', memory_mb=4096),
                    'cell2': self.hosts('b1', memory_mb=256)})
        self.api = self.world.api
        # A scheduler does so too, when it sees them.
        self.api.parts.discovery.discover()
        self.api.services.set(base.ADMIN, 'a2', 'nova-compute', True, 'later')
        self.uuids = [self.active() for _ in range(3)]
        self.assertEqual({'a1'}, {self.row(uuid).host for uuid in self.uuids})
        self.api.services.set(base.ADMIN, 'a2', 'nova-compute', False)

    def drain(self, **options):
        return self.api.host_drain.drain(
            base.ADMIN, 'a1', **{'timeout_s': LONG_S, **options})

    def evacuate(self, **options):
        return self.api.host_drain.evacuate(
            base.ADMIN, 'a1', **{'timeout_s': LONG_S, **options})

    def outcomes(self, departures):
        return {each.uuid: each.outcome for each in departures}

    def assertAreOn(self, host):
        for uuid in self.uuids:
            self.assertRests('active', host, uuid)


class TestDrain(TestCase):

    def test_servers_move_to_other_hosts_of_their_cell(self):
        shown = []

        found = self.drain(at_once=2, show=lambda *told: shown.append(told))

        self.assertEqual([
            host_drain.Departure(uuid, 'server', 'moved')
            for uuid in self.uuids], found)
        self.assertAreOn('a2')
        self.assertEqual((3, 3), shown[-1])
        [service] = self.api.services.list(base.ADMIN, host='a1').services
        self.assertEqual((True, 'drain'),
                         (service.disabled, service.disabled_reason))
        self.assertEqual([], self.drain())

    def test_no_more_move_at_once_than_may(self):
        begun = []
        migrate = self.api.moves.migrate

        def watched(context, uuid):
            moving = [each for each in self.uuids if set(
                self.statuses(each)) & {'accepted', 'preparing', 'migrating'}]
            begun.append(len(moving))
            migrate(context, uuid)

        self.patch(self.api.moves, 'migrate', watched)

        self.drain(at_once=1)

        self.assertEqual([0, 0, 0], begun)

    def test_unmovable_server_remains_with_a_reason(self):
        self.api.services.set(base.ADMIN, 'a2', 'nova-compute', True, 'broken')

        found = self.drain()

        self.assertEqual({(uuid, 'stays') for uuid in self.uuids},
                         set(self.outcomes(found).items()))
        for each in found:
            self.assertIn('No valid host', each.reason)
        self.assertAreOn('a1')
        self.api.services.set(base.ADMIN, 'a2', 'nova-compute', False)
        self.assertEqual(['moved'] * 3, [
            each.outcome for each in self.drain()])
        self.assertAreOn('a2')

    def test_interrupted_drain_continues(self):
        found = self.drain(at_once=1, timeout_s=0)

        self.assertEqual(['moving'] * 3, [each.outcome for each in found])
        self.assertEqual({'moved'}, {each.outcome for each in self.drain()})
        self.assertAreOn('a2')

    def test_deleted_server_is_waited_for_no_more(self):
        def delete(context, uuid):
            self.api.servers.delete(context, uuid)
            raise exception.InstanceNotFound(uuid=uuid)

        self.patch(self.api.moves, 'migrate', delete)

        self.assertEqual(['moved'] * 3, [
            each.outcome for each in self.drain()])
        for uuid in self.uuids:
            self.assertIsGone(uuid)

    def test_bad_input_changes_no_service(self):
        for host, options in (('nix', {}), ('', {}), ('a1', {'at_once': 0}),
                              ('a1', {'at_once': 101}), ('a1\n', {})):
            self.assertRaises(
                (exception.InvalidField, exception.HostMappingNotFound),
                self.api.host_drain.drain, base.ADMIN, host, **options)
        [service] = self.api.services.list(base.ADMIN, host='a1').services
        self.assertFalse(service.disabled)


class TestEvacuate(TestCase):

    def test_host_may_be_named(self):
        self.down('a1')

        found = self.evacuate(to='b1')

        self.assertEqual({'stays'}, set(self.outcomes(found).values()))
        self.assertIn('another cell', found[0].reason)
        self.assertEqual(['moved'] * 3, [
            each.outcome for each in self.evacuate(to='a2')])

    def test_running_host_keeps_its_servers(self):
        found = self.evacuate()

        self.assertEqual({'stays'}, set(self.outcomes(found).values()))
        self.assertIn('forced down', found[0].reason)
        self.assertAreOn('a1')


class TestSpread(moving.TestCase):
    """Weights prefer the fullest of many hosts."""

    def test_evacuated_servers_are_spread(self):
        others = [f'a{number}' for number in range(2, 8)]
        self.start(
            {'cell1': self.hosts('a1', *others, vcpus=16)},
            filter_scheduler={
                'weight_classes': 'RAMWeigher', 'ram_weight_multiplier': -1.0})
        api = self.world.api
        api.parts.discovery.discover()
        for host in others:
            api.services.set(base.ADMIN, host, 'nova-compute', True, 'later')
        uuids = [self.active() for _ in range(SERVERS)]
        for host in others:
            api.services.set(base.ADMIN, host, 'nova-compute', False)
        self.down('a1')

        found = api.host_drain.evacuate(
            base.ADMIN, 'a1', timeout_s=LONG_S, at_once=SERVERS)

        self.assertEqual(['moved'] * SERVERS, [each.outcome for each in found])
        hosts = {self.row(uuid).host for uuid in uuids}
        self.assertNotIn('a1', hosts)
        # The servers do not share one of six hosts by chance.
        self.assertGreater(len(hosts), 1)


class TestHistory(TestCase):

    def test_moves_are_listed_with_reasons_of_failures(self):
        self.moves.migrate(base.ADMIN, self.uuids[0])
        self.assertRests('active', 'a2', self.uuids[0])
        self.api.services.set(base.ADMIN, 'a2', 'nova-compute', True, 'broken')
        self.moves.migrate(base.ADMIN, self.uuids[1])
        self.assertRests('active', 'a1', self.uuids[1])

        page = self.api.history.migrations(base.ADMIN)

        self.soon(lambda: self.assertEqual([
            (self.uuids[1], 'migration', 'error', 'a1', None),
            (self.uuids[0], 'migration', 'done', 'a1', 'a2')], [
            (each.server, each.kind, each.status, each.source, each.dest)
            for each in self.api.history.migrations(base.ADMIN).migrations]))
        self.assertIn('No valid host', page.migrations[0].reason)
        self.assertEqual('', page.migrations[1].reason)
        for wanted, expected in (
                ({'server': self.uuids[0]}, self.uuids[0]),
                ({'host': 'a2'}, self.uuids[0]), ({'limit': 1}, self.uuids[1]),
                ({'status': 'error', 'kind': 'migration'}, self.uuids[1])):
            found = self.api.history.migrations(base.ADMIN, **wanted)
            self.assertEqual([expected], [
                each.server for each in found.migrations], wanted)
        self.assertEqual([], self.api.history.migrations(
            base.ADMIN, kind='rebuild').migrations)

    def test_users_see_only_their_own_servers(self):
        stranger = context.member('x', 'other')

        self.assertRaises(exception.PolicyNotAuthorized,
                          self.api.history.migrations, stranger)
        for read in (self.api.history.migrations, self.api.history.actions):
            self.assertRaises(exception.InstanceNotFound, read, stranger,
                              self.uuids[0])
        self.assertEqual([], self.api.history.migrations(
            base.USER, self.uuids[0]).migrations)

    def test_unreachable_cell_is_named(self):
        self.take_down('cell1')

        page = self.api.history.migrations(base.ADMIN)

        self.assertEqual(([], [self.cells()['cell1'].identity]),
                         (page.migrations, page.down_cells))
        self.assertRaises(exception.CellUnreachable, self.api.history.actions,
                          base.USER, self.uuids[0])

    def test_bad_input_is_refused(self):
        for wanted in ({'limit': 0}, {'limit': 1001}, {'host': ''},
                       {'status': '\n'}, {'kind': 'x' * 300}):
            self.assertRaises(exception.InvalidField,
                              self.api.history.migrations, base.ADMIN,
                              **wanted)
