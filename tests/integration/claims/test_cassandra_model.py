# SPDX-License-Identifier: Apache-2.0
"""The model of Cassandra, compared with a real one."""

import dataclasses
import random

from cellsched.claims.cassandra import requests
from cellsched.simulator.servers import cassandra
from tests.integration import base
from tests.integration.claims import test_cassandra
from tests import profile

PROVIDERS = ('p', 'q')
NAMES = ('a', 'b', 'c')
TRAITS = ('A', 'B', 'C')

WRITES = (requests.WriteConsumer, requests.ChangeProvider, requests.WriteTree)

#: Writes of each kind are applied and refused, and changes of a provider both
#: if the server adds and if it compares a generation, of rows and of columns.
OUTCOMES = {(*kind, applied) for applied in (True, False) for kind in (
    (requests.WriteConsumer,), (requests.WriteTree,),
    *((requests.ChangeProvider, has_rows, compares)
      for has_rows in (True, False) for compares in (True, False)))}

#: Requests that are compared; up to a limit, until all outcomes occurred.
COUNT = profile.COMPARED_REQUESTS
LIMIT = COUNT + 500


class TestModel(test_cassandra.OnCassandra, base.TestCase):

    def setUp(self):
        super().setUp()
        # Whatever they are, a failure says them.
        self.random = random.Random(7)
        self.model = cassandra.CassandraModel()

    def test_same_requests_have_the_same_answers(self):
        missing = set(OUTCOMES)
        for number in range(LIMIT):
            if number >= COUNT and not missing:
                break
            request = self.make_request(f'v{number}')
            expected = self.model.answer(request)

            answer = self.clients[0].send(request)

            self.assertEqual(
                _comparable(expected), _comparable(answer), request)
            if isinstance(request, WRITES):
                missing.discard(_outcome(request, answer))
        self.assertEqual(set(), missing)

    def make_request(self, version):
        """Return a request that is valid most of the time."""
        chance = self.random
        provider, name = chance.choice(PROVIDERS), chance.choice(NAMES)
        figures = self.model.answer(requests.ReadFigures(provider))
        if figures is None and chance.random() < 0.3:
            return self.set_inventory(provider, name, figures, version)
        make = chance.choice([
            self.write, self.write, self.change, self.change, self.change,
            self.change, self.set_inventory, self.set_figures,
            lambda *args: requests.Fence(provider, name, 'x'),
            lambda *args: requests.ReadConsumer(name),
            lambda *args: requests.ReadFigures(provider),
            lambda *args: requests.ReadClaims(
                provider, ((name, 'x'), ('nobody', 'x'))),
            lambda *args: requests.ReadProvider(provider),
            lambda *args: requests.Scan(chance.random() < 0.5),
            self.write_tree, self.write_tree,
            lambda *args: requests.ReadTree(provider),
            lambda *args: requests.ScanTrees(
                chance.choice((None, *TRAITS))),
            lambda *args: requests.ScanTrees(nested=True)])
        return make(provider, name, figures, version)

    def write(self, provider, name, figures, version):
        seen = self.model.consumers.get(name)
        row = requests.VersionedRow(version, f'body of {version}')
        seen = self.random.choice((None, seen and seen.version, 'old'))
        return requests.WriteConsumer(
            name, seen, row if seen is None
            else self.random.choice((row, row, None)))

    def write_tree(self, provider, name, figures, version):
        chance = self.random
        seen = self.model.trees.get(provider)
        return requests.WriteTree(
            provider, chance.choice((None, seen and seen.version, 'old')),
            requests.Tree(version, chance.choice(PROVIDERS), tuple(
                sorted(chance.sample(TRAITS, chance.randrange(3))))))

    def change(self, provider, name, figures, version):
        chance = self.random
        rows = self.model.answer(requests.ReadProvider(provider))[1]
        other = chance.choice([each for each in NAMES if each != name])
        # No attempt succeeds after a fence, but new ones may.
        inserted = (requests.ClaimRow(
            name, chance.choice(('x', version)), '{"VCPU":1}',
            chance.random() < 0.5),)
        deleted = tuple(row for row in rows if row.consumer == other)
        if chance.random() < 0.2:
            deleted = (requests.ClaimRow(other, 'x', '{"VCPU":2}'),)
        inserted, deleted = chance.choice((
            (inserted, deleted), (inserted, ()), ((), deleted or inserted)))
        change = requests.ChangeProvider(
            provider,
            {'inventory': figures.inventory if figures else 'none'},
            added={'generation': 1, 'open': 1, 'u3': 1,
                   'consumers': len(inserted) - len(deleted),
                   'u0': len(inserted) - len(deleted)},
            bounds=chance.choice(({'u0': 2}, {'u0': 9, 'u3': 50}, {})),
            inserted=inserted, deleted=deleted)
        return self.compared_sometimes(change, figures)

    def compared_sometimes(self, change, figures):
        chance = self.random
        if figures is None or chance.random() < 0.6:
            return change
        return change.compared(chance.choice((figures, dataclasses.replace(
            figures, generation=figures.generation - 1))))

    def set_inventory(self, provider, name, figures, version):
        chance = self.random
        seen = chance.choice((
            None, figures.inventory if figures else None, 'other'))
        put = {'inventory': f'inventory {version}'}
        if seen is None:
            return requests.ChangeProvider(provider, {'inventory': None}, {
                'generation': 1, 'consumers': 0, 'open': 0, 'u0': 0, 'u3': 0,
                **put})
        unused = chance.choice(({}, {'u1': 0}, {'u0': 0, 'u3': 0}))
        return self.compared_sometimes(requests.ChangeProvider(
            provider, {'inventory': seen, **unused},
            {**put, **chance.choice(({}, {'u1': 0}))},
            added={'generation': 1}), figures)

    def set_figures(self, provider, name, figures, version):
        figures = figures or requests.Figures(
            provider, 'none', 1, 0, 0, (None,) * requests.SLOTS)
        seen = self.random.choice((figures, dataclasses.replace(
            figures, generation=figures.generation + 1)))
        return requests.ChangeProvider(
            provider, {'generation': seen.generation},
            {'generation': figures.generation + 2, 'consumers': 3})


def _outcome(request, answer):
    if not isinstance(request, requests.ChangeProvider):
        return type(request), answer
    return (type(request), bool(request.inserted or request.deleted),
            'generation' in request.equal, answer.applied)


def _comparable(answer):
    """Return an answer sorted, if its order has no meaning."""
    if isinstance(answer, list):
        return sorted(answer, key=repr)
    if isinstance(answer, tuple):
        return tuple(map(_comparable, answer))
    return answer
