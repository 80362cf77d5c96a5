# SPDX-License-Identifier: Apache-2.0
"""The options of kolla-ansible, on clusters of databases and brokers."""

from tests.integration import base
from tests.integration.topologies import galera
from tests.integration.topologies import haproxy
from tests.integration.topologies import rabbitmq
from tests.integration.topologies import story
from tests import profile


@profile.full_only('two clusters, and faults that take their time')
class TestKolla(story.Story):

    section = 'The options of kolla-ansible'
    further = 'Galera with one writer', 'RabbitMQ with three nodes'
    kinds = galera.Galera, haproxy.HAProxy, rabbitmq.Cluster

    galera: galera.Galera
    rabbitmq: rabbitmq.Cluster

    @classmethod
    def start(cls):
        cls.galera = cls.of_class(base.installed(galera.Galera, cls.page))
        cls.of_class(base.installed(haproxy.HAProxy, cls.page))
        cls.rabbitmq = cls.of_class(
            base.installed(rabbitmq.Cluster, cls.page))
        return (
            story.Place(cls.options['DEFAULT']['transport_url']),
            story.Place(cls.options['api_database']['connection'],
                        cls.galera.create))

    def test_killed_nodes(self):
        nodes = self.galera.nodes[0], self.rabbitmq.nodes[0]

        def kill():
            for each in nodes:
                each.kill()

        def start():
            for each in nodes:
                each.start()

        self.assertEndures(kill, start)
