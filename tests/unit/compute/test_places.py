# SPDX-License-Identifier: Apache-2.0
"""The cells and devices of the servers of a host."""

import contextlib
import dataclasses
import functools
import pathlib
import threading
import types

from cellsched.claims import base as claims_base
from cellsched.compute import places
from cellsched import exception
from cellsched.hardware import description
from cellsched.hardware import devices
from cellsched.hardware.fit import Demand
from cellsched.hardware.fit import Networks
from cellsched.hardware.fit import Ratios
from cellsched.hardware import guest
from cellsched.hardware import units
from tests.unit import base
from tests.unit.db import samples
from tests.unit import racing

CELLS = [
    {'id': 0, 'memory_mb': 1024, 'cpus': '0,3', 'dedicated': '1-2,4-5',
     'siblings': 2, 'physnets': ['near0'],
     'pages': [{'size_kb': 4, 'total': 262144},
               {'size_kb': 2048, 'total': 64}]},
    {'id': 1, 'memory_mb': 1024, 'cpus': '6,9', 'dedicated': '7-8,10-11',
     'siblings': 2}]

NICS = {'vendor_id': '8086', 'product_id': '154c', 'count': 3, 'numa_node': 1}

NIC = devices.DeviceRequest(1, ({'vendor_id': '8086'},), 'nic')


def hardware(provider='node', ratios=Ratios(), **described):
    found = description.read('test', {
        'cells': CELLS, 'devices': [NICS], **described})
    return places.NodeHardware(provider, found.topology, found.devices, ratios)


def request(vcpus=2, memory_mb=256, policy=guest.DEDICATED, nics=0,
            cells=1, **fields):
    cpus = frozenset(range(vcpus))
    shared, pinned = ((frozenset(), cpus) if policy == guest.DEDICATED
                      else (cpus, frozenset()))
    topology = guest.GuestTopology(tuple(
        guest.GuestCell(number, shared, pinned, memory_mb, policy=policy,
                        **fields) for number in range(cells)))
    return Demand(topology, (NIC,) * nics)


