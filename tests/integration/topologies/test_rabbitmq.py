# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ with three nodes: one fails while servers are built."""

import os
import signal
import time

from tests.integration import base
from tests.integration.topologies import rabbitmq
from tests.integration.topologies import story
from tests import profile

#: Seconds for which a node does nothing, less than clients wait for it.
PAUSE_S = 20.0


@profile.full_only('a cluster, and faults that take their time')
class TestRabbitMQ(story.Story):

    section = 'RabbitMQ with three nodes'
    kinds = rabbitmq.Cluster,

    cluster: rabbitmq.Cluster

    @classmethod
    def start(cls):
        cls.cluster = cls.of_class(
            base.installed(rabbitmq.Cluster, cls.page))
        broker = story.Place(cls.options['DEFAULT']['transport_url'])
        return broker, cls.plain_database()

    def test_killed_node(self):
        node = self.cluster.most_used()

        self.assertEndures(node.kill, node.start)

    def test_paused_node_continues(self):
        group = self.cluster.most_used().pid

        def pause():
            os.killpg(group, signal.SIGSTOP)
            time.sleep(PAUSE_S)
            os.killpg(group, signal.SIGCONT)

        self.assertEndures(pause)
