# SPDX-License-Identifier: Apache-2.0
"""Who follows the hosts of a cell."""

import hypothesis
from hypothesis import strategies

from cellsched.db.cell import compute_nodes
from cellsched.db.cell import hosts
from cellsched.db.cell import services
from tests import profile
from tests.unit.db import samples

_hosts = strategies.sampled_from(('a', 'b'))
_nodes = strategies.sampled_from(('one', 'two'))

#: Calls that write, each with whether somebody polls before it.
CALLS = strategies.lists(strategies.tuples(
    strategies.booleans(), strategies.one_of(
        strategies.tuples(strategies.just('save'), _hosts, _nodes,
                          strategies.integers(1, 3)),
        strategies.tuples(strategies.just('report'), _hosts),
        strategies.tuples(strategies.sampled_from(('disable', 'force_down')),
                          _hosts, strategies.booleans()),
        strategies.tuples(strategies.just('delete'), _hosts),
    )), min_size=4, max_size=20)


class Follower:
    """Knows nodes by uuid and services by host, from what it was told."""

    def __init__(self, database):
        self._database = database
        self._token = None
        self.nodes = {}
        self.services = {}

    def poll(self):
        """Apply what changed; return it."""
        with self._database.reader() as connection:
            changes = hosts.changes(connection, self._token)
        self._token = changes.token
        if changes.complete:
            self.nodes.clear()
            self.services.clear()
        for row in changes.nodes:
            self._put(self.nodes, row.uuid, row)
        for row in changes.services:
            self._put(self.services, row.host, row)
        return changes

    def _put(self, known, key, row):
        if row.deleted:
            known.pop(key, None)
        else:
            known[key] = tuple(row)


class Writing:
    """Writes hosts, as agents and operators do."""

    def save(self, host, node, vcpus):
        return self.write(compute_nodes.save, samples.uuids(1)[0], host, node,
                          samples.NODE | {'vcpus': vcpus}, samples.NOW)

    def report(self, host):
        self.write(services.report, samples.uuids(1)[0], host,
                   services.COMPUTE, 'compute', samples.NOW)

    def disable(self, host, disabled):
        if host in self.read(services.list_hosts, services.COMPUTE):
            self.write(services.set_disabled, host, disabled, 'broken',
                       samples.NOW)

    def force_down(self, host, forced_down):
        if host in self.read(services.list_hosts, services.COMPUTE):
            self.write(services.set_forced_down, host, forced_down,
                       samples.NOW)

    def delete(self, host):
        self.write(hosts.delete, host, samples.NOW)


class Tests(Writing):
    """Tests of those who follow, for whatever database."""

    # Each class has a database of its own, and is a test of its own.
    @hypothesis.given(CALLS)
    @hypothesis.settings(
        profile.few_examples,
        suppress_health_check=profile.SHARED)
    def test_follower_has_the_same_rows_as_a_full_read(self, calls):
        self.database = self.make_database()
        follower = Follower(self.database)

        for polled, (name, *arguments) in calls:
            if polled:
                follower.poll()
            getattr(self, name)(*arguments)

        follower.poll()
        newcomer = Follower(self.database)
        self.assertTrue(newcomer.poll().complete)
        self.assertEqual(newcomer.nodes, follower.nodes)
        self.assertEqual(newcomer.services, follower.services)
