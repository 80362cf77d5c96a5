# SPDX-License-Identifier: Apache-2.0
"""A scheduler that answers over RPC, on a driver that chooses by number."""

import queue
import uuid

import oslo_messaging
from oslo_messaging.notify import _impl_test as recorded

from cellsched import clock
from cellsched import context
from cellsched.notify import notifiers
from cellsched import objects
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched.rpc import serializer
from cellsched.scheduler.drivers import base as drivers
from cellsched.scheduler import request_validation
from cellsched.scheduler import service
from cellsched.testing import builders
from tests.unit.db import samples
from tests.unit.rpc import base

ATTEMPTS_MAX = 3
INSTANCES_MAX = 4
VALUES_MAX = 5

CONTEXT = context.RequestContext(project_id='project')


class Driver(drivers.SchedulerDriver):
    """Chooses host1 and as many others as it is asked for."""

    #: Any demand is met by hosts that do not exist.
    reads = None
    error = None
    asking = staticmethod(lambda: None)

    def __init__(self):
        super().__init__(None, None)
        self.asked, self.claims = [], []
        #: What it was told, as it comes.
        self.told = queue.Queue()

    def select_destinations(self, context, request, instance_uuids,
                            alternates, claim=True):
        self.asking()
        self.asked.append((context, request, instance_uuids, alternates))
        self.claims.append(claim)
        if self.error is not None:
            raise self.error
        return [[self.selection(number + 1)
                 for number in range(alternates + 1)] for _ in instance_uuids]

    def update_aggregates(self, aggregates):
        self.told.put(('aggregates', [
            (each.id, each.get('hosts')) for each in aggregates]))

    def delete_aggregate(self, aggregate):
        self.told.put(('no aggregate', aggregate))

    def update_instances(self, host, instances, complete):
        self.told.put(('instances', host, instances, complete))

    def delete_instance(self, host, instance):
        self.told.put(('no instance', host, instance))

    @staticmethod
    def selection(number):
        return objects.Selection(
            compute_node_uuid=str(uuid.UUID(int=number)),
            service_host=f'host{number}', nodename=f'node{number}',
            limits=objects.SchedulerLimits(
                numa_topology=None, vcpu=16, disk_gb=None, memory_mb=None))


class SchedulerTestCase(base.RPCTestCase):

    #: Of the scheduler.
    options = {}
    #: Attributes of its driver.
    driver_attributes = {}

    def setUp(self):
        super().setUp()
        self.driver = Driver()
        for name, value in self.driver_attributes.items():
            setattr(self.driver, name, value)
        self.conf.set_override('transport_url', f'{self.world}/told')
        self.conf.set_override(
            'driver', ['test'], 'oslo_messaging_notifications')
        recorded.reset()
        self.addCleanup(recorded.reset)
        endpoint = service.Scheduler(
            self.driver, ATTEMPTS_MAX,
            request_validation.RequestBounds(
                INSTANCES_MAX, values_max=VALUES_MAX),
            notifiers.SchedulerNotifier(
                self.transports.notifications(), 'host0', 'unversioned', []),
            **self.options)
        self.serve(endpoint, scheduler_rpc.TOPIC, threads=1)
        self.client = scheduler_rpc.SchedulerAPI(
            self.transport, clock.Clock().timestamp)
        self.uuids = samples.uuids(2)

    def select(self, spec_obj=None, instance_uuids=None, **options):
        """Send what is given as it is, whatever it is."""
        return self.client.call(
            CONTEXT, 'select_destinations', '4.5', spec_obj=(
                spec_obj if spec_obj is not None else builders.request()),
            instance_uuids=(instance_uuids if instance_uuids is not None
                            else self.uuids), **options)

    def call(self, method, version='4.5', cast=False, **arguments):
        """Send a message with nothing but the serializer in between.

        :param cast: to all servers, without an answer
        """
        client = oslo_messaging.get_rpc_client(
            self.transport, oslo_messaging.Target(
                topic=scheduler_rpc.TOPIC, version=version, fanout=cast),
            serializer=serializer.Serializer())
        return (client.cast if cast else client.call)(
            CONTEXT, method, **arguments)
