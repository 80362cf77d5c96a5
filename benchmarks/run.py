# SPDX-License-Identifier: Apache-2.0
"""Run benchmarks and tell how long things take.

A workload is a file in ``workloads/``: its ``kind`` is a module beside this
one, its ``parameters`` are for that module, and ``repeat`` is how often it is
run. To add a kind, write a module with a function ``run(parameters, repeat)``
that returns samples in seconds by the name of what was timed. What is named
``floor`` is what the others are compared with.
"""

import argparse
import importlib
import json
import math
import os
import pathlib
import platform
import statistics
import sys

from oslo_service import backend
import rich.box
import rich.console
import rich.table
import yaml

# As in every process of this project; libraries would pick another.
backend.init_backend(backend.BackendType.THREADING)

HERE = pathlib.Path(__file__).resolve().parent
KEYS = {'kind', 'about', 'repeat', 'parameters'}


def main(argv=None):
    parser = argparse.ArgumentParser(description='Run benchmarks.')
    parser.add_argument(
        '--workload', action='append', metavar='NAME', default=[],
        help='run only this one; may be given several times')
    parser.add_argument(
        '--repeat', type=int, metavar='N',
        help='run each so many times instead of what it says itself')
    parser.add_argument(
        '-f', '--format', choices=('table', 'json'), default='table')
    parser.add_argument(
        '--list', action='store_true', help='name the workloads and stop')
    args = parser.parse_args(argv)
    try:
        workloads = load(args.workload)
        if args.repeat is not None and args.repeat < 1:
            raise ValueError('--repeat: expected a number above 0')
    except (OSError, ValueError) as exc:
        print(f'{parser.prog}: {exc}', file=sys.stderr)
        return 1
    if args.list:
        for name, workload in workloads.items():
            print(f'{name:<28} {workload["about"]}')
        return 0
    sys.path.insert(0, str(HERE))
    results = []
    for name, workload in workloads.items():
        kind = importlib.import_module(workload['kind'])
        samples = kind.run(workload.get('parameters') or {},
                           args.repeat or workload['repeat'])
        results += summaries(name, samples)
    show = show_json if args.format == 'json' else show_table
    show(results)
    return 0


def load(names=()):
    """Return workloads by name, all of them unless some are named.

    :raises ValueError: names the file, the field and what was expected
    """
    files = {path.stem: path
             for path in sorted((HERE / 'workloads').glob('*.yaml'))}
    for name in names:
        if name not in files:
            raise ValueError(f'--workload {name}: expected one of '
                             + ', '.join(files))
    return {name: check(files[name]) for name in names or files}


def check(path):
    """Return what a workload's file says, once it is sound."""
    try:
        workload = yaml.safe_load(path.read_text(encoding='utf-8'))
    except yaml.YAMLError as exc:
        raise ValueError(f'{path.name}: expected YAML: '
                         + ' '.join(str(exc).split())) from None
    if not isinstance(workload, dict) or set(workload) - KEYS:
        raise ValueError(f'{path.name}: expected no keys but '
                         + ', '.join(sorted(KEYS)))
    if not (HERE / f'{workload.get("kind")}.py').is_file():
        raise ValueError(f'{path.name}: kind: expected a module beside run.py')
    if not isinstance(workload.get('about'), str):
        raise ValueError(f'{path.name}: about: expected a line of text')
    repeat = workload.get('repeat')
    if not isinstance(repeat, int) or repeat < 1:
        raise ValueError(f'{path.name}: repeat: expected a number above 0')
    return workload


def summaries(name, samples):
    """Return a line for each thing that was timed."""
    floor = samples.get('floor')
    lines = []
    for what, times in samples.items():
        median = statistics.median(times)
        lines.append({
            'workload': name, 'what': what, 'samples': len(times),
            'min_ms': round(min(times) * 1000, 4),
            'median_ms': round(median * 1000, 4),
            'p99_ms': round(percentile(times, 99) * 1000, 4),
            'per_second': round(1 / median, 1) if median else None,
            'floors': round(median / statistics.median(floor), 2)
            if floor else None,
        })
    return lines


def percentile(times, percent):
    """Return the least time that so many percent do not exceed."""
    at = math.ceil(len(times) * percent / 100)
    return sorted(times)[max(at, 1) - 1]


def show_json(results):
    machine = {'python': platform.python_version(), 'cpus': os.cpu_count(),
               'system': f'{platform.system()} {platform.machine()}'}
    print(json.dumps({'machine': machine, 'results': results}, indent=2))


def show_table(results):
    table = rich.table.Table(box=rich.box.ASCII2)
    for name in results[0] if results else ():
        left = name in ('workload', 'what')
        table.add_column(name.replace('_ms', ', ms').replace('_', ' '),
                         justify='left' if left else 'right', no_wrap=True)
    for result in results:
        table.add_row(*('' if value is None else str(value)
                        for value in result.values()))
    console = rich.console.Console()
    if not console.is_terminal:
        # A file has no width to keep to.
        console.width = 120
    console.print(table)


if __name__ == '__main__':
    sys.exit(main())
