# SPDX-License-Identifier: Apache-2.0
"""Stories of highly available databases and brokers, and their figures.

    topologies.py [-f table|csv|json] [-r ROUNDS] [NAME…]

``tools/topologies.sh`` runs this in the environment that it makes.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any
import unittest

import rich.box
import rich.console
import rich.table

from cellsched import silence_eventlet  # noqa: F401
from tests.integration import mariadb
from tests.integration import servers
from tests.integration import serving
from tests.integration.topologies import story
from tests.integration.topologies import test_etcd
from tests.integration.topologies import test_galera
from tests.integration.topologies import test_kolla
from tests.integration.topologies import test_pgbouncer
from tests.integration.topologies import test_postgresql
from tests.integration.topologies import test_rabbitmq
from tests.integration.topologies import test_tls

STORIES: Mapping[str, type[story.Story]] = {
    'galera-one-writer': test_galera.TestSingleWriter,
    'galera-all-writers': test_galera.TestAllWriters,
    'postgresql-synchronous': test_postgresql.TestSynchronousStandby,
    'postgresql-asynchronous': test_postgresql.TestLostTail,
    'pgbouncer': test_pgbouncer.TestPgBouncer,
    'rabbitmq': test_rabbitmq.TestRabbitMQ,
    'etcd': test_etcd.TestEtcd,
    'etcd-simple-tokens': test_etcd.TestSimpleTokens,
    'tls': test_tls.TestTls,
    'kolla': test_kolla.TestKolla,
}

#: The most seconds of the slowest hundredth of the builds.
P99_MAX_S = 10.0

#: What a figure of a story must not exceed.
BARS = {'p99 s': P99_MAX_S, 'lost': 0, 'came back': 0, 'over': 0,
        'miscounted': 0}

FORMATS = ('table', 'csv', 'json')

#: The figures that tables show.
COLUMNS = ('topology', 'story', 'p50 s', 'p99 s', 'gap s', 'errors',
           'claim errors', 'lost', 'came back', 'over', 'ratio')

#: Servers that stories share or compare with.
PLAIN = (servers.RabbitMQ, servers.PostgreSQL, mariadb.MariaDB)


def missing(kinds: Iterable[type[serving.Server]]) -> list[str]:
    """Return the packages of programs that are not installed."""
    found: set[str] = set()
    for kind in kinds:
        path = os.pathsep.join([*kind.usual_places(), *os.get_exec_path()])
        if not all(shutil.which(each, path=path) for each in kind.programs):
            found.update(kind.package.split())
    return sorted(found)


def install(packages: Sequence[str]) -> None:
    """Install Debian packages without starting their services.

    :raises SystemExit: this user cannot install them
    """
    if not packages:
        return
    if os.geteuid() != 0:
        raise SystemExit(f'Not installed: {" ".join(packages)}; expected root '
                         'to install these Debian packages')
    # The exit code 101 of this file keeps packages from starting services.
    policy = pathlib.Path('/usr/sbin/policy-rc.d')
    made = not policy.exists()
    if made:
        policy.write_text('#!/bin/sh\nexit 101\n')
        policy.chmod(0o755)
    try:
        subprocess.run(
            ['apt-get', 'install', '--yes', '--no-install-recommends',
             *packages], check=True, stdout=sys.stderr,
            env={**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'})
    finally:
        if made:
            policy.unlink()


def run(names: Sequence[str]) -> tuple[list[dict[str, Any]], bool]:
    """Run stories; return their figures, and whether all passed."""
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromTestCase(STORIES[name])
        for name in names)
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, 'figures')
        path.touch()
        os.environ[story.VARIABLE] = str(path)
        os.environ['CELLSCHED_REQUIRE_SERVERS'] = '1'
        result = unittest.TextTestRunner(verbosity=2).run(suite)
        figures = [json.loads(line) for line in path.read_text().splitlines()]
    return figures, result.wasSuccessful()


def exceeded(figures: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the figures that exceed their bars, as text."""
    return [f'{each["topology"]}, {each["story"]}: {name} is {each[name]}; '
            f'expected at most {most}'
            for each in figures for name, most in BARS.items()
            if each.get(name, 0) > most]


def worst(figures: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the figures of one round of each story, that with most delay."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for each in figures:
        story = each['topology'], each['story']
        known = found.setdefault(story, each)
        if _delay(each) > _delay(known):
            found[story] = each
    return [found[story] for story in sorted(found)]


def _delay(figures: Mapping[str, Any]) -> float:
    """Return what is high in the worst round of a story."""
    delay: float = figures.get('p99 s', -figures.get('ratio', 0.0))
    return delay


def show(figures: Sequence[Mapping[str, Any]], form: str) -> None:
    """Print figures.

    :param form: one of :data:`FORMATS`
    """
    if form == 'json':
        print(json.dumps(figures, indent=2))
        return
    rows = [[_text(each.get(name, '')) for name in COLUMNS]
            for each in figures]
    if form == 'csv':
        csv.writer(sys.stdout, lineterminator='\n').writerows(
            [COLUMNS, *rows])
    else:
        table = rich.table.Table(*COLUMNS, box=rich.box.ASCII)
        for row in rows:
            table.add_row(*row)
        rich.console.Console(width=200).print(table)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ', '.join(f'{number} {name}' for name, number in value.items())
    return str(value).replace('_', ' ')


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='topologies.sh',
        description='Build servers while databases and brokers fail.',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='names:\n' + '\n'.join(
            f'  {name:24} {kind.section}' for name, kind in STORIES.items()))
    parser.add_argument('name', nargs='*', metavar='NAME')
    parser.add_argument(
        '-f', '--format', choices=FORMATS, default='table')
    parser.add_argument(
        '-r', '--rounds', type=int, choices=range(1, 101), default=1,
        metavar='NUMBER', help='run each story so often, and show its round '
        'with the highest p99; by default 1')
    args = parser.parse_args(argv)
    names = args.name or list(STORIES)
    for name in names:
        if name not in STORIES:
            parser.error(f'{name} is unknown; expected {", ".join(STORIES)}')
    install(missing([*PLAIN, *(kind for name in names
                               for kind in STORIES[name].kinds)]))
    rounds = [run(names) for _ in range(args.rounds)]
    passed = all(each for _, each in rounds)
    figures = worst(row for rows, _ in rounds for row in rows)
    show(figures, args.format)
    high = exceeded(figures)
    print('\n'.join(high), end='\n' if high else '', file=sys.stderr)
    return 0 if passed and not high else 1


if __name__ == '__main__':
    sys.exit(main())
