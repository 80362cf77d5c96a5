# SPDX-License-Identifier: Apache-2.0
"""Measure whether concurrent schedulers use exactly the capacity of hosts.

Clients request one server after the other from the schedulers until they are
refused. There are few hosts, and nine tenths of their capacity is used before.

The measurement runs with several numbers of schedulers for each installed
claim store of this project. It also runs for Nova with Placement: with Nova's
schedulers, with those of this project in their place, and with both. Each
scheduler is a process. Servers wait for their disk.

``oversold``
   Servers that got a place that did not exist, in any state that an observer
   saw, or according to the clients' answers.
``refused_although_it_fitted``
   Clients that were refused although a place was certainly free.
``gave_up``
   How often the store reported that it did not finish in time. The client then
   asked again.
``conflicts``
   Attempts to claim that failed because another claim was faster.

The time of a claim is from the request to the answer.
"""

import argparse
import dataclasses
import io
import json
import os
import pathlib
import platform
import sys

from oslo_service import backend
import rich.console
import rich.table
import yaml

from cellsched import silence_eventlet  # noqa: F401

# Every process of this project selects this backend before another library
# selects one.
backend.init_backend(backend.BackendType.THREADING)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import charts  # noqa: E402
import exactness_figures  # noqa: E402
import nova_schedulers  # noqa: E402
import run  # noqa: E402
import stores  # noqa: E402

NAMES = (*stores.KINDS, *nova_schedulers.KINDS)


@dataclasses.dataclass(frozen=True)
class Size:
    """The numbers of schedulers, clients, hosts and rounds."""

    schedulers: int
    clients: int
    hosts: int
    rounds: int


def main(argv=None):
    parser = make_parser()
    args = parser.parse_args(argv)
    for name in 'clients', 'hosts', 'rounds':
        if getattr(args, name) < 1:
            parser.error(f'--{name}: expected a number above 0')
    if not all(0 < number <= args.clients for number in args.schedulers):
        parser.error('--schedulers: expected numbers from 1 to the number of '
                     'clients')
    try:
        rows, failed = measure(args)
    except OSError as exc:
        print(f'{parser.prog}: {exc}', file=sys.stderr)
        return 1
    print(FORMATS[args.format](rows), end='')
    return 1 if failed else 0


def make_parser():
    parser = argparse.ArgumentParser(
        description='Measure whether concurrent schedulers use exactly the '
                    'capacity of hosts.')
    parser.add_argument(
        '--store', action='append', choices=NAMES, default=[],
        metavar='NAME', dest='stores',
        help='measure only this store; can be given several times '
             f'({", ".join(NAMES)})')
    parser.add_argument(
        '--schedulers', type=numbers, default=[1, 4, 16], metavar='N,…',
        help='numbers of schedulers (default 1,4,16)')
    for name, default, meaning in (
            ('clients', 64, 'clients of all schedulers together'),
            ('hosts', 8, 'hosts that the clients compete for'),
            ('rounds', 5, 'times to fill the hosts')):
        parser.add_argument(
            f'--{name}', type=int, default=default, metavar='N',
            help=f'{meaning} (default {default})')
    parser.add_argument(
        '-f', '--format', choices=FORMATS, default='table')
    parser.add_argument(
        '--directory', type=pathlib.Path, metavar='DIR',
        help='write exactness.json, exactness.csv and exactness.svg to this '
             'directory; rows of stores that are not measured are kept')
    return parser


def numbers(text):
    return [int(each) for each in text.split(',')]


def measure(args):
    """Return rows of figures, and whether a store could not be measured."""
    rows, failed = [], False
    names = args.stores or NAMES
    for store in names:
        try:
            rows += measured(args, store, len(names))
        except unavailable() as exc:
            report(f'{store}: skipped: {exc}')
            failed |= bool(args.stores)
        except RuntimeError as exc:
            # Continue with the other stores.
            report(f'{store}: failed: {exc}')
            failed = True
        if args.directory is not None and rows:
            written = write(rows, args.directory)
    return (rows if args.directory is None or not rows else written), failed


