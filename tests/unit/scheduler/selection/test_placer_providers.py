# SPDX-License-Identifier: Apache-2.0
"""Requests that several providers meet, placed and claimed together."""

import json

from cellsched.claims import base as claims_base
from cellsched.db.api import aggregates
from cellsched.db.api import shared_providers
from cellsched import exception
from cellsched.scheduler.decision import required_traits
from tests.unit.db import samples
from tests.unit import racing
from tests.unit.scheduler import schedulers

GPU = {'VGPU': claims_base.Inventory(4)}
LINK = {'NET_BW_EGR_KILOBIT_PER_SEC': claims_base.Inventory(1000)}
POOL = '20000000-0000-4000-8000-000000000001'


class ProvidersCase(schedulers.PlacingTestCase):

    hosts = {}

    def setUp(self):
        super().setUp()
        for host in ('a1', 'b1'):
            self.world.add_host(
                'cell1' if host == 'a1' else 'cell2', host, children={
                    f'{host}-gpu0': (GPU, {'CUSTOM_FAST'}),
                    f'{host}-gpu1': (GPU, ()),
                    f'{host}-link': (LINK, {'CUSTOM_PHYSNET_X'})})
        self.restart()

    def gpus(self, amount, **specs):
        return {'extra_specs': {'resources1:VGPU': str(amount), **specs}}

    def held(self, uuid):
        """Return what a server holds, by the names of providers."""
        names = {uuid_: name for name, uuid_ in self.world.providers.items()}
        return {names.get(each.provider, each.provider): dict(each.resources)
                for each in self.world.claims.claims_of([uuid]).get(uuid, ())}

    def available(self, made, host, name):
        """Return what is left in a column of a host."""
        hosts = made.table.view(0)
        return hosts.available(name)[hosts.row(self.world.providers[host])]

    def share(self, disk_gb, *hosts):
        """Have hosts share a pool of disk."""
        with self.world.database.writer() as connection:
            uuid = samples.uuids(1)[0]
            aggregates.create(
                connection, uuid, 'rack', hosts, {}, samples.NOW)
            shared_providers.create(
                connection, shared_providers.SharedProvider(
                    POOL, 'pool', uuid, frozenset({'CUSTOM_SSD'})),
                samples.NOW)
        self.world.claims.set_inventory(
            POOL, {'DISK_GB': claims_base.Inventory(disk_gb)})


