# SPDX-License-Identifier: Apache-2.0
"""The audit names the record that was changed in one of the databases."""

import contextlib
import sqlite3

from cellsched.standalone import deployment
from cellsched.wiring import services
from tests.functional import base

DATABASES = ('api', 'claims', 'cell0', 'cell1', 'cell2')

UNKNOWN = '11111111-2222-4333-8444-555555555555'

_TAKE = ('INSERT INTO allocations (consumer, ordinal, provider, '
         'resource_class, amount, project_id, user_id) ')
_SHADOW = ('INSERT INTO shadow_{table} ({columns}) '
           'SELECT {columns} FROM {table} WHERE deleted = 0')

#: By the fact, the statements in a database, and all findings: kind and name.
CASES = {
    'host of a server does not exist': (
        ("UPDATE instances SET host = 'x' WHERE uuid = :server", 'cell1'),
        {'host-missing server'}),
    'host of a server in ERROR does not exist': (
        ("UPDATE instances SET host = 'x', vm_state = 'error' "
         'WHERE uuid = :server', 'cell1'),
        {'host-missing server', 'no-reason server'}),
    'node of a server does not exist': (
        ("UPDATE instances SET node = 'x' WHERE uuid = :server", 'cell1'),
        {'node-missing server'}),
    'host and node of a server disagree': (
        ("UPDATE instances SET host = 'a2' WHERE uuid = :server", 'cell1'),
        {'node-missing server'}),
    'server without a host has a node': (
        ('UPDATE instances SET host = NULL WHERE uuid = :server', 'cell1'),
        {'node-missing server'}),
    'server in cell0 has a host': (
        ("UPDATE instances SET host = 'a1' WHERE uuid = :buried", 'cell0'),
        {'cell0-host buried'}),
    'flavor of a server in its cell is no object': (
        ("UPDATE instance_extra SET flavor = 'junk' WHERE instance_uuid = "
         ':server', 'cell1'), {'flavor-unreadable server'}),
    'policy of a group is unknown': (
        ("UPDATE instance_group_policy SET policy = 'junk'", 'api'),
        {'group-policy group'}),
    'claim is on another host than the row': (
        ("UPDATE instances SET host = 'a2', node = 'a2' "
         'WHERE uuid = :server', 'cell1'), {'claim-elsewhere server'}),
    'claim of a server in ERROR is on another host': (
        ("UPDATE instances SET host = 'a2', node = 'a2', vm_state = 'error' "
         'WHERE uuid = :server', 'cell1'),
        {'claim-elsewhere server', 'no-reason server'}),
    'server is deleted on a host that is down': (
        ("UPDATE instances SET task_state = 'deleting' WHERE uuid = :server; "
         "UPDATE services SET last_seen_up = '2001-01-01 00:00:00.000000' "
         "WHERE host = 'a1'", 'cell1'), {'deleting-waits server'}),
    'server is deleted on a host that is forced down': (
        ("UPDATE instances SET task_state = 'deleting' WHERE uuid = :server; "
         "UPDATE services SET forced_down = 1 WHERE host = 'a1'", 'cell1'),
        {'deleting-waits server'}),
    'node is gone': (
        ('DELETE FROM compute_nodes WHERE uuid = :node', 'cell1'),
        {'node-missing server', 'node-missing member',
         'provider-unknown node', 'provider-unknown child'}),
    'node is deleted': (
        ('UPDATE compute_nodes SET deleted = id WHERE uuid = :node', 'cell1'),
        {'node-missing server', 'node-missing member',
         'provider-unknown node', 'provider-unknown child'}),
    'number of a node is a text': (
        ("UPDATE compute_nodes SET vcpus = 'junk'", 'cell2'),
        {'wrong-type compute_nodes 1'}),
    'time of a service is a number': (
        ('UPDATE services SET last_seen_up = 12345 WHERE id = 2', 'cell1'),
        {'wrong-type services 2'}),
    'time of a cell is a text': (
        ("UPDATE cell_mappings SET created_at = 'junk' WHERE id = 2", 'api'),
        {'wrong-type cell_mappings 2'}),
    'service has no host': (
        ("UPDATE services SET host = NULL WHERE host = 'a2'", 'cell1'),
        {'service-missing a2'}),
    'nodes of two cells have one uuid': (
        ("UPDATE compute_nodes SET uuid = :node WHERE host = 'b1'", 'cell2'),
        {'provider-twice node', 'provider-unknown far'}),
    'provider is gone from the store': (
        ('DELETE FROM inventories WHERE provider = :node; '
         'DELETE FROM providers WHERE uuid = :node', 'claims'),
        {'provider-missing node'}),
    'provider without claims is gone from the store': (
        ('DELETE FROM inventories WHERE provider = :far; '
         'DELETE FROM providers WHERE uuid = :far', 'claims'),
        {'provider-missing far'}),
    'consumer is known to nothing': (
        (_TAKE + "VALUES (:unknown, 0, :far, 'VCPU', 1, 'p', 'u'); "
         'UPDATE providers SET consumers = 1 WHERE uuid = :far; '
         'UPDATE inventories SET used = 1 WHERE provider = :far AND '
         "resource_class = 'VCPU'", 'claims'), {'consumer-unknown unknown'}),
    'claim is of another project': (
        ("UPDATE allocations SET project_id = 'x' WHERE consumer = :server",
         'claims'), {'claim-owner server'}),
    'claim is of no project': (
        ('UPDATE allocations SET project_id = NULL WHERE consumer = :server',
         'claims'), {'claim-owner server'}),
    'claim is of another user': (
        ("UPDATE allocations SET user_id = 'x' WHERE consumer = :server",
         'claims'), {'claim-owner server'}),
    'mapping is of another project': (
        ("UPDATE instance_mappings SET project_id = 'x' "
         'WHERE instance_uuid = :server', 'api'),
        {'owner-differs server', 'claim-owner server'}),
    'mapping of a server in cell0 is of another project': (
        ("UPDATE instance_mappings SET project_id = 'x' "
         'WHERE instance_uuid = :buried', 'api'), {'owner-differs buried'}),
    'row is of another project': (
        ("UPDATE instances SET project_id = 'x' WHERE uuid = :server",
         'cell1'), {'owner-differs server'}),
    'row is of another user': (
        ("UPDATE instances SET user_id = 'x' WHERE uuid = :server", 'cell1'),
        {'owner-differs server'}),
    'request is of another project': (
        ("UPDATE request_specs SET spec = replace(spec, '\"project_id\": "
         "\"project\"', '\"project_id\": \"x\"') "
         'WHERE instance_uuid = :server', 'api'), {'owner-differs server'}),
    'build request is of another project': (
        ("UPDATE build_requests SET project_id = 'x'", 'api'),
        {'owner-differs waiting'}),
    'mapped host does not exist': (
        ("INSERT INTO host_mappings (host, cell_id) SELECT 'x', cell_id "
         'FROM host_mappings LIMIT 1', 'api'), {'host-mapping-unknown x'}),
    'host is mapped to cell0': (
        ("INSERT INTO host_mappings (host, cell_id) SELECT 'x', id FROM "
         "cell_mappings WHERE name = 'cell0'", 'api'),
        {'host-mapping-unknown x'}),
    'membership of a claim is missing': (
        ('DELETE FROM claim_members', 'claims'), {'member-claim member'}),
    'claim is a member of another group': (
        ('UPDATE claim_members SET group_uuid = :unknown', 'claims'),
        {'member-claim member'}),
    'claim is a member on another host': (
        ("UPDATE claim_members SET host = 'b1'", 'claims'),
        {'member-claim member'}),
    'claim is another member': (
        ('UPDATE claim_members SET member = :unknown', 'claims'),
        {'member-claim member'}),
    'claim of a server without a group is a member': (
        ('INSERT INTO claim_members (consumer, group_uuid, member, host) '
         "VALUES (:server, :group, :server, 'a1')", 'claims'),
        {'member-claim server'}),
    'member of a group is unknown': (
        ('INSERT INTO instance_group_member (group_id, instance_uuid) '
         'SELECT id, :unknown FROM instance_groups', 'api'),
        {'group-member-unknown unknown'}),
    'server is no member of its group': (
        ('DELETE FROM instance_group_member', 'api'),
        {'group-member-missing member'}),
    'server is a member of a group that it did not request': (
        ('INSERT INTO instance_group_member (group_id, instance_uuid) '
         'SELECT id, :server FROM instance_groups', 'api'),
        {'group-member-extra server'}),
    'deleted server is a member of a group': (
        ('INSERT INTO instance_group_member (group_id, instance_uuid) '
         'SELECT id, :deleted FROM instance_groups', 'api'),
        {'group-member-deleted deleted'}),
    'root of a node is unknown': (
        ('UPDATE provider_trees SET root = :unknown WHERE provider = :far',
         'claims'), {'provider-root far'}),
    'root of a node is missing': (
        ('DELETE FROM provider_trees WHERE provider = :far', 'claims'),
        {'provider-root far'}),
    'root of a child provider is unknown': (
        ('UPDATE provider_trees SET root = :unknown WHERE provider = :child',
         'claims'), {'provider-root child'}),
    'root of a child provider is missing': (
        ('DELETE FROM provider_trees WHERE provider = :child', 'claims'),
        {'provider-root child'}),
    'service is gone': (
        ("DELETE FROM services WHERE host = 'a1'", 'cell1'),
        {'service-missing a1'}),
    'service is deleted': (
        ("UPDATE services SET deleted = id WHERE host = 'a1'", 'cell1'),
        {'service-missing a1'}),
    'live server is archived': (
        (_SHADOW, 'cell1', 'instances'),
        {'row-archived server', 'row-archived member'}),
    'live server in cell0 is archived': (
        (_SHADOW, 'cell0', 'instances'), {'row-archived buried'}),
    'live service is archived': (
        (_SHADOW + " AND topic = 'compute'", 'cell2', 'services'),
        {'row-archived service'}),
    'live node is archived': (
        (_SHADOW, 'cell2', 'compute_nodes'), {'row-archived far'}),
    'sharing provider is of an unknown aggregate': (
        ('INSERT INTO shared_providers (uuid, name, aggregate_uuid, traits, '
         "inventories) VALUES (:unknown, 'disks', :unknown, '[]', '{}')",
         'api'), {'aggregate-unknown unknown'}),
    'reserved amount is changed': (
        ("UPDATE inventories SET reserved = 1 WHERE resource_class = 'VCPU' "
         'AND provider = :node', 'claims'), {'wrong-inventory:VCPU node'}),
    'ratio is changed': (
        ('UPDATE inventories SET allocation_ratio = 0.5 WHERE '
         "resource_class = 'MEMORY_MB' AND provider = :node", 'claims'),
        {'wrong-inventory:MEMORY_MB node'}),
    'reserved amount of a child provider is changed': (
        ('UPDATE inventories SET reserved = 1 WHERE provider = :child',
         'claims'), {'wrong-inventory:VGPU child'}),
    'ratio of a node is changed in its cell': (
        ('UPDATE compute_nodes SET cpu_allocation_ratio = 2 * '
         'cpu_allocation_ratio WHERE uuid = :node', 'cell1'),
        {'wrong-capacity:VCPU node'}),
    'vcpus of a server are changed': (
        ('UPDATE instances SET vcpus = 7 WHERE uuid = :server', 'cell1'),
        {'size-differs:vcpus server'}),
    'disk of a server is changed': (
        ('UPDATE instances SET ephemeral_gb = 7 WHERE uuid = :server',
         'cell1'), {'size-differs:ephemeral_gb server'}),
    'quota usage of a server is changed': (
        ('UPDATE instance_mappings SET memory_mb = 7 '
         'WHERE instance_uuid = :server', 'api'),
        {'size-differs:memory_mb server'}),
    'lease of a leader ends in years': (
        ('INSERT INTO leaders (name, owner, expires_at) '
         "VALUES ('task', 'x', 4e9)", 'api'), {'lease-excess task'}),
    'lease of a build ends in years': (
        ("UPDATE build_requests SET lease_owner = 'x', "
         'lease_expires_at = 4e9', 'api'), {'lease-excess waiting'}),
}

