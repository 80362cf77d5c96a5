# SPDX-License-Identifier: Apache-2.0
"""Nova's own client of schedulers, controlled by lines of JSON.

The python of Nova's environment runs this script with a configuration file of
Nova. It prints the line ``null`` when it is ready, and then answers each line
with a line: ``result``, or ``error`` with the exception that Nova receives.

A line has a ``method`` and its ``arguments``, with objects as dicts of their
fields. If it has a ``pin``, the client uses this RPC version.
"""

import json
import sys

from nova import baserpc
from nova import config
from nova import context
from nova import exception
from nova import objects
from nova.objects import base
from nova.scheduler import rpcapi
from nova.scheduler import utils

PROJECT, USER = 'project', 'user'


def main():
    config.parse_args(sys.argv[:1], default_config_files=sys.argv[1:])
    objects.register_all()
    ctxt = context.RequestContext(
        USER, PROJECT, is_admin=True, roles=['admin'])
    send(None)
    for line in sys.stdin:
        try:
            answer = {'result': described(call(ctxt, **json.loads(line)))}
        except Exception as exc:
            answer = {'error': described_error(exc)}
        send(answer)


def send(answer):
    print(json.dumps(answer), flush=True)


def call(ctxt, method, arguments, pin=None):
    rpcapi.CONF.set_override('scheduler', pin, group='upgrade_levels')
    if method == 'ping':
        return baserpc.BaseAPI(topic='scheduler').ping(ctxt, **arguments)
    made = {name: MAKERS[name](ctxt, value) if name in MAKERS else value
            for name, value in arguments.items()}
    return getattr(rpcapi.SchedulerAPI(), method)(ctxt, **made)


def request_spec(ctxt, fields):
    """Return a request as Nova's API makes it."""
    fields = dict(fields)
    count, group = fields.pop('num_instances', 1), fields.pop('group', None)
    target, zone = fields.pop('destination', None), fields.pop('zone', None)
    uuid, image = fields.pop('instance_uuid'), fields.pop('image', {})
    numa = fields.pop('numa_memory_mb', None)
    flavor = objects.Flavor(
        ctxt, id=1, flavorid='small', name='small', swap=0, ephemeral_gb=0,
        rxtx_factor=1.0, is_public=True, disabled=False,
        **{'extra_specs': {}, **fields.pop('flavor')})
    spec = objects.RequestSpec.from_components(
        ctxt, uuid, image, flavor, numa and numa_topology(ctxt, numa),
        objects.InstancePCIRequests(ctxt, instance_uuid=uuid, requests=[]),
        # The remaining fields have the same names in Nova.
        fields, group and instance_group(ctxt, group), zone,
        security_groups=objects.SecurityGroupList(objects=[]))
    spec.num_instances = count
    spec.is_bfv = False
    spec.requested_destination = target and destination(ctxt, target)
    spec.network_metadata = objects.NetworkMetadata(
        physnets=set(), tunneled=False)
    return spec


def numa_topology(ctxt, memory_mb):
    """Return a topology with one cell of shared CPUs."""
    return objects.InstanceNUMATopology(ctxt, cells=[
        objects.InstanceNUMACell(
            ctxt, id=0, cpuset={0}, pcpuset=set(), memory=memory_mb)])


def instance_group(ctxt, fields):
    """Return a group with the fields that conductors set."""
    return objects.InstanceGroup(
        ctxt, id=1, name='group', user_id=USER, project_id=PROJECT,
        _rules=fields.pop('rules', {}), **fields)


def destination(ctxt, fields):
    cell = fields.pop('cell', None)
    if cell is not None:
        fields['cell'] = objects.CellMapping(
            ctxt, id=1, uuid=cell, name='cell', disabled=False,
            transport_url='rabbit://nova:secret@cell/',
            database_connection='mysql+pymysql://nova:secret@cell/nova')
    return objects.Destination(ctxt, **fields)


def instances(ctxt, uuids):
    return objects.InstanceList(ctxt, objects=[
        objects.Instance(ctxt, uuid=uuid, project_id=PROJECT)
        for uuid in uuids])


def aggregate(ctxt, fields):
    return objects.Aggregate(ctxt, **fields)


def aggregates(ctxt, fields):
    return objects.AggregateList(
        ctxt, objects=[aggregate(ctxt, each) for each in fields])


MAKERS = {'aggregate': aggregate, 'aggregates': aggregates,
          'instance_info': instances, 'spec_obj': request_spec}


def described(value):
    """Return a value as JSON, with the classes of objects."""
    if isinstance(value, (list, tuple)):
        return [described(each) for each in value]
    if isinstance(value, dict):
        return {name: described(each) for name, each in value.items()}
    if not isinstance(value, base.NovaObject):
        return value
    kind = type(value)
    found = {'class': f'{kind.__module__}.{kind.__name__}',
             'version': value.VERSION,
             'fields': {name: described(getattr(value, name))
                        for name in value.fields
                        if value.obj_attr_is_set(name)}}
    if isinstance(value, objects.Selection):
        found['properties'] = properties(value)
    return found


def properties(selection):
    """Return the filter properties of a selection, as in the conductor."""
    found = {}
    utils.populate_retry(found, selection.compute_node_uuid)
    utils.populate_filter_properties(found, selection)
    return found


def described_error(exc):
    return {
        'class': type(exc).__name__, 'module': type(exc).__module__,
        'mro': [f'{each.__module__}.{each.__name__}'
                for each in type(exc).__mro__],
        'message': (exc.format_message()
                    if isinstance(exc, exception.NovaException) else f'{exc}'),
        'kwargs': getattr(exc, 'kwargs', None)}


if __name__ == '__main__':
    sys.exit(main())
