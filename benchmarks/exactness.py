# SPDX-License-Identifier: Apache-2.0
"""Show how exact schedulers are that want the same hosts at a time.

Clients ask schedulers for one server after the other until they are refused,
on a few hosts of which nine tenths are taken. It is the same for each claim
store of this project that is installed, and for Nova with Placement, with
its own schedulers, with those of this project in their place, and with both;
with several numbers of schedulers. Each is a process; servers wait for their
disk.

``oversold`` are servers that got a place that there was not, in any state that
an observer saw while it went on, or by what clients were told.
``refused_although_it_fitted`` are clients that were refused while there was a
place for certain. ``gave_up`` is how often a client was told that the store
did not come to an end in time; it asked again. ``conflicts`` are attempts to
claim that failed, because others were faster. A claim takes from the request
to the answer.
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

# As in every process of this project; libraries would pick another.
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
    """How much there is of everything."""

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
        parser.error('--schedulers: expected numbers from 1 to that of '
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
        description='Show how exact schedulers are that want the same hosts '
                    'at a time.')
    parser.add_argument(
        '--store', action='append', choices=NAMES, default=[],
        metavar='NAME', dest='stores',
        help='only this one; may be given several times '
             f'({", ".join(NAMES)})')
    parser.add_argument(
        '--schedulers', type=numbers, default=[1, 4, 16], metavar='N,…',
        help='how many schedulers there are (default 1,4,16)')
    for name, default, meaning in (
            ('clients', 64, 'clients of all schedulers together'),
            ('hosts', 8, 'hosts that they want'),
            ('rounds', 5, 'times to fill the hosts')):
        parser.add_argument(
            f'--{name}', type=int, default=default, metavar='N',
            help=f'{meaning} (default {default})')
    parser.add_argument(
        '-f', '--format', choices=FORMATS, default='table')
    parser.add_argument(
        '--directory', type=pathlib.Path, metavar='DIR',
        help='write exactness.json, exactness.csv and exactness.svg there; '
             'what they say of stores that are not measured now stays')
    return parser


def numbers(text):
    return [int(each) for each in text.split(',')]


def measure(args):
    """Return rows of figures, and whether a store could not be measured."""
    rows, failed = [], False
    wanted = args.stores or NAMES
    for store in wanted:
        try:
            rows += measured(args, store, len(wanted))
        except unavailable() as exc:
            tell(f'{store}: skipped: {exc}')
            failed |= bool(args.stores)
        except RuntimeError as exc:
            # The others may be measured all the same.
            tell(f'{store}: failed: {exc}')
            failed = True
        if args.directory is not None and rows:
            written = write(rows, args.directory)
    return (rows if args.directory is None or not rows else written), failed


def measured(args, store, stores):
    """Return the rows of one store.

    :param stores: how many there are
    """
    rows = []
    for schedulers in args.schedulers:
        if schedulers < least(store):
            tell(f'{store}, schedulers: {schedulers}: skipped, as there are '
                 f'{least(store)} kinds of them')
            continue
        row = figures(store, Size(
            schedulers, args.clients, args.hosts, args.rounds))
        rows.append(row)
        tell(f'{store} (one of {stores}), schedulers: {schedulers}: '
             f'{row["claims_per_second"]} claims/s, '
             f'{row["oversold"]} oversold, '
             f'{row["refused_although_it_fitted"]} refused although it fitted')
    return rows


def least(store):
    """Return how many schedulers there have to be."""
    kind = nova_schedulers.KINDS.get(store)
    return 1 if kind is None else len(kind.managers)


def unavailable():
    """Return the errors that say that a store is not installed here."""
    from tests.integration import serving

    return serving.NotInstalled, ImportError


def tell(text):
    """Tell how far it has come, to whoever waits for the result."""
    print(text, file=sys.stderr, flush=True)


def figures(store, size):
    """Return the figures of a store, by their names."""
    if store in nova_schedulers.KINDS:
        running = nova_schedulers.running
    else:
        # What it needs may be less than what others do.
        import schedulers

        running = schedulers.running
    with running(store, size) as (fill_up, server):
        # In the first round everybody connects.
        fill_up()
        rounds = []
        for number in range(size.rounds):
            tell(f'{store}, schedulers: {size.schedulers}, '
                 f'round {number + 1} of {size.rounds}')
            rounds.append(fill_up())
    return {'store': store, 'server': server, 'schedulers': size.schedulers,
            'clients': size.clients, 'hosts': size.hosts, **summary(rounds),
            'cpus': os.cpu_count()}


def summary(rounds):
    taken = [[each for each in round_.outcomes if each.taken]
             for round_ in rounds]
    spent = sum(max(each.end for each in those)
                - min(each.start for each in those) for those in taken)
    times = [each.end - each.start for those in taken for each in those]
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
    """Write all files; return what they say.

    :raises OSError: they cannot be written
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
    """Return the rows of all stores, the new ones of those that have them."""
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

#: What is written, by how files are called.
FILES = {'csv': exactness_figures.as_csv, 'json': as_json,
         'svg': charts.draw}


if __name__ == '__main__':
    sys.exit(main())
