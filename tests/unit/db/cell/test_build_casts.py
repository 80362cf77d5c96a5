# SPDX-License-Identifier: Apache-2.0
"""Builds that a compute host was told of."""

import dataclasses

from cellsched.db.cell import build_casts
from cellsched import exception
from cellsched import objects
from tests.unit.base import TestCase
from tests.unit.db.cell import base
from tests.unit.db import samples
from tests.unit import racing


def cast(uuid, **fields):
    return build_casts.BuildCast(**{
        'instance_uuid': uuid, 'host': 'h', 'node': 'n', 'message': '{}',
        'cast_at': 100.0, **fields})


class TestBuildCasts(base.TestCase):

    def setUp(self):
        super().setUp()
        self.uuids = samples.uuids(3)

    def create(self, *casts):
        self.write(build_casts.create, casts)

    def get(self, uuid):
        return self.read(build_casts.get, uuid)

    def test_cast_is_stored_until_deleted(self):
        told = [cast(uuid) for uuid in self.uuids]
        self.create(*told)
        self.assertEqual(told[1], self.get(self.uuids[1]))

        self.write(build_casts.drop, self.uuids[:2])
        self.write(build_casts.drop, self.uuids[:2])

        self.assertEqual(
            [None, None, told[2]], [self.get(each) for each in self.uuids])

    def test_second_cast_is_ignored_and_the_next_host_replaces_the_first(self):
        first = cast(self.uuids[0])
        self.create(first)
        self.create(dataclasses.replace(first, host='other'))
        self.assertEqual(first, self.get(self.uuids[0]))

        moved = dataclasses.replace(first, host='other', cast_at=120.0)
        self.write(build_casts.replace, moved)

        self.assertEqual(moved, self.get(self.uuids[0]))

    def test_oldest_casts_are_taken_first(self):
        old, older, new = (
            cast(uuid, cast_at=at)
            for uuid, at in zip(self.uuids, (50.0, 40.0, 60.0)))
        self.create(old, older, new)

        self.assertEqual([older], self.take(1))
        self.assertEqual([old], self.take(10))

    def test_taken_cast_counts_as_sent_now(self):
        self.create(cast(self.uuids[0], cast_at=40.0))
        self.assertTrue(self.read(build_casts.is_any_before, 60.0))

        self.take(10)

        self.assertFalse(self.read(build_casts.is_any_before, 60.0))
        self.assertEqual(cast(self.uuids[0], cast_at=70.0),
                         self.get(self.uuids[0]))

    def test_cast_is_taken_by_a_single_caller_in_a_race(self):
        self.create(*[cast(uuid, cast_at=40.0) for uuid in self.uuids])

        taken = racing.race(*[lambda: self.take(1)] * 6)

        self.assertEqual(sorted(self.uuids), sorted(
            each.instance_uuid for some in taken for each in some))

    def take(self, limit):
        return self.write(build_casts.take_before, 60.0, 70.0, limit)

    def test_cast_is_repeated_by_a_single_caller_in_a_race(self):
        told = cast(self.uuids[0])
        self.create(told)

        outcomes = racing.race(*[
            lambda: self.write(build_casts.tell_again, told, 200.0)] * 6)

        self.assertEqual(1, sum(outcomes))
        self.assertEqual(
            dataclasses.replace(told, casts=2, cast_at=200.0),
            self.get(told.instance_uuid))


def place(host):
    return objects.Selection(
        service_host=host, nodename=f'node of {host}',
        compute_node_uuid=samples.uuids(1)[0])


class TestBuildMessage(TestCase):

    def message(self, **properties):
        return build_casts.BuildMessage(
            place('host1'), [], None, properties)

    def test_message_without_retry_has_no_alternates(self):
        for properties in {}, {'retry': None}, {'retry': {}}:
            message = self.message(**properties)

            self.assertEqual((None, None), (message.retry, message.tried))

    def test_try_has_its_number(self):
        self.assertEqual(3, self.message(retry={'num_attempts': 3}).tried)

    def test_next_attempt_has_the_reason_of_the_failure(self):
        message = self.message(retry={'num_attempts': 1}, limits={'vcpu': 2})

        self.assertEqual(
            {'retry': {'num_attempts': 1,
                       'exc_reason': 'The networks of x failed: broke'},
             'limits': {'vcpu': 2}},
            message.failed(exception.NetworkError(uuid='x', reason='broke')))
        self.assertNotIn('exc_reason', message.retry)

    def test_without_a_request_no_networks_were_wished_for(self):
        self.assertIsNone(self.message().requested_networks)

    def test_first_host_gets_the_alternates(self):
        places = [place('host1'), place('host2')]
        spec = objects.RequestSpec(requested_networks=['one'])

        message = build_casts.BuildMessage.first(places, spec)

        self.assertEqual(
            {'host': 'host1', 'node': 'node of host1', 'request_spec': spec,
             'filter_properties': {
                 'retry': {'num_attempts': 1,
                           'hosts': [['host1', 'node of host1']]},
                 'limits': {}},
             'limits': {}, 'host_list': places[1:],
             'node_uuid': places[0].compute_node_uuid}, message.arguments())
        self.assertEqual(['one'], message.requested_networks)

    def test_cell_stores_the_message(self):
        for spec in (None, objects.RequestSpec(requested_networks=['one'])):
            message = build_casts.BuildMessage.first(
                list(map(place, ('host1', 'host2', 'host3'))), spec)

            cast = message.kept('uuid', 5.0)
            read = build_casts.BuildMessage.read(cast)

            self.assertEqual(('uuid', 'host1', 'node of host1', 5.0), (
                cast.instance_uuid, cast.host, cast.node, cast.cast_at))
            self.assertEqual(cast, read.kept('uuid', 5.0))
            self.assertEqual(
                (message.chosen.compute_node_uuid, ['host2', 'host3'], 1,
                 message.requested_networks),
                (read.chosen.compute_node_uuid,
                 [each.service_host for each in read.host_list], read.tried,
                 read.requested_networks))

    def test_renamed_host_has_its_new_name(self):
        message = build_casts.BuildMessage.first([place('host1')], None)

        read = build_casts.BuildMessage.read(dataclasses.replace(
            message.kept('uuid', 5.0), host='new', node='new node'))

        self.assertEqual(
            ('new', 'new node', message.chosen.compute_node_uuid),
            (read.chosen.service_host, read.chosen.nodename,
             read.arguments()['node_uuid']))
