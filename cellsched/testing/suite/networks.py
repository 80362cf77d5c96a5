# SPDX-License-Identifier: Apache-2.0
"""Tests that every network plug-in must pass.

::

    class TestMyNetworks(networks.NetworkSuite, unittest.TestCase):

        def make_network(self):
            return my_networks.MyNetworks(…)

        def look(self, network, uuid):
            return …
"""

import inspect
from typing import Any
import uuid

from cellsched import context
from cellsched.network import base
from cellsched import objects
from cellsched.testing.suite.base import Case

USER = context.member('user', 'project')


class NetworkSuite(Case):
    """Tests of a network plug-in, which ``make_network`` makes."""

    def make_network(self) -> base.NetworkAPI:
        """Return the plug-in, as another process of the cell has it too."""
        raise NotImplementedError

    def look(self, network: base.NetworkAPI, uuid: str) -> set[str] | None:
        """Return the hosts that an instance's networks are set up on.

        None if it has none; a plug-in that gives none answers so always.
        """
        raise NotImplementedError

    def make_instance(self) -> objects.Instance:
        return objects.Instance(
            uuid=str(uuid.uuid4()), project_id='project', user_id='user')

    def allocate(
        self, network: base.NetworkAPI, instance: objects.Instance,
        host: str = 'host1', requested: Any = None,
    ) -> None:
        network.allocate_for_instance(USER, instance, requested, host)

    def assertHas(
        self, network: base.NetworkAPI, instance: objects.Instance,
        *hosts: str,
    ) -> None:
        """It has networks on these hosts, if the plug-in gives any at all."""
        found = self.look(network, instance.uuid)
        self.assertIn(found, (set(hosts), None))
        if found is None:
            self.assertFalse(self._gives())

    def _gives(self) -> bool:
        network, instance = self.make_network(), self.make_instance()
        self.allocate(network, instance)
        try:
            return self.look(network, instance.uuid) is not None
        finally:
            network.deallocate_for_instance(USER, instance)

    def test_network_is_a_plugin_with_documentation(self) -> None:
        network = self.make_network()
        self.assertIsInstance(network, base.NetworkAPI)
        self.assertTrue(inspect.getdoc(type(network)))
        for option in network.opts():
            self.assertTrue((option.help or '').strip(), option.name)

    def test_server_has_networks_until_deallocation(self) -> None:
        network, instance = self.make_network(), self.make_instance()
        self.assertIsNone(self.look(network, instance.uuid))

        self.allocate(network, instance)
        self.assertHas(network, instance, 'host1')

        network.deallocate_for_instance(USER, instance)
        self.assertIsNone(self.look(network, instance.uuid))

    def test_repeated_calls_have_no_effect(self) -> None:
        network, instance = self.make_network(), self.make_instance()

        for _ in range(3):
            self.allocate(network, instance)
            self.assertHas(network, instance, 'host1')
        for _ in range(3):
            network.setup_instance_network_on_host(USER, instance, 'host2')
            self.assertHas(network, instance, 'host1', 'host2')
        for _ in range(3):
            network.cleanup_instance_network_on_host(USER, instance, 'host1')
            self.assertHas(network, instance, 'host2')
        for _ in range(3):
            network.deallocate_for_instance(USER, instance)
            self.assertIsNone(self.look(network, instance.uuid))

    def test_server_keeps_its_networks_on_another_host(self) -> None:
        network, instance = self.make_network(), self.make_instance()
        self.allocate(network, instance)
        network.cleanup_instance_network_on_host(USER, instance, 'host1')
        self.assertHas(network, instance)

        self.allocate(network, instance, 'host2')
        self.assertHas(network, instance)
        network.setup_instance_network_on_host(USER, instance, 'host2')

        self.assertHas(network, instance, 'host2')

    def test_calls_for_a_server_without_networks_succeed(self) -> None:
        network, instance = self.make_network(), self.make_instance()

        network.setup_instance_network_on_host(USER, instance, 'host1')
        network.cleanup_instance_network_on_host(USER, instance, 'host1')
        network.deallocate_for_instance(USER, instance)

        self.assertIsNone(self.look(network, instance.uuid))

    def test_networks_may_be_given_anew(self) -> None:
        network, instance = self.make_network(), self.make_instance()
        self.allocate(network, instance)
        network.deallocate_for_instance(USER, instance)

        self.allocate(network, instance, 'host2')

        self.assertHas(network, instance, 'host2')

    def test_wishes_are_taken(self) -> None:
        network = self.make_network()
        for requested in (None, [], [{'network_id': str(uuid.uuid4())}]):
            instance = self.make_instance()
            self.allocate(network, instance, requested=requested)
            self.assertHas(network, instance, 'host1')

    def test_networks_of_servers_are_kept_apart(self) -> None:
        network = self.make_network()
        first, second = self.make_instance(), self.make_instance()
        self.allocate(network, first)
        self.allocate(network, second, 'host2')

        network.deallocate_for_instance(USER, first)

        self.assertIsNone(self.look(network, first.uuid))
        self.assertHas(network, second, 'host2')

    def test_other_process_continues_with_the_networks(self) -> None:
        network, other = self.make_network(), self.make_network()
        instance = self.make_instance()
        self.allocate(network, instance)

        self.allocate(other, instance, 'host2')
        self.assertHas(other, instance, 'host1')
        other.setup_instance_network_on_host(USER, instance, 'host2')
        other.cleanup_instance_network_on_host(USER, instance, 'host1')
        self.assertHas(network, instance, 'host2')
        other.deallocate_for_instance(USER, instance)

        self.assertIsNone(self.look(network, instance.uuid))
