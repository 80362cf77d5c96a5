# SPDX-License-Identifier: Apache-2.0
"""Hosts that the networks of a request restrict it to."""

from cellsched import context
from cellsched import exception
from cellsched.network import fake
from cellsched.network import noop
from cellsched import objects
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler import network_requirements
from cellsched.testing import builders
from tests.unit.network import networks
from tests.unit.scheduler import prefiltering

EAST, WEST = (builders.aggregate(number).uuid for number in (1, 2))


def wished(*pairs):
    """Return networks and ports as they travel."""
    return {'nova_object.name': 'NetworkRequestList', 'nova_object.data': {
        'objects': [{'nova_object.data': {'network_id': network,
                                          'port_id': port}}
                    for network, port in pairs]}}


class Broken(fake.FakeNetworks):
    """Cannot say where segments are."""

    def segment_aggregates(self, context, requested_networks):
        raise exception.NetworkError(uuid='net1', reason='it is unknown')


class TestNetworkNeeds(prefiltering.PrefilterTestCase):

    hosts_ = property(lambda self: builders.hosts(
        aggregates=[(builders.aggregate(1),), (builders.aggregate(2),),
                    (builders.aggregate(1), builders.aggregate(2)), ()],
        traits=[frozenset({network_requirements.REMOTE_MANAGED})]
        + [frozenset()] * 3))

    def add(self, request, kind=fake.FakeNetworks, routed=True):
        network = networks.make(
            kind, segment_aggregates=f'net1:[{EAST}],net2:[{EAST},{WEST}],'
            f'net3:[{WEST}],net4:[]', remote_managed_ports=['port1'])
        return network_requirements.NetworkRequirements(network, routed).add(
            context.admin(), request)

    def left(self, *pairs, routed=True, **fields):
        request = self.add(builders.request(
            requested_networks=wished(*pairs), **fields), routed=routed)
        stages = [*mandatory_stages.destination_stages(60.0), *self.stages()]
        return pipeline.Pipeline([], [], stages).candidates(
            self.hosts_, request).rows.tolist()

    def test_host_is_in_an_aggregate_of_each_routed_network(self):
        for networks_, left in (
                (['net1'], [0, 2]), (['net2'], [0, 1, 2]),
                (['net1', 'net3'], [2]), (['flat'], [0, 1, 2, 3]),
                (['net4'], []), ([], [0, 1, 2, 3])):
            self.assertEqual(left, self.left(
                *((name, None) for name in networks_)), networks_)

    def test_aggregates_that_were_requested_hold_too(self):
        self.assertEqual([2], self.left(
            ('net1', None), requested_destination=objects.Destination(
                aggregates=[WEST])))

    def test_routed_networks_are_looked_up_only_where_that_is_on(self):
        self.assertEqual([0, 1, 2, 3], self.left(
            ('net1', None), routed=False))

    def test_port_that_is_managed_remotely_needs_its_trait(self):
        for routed in (False, True):
            self.assertEqual([0], self.left(
                (None, 'port1'), (None, 'port2'), routed=routed))
            self.assertEqual([0, 1, 2, 3], self.left(
                (None, 'port2'), routed=routed))

    def test_what_the_caller_holds_stays_as_it_is(self):
        target = objects.Destination(aggregates=[WEST])
        params = {'nova_object.data': {'root_required': ['A']}}
        request = builders.request(
            requested_networks=wished(('net1', 'port1')),
            requested_destination=target, request_level_params=params)

        made = self.add(request)

        self.assertEqual([WEST, EAST], made.requested_destination.aggregates)
        self.assertEqual(
            ['A', network_requirements.REMOTE_MANAGED],
            made.request_level_params['nova_object.data']['root_required'])
        self.assertEqual([WEST], target.aggregates)
        self.assertEqual(['A'], params['nova_object.data']['root_required'])

    def test_request_is_the_same_where_nothing_is_known(self):
        plain = builders.request()
        wishing = builders.request(requested_networks=wished(('net1', None)))

        self.assertIs(plain, self.add(plain))
        self.assertIs(wishing, network_requirements.NetworkRequirements(
            networks.make(noop.NoopNetworks), True).add(
                context.admin(), wishing))

    def test_network_that_cannot_be_looked_up_finds_no_host(self):
        error = self.assertRaises(
            exception.NoValidHost, self.add, builders.request(
                requested_networks=wished(('net1', None))), Broken)

        self.assertIn('it is unknown', error.reason)