#: Kinds that a repair resolves.
REPAIRED = {
    'claim-elsewhere', 'claim-owner', 'member-claim', 'group-member-missing',
    'group-member-deleted', 'lease-excess', 'no-reason'}


class TestCorruption(base.TestCase):
    """Each case changes one record of a deployment in which all is well."""

    def setUp(self):
        super().setUp()
        gpu = {'gpu': {'inventories': {'VGPU': 2}}}
        # Agents do not report again what is changed. Their second reports, and
        # the first ones of their guests, are at random times of the intervals.
        self.deploy({'cell1': [
            deployment.DeployedHost('a1', memory_mb=65536, providers=gpu),
            'a2'], 'cell2': ['b1']}, DEFAULT={
                'report_interval': 1_000_000, 'service_down_time': 2_000_000,
                'resume_interval': 1_000_000})
        self.names = self.populate()
        self.auditor = services.auditor(self.world.api.parts)
        for name in DATABASES:
            self.copy(name, f'{name}-before')

    def populate(self):
        """Create a server of each fate; return uuids by name."""
        group = self.world.api.server_groups.create(
            base.USER, 'group', 'anti-affinity',
            {'max_server_per_host': 2})
        [deleted] = self.built()
        for host in 'a2', 'b1':
            self.world.api.services.set(
                base.ADMIN, host, 'nova-compute', disabled=True)
        [server] = self.built()
        [member] = self.built(hints={'group': [group.uuid]})
        [buried] = self.built(flavor='huge')
        self.delete(deleted.uuid)
        self.gone(deleted.uuid)
        self.assertHoldsNothing(deleted.uuid)
        [waiting] = self.unheard().servers.create(
            base.USER, 'waiting', 'small')
        self.assertEqual(['a1', 'a1'], [server.host, member.host])
        for host in 'a2', 'b1':
            self.world.api.services.set(
                base.ADMIN, host, 'nova-compute', disabled=False)
        nodes = {host: self.provider(cell, host) for cell, host in (
            ('cell1', 'a1'), ('cell2', 'b1'))}
        [child] = [record.uuid for record
                   in self.world.api.providers.list(base.ADMIN).providers
                   if record.kind == 'child']
        [[service]] = self.select(
            'cell2', "SELECT uuid FROM services WHERE host = 'b1'")
        return {
            'server': server.uuid, 'member': member.uuid,
            'deleted': deleted.uuid, 'buried': buried.uuid,
            'waiting': waiting, 'group': group.uuid, 'node': nodes['a1'],
            'far': nodes['b1'], 'child': child, 'service': service,
            'unknown': UNKNOWN}

    def file(self, name):
        return contextlib.closing(
            sqlite3.connect(self.world.directory / f'{name}.sqlite'))

    def copy(self, name, to):
        with self.file(name) as source, self.file(to) as target:
            source.backup(target)

    def select(self, name, statement):
        with self.file(name) as database:
            return database.execute(statement).fetchall()

    def change(self, statements, name, table=''):
        with self.file(name) as database:
            columns = ', '.join(
                row[1] for row in database.execute(
                    f'PRAGMA table_info({table})')) if table else ''
            for statement in statements.split('; '):
                database.execute(
                    statement.replace('{table}', table).replace(
                        '{columns}', columns), self.names)
            database.commit()

    def repair(self):
        """Return all findings and the remaining ones: kind and name."""
        of = {uuid: name for name, uuid in self.names.items()}
        repaired = []
        while True:
            report = self.auditor.run(settle_s=0, fix=True)
            repaired += report.repaired
            # A cell of a busy machine may not answer in time.
            if not any(each.kind == 'cell-unreachable'
                       for each in report.remaining):
                break
        found = [*repaired, *report.remaining]
        for each in found:
            # No case changes the size in a request.
            self.assertNotIn('its request specification is', each.repair)
        return tuple(
            {f'{each.kind} {of.get(each.of, each.of)}' for each in findings}
            for findings in (found, report.remaining))

    def test_each_corruption_is_found_and_repaired_if_safe(self):
        self.soon(lambda: self.assertEqual((set(), set()), self.repair()))
        wrong = {}
        for fact, (change, expected) in CASES.items():
            self.change(*change)
            left = {each for each in expected
                    if each.split(' ')[0] not in REPAIRED
                    or 'owner-differs server' in expected}
            found = self.repair()
            if found != (expected, left):
                wrong[fact] = expected, *found
            for name in DATABASES:
                self.copy(f'{name}-before', name)
        self.assertEqual({}, wrong)
        self.assertEqual((set(), set()), self.repair())
