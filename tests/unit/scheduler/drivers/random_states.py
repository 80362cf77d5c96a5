# SPDX-License-Identifier: Apache-2.0
"""Deployments and requests of all sorts, and what makes them real."""

import contextlib
import random

from hypothesis import strategies as st

from cellsched.cells import gather
from cellsched.claims import base as claims_base
from cellsched.claims import sql
from cellsched.claims.sql import schema
from cellsched.conf import loader
from cellsched.db.api import aggregates
from cellsched.db.api import shared_providers
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import hosts as cell_hosts
from cellsched.db.cell import services
from cellsched.db import session
from cellsched.objects import child_providers
from cellsched import plugins
from cellsched.testing import builders
from cellsched.wiring.services import Components
from tests.unit.db import samples
from tests.unit.hosts import world

CELLS = ('cell1', 'cell2')

HOSTS = tuple(f'{cell}-{number}' for cell in 'ab' for number in range(4))

TRAITS = ('CUSTOM_A', 'CUSTOM_B')

#: Aggregates with what they say of their hosts.
AGGREGATES = {
    'east': {'availability_zone': 'east'},
    'kept': {'filter_tenant_id1': 'project'},
    'pool': {},
}

OPTIONS = f"""
[DEFAULT]
network_driver = noop
[api_database]
connection = {{url}}
[scheduler]
refresh_interval = 0
limit_tenants_to_placement_aggregate = {{tenants}}
max_placement_results = {{limit}}
[filter_scheduler]
enabled_filters = {','.join((
    'ComputeFilter', 'DifferentHostFilter', 'SameHostFilter',
    'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter',
    'ServerGroupSpreadFilter'))}
rotate_best_same_weighed_hosts = False
"""

_traits = st.frozensets(st.sampled_from(TRAITS))

_bounds = st.fixed_dictionaries({
    'min_unit': st.sampled_from((1, 1, 1, 2)),
    'step_size': st.sampled_from((1, 1, 1, 2)),
    'max_unit': st.sampled_from((9, 9, 9, 2))})

_child = st.fixed_dictionaries({
    'vgpu': st.integers(0, 3), 'vcpu': st.sampled_from((0, 0, 0, 4)),
    'traits': _traits})

_host = st.fixed_dictionaries({
    'vcpus': st.integers(2, 9), 'memory_mb': st.sampled_from((1024, 4096)),
    'disk_gb': st.sampled_from((0, 50, 100)),
    'bounds': _bounds, 'traits': _traits, 'tells': st.booleans(),
    'children': st.just({}) | st.dictionaries(
        st.sampled_from(('c0', 'c1')), _child),
    'has_inventory': st.sampled_from((True,) * 7 + (False,)),
    'state': st.sampled_from(('up',) * 12 + (
        'down', 'disabled', 'forced_down', 'dead')),
    'aggregates': st.sets(st.sampled_from(sorted(AGGREGATES))),
    'taken': st.integers(0, 3)})

STATES = st.fixed_dictionaries({
    'hosts': st.dictionaries(st.sampled_from(HOSTS), _host, min_size=3),
    'shared_gb': st.none() | st.sampled_from((0, 5, 50)),
    'shared_traits': _traits,
    'tenants': st.booleans(),
    'store': st.sampled_from(('memory', 'sql'))})

_group_specs = st.fixed_dictionaries({}, optional={
    'resources1:VGPU': st.sampled_from(('1', '2')),
    'resources2:VGPU': st.sampled_from(('1', '2')),
    'resources:VGPU': st.just('1'),
    'trait:CUSTOM_A': st.sampled_from(('required', 'forbidden')),
    'trait:CUSTOM_B': st.sampled_from(('required', 'forbidden')),
    'trait1:CUSTOM_A': st.sampled_from(('required', 'forbidden')),
})


@st.composite
def _extra_specs(draw):
    specs = draw(st.just({}) | st.just({}) | _group_specs)
    if 'resources1:VGPU' not in specs:
        specs.pop('trait1:CUSTOM_A', None)
    if {'resources1:VGPU', 'resources2:VGPU'} <= specs.keys():
        specs['group_policy'] = draw(st.sampled_from(('none', 'isolate')))
    return specs


#: Numbers in ``near`` and ``members`` are of servers placed before.
REQUESTS = st.lists(st.fixed_dictionaries({
    'count': st.sampled_from((1, 1, 2, 3)),
    'alternates': st.sampled_from((0, 2)),
    'again': st.sampled_from((False, False, False, True)),
    'vcpus': st.integers(1, 3), 'memory_mb': st.sampled_from((1, 1024)),
    'root_gb': st.sampled_from((0, 0, 1, 20)),
    'extra_specs': _extra_specs(),
    'zone': st.sampled_from((None,) * 6 + ('east', 'nova')),
    'ignored': st.sets(st.sampled_from(HOSTS), max_size=2),
    'forced': st.sampled_from((None,) * 12 + HOSTS[:2]),
    'wanted': st.sampled_from((None,) * 12 + HOSTS[:2]),
    'project': st.sampled_from(('project', 'other')),
    'policy': st.sampled_from(
        (None, None, 'affinity', 'anti-affinity', 'spread')),
    'hint': st.sampled_from((None, None, 'different_host', 'same_host')),
}), min_size=1, max_size=5)


class InTurn:
    """Runs what it is given at once, so that cells come in their order."""

    def submit(self, function, *arguments):
        future = gather.futures.Future()
        try:
            future.set_result(function(*arguments))
        except Exception as exc:
            future.set_exception(exc)
        return future


