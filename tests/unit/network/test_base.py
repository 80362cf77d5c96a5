# SPDX-License-Identifier: Apache-2.0
"""The contract of a network plug-in."""

from cellsched.network import base as network
from cellsched import plugins
from tests.unit import base

METHODS = ('allocate_for_instance', 'setup_instance_network_on_host',
           'cleanup_instance_network_on_host', 'deallocate_for_instance')


class TestNetworkAPI(base.TestCase):

    def test_plugin_implements_the_abstract_methods(self):
        for missing in METHODS:
            whole = {name: lambda self: None for name in METHODS}
            plugin = type('Whole', (network.NetworkAPI,), whole)(None)
            self.assertEqual([], plugin.opts())

            del whole[missing]
            self.assertRaises(
                TypeError, type('Partial', (network.NetworkAPI,), whole),
                None)

    def test_installed_plugins_are_network_apis(self):
        loaded = [
            name for name in plugins.names(plugins.NETWORKS)
            if plugins.load_class(plugins.NETWORKS, name, network.NetworkAPI)]

        self.assertIn('noop', loaded)
        self.assertIn('fake', loaded)

    def test_plugin_without_host_networks_restricts_no_request(self):
        plugin = type('Plugin', (network.NetworkAPI,), {
            name: lambda self: None for name in METHODS})(None)

        self.assertEqual([], plugin.segment_aggregates(None, {}))
        self.assertFalse(plugin.has_remote_managed_port(None, {}))

    def test_requested_networks_are_read_from_their_wire_form(self):
        def wrapped(**data):
            return {'nova_object.data': data}

        self.assertEqual(
            [('n', None), (None, 'p'), (None, None), (None, None)],
            list(network.requested(wrapped(objects=[
                wrapped(network_id='n'), wrapped(port_id='p'), wrapped(),
                'junk']))))
        for nothing in (None, 'none', [], {}, wrapped(), wrapped(
                objects=None)):
            self.assertEqual([], list(network.requested(nothing)))
