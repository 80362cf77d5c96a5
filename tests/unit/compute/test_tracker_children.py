# SPDX-License-Identifier: Apache-2.0
"""Reporting the child providers of nodes."""

from cellsched.claims import base as claims
from cellsched.compute import provider_config
from cellsched.db.cell import hosts
from cellsched.db.cell import models
from cellsched import exception
from cellsched.objects import child_providers
from cellsched.objects import resources
from cellsched.virt import base as virt
from tests.unit.compute import tracking


def gpu(total=4, *traits, parent=None):
    return virt.ChildProvider(
        {'VGPU': resources.Inventory(total)}, frozenset(traits), parent)


class TestChildren(tracking.TrackerTestCase):

    def have(self, **providers):
        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, providers=providers)}

    def node(self):
        return [row for row in self.rows(models.compute_nodes)
                if not row.deleted][-1]

    def children(self):
        """Return names, parents and traits as the cell has them."""
        found = child_providers.load(self.node().providers)
        names = {child.uuid: child.name for child in found}
        return {child.name: (names.get(child.parent), child.traits)
                for child in found}

    def room(self):
        """Return room of VGPU by the children of all nodes there were."""
        names = {
            child_providers.uuid_of(row.uuid, name): name
            for row in self.rows(models.compute_nodes)
            for name in ('gpu0', 'gpu1', 'vf0')}
        return {names[usage.provider]: usage.capacity.get('VGPU', 0)
                for usage in self.claims.usages().usages
                if usage.provider in names}

    def test_children_are_told_to_the_cell_and_to_the_store(self):
        self.have(gpu0=gpu(4, 'HW_A'), vf0=gpu(1, parent='gpu0'))

        self.tracker().report()

        self.assertEqual(
            {'gpu0': (None, {'HW_A'}), 'vf0': ('gpu0', frozenset())},
            self.children())
        self.assertEqual({'gpu0': 4, 'vf0': 1}, self.room())

    def find(self, *required, **amounts):
        return self.claims.find_providers(claims.ProviderQuery(
            {name: [amount] for name, amount in amounts.items()},
            frozenset(required)))

    def test_traits_are_told_to_the_store_with_their_tree(self):
        self.have(gpu0=gpu(4, 'HW_A'))
        reports = self.tracker()

        reports.report()

        node = self.node().uuid
        self.assertEqual([node], self.find('COMPUTE_NODE', VCPU=4))
        self.assertEqual([node], self.find('HW_A', VCPU=4, VGPU=4))
        self.assertEqual([], self.find('HW_B', VCPU=4))

        self.have(gpu0=gpu(4, 'HW_B'))
        reports.report()

        self.assertEqual([node], self.find('HW_B', VCPU=4, VGPU=4))
        self.assertEqual([], self.find('HW_A', VCPU=4))

    def test_trait_that_nobody_can_ask_for_is_not_told_to_the_store(self):
        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, traits=frozenset({'lower', 'HW_A'}))}

        self.tracker().report()

        self.assertEqual([self.node().uuid], self.find('HW_A', VCPU=1))
        self.assertIn('lower', self.node().traits)

    def test_store_is_told_once(self):
        told = []
        self.claims.set_traits = lambda *args, **kwargs: told.append(args)
        self.have(gpu0=gpu())
        reports = self.tracker()

        for _ in range(3):
            reports.report()

        self.assertEqual(2, len(told))

    def test_node_without_children_says_nothing_of_them(self):
        self.tracker().report()

        self.assertIsNone(self.node().providers)

    def test_change_of_children_is_a_change_of_the_node(self):
        reports = self.tracker()
        self.have(gpu0=gpu())
        reports.report()
        for change in ({'gpu0': gpu(4, 'HW_A')},
                       {'gpu0': gpu(4, 'HW_A'), 'vf0': gpu(parent='gpu0')},
                       {'gpu0': gpu(4, 'HW_A'), 'vf0': gpu()}, {}):
            with self.cell.reader() as connection:
                since = hosts.changes(connection).token
            self.have(**change)

            reports.report()
            reports.report()

            with self.cell.reader() as connection:
                [row] = hosts.changes(connection, since).nodes
            self.assertEqual(self.node().providers, row.providers)
            self.assertEqual(change.keys(), self.children().keys())

    def test_what_stays_is_told_once(self):
        self.have(gpu0=gpu(), gpu1=gpu())
        reports = self.tracker()
        for _ in range(3):
            reports.report()
        self.assertEqual(3, self.claims.said)

        self.have(gpu0=gpu(), gpu1=gpu(2))
        reports.report()

        self.assertEqual(4, self.claims.said)
        self.assertEqual({'gpu0': 4, 'gpu1': 2}, self.room())

    def test_child_that_went_has_no_room_until_it_is_back(self):
        reports = self.tracker()
        for have, room in (({'gpu0': gpu(), 'gpu1': gpu()}, (4, 4)),
                           ({'gpu0': gpu()}, (4, 0)), ({}, (0, 0)),
                           ({'gpu1': gpu()}, (0, 4))):
            self.have(**have)

            reports.report()

            self.assertEqual(dict(zip(('gpu0', 'gpu1'), room)), self.room())

    def test_child_that_went_while_no_agent_ran_has_no_room(self):
        self.have(gpu0=gpu(), gpu1=gpu())
        self.tracker().report()

        self.have(gpu0=gpu())
        self.tracker().report()

        self.assertEqual({'gpu0': 4, 'gpu1': 0}, self.room())

    def test_cell_knows_a_child_until_it_has_no_room(self):
        self.have(gpu0=gpu())
        self.tracker().report()
        self.have()
        self.claims.failure = exception.DatabaseUnreachable(
            schema='claims', url='x', reason='y')
        self.assertRaises(
            exception.DatabaseUnreachable, self.tracker().report)
        self.assertEqual({'gpu0'}, {*self.children()})

        self.claims.failure = None
        self.tracker().report()

        self.assertEqual({}, self.children())
        self.assertEqual({'gpu0': 0}, self.room())

    def test_child_that_is_back_before_the_cell_forgot_it_has_room(self):
        reports = self.tracker()
        self.have(gpu0=gpu(), gpu1=gpu())
        reports.report()
        before = self.claims.set_inventory
        calls = []

        def fail_second(provider, inventory):
            calls.append(provider)
            if len(calls) == 2:
                raise exception.DatabaseUnreachable(
                    schema='claims', url='x', reason='y')
            before(provider, inventory)

        self.have()
        self.claims.set_inventory = fail_second
        self.assertRaises(exception.DatabaseUnreachable, reports.report)
        self.assertEqual([0, 4], sorted(self.room().values()))

        self.have(gpu0=gpu(), gpu1=gpu())
        reports.report()

        self.assertEqual({'gpu0': 4, 'gpu1': 4}, self.room())

    def test_restart_never_shows_a_node_without_its_children(self):
        self.have(gpu0=gpu())
        self.tracker().report()
        with self.cell.reader() as connection:
            since = hosts.changes(connection).token
        seen = []
        reports = self.tracker(new_uuid=lambda: seen.append(
            self.children().keys()) or child_providers.uuid_of(
                self.node().uuid, f'new{len(seen)}'))

        reports.report()

        self.assertEqual({frozenset({'gpu0'})}, {*map(frozenset, seen)})
        with self.cell.reader() as connection:
            self.assertEqual(
                1, len(hosts.changes(connection, since).nodes))

    def test_node_that_comes_back_has_children_of_its_own(self):
        reports = self.tracker()
        self.have(gpu0=gpu())
        reports.report()
        before = self.node().uuid
        with self.cell.writer() as connection:
            for uuid in hosts.delete(connection, 'host1', self.clock.now()):
                self.claims.set_inventory(uuid, {})

        self.have(gpu0=gpu(5, 'HW_A'))
        reports.report()

        after = self.node().uuid
        self.assertNotEqual(before, after)
        room = {usage.provider: usage.capacity.get('VGPU', 0)
                for usage in self.claims.usages().usages}
        self.assertEqual(
            (0, 5), tuple(room[child_providers.uuid_of(node, 'gpu0')]
                          for node in (before, after)))
        self.assertEqual(
            [child_providers.uuid_of(after, 'gpu0')],
            [child.uuid for child in child_providers.load(
                self.node().providers)])

    def files(self, name, text, kind='name'):
        path = self.temporary_directory() / 'a.yaml'
        path.write_text(
            "meta: {schema_version: '1.0'}\nproviders:\n"
            f'- identification: {{{kind}: {name}}}\n  {text}\n')
        return provider_config.ProviderConfig(str(path.parent))

    def test_files_say_more_of_a_child_by_its_name_or_uuid(self):
        self.have(gpu0=gpu(4, 'HW_A'), gpu1=gpu())
        self.tracker().report()
        uuid = child_providers.uuid_of(self.node().uuid, 'gpu0')
        for name, kind in (('gpu0', 'name'), (uuid, 'uuid')):
            self.tracker(self.files(
                name, 'traits: {additional: [CUSTOM_A]}', kind)).report()
            self.assertEqual(
                {'gpu0': (None, {'HW_A', 'CUSTOM_A'}),
                 'gpu1': (None, frozenset())}, self.children())

            self.tracker(self.files(
                name, 'inventories: {additional: [{CUSTOM_X: {total: 9}}]}',
                kind)).report()
            self.assertEqual(
                {'gpu0': (None, {'HW_A'}), 'gpu1': (None, frozenset())},
                self.children())
            [usage] = self.claims.usages(providers=[uuid]).usages
            self.assertEqual((4, 9), tuple(
                usage.capacity[name] for name in ('VGPU', 'CUSTOM_X')))
        self.assertEqual('', self.logs.output)

    def test_driver_has_the_last_word_of_a_child_and_that_is_said_once(self):
        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, providers={'gpu0': virt.ChildProvider(
                {'CUSTOM_X': resources.Inventory(1)})})}
        reports = self.tracker(self.files(
            'gpu0', 'inventories: {additional: [{CUSTOM_X: {total: 9}}]}'))
        for _ in range(2):
            reports.report()

        [usage] = self.claims.usages(providers=[
            child_providers.uuid_of(self.node().uuid, 'gpu0')]).usages
        self.assertEqual({'CUSTOM_X': 1}, usage.capacity)
        [line] = self.logs.output.splitlines()
        self.assertIn(
            "CUSTOM_X on child provider 'gpu0' of node node1 is ignored",
            line)

    def test_entry_that_names_nothing_is_said_once(self):
        self.have(gpu0=gpu())
        reports = self.tracker(
            self.files('gpu1', 'traits: {additional: [CUSTOM_A]}'))
        for _ in range(2):
            reports.report()

        [line] = self.logs.output.splitlines()
        self.assertIn("ignored: 'gpu1'", line)

    def test_bad_children_of_one_node_leave_all_untold(self):
        self.driver.found = {
            'node0': virt.NodeResources(4, 8192, 100),
            'node1': virt.NodeResources(
                4, 8192, 100, providers={'gpu0': gpu(parent='gpu1')})}

        error = self.assertRaises(
            exception.InvalidField, self.tracker().report)

        self.assertIn("node 'node1': providers['gpu0'].parent", str(error))
        self.assertEqual([], self.rows(models.compute_nodes))
        self.assertEqual(0, self.claims.said)
