# SPDX-License-Identifier: Apache-2.0
"""Claims in etcd with three members: one fails while servers are built."""

from tests.integration import base
from tests.integration import etcd as single
from tests.integration.topologies import etcd
from tests.integration.topologies import story
from tests import profile


class Databases:
    """The claims in etcd, and all else in a plain database server."""

    def __init__(self, claims, plain):
        self._claims = claims
        self._plain = plain

    def url(self, name):
        return self._claims if name == 'claims' else self._plain.url(name)


class Members:
    """Stories of a cluster, for each kind of tokens."""

    section = 'etcd with three members'
    kinds = etcd.Cluster,

    cluster: etcd.Cluster

    @classmethod
    def start(cls):
        [kind] = cls.kinds
        cls.cluster = cls.of_class(base.installed(kind, cls.page))
        cls.page.copy_certificates('/etc/cellsched', 'control')
        return cls.plain_broker(), Databases(
            cls.options['claims']['connection'], cls.plain_database())

    def test_killed_leader(self):
        killed = []

        def kill():
            killed.append(self.cluster.leader())
            killed[0].kill()

        self.assertEndures(kill, lambda: killed[0].start())

    def test_change_of_users(self):
        self.assertEndures(lambda: self.cluster.control(
            'etcdctl user add another:PASSWORD', ETCDCTL_USER='root:PASSWORD'))


@profile.full_only('a cluster, and faults that take their time')
class TestEtcd(Members, story.Story):

    def test_claims_a_second(self):
        server = self.useFixture(base.installed(single.Etcd))
        self.compare(server.url('claims'), 'etcd')


@profile.full_only('a cluster, and faults that take their time')
class TestSimpleTokens(Members, story.Story):

    kinds = etcd.SimpleTokens,
    variant = ', simple tokens'