class Deployment:
    """A deployment in a state, with drivers that decide on it."""

    def __init__(self, world_, directory, state, limit=1000):
        self.world = world_
        self._path = directory / samples.uuids(1)[0]
        self._path.write_text(OPTIONS.format(
            url=world_.database.url, limit=limit, tenants=state['tenants']))
        self._cleanups = contextlib.ExitStack()
        if state['store'] == 'sql':
            database = session.Database(
                f'sqlite:///{self._path}.sqlite', 'claims',
                clock=world_.clock)
            self._cleanups.callback(database.close)
            schema.SCHEMA.sync(database)
            world_.claims = sql.SQLClaims(database)
        for name, host in state['hosts'].items():
            self._add_host(name, host)
        self._add_aggregates(state)

    def close(self):
        self._cleanups.close()

    def driver(self, name):
        parts = Components(
            loader.load(files=[str(self._path)], dirs=[]), self.world.clock,
            self.world.claims)
        self._cleanups.callback(parts.close)
        parts.random = random.Random(0)
        parts.targets = self.world.targets
        parts.gatherer = gather.Gatherer(
            InTurn(), self.world.targets, self.world.clock, 60)
        return plugins.load(plugins.DRIVERS, name)(parts.conf, parts)

    def _add_host(self, name, host):
        uuid = samples.uuids(1)[0]
        children = {
            child_providers.uuid_of(uuid, each): child_providers.Child(
                child_providers.uuid_of(uuid, each), each, None,
                said['traits'])
            for each, said in host['children'].items()}
        cell = CELLS['ab'.index(name[0])]
        seen = self.world.clock.now()
        if host['state'] == 'down':
            seen -= samples.datetime.timedelta(minutes=2)
        if host['state'] == 'dead':
            seen -= samples.datetime.timedelta(days=2)
        with self.world.writer(cell) as connection:
            compute_nodes.save(
                connection, uuid, name, name, self.world.node_values(
                    host['vcpus'], host['memory_mb'], host['disk_gb'],
                    traits=child_providers.json.dumps(sorted(host['traits'])),
                    providers=child_providers.dump(children.values())
                    if children else None), seen)
            services.report(connection, samples.uuids(1)[0], name,
                            services.COMPUTE, 'compute', seen)
            if host['state'] == 'disabled':
                services.set_disabled(connection, name, True, 'x', seen)
            if host['state'] == 'forced_down':
                services.set_forced_down(connection, name, True, seen)
        self.world.providers[name] = uuid
        if host['has_inventory']:
            self._report(uuid, host, children)

    def _report(self, uuid, host, children):
        """Tell the store what an agent tells."""
        claims = self.world.claims
        claims.set_inventory(uuid, {
            'VCPU': claims_base.Inventory(host['vcpus'], **host['bounds']),
            'MEMORY_MB': claims_base.Inventory(host['memory_mb']),
            'DISK_GB': claims_base.Inventory(host['disk_gb'])})
        if host['tells'] or children:
            claims.set_traits(uuid, host['traits'], uuid)
        for each, child in children.items():
            said = host['children'][child.name]
            claims.set_inventory(each, {
                'VGPU': claims_base.Inventory(said['vgpu']),
                'VCPU': claims_base.Inventory(said['vcpu'])})
            claims.set_traits(each, child.traits, uuid)
        taken = min(host['taken'], host['vcpus'])
        if taken and host['bounds'] == {
                'min_unit': 1, 'step_size': 1, 'max_unit': 9}:
            self.world.claim_of(uuid, taken)

    def _add_aggregates(self, state):
        uuids = {}
        with self.world.database.writer() as connection:
            for name, metadata in AGGREGATES.items():
                uuids[name] = samples.uuids(1)[0]
                aggregates.create(
                    connection, uuids[name], name, [
                        host for host, said in state['hosts'].items()
                        if name in said['aggregates']],
                    metadata, self.world.clock.now())
            if state['shared_gb'] is None:
                return
            shared = shared_providers.SharedProvider(
                samples.uuids(1)[0], 'disk', uuids['pool'],
                state['shared_traits'], {
                    'DISK_GB': claims_base.Inventory(state['shared_gb'])})
            shared_providers.create(
                connection, shared, self.world.clock.now())
        self.world.claims.set_inventory(shared.uuid, shared.inventories)


class World(world.World):
    """Hosts in a state of their own, by ``Deployment``."""

    def claim_of(self, provider, vcpus):
        self.claims.claim([claims_base.Claim(
            samples.uuids(1)[0], provider, {'VCPU': vcpus})])


def remove_host(world_, cell, name):
    with world_.writer(cell) as connection:
        cell_hosts.delete(connection, name, world_.clock.now())


def request_of(said, uuids, before):
    """Return a request.

    :param before: uuids of servers that were placed before
    """
    wishes = {}
    if said['policy'] == 'spread':
        wishes['group'] = {
            'uuid': str(samples.uuid.UUID(int=9)), 'policy': None,
            'members': before, 'rules': {'spread': 'az'}}
    elif said['policy'] and not said['forced']:
        # The claim enforces the policy on forced hosts, and a plan does not.
        wishes['group'] = {
            # Its own group: the store knows no member that it does not name.
            'uuid': uuids[0], 'policy': said['policy'],
            'members': before[-2:]}
    if said['hint'] and before:
        wishes['hints'] = {said['hint']: before[:2]}
    if said['wanted']:
        wishes['requested_destination'] = builders.objects.Destination(
            host=said['wanted'])
    if said['forced']:
        wishes['force_hosts'] = [said['forced']]
    return builders.request(
        vcpus=said['vcpus'], memory_mb=said['memory_mb'],
        root_gb=said['root_gb'], extra_specs=dict(said['extra_specs']),
        availability_zone=said['zone'], ignore_hosts=sorted(said['ignored']),
        project_id=said['project'], num_instances=len(uuids),
        instance_uuid=uuids[0], **wishes)
