# SPDX-License-Identifier: Apache-2.0
"""Processes that race for the last places in each store."""

from collections.abc import Mapping
import json
import pathlib
import sys

from tests.integration import base
from tests.integration import cassandra
from tests.integration import etcd
from tests.integration import mariadb
from tests.integration.nova import caller
from tests.integration import servers
from tests import profile

BENCHMARKS = pathlib.Path(__file__).parents[3] / 'benchmarks'

COMMAND = BENCHMARKS / 'racing.py'

SIZE = {'processes': 4, 'clients': 8, 'rounds': 2,
        'claims': profile.RACING_CLAIMS}

#: The same for servers that take long for each claim, and for Placement, which
#: spends half a second of a processor on one that many race for.
FEW = {**SIZE, 'claims': profile.SLOW_RACING_CLAIMS}
FEWER = {'processes': 4, 'clients': 4, 'rounds': 1,
         'claims': profile.SLOWEST_RACING_CLAIMS}

#: Runs the command with a store in memory that is broken.
BROKEN = """
import itertools, sys
sys.path.insert(0, sys.argv.pop(1))
import racing

class Generous(racing.memory.MemoryClaims):

    def claim(self, claims):
        try:
            return super().claim(claims)
        except racing.exception.ClaimRefused:
            with self._lock:
                for claim in claims:
                    self._held[claim.consumer] = [claim]
                    self._count(claim, 1)
            return len(claims)

class Hesitant(racing.memory.MemoryClaims):

    count = itertools.count()

    def claim(self, claims):
        # Only the claims that fill the hosts are larger.
        if claims[0].resources == racing.claiming.DEMAND and not next(
                self.count):
            raise racing.exception.ClaimRefused(
                provider=claims[0].provider, resource='VCPU', amount=1,
                consumer=claims[0].consumer)
        return super().claim(claims)

racing.memory.MemoryClaims = globals()[sys.argv.pop(1)]
sys.exit(racing.main())
"""


@profile.full_only('tests.functional.test_hardware_races has two schedulers')
class TestPartsRacing(base.TestCase):
    """Sixteen schedulers race for CPUs, pages and devices."""

    def run_race(self, name, *args, **options):
        found = self.run_command(
            sys.executable, '-W', 'ignore',
            str(BENCHMARKS / 'parts_racing.py'), name, *args,
            timeout_s=1000.0, **options)
        rows = [json.loads(line) for line in found.splitlines()]
        self.assertEqual(
            ['cpu', 'page', 'device'], [each['part'] for each in rows])
        return rows

    def check(self, name):
        for row in self.run_race(name):
            self.assertEqual((32, 32, 0, 0), tuple(row[each] for each in (
                'places', 'servers', 'oversold',
                'refused_although_it_fitted')), row)

    def test_each_part_is_given_once_in_sqlite(self):
        self.check('sqlite')

    def test_each_part_is_given_once_in_postgresql(self):
        base.installed(servers.PostgreSQL)
        self.check('postgresql')

    def test_each_part_is_given_once_in_etcd(self):
        base.installed(etcd.Etcd)
        self.check('etcd')

    def test_schedulers_with_unnamed_claims_are_detected(self):
        for row in self.run_race(
                'sqlite', '--unnamed', '--processes', '4', expected=1):
            self.assertGreater(row['servers'], row['places'], row)


@profile.by_default(
    'test_capacity_is_claimed_exactly_in_postgresql',
    'test_store_exceeding_the_capacity_is_detected',
    reason='races of processes in further stores')
class TestRacing(base.TestCase):

    def run_race(
        self, *args: str, size: Mapping[str, int] = SIZE, **options: int
    ) -> dict:
        return json.loads(self.run_command(
            sys.executable, '-W', 'ignore', *args,
            *(word for name, number in size.items()
              for word in (f'--{name}', str(number))),
            '-f', 'json', timeout_s=1000.0, **options))

    def check(self, name: str, size: Mapping[str, int] = SIZE) -> None:
        found = self.run_race(str(COMMAND), name, size=size)

        claims, rounds = size['claims'], size['rounds']
        self.assertEqual([], found['wrong'])
        self.assertEqual(
            (claims, claims // 2, claims // 2,
             rounds * size['clients'], rounds, rounds),
            tuple(found[f'{phase}{what}'] for phase in ('', 'last_')
                  for what in ('claims', 'places', 'taken')))
        self.assertGreater(found['looks'], 1)

    def test_capacity_is_claimed_exactly_in_memory(self):
        self.check('memory')

    def test_capacity_is_claimed_exactly_in_sqlite(self):
        self.check('sqlite')

    def test_capacity_is_claimed_exactly_in_postgresql(self):
        base.installed(servers.PostgreSQL)
        self.check('postgresql')

    def test_capacity_is_claimed_exactly_in_mariadb(self):
        base.installed(mariadb.MariaDB)
        self.check('mariadb')

    def test_capacity_is_claimed_exactly_in_etcd(self):
        base.installed(etcd.Etcd)
        self.check('etcd')

    def test_capacity_is_claimed_exactly_in_cassandra(self):
        base.installed(cassandra.Cassandra)
        self.check('cassandra', FEW)

    def test_capacity_is_claimed_exactly_in_placement(self):
        base.installed(servers.PostgreSQL)
        base.installed(caller.python)
        self.check('placement', FEWER)

    def test_store_exceeding_the_capacity_is_detected(self):
        found = self.run_broken('Generous')

        self.assertEqual(SIZE['claims'], found['taken'])
        for what in 'oversold', 'last_oversold':
            self.assertGreater(found[what], 0)
        self.assertIn('oversold', found['wrong'])

    def test_store_refusing_fitting_claims_is_detected(self):
        found = self.run_broken('Hesitant', {**SIZE, 'claims': 400})

        self.assertEqual(0, found['oversold'])
        self.assertEqual(['refused_although_it_fitted'], found['wrong'])

    def run_broken(self, name, size=SIZE):
        return self.run_race(
            '-c', BROKEN, str(COMMAND.parent), name, 'memory', size=size,
            expected=1)
