# SPDX-License-Identifier: Apache-2.0
"""Servers with flavors of custom resource classes."""

import pathlib

from cellsched.claims import base as claims
from cellsched.cli import app
from cellsched.db.cell import hosts
from cellsched.objects import child_providers
from cellsched.standalone import deployment
from cellsched.wiring import services
from tests.functional import base
from tests.unit.cli import base as cli_base

SCENARIOS = (pathlib.Path(__file__).resolve().parents[2]
             / 'etc/cellsched/scenarios')


class TestScenario(cli_base.CommandTestCase):

    def play(self, name):
        ran = self.run_app(
            app.Shell, 'demo', '--scenario', SCENARIOS / name, '-f', 'json')

        self.assertEqual(0, ran.code, ran.err)
        return ran

    def test_scenario_of_classes_meets_its_expectations(self):
        self.play('resource-classes.yaml')

    def test_scenario_of_providers_meets_its_expectations(self):
        ran = self.play('typed-resources.yaml')

        # The use of what is shared, and of what is below hosts, is drawn too.
        self.assertIn('300 of 300 GB', ran.err)
        self.assertRegex(ran.err, 'pool +DISK_GB')
        self.assertRegex(ran.err, 'VGPU .* 3 of 4')

    def test_scenario_of_numa_cells_draws_the_cells(self):
        ran = self.play('numa-cells.yaml')

        routers = [each['UUID'] for each in ran.data
                   if each['Name'].startswith('router')]
        for text in ('Host n1:', 'Host n2:', 'pages of 1 GB: 6 of 8 free',
                     '[1a 9a] [2 10] [3 11]',
                     *(f'a: server {uuid}' for uuid in routers)):
            self.assertIn(text, ran.err)
        # No bar is drawn for each CPU.
        self.assertNotIn('CUSTOM_PCPU', ran.err)


class TestResourceClasses(base.TestCase):

    def start(self, **inventories):
        """Have hosts with these totals of CUSTOM_X."""
        self.deploy({'cell1': [
            deployment.DeployedHost(name, behaviour={
                'inventories': {'CUSTOM_X': total} if total else {}})
            for name, total in inventories.items()]})
        flavors = self.world.api.flavors
        flavors.create(base.ADMIN, 'asking', 1, 512)
        flavors.set_extra_specs(base.ADMIN, 'asking', {
            'resources:CUSTOM_X': '2', 'resources:MEMORY_MB': '0'})

    def claimed(self, uuid):
        return [dict(each.resources) for each
                in self.world.api.parts.claims.claims_of([uuid]).get(uuid, ())]

    def test_server_claims_and_releases_the_resources_of_its_flavor(self):
        self.start(a1=0, a2=3)
        [first] = self.built(flavor='asking')
        self.assertEqual('a2', first.host)
        self.assertEqual([{'VCPU': 1, 'CUSTOM_X': 2}],
                         self.claimed(first.uuid))

        [late] = self.built(flavor='asking')
        self.assertEqual('ERROR', late.status)
        self.assertIn('lack CUSTOM_X (the nearest by 1 CUSTOM_X)', late.reason)

        self.delete(first.uuid)
        self.assertLeftNothing(first.uuid)
        [next_] = self.built(flavor='asking')
        self.assertEqual(('ACTIVE', 'a2'), (next_.status, next_.host))

    def test_audit_accepts_a_custom_class_and_finds_a_wrong_amount(self):
        self.start(a1=4)
        [server] = self.built(flavor='asking')
        auditor = services.auditor(self.world.api.parts)
        self.soon(lambda: self.assertEqual(
            [], auditor.run(settle_s=0).remaining))

        store = self.world.api.parts.claims
        [held] = store.claims_of([server.uuid])[server.uuid]
        store.release([server.uuid])
        store.claim([claims.Claim(
            server.uuid, held.provider, {'VCPU': 1, 'CUSTOM_X': 1})])

        [found] = auditor.run(settle_s=0).remaining
        self.assertEqual(('claim-amount', server.uuid),
                         (found.kind, found.of))


class TestChildProviders(base.TestCase):

    def rooms(self, host):
        """Return room of VGPU by names of children, as they are known."""
        [cell] = self.world.api.parts.cells.real()
        with self.world.api.parts.targets.database(cell).reader() as there:
            rows = {row.host: row for row in hosts.changes(there).nodes}
        names = {child.uuid: child.name for child
                 in child_providers.load(rows[host].providers)}
        return {names[usage.provider]: usage.capacity.get('VGPU', 0)
                for usage in self.world.api.parts.claims.usages(
                    providers=list(names)).usages}

    def test_children_of_a_host_are_reported_and_no_audit_wonders(self):
        host = deployment.DeployedHost('a1', providers={
            'numa0': {}, 'gpu0': {'inventories': {'VGPU': 4},
                                  'parent': 'numa0'}})
        self.deploy({'cell1': [host]})

        self.assertEqual({'numa0': 0, 'gpu0': 4}, self.rooms('a1'))
        auditor = services.auditor(self.world.api.parts)
        self.soon(lambda: self.assertEqual(
            [], auditor.run(settle_s=0).remaining))
