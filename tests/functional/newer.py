# SPDX-License-Identifier: Apache-2.0
"""Agents, conductors and clients of the next version.

Each knows one argument more, and why it was added; beside them those that do
not know it.
"""

import uuid

import oslo_messaging

from cellsched import objects
from cellsched.rpc import compute
from cellsched.rpc import conductor
from tests.unit.rpc import base

UUID = str(uuid.UUID(int=1))

INSTANCE = objects.Instance(uuid=UUID)

WHY = 'because'


class ComputeAPI(compute.ComputeAPI):
    """Sends agents of 6.2 the reason of a removal."""

    def terminate_instance(self, context, host, instance):
        if self.can_send('6.2'):
            self.cast(context, 'terminate_instance', '6.2', host,
                      instance=instance, why=WHY)
        else:
            super().terminate_instance(context, host, instance)


class Agent(base.Recorder):

    target = oslo_messaging.Target(version='6.2')

    def terminate_instance(self, context, instance, why=None):
        self.received.put((instance.uuid, why))


class OlderAgent(base.Recorder):

    target = oslo_messaging.Target(version='6.0')

    def terminate_instance(self, context, instance):
        self.received.put(instance.uuid)


class ConductorAPI(conductor.ConductorAPI):
    """Sends conductors of 1.21 the reason of a build."""

    def build_and_schedule(self, context, instance_uuids):
        if self.can_send('1.21'):
            self.cast(context, 'build_and_schedule', '1.21',
                      instance_uuids=list(instance_uuids), why=WHY)
        else:
            super().build_and_schedule(context, instance_uuids)


class Conductor(base.Recorder):

    target = oslo_messaging.Target(
        namespace=conductor.NAMESPACE, version='1.21')

    def build_and_schedule(self, context, instance_uuids, why=None):
        self.received.put((instance_uuids, why))


class OlderConductor(base.Recorder):

    target = oslo_messaging.Target(
        namespace=conductor.NAMESPACE, version=conductor.VERSION)

    def build_and_schedule(self, context, instance_uuids):
        self.received.put(instance_uuids)
