# SPDX-License-Identifier: Apache-2.0
"""Nova's own client of schedulers, told by lines of JSON what to send.

This is run by the python of Nova's environment with a configuration file of
Nova's, and nothing else here imports it. After the line ``null``, which says
that it is ready, it answers each line with a line: ``result``, or ``error``
with what an ``except`` clause of Nova's would see.

A line names a ``method``, and has its ``arguments``, in which objects are
described by what they are made of. The client is pinned to ``pin``, if there
is one.
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
    tell(None)
    for line in sys.stdin:
        try:
            answer = {'result': said(call(ctxt, **json.loads(line)))}
        except Exception as exc:
            answer = {'error': said_of_error(exc)}
        tell(answer)


def tell(answer):
    print(json.dumps(answer), flush=True)


def call(ctxt, method, arguments, pin=None):
    rpcapi.CONF.set_override('scheduler', pin, group='upgrade_levels')
    if method == 'ping':
        return baserpc.BaseAPI(topic='scheduler').ping(ctxt, **arguments)
    made = {name: MAKERS[name](ctxt, value) if name in MAKERS else value
            for name, value in arguments.items()}
    return getattr(rpcapi.SchedulerAPI(), method)(ctxt, **made)


def request_spec(ctxt, said):
    """Return a request as Nova's API makes it."""
    said = dict(said)
    count, group = said.pop('num_instances', 1), said.pop('group', None)
    target, zone = said.pop('destination', None), said.pop('zone', None)
    uuid, image = said.pop('instance_uuid'), said.pop('image', {})
    numa = said.pop('numa_memory_mb', None)
    flavor = objects.Flavor(
        ctxt, id=1, flavorid='small', name='small', swap=0, ephemeral_gb=0,
        rxtx_factor=1.0, is_public=True, disabled=False,
        **{'extra_specs': {}, **said.pop('flavor')})
    spec = objects.RequestSpec.from_components(
        ctxt, uuid, image, flavor, numa and numa_topology(ctxt, numa),
        objects.InstancePCIRequests(ctxt, instance_uuid=uuid, requests=[]),
        # What is left has the names that it has there.
        said, group and instance_group(ctxt, group), zone,
        security_groups=objects.SecurityGroupList(objects=[]))
    spec.num_instances = count
    spec.is_bfv = False
    spec.requested_destination = target and destination(ctxt, target)
    spec.network_metadata = objects.NetworkMetadata(
        physnets=set(), tunneled=False)
    return spec


def numa_topology(ctxt, memory_mb):
    """Return a topology of one cell with CPUs that it shares."""
    return objects.InstanceNUMATopology(ctxt, cells=[
        objects.InstanceNUMACell(
            ctxt, id=0, cpuset={0}, pcpuset=set(), memory=memory_mb)])


def instance_group(ctxt, said):
    """Return a group with the fields that conductors fill in, too."""
    return objects.InstanceGroup(
        ctxt, id=1, name='group', user_id=USER, project_id=PROJECT,
        _rules=said.pop('rules', {}), **said)


def destination(ctxt, said):
    cell = said.pop('cell', None)
    if cell is not None:
        said['cell'] = objects.CellMapping(
            ctxt, id=1, uuid=cell, name='cell', disabled=False,
            transport_url='rabbit://nova:secret@cell/',
            database_connection='mysql+pymysql://nova:secret@cell/nova')
    return objects.Destination(ctxt, **said)


def instances(ctxt, uuids):
    return objects.InstanceList(ctxt, objects=[
        objects.Instance(ctxt, uuid=uuid, project_id=PROJECT)
        for uuid in uuids])


def aggregate(ctxt, said):
    return objects.Aggregate(ctxt, **said)


def aggregates(ctxt, said):
    return objects.AggregateList(
        ctxt, objects=[aggregate(ctxt, each) for each in said])


MAKERS = {'aggregate': aggregate, 'aggregates': aggregates,
          'instance_info': instances, 'spec_obj': request_spec}


def said(value):
    """Return what came, with the classes that it has here."""
    if isinstance(value, (list, tuple)):
        return [said(each) for each in value]
    if isinstance(value, dict):
        return {name: said(each) for name, each in value.items()}
    if not isinstance(value, base.NovaObject):
        return value
    kind = type(value)
    told = {'class': f'{kind.__module__}.{kind.__name__}',
            'version': value.VERSION,
            'fields': {name: said(getattr(value, name))
                       for name in value.fields
                       if value.obj_attr_is_set(name)}}
    if isinstance(value, objects.Selection):
        told['properties'] = properties(value)
    return told


def properties(selection):
    """Return what Nova's conductor makes of a selection for a compute."""
    found = {}
    utils.populate_retry(found, selection.compute_node_uuid)
    utils.populate_filter_properties(found, selection)
    return found


def said_of_error(exc):
    return {
        'class': type(exc).__name__, 'module': type(exc).__module__,
        'mro': [f'{each.__module__}.{each.__name__}'
                for each in type(exc).__mro__],
        'message': (exc.format_message()
                    if isinstance(exc, exception.NovaException) else f'{exc}'),
        'kwargs': getattr(exc, 'kwargs', None)}


if __name__ == '__main__':
    sys.exit(main())