class TestGroups(ProvidersCase):

    def test_providers_are_claimed_and_returned_together(self):
        [uuid] = samples.uuids(1)

        [[selection]] = self.place(uuids=[uuid], requested_resources=[
            {'requester_id': 'port', 'resources': {
                'NET_BW_EGR_KILOBIT_PER_SEC': 100},
             'required_traits': ['CUSTOM_PHYSNET_X']}],
            **self.gpus(2, **{'trait1:CUSTOM_FAST': 'required'}))

        self.assertEqual({
            'a1': {'VCPU': 4, 'MEMORY_MB': 1},
            'a1-gpu0': {'VGPU': 2},
            'a1-link': {'NET_BW_EGR_KILOBIT_PER_SEC': 100}}, self.held(uuid))
        self.assertEqual(1, len(self.world.claims.batches))
        said = json.loads(selection.allocation_request)
        of = self.world.providers
        self.assertEqual(
            {'': [of['a1']], '1': [of['a1-gpu0']], 'port': [of['a1-link']]},
            said['mappings'])
        self.assertEqual({'resources': {'VGPU': 2}},
                         said['allocations'][of['a1-gpu0']])
        self.assertEqual(of['a1'], selection.compute_node_uuid)

    def test_amounts_of_each_provider_are_recorded(self):
        self.share(100, 'a1')
        self.world.claims.set_inventory(self.world.providers['a1'], {
            'VCPU': claims_base.Inventory(8),
            'MEMORY_MB': claims_base.Inventory(8192)})
        self.refresh()

        self.place(root_gb=5, **self.gpus(
            2, **{'trait1:CUSTOM_FAST': 'required'}))
        self.place(vcpus=1, root_gb=0)

        parted, plain = (
            decision.picks[0].first
            for *_, decision in self.world.records)
        of = self.world.providers
        self.assertEqual([
            {'group': '', 'provider': of['a1'], 'name': 'a1',
             'resources': {'VCPU': 4, 'MEMORY_MB': 1}},
            {'group': '', 'provider': POOL, 'name': 'pool',
             'resources': {'DISK_GB': 5}},
            {'group': '1', 'provider': of['a1-gpu0'], 'name': None,
             'resources': {'VGPU': 2}}], parted.providers)
        # The host itself gives all of it.
        self.assertEqual((), tuple(plain.providers))

    def test_next_request_uses_remaining_amounts_of_each_provider(self):
        wishes = self.gpus(3)
        for host in ('a1', 'a1', 'b1', 'b1'):
            self.assertEqual([[host]], schedulers.hosts(
                self.place(vcpus=1, **wishes)))

        error = self.assertRaises(
            exception.NoValidHost, self.place, vcpus=1, **wishes)

        self.assertIn('lack a provider of 3 VGPU (by 2 VGPU)', str(error))

    def test_inventory_below_its_use_gives_no_amounts(self):
        [uuid] = samples.uuids(1)
        fast = {'trait1:CUSTOM_FAST': 'required'}
        self.place(uuids=[uuid], vcpus=1, **self.gpus(4, **fast))
        self.world.claims.set_inventory(
            self.world.providers['a1-gpu0'], {
                'VGPU': claims_base.Inventory(2)})
        self.refresh()

        self.assertEqual([-2, 4], sorted(
            self.available(self.loader, 'a1', f'VGPU@{number}')
            for number in (1, 2)))
        self.assertEqual({'VGPU': 4}, self.held(uuid)['a1-gpu0'])
        for expected in ('b1', 'b1', 'b1', 'b1'):
            self.assertEqual([[expected]], schedulers.hosts(
                self.place(vcpus=1, **self.gpus(1, **fast))))
        error = self.assertRaises(
            exception.NoValidHost, self.place, vcpus=1,
            **self.gpus(1, **fast))
        self.assertIn('by 1 VGPU', str(error))

        self.world.claims.release([uuid])
        self.refresh()
        self.assertEqual([['a1']], schedulers.hosts(
            self.place(vcpus=1, **self.gpus(2, **fast))))

    def test_instances_of_a_request_are_decided_in_sequence(self):
        places = self.place(count=4, vcpus=1, **self.gpus(4))

        self.assertEqual(
            [['a1'], ['a1'], ['b1'], ['b1']], schedulers.hosts(places))
        self.assertRaises(
            exception.NoValidHost, self.place, vcpus=1, **self.gpus(1))

    def test_isolated_groups_have_different_providers(self):
        [uuid] = samples.uuids(1)
        self.place(uuids=[uuid], extra_specs={
            'resources1:VGPU': '1', 'resources2:VGPU': '1',
            'group_policy': 'isolate'})

        self.assertEqual({'a1', 'a1-gpu0', 'a1-gpu1'},
                         set(self.held(uuid)))

    def test_class_without_a_number_is_given_by_a_child(self):
        placer, _ = self.world.placer(
            first=[required_traits.Traits(options=None)])
        [uuid] = samples.uuids(1)

        self.place(uuids=[uuid], by=placer, extra_specs={
            'resources:VGPU': '2', 'trait:CUSTOM_FAST': 'required'})

        self.assertEqual({'VGPU': 2}, self.held(uuid)['a1-gpu0'])

    def test_host_is_named_if_only_a_child_gives_resources(self):
        [uuid] = samples.uuids(1)

        [[selection]] = self.place(uuids=[uuid], **self.gpus(1, **{
            'resources:VCPU': '0', 'resources:MEMORY_MB': '0'}))

        self.assertEqual({'a1-gpu1': {'VGPU': 1}}, self.held(uuid))
        self.assertEqual(self.world.providers['a1'],
                         selection.compute_node_uuid)

    def test_server_with_only_a_child_claim_can_be_rebuilt(self):
        [uuid] = samples.uuids(1)
        wishes = self.gpus(1, **{
            'resources:VCPU': '0', 'resources:MEMORY_MB': '0'})
        self.place(uuids=[uuid], **wishes)
        placer, _ = self.world.placer(
            first=schedulers.destinations())

        [[selection]] = self.place(
            uuids=[uuid], by=placer, instance_uuid=uuid, force_hosts=['a1'],
            hints={'_nova_check_type': 'rebuild'}, **wishes)

        self.assertEqual('a1', selection.service_host)

    def test_deleted_server_releases_child_claims(self):
        [uuid] = samples.uuids(1)
        self.place(uuids=[uuid], **self.gpus(1, **{
            'resources:VCPU': '0', 'resources:MEMORY_MB': '0'}))

        self.placer.release('b1', uuid)
        self.assertEqual({'a1-gpu1'}, set(self.held(uuid)))

        self.placer.release('a1', uuid)
        self.assertEqual({}, self.held(uuid))

    def test_repeated_request_gets_its_claimed_providers(self):
        [uuid] = samples.uuids(1)
        first = self.place(uuids=[uuid], **self.gpus(2))

        for made in (self.placer, self.world.placer()[0]):
            [[again]] = self.place(uuids=[uuid], by=made, **self.gpus(2))

            self.assertEqual(
                json.loads(first[0][0].allocation_request),
                json.loads(again.allocation_request))
        self.assertEqual({'VGPU': 2}, self.held(uuid)['a1-gpu1'])

    def test_alternates_name_their_providers(self):
        self.world.add_host('cell1', 'a2', children={'a2-gpu': (GPU, ())})

        [[_, other]] = self.place(alternates=1, **self.gpus(1))

        self.assertEqual(
            {self.world.providers['a2'], self.world.providers['a2-gpu']},
            set(other.requested()))

    def test_request_losing_a_device_gets_another_host(self):
        other, made = self.world.placer()
        self.place(by=other, vcpus=1)
        for _ in range(2):
            self.place(vcpus=1, **self.gpus(4))

        self.assertEqual([['b1']], schedulers.hosts(
            self.place(by=other, vcpus=1, **self.gpus(1))))

        self.assertEqual(0, self.available(made, 'a1', 'VGPU@1'))
        self.assertEqual(0, self.available(made, 'a1', 'VGPU@2'))
        self.assertEqual(5, self.available(made, 'a1', 'VCPU'))

    def test_released_device_is_available(self):
        uuids = samples.uuids(2)
        self.place(vcpus=1, uuids=uuids, **self.gpus(4))
        self.world.claims.release(uuids[:1])
        self.loader.refresh(None)

        self.assertEqual([['a1']], schedulers.hosts(
            self.place(vcpus=1, **self.gpus(4))))


