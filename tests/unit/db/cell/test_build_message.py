# SPDX-License-Identifier: Apache-2.0
"""The message that has a host build a server, and what a cell keeps of it."""

from cellsched.db.cell import build_casts
from cellsched import objects
from tests.unit import base
from tests.unit.db import samples


def place(host):
    return objects.Selection(
        service_host=host, nodename=f'node of {host}',
        compute_node_uuid=samples.uuids(1)[0])


class TestBuildMessage(base.TestCase):

    def message(self, **properties):
        return build_casts.BuildMessage(
            place('host1'), [], None, properties)

    def test_without_a_word_of_retries_nothing_else_may_be_tried(self):
        for properties in {}, {'retry': None}, {'retry': {}}:
            message = self.message(**properties)

            self.assertEqual((None, None), (message.retry, message.tried))

    def test_try_has_its_number(self):
        self.assertEqual(3, self.message(retry={'num_attempts': 3}).tried)

    def test_next_try_is_told_why_this_one_failed(self):
        message = self.message(retry={'num_attempts': 1}, limits={'vcpu': 2})

        self.assertEqual(
            {'retry': {'num_attempts': 1, 'exc_reason': 'broke'},
             'limits': {'vcpu': 2}}, message.failed(ValueError('broke')))
        self.assertNotIn('exc_reason', message.retry)

    def test_without_a_request_no_networks_were_wished_for(self):
        self.assertIsNone(self.message().requested_networks)

    def test_first_host_is_told_of_the_others(self):
        places = [place('host1'), place('host2')]
        spec = objects.RequestSpec(requested_networks=['one'])

        message = build_casts.BuildMessage.first(places, spec)

        self.assertEqual(
            {'host': 'host1', 'node': 'node of host1', 'request_spec': spec,
             'filter_properties': {
                 'retry': {'num_attempts': 1,
                           'hosts': [['host1', 'node of host1']]},
                 'limits': {}},
             'limits': {}, 'host_list': places[1:]}, message.arguments())
        self.assertEqual(['one'], message.requested_networks)

    def test_cell_keeps_what_the_message_was(self):
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
