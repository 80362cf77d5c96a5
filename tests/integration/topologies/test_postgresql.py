# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL with a standby: the primary fails while servers are built."""

import json

from tests.integration import base
from tests.integration import processes
from tests.integration import servers
from tests.integration.topologies import load
from tests.integration.topologies import postgresql
from tests.integration.topologies import story
from tests import profile


class PairStory(story.Story):

    section = 'PostgreSQL with a standby'
    kinds = postgresql.Pair,

    pair: postgresql.Pair

    @classmethod
    def start(cls):
        cls.pair = cls.of_class(base.installed(postgresql.Pair, cls.page))
        return cls.plain_broker(), cls.databases()

    @classmethod
    def databases(cls):
        return story.Place(
            cls.options['api_database']['connection'], cls.pair.create)

    def compare_with_single(self):
        server = self.useFixture(base.installed(
            lambda: servers.PostgreSQL(durable=True)))
        self.compare(servers.by_psycopg(server.url('claims')))


@profile.full_only('two servers, and faults that take their time')
class TestSynchronousStandby(PairStory):

    def setUp(self):
        super().setUp()
        self.pair.follow('synchronous', self.pair.primary)
        self.former = self.pair.primary

    def rejoin(self):
        """Have the former primary copy the new one."""
        self.pair.copy(self.former)

    def test_killed_primary(self):
        def fail_over():
            self.pair.nodes[self.former].kill()
            self.pair.fail_over()

        self.assertEndures(fail_over, self.rejoin)

    def test_primary_becomes_read_only(self):
        def switch_over():
            self.pair.follow('reader', self.former)
            self.pair.wait_for_standby()
            self.pair.fail_over()

        self.assertEndures(switch_over, self.rejoin)

    def test_killed_standby(self):
        standby = self.pair.nodes[1 - self.former]

        def go_on_alone():
            standby.kill()
            self.pair.follow('alone', self.former)

        self.assertEndures(go_on_alone, standby.start)

    def test_claims_a_second(self):
        self.compare_with_single()


class Databases:
    """The claims on the pair, and all else on a plain server."""

    def __init__(self, claims, plain):
        self._claims = claims
        self._plain = plain

    def url(self, name):
        return (self._claims if name == 'claims' else self._plain).url(name)


@profile.full_only('two servers, and a whole deployment')
class TestLostTail(PairStory):

    @classmethod
    def databases(cls):
        return Databases(super().databases(), cls.plain_database())

    def test_audit_repairs_losses_of_an_asynchronous_standby(self):
        released, kept, built = (self.create(name) for name in (
            'released', 'kept', 'built'))
        self.build(released, kept)
        self.pair.wait_for_standby()
        self.pair.cut_off()

        released.delete()
        self.build(built)
        self.pair.nodes[0].kill()
        self.pair.fail_over()

        self.assertEqual(
            {**dict.fromkeys(released.accepted, 'claim-leaked'),
             **dict.fromkeys(built.accepted, 'unclaimed')},
            self.findings(1))
        self.findings(2, '--fix')
        self.assertEqual({}, self.findings(0))
        for builds in kept, built:
            self.assertEqual(
                builds.accepted.keys(),
                self.parts.claims.claims_of(builds.accepted).keys())
            builds.delete()

    def create(self, name):
        return load.Builds(self.api, f'{name}-')

    def build(self, *every):
        for each in every:
            each.run(3, 0, lambda: None)

    def findings(self, expected, *args):
        """Return the kinds of the findings of an audit by their subject."""
        code, output = processes.wait_until(
            lambda: self.deployment.audit('-f', 'json', *args),
            'the audit to run')
        self.assertEqual(expected, code, output)
        return {each['Of']: each['Kind'] for each in json.loads(output)}
