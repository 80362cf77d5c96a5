# SPDX-License-Identifier: Apache-2.0
"""Nova's requests in its API database, and their notifications."""

import json
import unittest

import nova.conf
from nova import context as nova_context
from nova.notifications.objects import request_spec as payloads
from nova import objects as nova_objects
from nova import rpc
from nova.tests import fixtures as nova_fixtures
from nova.tests.fixtures import conf as conf_fixture
from oslo_messaging import conffixture

from cellsched_nova import options

CONF = nova.conf.CONF

nova_objects.register_all()

SERVER, SECOND, MEMBER = (
    f'10000000-0000-4000-8000-00000000000{number}' for number in range(3))


def spec(extra_specs=None, **fields):
    """Return Nova's request for a server of 1 CPU and 512 MB."""
    flavor = nova_objects.Flavor(
        id=1, flavorid='1', name='small', vcpus=1, memory_mb=512, root_gb=1,
        ephemeral_gb=0, swap=0, rxtx_factor=1.0, vcpu_weight=None,
        disabled=False, is_public=True, description=None, projects=[],
        extra_specs=extra_specs or {})
    made = nova_objects.RequestSpec(nova_context.get_admin_context(), **{
        'flavor': flavor, 'num_instances': 1, 'project_id': 'project',
        'user_id': 'user', 'instance_uuid': SERVER, 'numa_topology': None,
        'availability_zone': None, 'instance_group': None,
        'pci_requests': nova_objects.InstancePCIRequests(requests=[]),
        'scheduler_hints': {}, 'is_bfv': False,
        'image': nova_objects.ImageMeta(
            properties=nova_objects.ImageMetaProps(
                hw_architecture='x86_64')), **fields})
    made.obj_set_defaults()
    return made


def versioned(request):
    """Return the payload of a versioned notification."""
    made = payloads.RequestSpecPayload(request_spec=request)
    made.obj_reset_changes(recursive=True)
    return json.loads(json.dumps(made.obj_to_primitive()))


def refusal(request, instance_uuid=SERVER, exception='NoValidHost'):
    """Return the payload of the error that Nova's conductor sends."""
    return {'nova_object.name': 'ComputeTaskPayload', 'nova_object.data': {
        'instance_uuid': instance_uuid, 'request_spec': versioned(request),
        'state': 'error', 'reason': {
            'nova_object.name': 'ExceptionPayload',
            'nova_object.data': {'exception': exception}}}}


def unversioned(request):
    """Return the payload of an unversioned notification."""
    return json.loads(json.dumps(rpc.JsonPayloadSerializer().serialize_entity(
        nova_context.get_admin_context(),
        {'request_spec': request.to_legacy_request_spec_dict()})))


class TestCase(unittest.TestCase):
    """A test with Nova's API database in a SQLite file.

    Messages stay in the process.
    """

    def setUp(self):
        # Another test may have read other options.
        CONF.reset()
        options.register_opts(CONF)
        messages = conffixture.ConfFixture(CONF)
        for fixture in (conf_fixture.ConfFixture(CONF), messages,
                        nova_fixtures.Database(database='api')):
            fixture.setUp()
            self.addCleanup(fixture.cleanUp)
        messages.transport_url = 'fake:/'
        CONF.set_override('driver', ['messaging'],
                          'oslo_messaging_notifications')
        rpc.init(CONF)
        self.addCleanup(rpc.cleanup)
        self.context = nova_context.RequestContext(
            'user', 'project', request_id='req-1')

    def keep(self, request):
        """Store a request as Nova's API does; return it."""
        request.obj_clone().create()
        nova_objects.InstanceMapping(
            nova_context.get_admin_context(),
            instance_uuid=request.instance_uuid,
            project_id='project', user_id='user').create()
        return request
