# SPDX-License-Identifier: Apache-2.0
"""What an agent is told to build, and what was kept of it."""

from oslo_serialization import jsonutils

from cellsched.compute import orders
from cellsched import context
from cellsched.db.cell import build_casts
from cellsched import objects
from tests.unit import base
from tests.unit.db import samples


class TestOrder(base.TestCase):

    def order(self, **properties):
        return orders.Order(context.admin(), samples.instance(
            samples.uuids(1)[0]), None, properties, 'node1', [])

    def test_without_a_word_of_retries_nothing_else_may_be_tried(self):
        for properties in {}, {'retry': None}, {'retry': {}}:
            order = self.order(**properties)

            self.assertEqual((None, None), (order.retry, order.tried))

    def test_try_has_its_number(self):
        self.assertEqual(3, self.order(retry={'num_attempts': 3}).tried)

    def test_next_try_is_told_why_this_one_failed(self):
        order = self.order(retry={'num_attempts': 1}, limits={'vcpu': 2})

        self.assertEqual(
            {'retry': {'num_attempts': 1, 'exc_reason': 'broke'},
             'limits': {'vcpu': 2}}, order.failed(ValueError('broke')))
        self.assertNotIn('exc_reason', order.retry)


class TestKept(base.TestCase):

    def test_it_is_what_the_message_was(self):
        instance = samples.instance(samples.uuids(1)[0], node='node1')

        order = orders.kept(instance, build_casts.BuildCast(
            instance.uuid, 'host1', 'node1', jsonutils.dumps({
                'selections': [
                    objects.Selection(
                        service_host=host, compute_node_uuid=f'uuid of {host}'
                    ).obj_to_primitive()
                    for host in ('host1', 'host2', 'host3')],
                'request_spec': objects.RequestSpec(
                    requested_networks=['one']).obj_to_primitive(),
                'filter_properties': {'retry': {'num_attempts': 2}}}), 1.0))

        self.assertEqual(
            (2, 'node1', 'uuid of host1', ['one'], ['host2', 'host3'],
             'project', 'user'),
            (order.tried, order.node, order.provider,
             order.requested_networks,
             [each.service_host for each in order.hosts],
             order.context.project_id, order.context.user_id))

    def test_without_a_message_it_may_be_tried_nowhere_else(self):
        order = orders.kept(
            samples.instance(samples.uuids(1)[0], node='node1'), None)

        self.assertEqual((None, [], None), (
            order.retry, order.hosts, order.requested_networks))
