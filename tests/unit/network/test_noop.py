# SPDX-License-Identifier: Apache-2.0
"""The plug-in for servers without networks."""

from cellsched.network import noop
from cellsched.testing.suite import networks as suite
from tests.unit import base
from tests.unit.network import networks


class TestNoopNetworks(suite.NetworkSuite, base.TestCase):

    def make_network(self):
        return networks.make(noop.NoopNetworks)

    def look(self, network, uuid):
        return None
