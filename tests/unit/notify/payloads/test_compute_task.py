# SPDX-License-Identifier: Apache-2.0
import json

from cellsched.notify.payloads import compute_task
from cellsched.notify.payloads import request_spec
from tests.unit import base
from tests.unit.notify import wire


def versioned(spec):
    return compute_task.versioned(
        wire.instance(), spec, wire.reason(), 'error')['nova_object.data']


def legacy(spec):
    return compute_task.legacy(
        'build_instances', wire.instance(), spec, wire.reason(), 'error')


class TestComputeTask(base.TestCase):

    def test_request_is_told_as_the_scheduler_tells_it(self):
        spec = wire.request()

        self.assertEqual(
            request_spec.versioned(spec, []), versioned(spec)['request_spec'])
        self.assertEqual(
            request_spec.legacy(spec, []),
            {'request_spec': legacy(spec)['request_spec']})

    def test_properties_stand_in_both_places(self):
        told = legacy(wire.request())

        self.assertEqual(told['request_spec']['instance_properties'],
                         told['instance_properties'])

    def test_request_that_is_not_known_is_none(self):
        self.assertIsNone(versioned(None)['request_spec'])
        self.assertEqual(({}, {}), (
            legacy(None)['request_spec'],
            legacy(None)['instance_properties']))

    def test_secrets_of_the_request_are_not_told(self):
        told = json.dumps([versioned(wire.request()), legacy(wire.request())])

        for secret in wire.SECRETS:
            self.assertNotIn(secret, told)