def measured(args, store, stores):
    """Return the rows of one store.

    :param stores: the number of measured stores
    """
    rows = []
    for schedulers in args.schedulers:
        if schedulers < least(store):
            report(f'{store}, schedulers: {schedulers}: skipped; this store '
                   f'needs at least {least(store)} schedulers')
            continue
        row = figures(store, Size(
            schedulers, args.clients, args.hosts, args.rounds))
        rows.append(row)
        report(f'{store} (one of {stores}), schedulers: {schedulers}: '
               f'{row["claims_per_second"]} claims/s, '
               f'{row["oversold"]} oversold, '
               f'{row["refused_although_it_fitted"]} refused although they '
               'fitted')
    return rows


def least(store):
    """Return the smallest possible number of schedulers."""
    kind = nova_schedulers.KINDS.get(store)
    return 1 if kind is None else len(kind.managers)


def unavailable():
    """Return the errors that mean that a store is not installed."""
    from tests.integration import serving

    return serving.NotInstalled, ImportError


def report(text):
    """Print the progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def figures(store, size):
    """Return the figures of a store by name."""
    if store in nova_schedulers.KINDS:
        running = nova_schedulers.running
    else:
        # Its requirements may be installed although others are missing.
        import schedulers

        running = schedulers.running
    with running(store, size) as (fill_up, server):
        # The first round is not counted: clients connect.
        fill_up()
        rounds = []
        for number in range(size.rounds):
            report(f'{store}, schedulers: {size.schedulers}, '
                   f'round {number + 1} of {size.rounds}')
            rounds.append(fill_up())
    return {'store': store, 'server': server, 'schedulers': size.schedulers,
            'clients': size.clients, 'hosts': size.hosts, **summary(rounds),
            'cpus': os.cpu_count()}


def summary(rounds):
    taken = [[each for each in round_.outcomes if each.taken]
             for round_ in rounds]
    spent = sum(max(each.end for each in claims)
                - min(each.start for each in claims) for claims in taken)
    times = [each.end - each.start for claims in taken for each in claims]
    judged = [round_.judged() for round_ in rounds]
    return {
        'places': sum(sum(round_.places.values()) for round_ in rounds),
        'claims': len(times),
        **{name: sum(each[name] for each in judged) for name in judged[0]},
        'gave_up': sum(round_.gave_up for round_ in rounds),
        'conflicts': sum(round_.conflicts for round_ in rounds),
        'claims_per_second': round(len(times) / spent, 1),
        **{f'p{percent}_ms': round(1000 * run.percentile(times, percent), 1)
           for percent in (50, 99)}}


def write(rows, directory):
    """Write all files; return their rows.

    :raises OSError: a file cannot be written
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / 'exactness.csv'
    if file.exists():
        rows = merge(exactness_figures.read(file), rows)
    for name, make in FILES.items():
        (directory / f'exactness.{name}').write_text(
            make(rows), encoding='utf-8')
    return rows


def merge(old, new):
    """Return the rows of all stores; new rows replace those of their store."""
    measured = {row['store'] for row in new}
    rows = [row for row in old if row['store'] not in measured] + new
    return sorted(rows, key=lambda row: (
        NAMES.index(row['store']), row['schedulers']))


def as_json(rows):
    return json.dumps({
        'machine': {'python': platform.python_version(),
                    'cpus': os.cpu_count(),
                    'system': f'{platform.system()} {platform.machine()}'},
        'results': rows}, indent=2) + '\n'


def as_yaml(rows):
    return yaml.safe_dump(rows, sort_keys=False)


def as_table(rows):
    table = rich.table.Table(box=rich.box.ASCII2)
    for name in exactness_figures.COLUMNS:
        table.add_column(
            name.replace('_ms', ', ms').replace('_', ' '),
            justify='left' if name in exactness_figures.TEXTS else 'right')
    for row in rows:
        table.add_row(*(str(row[name]) for name in exactness_figures.COLUMNS))
    console = rich.console.Console(file=io.StringIO(), width=200)
    console.print(table)
    return console.file.getvalue()


FORMATS = {'table': as_table, 'csv': exactness_figures.as_csv,
           'json': as_json, 'yaml': as_yaml}

#: The functions that make the files, by suffix.
FILES = {'csv': exactness_figures.as_csv, 'json': as_json,
         'svg': charts.draw}


if __name__ == '__main__':
    sys.exit(main())
