# SPDX-License-Identifier: Apache-2.0
"""Who follows the aggregates."""

import hypothesis
from hypothesis import strategies

from cellsched.db.api import aggregates
from tests import profile
from tests.unit.db import samples

_names = strategies.sampled_from(('one', 'two'))
_hosts = strategies.lists(strategies.sampled_from('abc'), max_size=3)
_keys = strategies.sampled_from(('gpu', 'ssd'))
_values = strategies.sampled_from(('true', 'false'))

#: Calls that write, each with whether somebody polls before it.
CALLS = strategies.lists(strategies.tuples(
    strategies.booleans(), strategies.one_of(
        strategies.tuples(strategies.just('create'), _names, _hosts,
                          strategies.dictionaries(_keys, _values)),
        strategies.tuples(
            strategies.just('set_metadata'), _names, strategies.dictionaries(
                _keys, strategies.none() | _values)),
        strategies.tuples(
            strategies.sampled_from(('add_hosts', 'remove_hosts')), _names,
            _hosts),
        strategies.tuples(strategies.just('delete'), _names),
    )), min_size=4, max_size=20)


class Follower:
    """Knows aggregates by id, from what it was told."""

    def __init__(self, database):
        self._database = database
        self._token = None
        self.aggregates = {}

    def poll(self):
        """Apply what changed; return it."""
        with self._database.reader() as connection:
            changes = aggregates.changes(connection, self._token)
        self._token = changes.token
        for aggregate in changes.aggregates:
            self.aggregates[aggregate.id] = aggregate
        if changes.ids is not None:
            for number in self.aggregates.keys() - changes.ids:
                del self.aggregates[number]
        return changes


class Writing:
    """Writes aggregates, as operators do."""

    def create(self, name, hosts, **metadata):
        return self.write(aggregates.create, samples.uuids(1)[0], name, hosts,
                          metadata, samples.NOW)

    def set_metadata(self, number, metadata):
        self.write(aggregates.set_metadata, number, metadata, samples.LATER)

    def add_hosts(self, number, hosts):
        self.write(aggregates.add_hosts, number, hosts, samples.LATER)

    def remove_hosts(self, number, hosts):
        self.write(aggregates.remove_hosts, number, hosts, samples.LATER)

    def delete(self, number):
        self.write(aggregates.delete, number, samples.LATER)


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
        numbers = {}

        for polled, (call, name, *arguments) in calls:
            if polled:
                follower.poll()
            # A name is taken until its aggregate is deleted.
            if call == 'create' and name not in numbers:
                hosts, metadata = arguments
                numbers[name] = self.create(name, hosts, **metadata)
            elif call != 'create' and name in numbers:
                getattr(self, call)(numbers[name], *arguments)
                if call == 'delete':
                    del numbers[name]

        follower.poll()
        newcomer = Follower(self.database)
        newcomer.poll()
        self.assertEqual(newcomer.aggregates, follower.aggregates)
        self.assertEqual(set(numbers.values()), set(follower.aggregates))