class TestPlaces(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        self.places = self.start()
        self.uuids = samples.uuids(20)

    def start(self, **described):
        """Return the places of an agent that starts, after its report."""
        found = places.Places(places.PlaceFiles(str(self.directory)))
        found.report('node1', hardware(**described))
        return found

    def test_server_with_other_cpus_than_claimed_is_misplaced(self):
        held, uuid = {}, self.uuids[0]
        kept = places.Places(claims=types.SimpleNamespace(
            claims_of=lambda consumers: {
                each: [claims_base.Claim(each, 'node', held)]
                for each in consumers}))
        kept.report('node1', hardware())
        kept.place(uuid, 'node1', request(nics=1))
        held |= {'PCPU': 2, units.cpu(1): 1}

        used = kept.misplaced([uuid])[uuid]

        [device] = [name for name in used if 'POOL' in name]
        self.assertEqual(
            {units.cpu(7): 1, units.cpu(10): 1, units.memory(1): 256,
             device: 1}, used)
        self.assertEqual({}, kept.misplaced(self.uuids[1:]))
        for claimed, expected in (
                ({'PCPU': 2}, {}), (used, {}), ({**used, units.cpu(8): 1}, {}),
                ({**used, device: 0}, {uuid: used}),
                ({**used, units.memory(1): 255}, {uuid: used})):
            held.clear()
            held |= claimed
            self.assertEqual(expected, kept.misplaced([uuid]), claimed)

    def place(self, number, *args, node='node1', **fields):
        self.places.place(self.uuids[number], node, request(*args, **fields))

    def refused(self, *args, **fields):
        """Return the reason of a refusal that changes no usage."""
        before = self.usage()
        error = self.assertRaises(
            exception.BuildFailed, self.place, 19, *args, **fields)
        self.assertEqual(before, self.usage())
        self.assertNotIn(self.uuids[19], self.places.list_all())
        return error.reason

    def usage(self, of=None):
        topology, pools = (of or self.places).report('node1', hardware())
        return ([(sorted(cell.pinned), cell.cpu_usage, cell.memory_usage,
                  [pages.used for pages in cell.pages])
                 for cell in topology.cells],
                [pool.count for pool in pools])

    def test_servers_use_cells_pages_and_devices(self):
        self.place(0, 2, page_size=2048, memory_mb=64)
        self.place(1, 2, policy=guest.SHARED, nics=2)

        self.assertEqual((
            [([1, 4], 0, 64, [0, 32]), ([], 2, 256, [])], [1]),
            self.usage())

    def test_server_keeps_its_place(self):
        self.place(0, nics=3)
        before = self.usage()

        self.place(0, nics=3)

        self.assertEqual([0], before[1])
        self.assertEqual(before, self.usage())

    def test_full_cells_refuse_until_a_server_leaves(self):
        self.place(0, 4)
        self.place(1, 4)

        self.assertEqual(
            'its host has no NUMA cells with enough free CPUs and memory',
            self.refused(1))

        self.places.remove(self.uuids[0])
        self.places.remove(self.uuids[0])
        self.place(2, 4)
        self.assertEqual([self.uuids[1], self.uuids[2]],
                         self.places.list_all())

    def test_refusal_names_devices(self):
        self.place(0, nics=3)

        self.assertIn('no free PCI devices or networks near NUMA cells',
                      self.refused(nics=1))
        error = self.assertRaises(
            exception.BuildFailed, self.places.place, self.uuids[19],
            'node1', Demand(None, (NIC,)))
        self.assertEqual(
            'its host has too few free PCI devices', error.reason)

    def test_refusal_names_networks(self):
        self.place(0, 4)
        self.place(1, 2)
        error = self.assertRaises(
            exception.BuildFailed, self.places.place, self.uuids[2], 'node1',
            Demand(request().topology,
                   networks=Networks(frozenset({'near0'}))))

        self.assertIn('networks near NUMA cells', error.reason)

    def test_ratios_of_the_host_decide_on_shared_cpus(self):
        self.place(0, 2, policy=guest.SHARED, cells=2, memory_mb=64)
        self.assertIn('NUMA cells', self.refused(
            1, policy=guest.SHARED, memory_mb=64))

        self.places.report('node1', hardware(ratios=Ratios(2.0, 1.0)))
        self.place(1, 1, policy=guest.SHARED, memory_mb=64)

        self.assertIn(self.uuids[1], self.places.list_all())

    def test_packed_servers_share_a_cell(self):
        for packs, expected in (False, {0: 1, 1: 1}), (True, {0: 2}):
            kept = places.Places(packs_cells=packs)
            node = hardware(devices=[])
            kept.report('node1', node)
            for uuid in self.uuids[:2]:
                kept.place(uuid, 'node1', request(1, 64))
            topology, _ = kept.report('node1', node)
            self.assertEqual(expected, {
                each.id: len(each.pinned) for each in topology.cells
                if each.pinned})

    def test_node_without_cells_gives_none(self):
        self.places.place(self.uuids[0], 'unknown', request())

        self.assertEqual([], self.places.list_all())
        self.assertIn('Node unknown reports no NUMA cells', self.logs.output)

    def test_node_with_devices_only_refuses(self):
        self.places.report('node2', places.NodeHardware(
            'p', devices=devices.pools([{'vendor_id': '8086', 'count': 1}])))

        self.assertEqual(
            'its host has no NUMA cells', self.refused(node='node2'))

    def test_place_names_the_request_of_each_device(self):
        nic = dataclasses.replace(NIC, request_id='first')
        other = dataclasses.replace(NIC, request_id='second', count=2)
        self.places.place(
            self.uuids[0], 'node1', Demand(None, (nic, other)))

        for kept in self.places, self.start():
            self.assertEqual([('first', 1), ('second', 2)], [
                (each.request_id, each.pool.count)
                for each in kept.get(self.uuids[0]).devices])

    def test_restarted_agent_knows_the_policy_of_the_emulator(self):
        topology = request().topology._replace(
            emulator_policy='share')
        self.places.place(self.uuids[0], 'node1', Demand(topology))

        for kept in self.places, self.start():
            self.assertEqual(
                'share', kept.get(self.uuids[0]).emulator_policy)

    def test_restarted_agent_knows_the_places(self):
        self.place(1, 3, nics=2)
        self.place(2, 2, policy=guest.SHARED)
        self.place(3)
        self.places.remove(self.uuids[3])

        self.assertEqual(self.usage(), self.usage(self.start()))
        self.assertEqual(sorted(self.uuids[1:3]),
                         sorted(self.start().list_all()))

    def test_node_under_another_name_keeps_its_places(self):
        self.place(0, 4)
        self.place(1, 4)

        self.places.report('renamed', hardware())

        self.assertIn('NUMA cells', self.refused(1, node='renamed'))

    def test_places_of_another_node_do_not_count(self):
        self.places.report('node2', hardware('other'))
        for number in range(2):
            self.place(number, 4)
            self.place(number + 2, 4, node='node2')

        self.assertEqual(4, len(self.places.list_all()))

    def test_server_on_another_node_of_the_host_is_placed_anew(self):
        self.places.report('node2', hardware('other'))
        self.place(0, 4)
        self.place(0, 4, node='node2')

        self.assertEqual([], self.usage()[0][0][0])

    def test_removed_cells_and_devices_are_not_counted(self):
        self.place(0, 4, nics=1)
        self.place(1, 4)

        topology, pools = self.places.report(
            'node1', hardware(cells=CELLS[:1], devices=[
                {**NICS, 'product_id': 'ffff', 'numa_node': None}]))

        [cell] = topology.cells
        self.assertEqual({1, 2, 4, 5}, cell.pinned)
        self.assertEqual([3], [pool.count for pool in pools])

    def test_cpus_in_other_cells_stay_with_their_server(self):
        self.place(0)
        pinned = frozenset().union(*(
            each.pinned for each in self.places.get(self.uuids[0]).cells))
        first, second = CELLS
        for cells in (
                [{**first, 'id': 1}, {**second, 'id': 0}],
                [{**first, 'id': 2}, {**second, 'id': 3}],
                [{'id': 0, 'memory_mb': 2048, 'dedicated': '1-2,4-5,7-11'}]):
            topology, _ = self.places.report('node1', hardware(
                cells=cells, devices=[]))
            offered = frozenset().union(*(
                each.pcpus for each in topology.cells))
            free = frozenset().union(*(
                each.free_pcpus for each in topology.cells))
            self.assertEqual(offered - pinned, free)

    def test_devices_with_other_tags_stay_with_their_server(self):
        self.place(0, nics=2)
        for fields, free, reserved in (
                ({'tags': {'trusted': 'true'}}, 1, 2),
                ({'numa_node': 0}, 1, 2),
                ({'count': 1}, 0, 0), ({'product_id': 'ffff'}, 3, 0)):
            changed = hardware(devices=[{**NICS, **fields}])

            _, pools = self.places.report('node1', changed)

            self.assertEqual(
                free, sum(pool.count for pool in pools), fields)
            found = self.places.device_inventories('node', changed.devices)
            self.assertEqual(reserved, found[units.device(
                changed.devices[0])].reserved, fields)
            # The claims of the server have a former class.
            self.assertEqual(1 + bool(reserved), len(found), fields)

    def test_device_with_an_address_is_recognized(self):
        cards = [{**NICS, 'count': 1, 'tags': {'address': each}}
                 for each in ('0000:81:00.0', '0000:82:00.0')]
        self.places.report('node1', hardware(devices=cards))
        self.place(0, nics=1)
        for card in cards:
            card['tags']['trusted'] = 'true'
        changed = hardware(devices=cards[::-1])

        _, pools = self.places.report('node1', changed)

        self.assertEqual(['0000:82:00.0'], [
            pool.values['address'] for pool in pools if pool.count])
        found = self.places.device_inventories('node', changed.devices)
        self.assertEqual([0, 1], [
            found[units.device(each)].reserved for each in changed.devices])

    def test_missing_hardware_of_servers_is_named(self):
        self.place(0, page_size=2048, memory_mb=64)
        self.place(1, nics=3)
        self.assertEqual([], list(self.places.misfits('node1')))
        self.places.report('node1', hardware(cells=[
            {**CELLS[0], 'dedicated': '1-2,5', 'siblings': 1, 'pages': [
                {'size_kb': 4, 'total': 262144},
                {'size_kb': 2048, 'total': 30}]}, CELLS[1]],
            devices=[{**NICS, 'count': 1}]))

        self.assertEqual([
            'Node node1 does not offer the dedicated CPUs 4 of server '
            + self.uuids[0],
            'NUMA cell 0 of node node1 lacks 2 pages of 2048 KiB that its '
            'servers have',
            'Node node1 does not report 2 PCI devices of its servers'],
            list(self.places.misfits('node1')))

    def test_claim_of_a_device_in_use_is_refused(self):
        [nics] = hardware().devices
        store = types.SimpleNamespace(claims_of=lambda consumers: {
            each: [claims_base.Claim(each, 'node', {units.device(nics): 2})]
            for each in consumers})
        kept = places.Places(claims=store)
        kept.report('node1', hardware())
        two = Demand(None, (dataclasses.replace(NIC, count=2),))
        kept.place(self.uuids[0], 'node1', two)

        error = self.assertRaises(
            exception.BuildFailed, kept.place, self.uuids[1], 'node1', two)

        self.assertIn('still uses the CPUs, pages or devices', error.reason)
        kept.remove(self.uuids[0])
        kept.place(self.uuids[1], 'node1', two)

    def test_unstorable_place_is_free(self):
        (self.directory / 'places').touch()

        error = self.assertRaises(exception.BuildFailed, self.place, 0)

        self.assertNotIn(str(self.directory), error.reason)
        self.assertEqual([], self.places.list_all())

    def test_unremovable_file_is_logged(self):
        self.place(0)
        path = self.directory / 'places' / self.uuids[0]
        path.unlink()
        path.mkdir()

        self.places.remove(self.uuids[0])

        self.assertEqual([], self.places.list_all())
        self.assertIn('Could not remove the file of the NUMA cells',
                      self.logs.output)

    def test_damaged_file_is_refused_with_its_name(self):
        self.place(0)
        path = self.directory / 'places' / self.uuids[0]
        for text in '', '[]', '{}', '{"provider": "a"}', path.read_text(
                ).replace('"memory"', '"meomry"'):
            path.write_text(text)

            error = self.assertRaises(
                exception.ConfigurationInvalid, self.start)

            self.assertIn(str(path), str(error))

    def test_unfinished_and_other_files_are_ignored(self):
        self.place(0)
        for name in f'{self.uuids[1]}.new', 'README':
            (self.directory / 'places' / name).touch()

        self.assertEqual([self.uuids[0]], self.start().list_all())

    def test_files_are_named_by_uuids_only(self):
        kept = pathlib.Path(self.directory, 'kept')
        kept.touch()
        for name in '../kept', '..', '', str(kept):
            self.places.place(name, 'node1', request(1))
            self.places.remove(name)

        self.assertTrue(kept.exists())

    def test_concurrent_servers_share_no_device(self):
        meeting = threading.Barrier(2)

        class Meeting(tuple):
            """Requests that are read when another server reads its own."""

            def __iter__(self):
                with contextlib.suppress(threading.BrokenBarrierError):
                    meeting.wait(0.05)
                return super().__iter__()

        request = Demand(None, Meeting([dataclasses.replace(
            NIC, count=3)]))

        results = racing.race(*(
            functools.partial(self.places.place, uuid, 'node1', request)
            for uuid in self.uuids[:2]))

        self.assertEqual(1, results.count(None))
        self.assertEqual(1, len(self.places.list_all()))


class TestUsedDevices(base.TestCase):
    """Devices that serve one server each."""

    CARD = {**NICS, 'count': 1, 'tags': {
        'address': '0000:81:00.0', 'one_time_use': 'yes'}}

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        self.uuids = samples.uuids(3)
        self.hardware = hardware(devices=[self.CARD])
        self.places = self.start()

    def start(self, claims=None):
        found = places.Places(
            places.PlaceFiles(str(self.directory)), claims)
        found.report('node1', self.hardware)
        return found

    def place(self, number):
        self.places.place(self.uuids[number], 'node1', Demand(None, (NIC,)))

    def refused(self):
        error = self.assertRaises(exception.BuildFailed, self.place, 1)
        self.assertIn('too few free PCI devices', error.reason)

    @property
    def state(self):
        """The numbers of free devices and of reserved ones."""
        _, pools = self.places.report('node1', self.hardware)
        return (sum(pool.count for pool in pools), sum(
            each.reserved for each in self.places.device_inventories(
                'node', self.hardware.devices).values()))

    def test_used_device_is_reserved_until_its_file_is_removed(self):
        self.assertEqual((1, 0), self.state)
        self.place(0)
        self.assertEqual((0, 0), self.state)
        self.places.remove(self.uuids[0])

        for _ in range(2):
            self.assertEqual((0, 1), self.state)
            self.refused()
            self.places = self.start()

        [path] = (self.directory / 'used_devices').iterdir()
        self.assertIn('0000:81:00.0', path.read_text())
        path.unlink()
        self.assertEqual((1, 0), self.state)
        self.place(1)

    def test_used_device_with_other_tags_stays_reserved(self):
        self.place(0)
        self.places.remove(self.uuids[0])
        self.hardware = hardware(devices=[
            {**self.CARD, 'tags': {**self.CARD['tags'], 'managed': 'no'}}])

        self.assertEqual((0, 1), self.state)

    def test_used_devices_of_a_common_pool_are_reserved(self):
        [card] = self.hardware.devices
        self.hardware = dataclasses.replace(
            self.hardware, devices=(card.without(-2),))
        self.places = self.start(types.SimpleNamespace(
            claims_of=lambda consumers: {each: [claims_base.Claim(
                each, 'node', {units.device(card): 1})]
                for each in consumers}))
        for number in range(3):
            self.place(number)
            self.places.remove(self.uuids[number])
            self.assertEqual((2 - number, number + 1), self.state)

    def test_device_of_an_earlier_place_stays_reserved(self):
        cards = [{**self.CARD, 'tags': {**self.CARD['tags'], 'address': each}}
                 for each in ('0000:81:00.0', '0000:82:00.0')]
        self.hardware = hardware(devices=cards)
        first, second = self.hardware.devices
        claimed = [first]
        self.places = self.start(types.SimpleNamespace(
            claims_of=lambda consumers: {each: [claims_base.Claim(
                each, 'node', {units.device(claimed[0]): 1})]
                for each in consumers}))
        self.place(0)
        claimed[0] = second
        (self.directory / 'used_devices').touch()
        self.assertRaises(exception.BuildFailed, self.place, 0)
        self.assertEqual((first,), self.places.get(self.uuids[0]).pools)
        (self.directory / 'used_devices').unlink()
        self.place(0)

        self.assertEqual((0, 1), self.state)
        self.assertEqual((second,), self.places.get(self.uuids[0]).pools)
        claimed[0] = first
        error = self.assertRaises(exception.BuildFailed, self.place, 0)
        self.assertIn('devices', error.reason)
        self.assertEqual((0, 1), self.state)

    def test_equal_device_of_another_node_is_free(self):
        other = dataclasses.replace(self.hardware, provider='other')
        self.place(0)
        self.places.remove(self.uuids[0])
        _, [pool] = self.places.report('node2', other)

        self.assertEqual(1, pool.count)
        self.assertEqual((0, 1), self.state)

    def test_damaged_file_of_a_used_device_is_refused(self):
        self.place(0)
        self.places.remove(self.uuids[0])
        [path] = (self.directory / 'used_devices').iterdir()
        path.write_text('{')

        error = self.assertRaises(
            exception.ConfigurationInvalid, lambda: self.state)

        self.assertIn(str(path), str(error))

    def test_claim_does_not_free_a_used_device(self):
        self.place(0)
        self.places.remove(self.uuids[0])
        [card] = self.hardware.devices
        self.places = self.start(types.SimpleNamespace(
            claims_of=lambda consumers: {each: [claims_base.Claim(
                each, 'node', {units.device(card): 1})]
                for each in consumers}))

        self.refused()

    def test_device_stays_with_its_server_if_the_file_fails(self):
        self.place(0)
        (self.directory / 'used_devices').touch()

        self.places.remove(self.uuids[0])

        self.assertEqual([self.uuids[0]], self.places.list_all())
        self.assertIn('file of a used device could not be written',
                      self.logs.output)


class TestClaimedPlaces(base.TestCase):
    """Claims name the CPUs, pages and devices of servers."""

    #: Two CPUs of the second cell.
    NAMED = {units.cpu(8): 1, units.cpu(11): 1, units.memory(1): 256}

    def setUp(self):
        super().setUp()
        self.claims = {}
        self.first, self.second = samples.uuids(2)
        self.places = places.Places(claims=types.SimpleNamespace(
            claims_of=lambda consumers: {
                each: [claims_base.Claim(each, *self.claims[each])]
                for each in consumers if each in self.claims}))
        self.places.report('node1', hardware())

    def claim(self, consumer, named, provider='node'):
        self.claims[consumer] = provider, {'PCPU': 2, **named}

    def place(self, uuid, request_=None, **options):
        self.places.place(uuid, 'node1', request_ or request(), **options)

    def pinned(self, **described):
        topology, _ = self.places.report('node1', hardware(**described))
        return [sorted(each.pinned) for each in topology.cells]

    def refused(self, request_=None):
        error = self.assertRaises(
            exception.BuildFailed, self.place, self.second, request_)
        self.assertEqual([self.first], self.places.list_all())
        return error.reason

    def test_server_gets_the_cpus_of_its_claim(self):
        self.claim(self.first, self.NAMED)

        self.place(self.first)

        self.assertEqual([[], [8, 11]], self.pinned())

    def test_claim_of_a_part_of_the_last_core_is_enough(self):
        # One core has the threads 1 and 4, the other 2 and 5.
        for cpus in [2], [1, 4, 2], [1, 4, 2, 5]:
            self.claim(self.first, {
                units.memory(0): 256, units.pages(0, 4): 65536,
                **{units.cpu(each): 1 for each in cpus}})

            self.place(self.first, request(
                len(cpus), thread_policy=guest.REQUIRE))

            [cell] = self.places.get(self.first).cells
            self.assertEqual(tuple(enumerate(cpus)), cell.pins.cpus)

    def test_emulator_of_a_claim_has_a_thread_of_another_core(self):
        demand = request(1, thread_policy=guest.REQUIRE)
        self.claim(self.first, {
            units.memory(0): 256, units.pages(0, 4): 65536,
            units.cpu(1): 1, units.cpu(2): 1})

        self.place(self.first, demand._replace(
            topology=demand.topology._replace(
                emulator_policy=guest.ISOLATE)))

        [cell] = self.places.get(self.first).cells
        self.assertEqual((((0, 1),), {2}), (
            cell.pins.cpus, cell.pins.reserved))

    def test_claimed_memory_fits_on_a_host_with_more_memory_than_pages(self):
        cells = [{**CELLS[0], 'pages': [
            {'size_kb': 4, 'total': 70_000, 'reserved': 1000}]}]
        self.places.report('node1', hardware(cells=cells, devices=[]))
        self.claim(self.first, {units.cpu(1): 1, units.cpu(4): 1, units.memory(
            0): 256, units.pages(0, 4): 65536})

        self.place(self.first)

        self.assertEqual([[1, 4]], self.pinned(cells=cells, devices=[]))

    def test_claimed_memory_fits_on_an_overcommitted_host(self):
        ratios = Ratios(4.0, 1.5)
        self.places.report('node1', hardware(ratios=ratios))
        self.claim(self.first, self.NAMED)
        self.claim(self.second, {
            units.shared_cpus(1): 2, units.memory(1): 1024})

        self.place(self.first)
        self.place(self.second, request(
            policy=guest.SHARED, memory_mb=1024))

        self.assertEqual([[], [8, 11]], self.pinned(ratios=ratios))

    def test_claimed_cpus_of_another_guest_are_refused(self):
        for uuid in self.first, self.second:
            self.claim(uuid, self.NAMED)
        self.place(self.first)

        self.assertIn('still uses the CPUs', self.refused())

    def test_claimed_cpus_of_a_former_cell_stay_with_their_guest(self):
        cpus = {name: 1 for name in self.NAMED if 'PCPU' in name}
        self.claim(self.first, self.NAMED)
        self.place(self.first)
        before = self.places.get(self.first)
        self.pinned(devices=[], cells=[{
            'id': 0, 'memory_mb': 2048, 'dedicated': '1-2,4-5,7-8,10-11'}])

        self.place(self.first)
        self.assertEqual(before, self.places.get(self.first))
        del self.claims[self.first]
        self.claim(self.second, {**cpus, units.memory(0): 256})
        self.assertIn('still uses the CPUs', self.refused())

    def test_claimed_device_of_another_guest_is_refused(self):
        device = {units.device(devices.pools([
            {**NICS, 'dev_type': 'type-PCI'}])[0]): 2}
        two = Demand(None, (dataclasses.replace(NIC, count=2),))
        for uuid in self.first, self.second:
            self.claim(uuid, device)
        self.place(self.first, two)

        self.assertIn('still uses', self.refused(two))

    def test_claimed_pages_of_another_guest_are_refused(self):
        large = request(policy=guest.SHARED, memory_mb=128, page_size=2048)
        for uuid in self.first, self.second:
            self.claim(uuid, {
                units.shared_cpus(0): 1, units.memory(0): 128,
                units.pages(0, 2048): 64})
        self.place(self.first, request(
            1, policy=guest.SHARED, memory_mb=128, page_size=2048))

        self.assertIn('still uses', self.refused(large))

    def test_place_follows_newer_claims(self):
        self.claim(self.first, self.NAMED)
        self.place(self.first)
        self.claim(self.first, {
            units.cpu(7): 1, units.cpu(8): 1, units.memory(1): 256})

        self.place(self.first)

        self.assertEqual([[], [7, 8]], self.pinned())

    def test_place_stays_without_claims_on_the_node(self):
        self.claim(self.first, self.NAMED)
        self.place(self.first)
        self.claim(self.first, self.NAMED, provider='other')

        self.place(self.first)

        self.assertEqual([[], [8, 11]], self.pinned())

    def test_first_consumer_with_claims_on_the_node_counts(self):
        self.claim('move', {units.cpu(7): 1, units.cpu(10): 1,
                            units.memory(1): 256}, provider='other')
        self.claim(self.first, self.NAMED)
        self.claim('late', {units.cpu(1): 1, units.cpu(2): 1,
                            units.memory(0): 256})

        self.place(self.first, consumers=['move', self.first, 'late'])

        self.assertEqual([[], [8, 11]], self.pinned())


class TestRequestOf(base.TestCase):

    def test_request_without_cells_and_devices_is_none(self):
        for documents in (None, None), ({}, {'requests': []}):
            self.assertIsNone(places.request_of(*documents))

    def test_malformed_document_is_refused(self):
        for documents in ({'cells': 7}, None), (None, {'requests': 7}), (
                None, None, 7):
            self.assertRaises(
                exception.InvalidField, places.request_of, *documents)