class TestRaces(ProvidersCase):

    #: Times to choose for a request; others may take each of the devices.
    attempts_max = 40

    def race(self, amount, count):
        """Have schedulers place servers at once; return how many they did."""
        placers = [self.world.placer(attempts_max=self.attempts_max)[0]
                   for _ in range(3)]
        outcomes = racing.race(*[
            lambda number=number: self.place(
                by=placers[number % len(placers)], vcpus=0,
                **self.gpus(amount)) for number in range(count)])
        for each in outcomes:
            if isinstance(each, Exception):
                self.assertIsInstance(each, exception.NoValidHost)
        return sum(isinstance(each, list) for each in outcomes)

    def test_concurrent_requests_win_only_existing_devices(self):
        self.assertEqual(16, self.race(1, 24))

        for usage in self.world.claims.usages().usages:
            for resource, used in usage.used.items():
                self.assertLessEqual(used, usage.capacity[resource])

    def test_last_of_each_device_is_given_once(self):
        for _ in range(4):
            self.place(vcpus=0, **self.gpus(3))

        self.assertEqual(4, self.race(1, 12))


class TestSharing(ProvidersCase):

    def setUp(self):
        super().setUp()
        self.share(50, 'a1', 'b1')

    def test_hosts_share_the_remainder_of_a_pool(self):
        uuids = samples.uuids(2)
        wishes = {'vcpus': 4, 'extra_specs': {
            'resources1:DISK_GB': '20', 'trait1:CUSTOM_SSD': 'required'}}
        other, _ = self.world.placer()

        for uuid, by in zip(uuids, (self.placer, other)):
            self.place(uuids=[uuid], by=by, **wishes)

        for uuid in uuids:
            self.assertEqual({'DISK_GB': 20}, self.held(uuid)[POOL])
        for by in (self.placer, other):
            error = self.assertRaises(
                exception.NoValidHost, self.place, by=by, vcpus=1,
                extra_specs=wishes['extra_specs'])
            self.assertIn('by 10 GB', str(error))

    def test_instances_of_a_request_share_the_pool(self):
        self.assertRaises(
            exception.NoValidHost, self.place, count=3, vcpus=1,
            extra_specs={'resources1:DISK_GB': '20',
                         'trait1:CUSTOM_SSD': 'required'})

        self.assertEqual([], self.world.claims.consumers())

    def test_deleted_pool_is_not_used(self):
        self.place(vcpus=1)
        with self.world.database.writer() as connection:
            shared_providers.delete(connection, POOL)
        self.loader.refresh(None)

        self.assertRaises(
            exception.NoValidHost, self.place, vcpus=1,
            extra_specs={'resources1:DISK_GB': '20',
                         'trait1:CUSTOM_SSD': 'required'})

    def test_host_outside_of_the_aggregate_has_no_share(self):
        self.world.add_host('cell1', 'a0', vcpus=100)

        [[selection]] = self.place(extra_specs={
            'resources1:DISK_GB': '20', 'trait1:CUSTOM_SSD': 'required'})

        self.assertEqual('a1', selection.service_host)
