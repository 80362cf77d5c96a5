# SPDX-License-Identifier: Apache-2.0
"""The plug-in for servers without networks."""

from cellsched.network import base


class NoopNetworks(base.NetworkAPI):
    """Gives servers no networks.

    Use it if another system manages the networks.
    """

    def allocate_for_instance(
        self, context, instance, requested_networks, host
    ):
        pass

    def setup_instance_network_on_host(self, context, instance, host):
        pass

    def cleanup_instance_network_on_host(self, context, instance, host):
        pass

    def deallocate_for_instance(self, context, instance):
        pass
