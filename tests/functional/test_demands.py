# SPDX-License-Identifier: Apache-2.0
"""Requirements are met, or refused by name."""

from cellsched.db.api import build_requests
from cellsched.db.api import flavors
from cellsched import exception
from cellsched import objects
from cellsched.rpc import scheduler
from cellsched.testing import builders
from tests.functional import base

CELLS = {'cell1': ['a1', 'a2'], 'cell2': ['b1']}


class DemandCase(base.TestCase):

    def start(self, **options):
        self.deploy(CELLS, scheduler=options)

    def flavor(self, vcpus=1, **extra_specs):
        """Add a flavor with these extra specs; return its name."""
        specs = {name.replace('__', ':'): value
                 for name, value in extra_specs.items()}
        parts = self.world.api.parts
        with parts.database.writer() as connection:
            flavors.create(connection, objects.Flavor(
                name='asking', flavorid='asking', vcpus=vcpus, memory_mb=512,
                root_gb=1, ephemeral_gb=0, swap=0, extra_specs=specs),
                parts.clock.now())
        return 'asking'

    def select(self, uuid, **wishes):
        """Return the first selection that a caller of RPC gets."""
        parts = self.world.api.parts
        [[first, *_]] = scheduler.SchedulerAPI(
            parts.transports.get()).select_destinations(
                base.USER, builders.request(instance_uuid=uuid, **wishes),
                [uuid])
        return first


class TestDemands(DemandCase):

    def test_build_with_unsupported_requirements_fails(self):
        self.start()

        [found] = self.built(flavor=self.flavor(hw__cpu_policy='dedicated'))

        self.assertEqual(('ERROR', 'cell0'), (found.status, found.cell))
        self.assertIn(
            'No enabled stage reads what is asked for: flavor extra spec '
            'hw:cpu_policy (dedicated CPUs), request field numa_topology (a '
            'NUMA topology).', found.reason)
        self.assertEqual([], self.held(found.uuid))

    def test_build_with_supported_requirements_is_built(self):
        self.start()

        [found] = self.built(flavor=self.flavor(
            trait__COMPUTE_NODE='required', hw__cpu_policy='shared',
            quota__cpu_shares='3'))

        self.assertEqual('ACTIVE', found.status)

    def test_unmet_demands_are_built_if_ignored(self):
        self.start(unmet_demands='ignore')

        [found] = self.built(flavor=self.flavor(vcpus=2, hw__numa_nodes='2'))

        self.assertEqual('ACTIVE', found.status)
        self.assertIn('hw:numa_nodes (a NUMA topology)', self.logs.output)
        # The request has the topology, as Nova's API would store it.
        with self.world.api.parts.database.reader() as connection:
            spec = build_requests.read_spec(connection, found.uuid)
        self.assertEqual('InstanceNUMATopology',
                         spec.numa_topology['nova_object.name'])
        self.assertEqual([({0}, 256), ({1}, 256)], [
            (each.cpus, each.memory_mb)
            for each in spec.guest_topology().cells])


class TestHints(DemandCase):

    def test_unread_hint_is_refused(self):
        self.start()

        self.assertRaises(
            exception.InvalidField, self.create, hints={'color': ['red']})

    def test_unread_hint_is_ignored_if_configured(self):
        self.start(unknown_hints='ignore')

        [found] = self.built(hints={'color': ['red']})

        self.assertEqual('ACTIVE', found.status)

    def test_hint_with_an_underscore_is_refused(self):
        self.start(unknown_hints='ignore')

        self.assertRaises(
            exception.InvalidField, self.create,
            hints={'_nova_check_type': ['rebuild']})


class TestRebuilds(DemandCase):
    """Nova's conductor asks whether a host does for another image."""

    def setUp(self):
        super().setUp()
        self.start()
        [self.server] = self.built()

    def ask(self, host, uuid=None, **image):
        return self.select(
            uuid or self.server.uuid, force_hosts=[host],
            force_nodes=[host], image=image or None,
            hints={'_nova_check_type': 'rebuild'})

    def test_host_of_the_server_is_selected_without_a_claim(self):
        before = self.held(self.server.uuid)

        found = self.ask(self.server.host)

        self.assertEqual((self.server.host, 'null', None), (
            found.service_host, found.allocation_request,
            found.allocation_request_version))
        self.assertEqual(before, self.held(self.server.uuid))
        self.assertClaimsMatch()

    def test_unsuitable_host_for_the_image_is_named(self):
        error = self.assertRaises(
            exception.NoValidHost, self.ask, self.server.host,
            hw_architecture='mips')

        self.assertIn('lacks support for this kind of image', str(error))

    def test_other_host_and_other_server_are_refused(self):
        other = min({'a1', 'a2', 'b1'} - {self.server.host})
        for host, uuid in ((other, None), (
                self.server.host, '10000000-0000-4000-8000-000000000001')):
            error = self.assertRaises(
                exception.InvalidField, self.ask, host, uuid)
            self.assertIn('_nova_check_type', str(error))
