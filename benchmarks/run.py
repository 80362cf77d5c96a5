# SPDX-License-Identifier: Apache-2.0
"""Run benchmarks and print the times that they measure.

A workload is a file in ``workloads/``. Its ``kind`` is a module in this
directory, its ``parameters`` are passed to that module, and ``repeat`` is the
number of runs.

To add a kind, write a module with a function ``run(parameters, repeat)`` that
returns samples in seconds by the name of the measurement. If there is a
measurement ``floor``, the other measurements are compared with it. The
function can also return a pair: the samples, and other figures by name.

``bars`` are the targets by the name of a measurement: the median must reach
``per_second``, p99 must not exceed ``p99_ms``, the median must not exceed
``floors`` times the median of the floor, and must not exceed it by more than
``above_floor_ms``. p99 must not exceed ``p99_medians`` times the median. A
figure has a bar ``at_least`` or ``at_most``.
"""

import argparse
import importlib
import json
import math
import operator
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

from cellsched import silence_eventlet  # noqa: F401

# Every process of this project selects this backend before another library
# selects one.
backend.init_backend(backend.BackendType.THREADING)

HERE = pathlib.Path(__file__).resolve().parent
KEYS = {'kind', 'about', 'repeat', 'parameters', 'bars'}

#: The bars, and how they are printed.
BARS = {'per_second': 'at least {} per second',
        'p99_ms': 'p99 at most {} ms',
        'floors': 'at most {} floors',
        'above_floor_ms': 'at most {} ms above the floor',
        'p99_medians': 'p99 at most {} times the median',
        'at_least': 'at least {}',
        'at_most': 'at most {}'}


def main(argv=None):
    parser = argparse.ArgumentParser(description='Run benchmarks.')
    parser.add_argument(
        '--workload', action='append', metavar='NAME', default=[],
        help='run only this workload; can be given several times')
    parser.add_argument(
        '--repeat', type=int, metavar='N',
        help='number of runs of each workload (default: its own "repeat")')
    parser.add_argument(
        '--parameter', action='append', metavar='NAME=VALUE', default=[],
        help='override a parameter of the workloads, with a value in YAML')
    parser.add_argument(
        '-f', '--format', choices=('table', 'json'), default='table')
    parser.add_argument(
        '--list', action='store_true', help='list the workloads and exit')
    args = parser.parse_args(argv)
    try:
        workloads = load(args.workload)
        if args.repeat is not None and args.repeat < 1:
            raise ValueError('--repeat: expected a number above 0')
        own = read_parameters(args.parameter)
    except (OSError, ValueError) as exc:
        print(f'{parser.prog}: {exc}', file=sys.stderr)
        return 1
    if args.list:
        for name, workload in workloads.items():
            print(f'{name:<28} {workload["about"]}')
        return 0
    sys.path.insert(0, str(HERE))
    results, figures = [], []
    for name, workload in workloads.items():
        kind = importlib.import_module(workload['kind'])
        samples = kind.run({**(workload.get('parameters') or {}), **own},
                           args.repeat or workload['repeat'])
        samples, more = samples if isinstance(samples, tuple) else (
            samples, {})
        results += summaries(name, samples, workload.get('bars') or {})
        figures += values(name, more, workload.get('bars') or {})
    show = show_json if args.format == 'json' else show_table
    show(results, figures)
    return 0


def load(names=()):
    """Return workloads by name: the named ones, or all without names.

    :raises ValueError: a workload is unknown or invalid; the text has the
        file, the field and the expected value
    """
    files = {path.stem: path
             for path in sorted((HERE / 'workloads').glob('*.yaml'))}
    for name in names:
        if name not in files:
            raise ValueError(f'--workload {name}: expected one of '
                             + ', '.join(files))
    return {name: check(files[name]) for name in names or files}


def read_parameters(texts):
    """Return the parameters in NAME=VALUE arguments."""
    parameters = {}
    for text in texts:
        name, equals, value = text.partition('=')
        try:
            if not equals:
                raise ValueError
            parameters[name] = yaml.safe_load(value)
        except (ValueError, yaml.YAMLError):
            raise ValueError(f'--parameter {text}: expected NAME=VALUE with '
                             'a value in YAML') from None
    return parameters


def check(path):
    """Return the contents of a workload's file after validation."""
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
    check_bars(path, workload.get('bars') or {})
    return workload


def check_bars(path, bars):
    for bar in bars.values() if isinstance(bars, dict) else [None]:
        if (not isinstance(bar, dict) or set(bar) - set(BARS)
                or not all(isinstance(value, (int, float))
                           for value in bar.values())):
            raise ValueError(
                f'{path.name}: bars: expected names of measurements, each '
                f'with numbers for {" or ".join(BARS)}')


def summaries(name, samples, bars):
    """Return a line for each measurement."""
    floor = samples.get('floor')
    lines = []
    for what, times in samples.items():
        median = statistics.median(times)
        line = {
            'workload': name, 'what': what, 'samples': len(times),
            'min_ms': round(min(times) * 1000, 4),
            'median_ms': round(median * 1000, 4),
            'p99_ms': round(percentile(times, 99) * 1000, 4),
            'per_second': round(1 / median, 1) if median else None,
            'floors': round(median / statistics.median(floor), 2)
            if floor else None,
            'above_floor_ms': round(
                (median - statistics.median(floor)) * 1000, 4)
            if floor else None,
            'p99_medians': round(percentile(times, 99) / median, 2)
            if median else None,
        }
        lines.append({**line, 'bar': judge(line, bars.get(what) or {})})
    return lines


def values(name, figures, bars):
    """Return a line for each figure that is not a time."""
    return [{'workload': name, 'what': what, 'value': round(value, 3),
             'bar': judge({'at_least': value, 'at_most': value},
                          bars.get(what) or {})}
            for what, value in figures.items()]


def judge(line, bar):
    """Return the text of a bar with its result, or None without a bar."""
    met = {name: operator.ge if name in ('per_second', 'at_least')
           else operator.le for name in BARS}
    return '; '.join(
        f'{BARS[name].format(limit)}: '
        f'{"met" if met[name](line[name], limit) else "MISSED"}'
        for name, limit in bar.items()) or None


def percentile(times, percent):
    """Return the smallest time that this percentage does not exceed."""
    at = math.ceil(len(times) * percent / 100)
    return sorted(times)[max(at, 1) - 1]


def show_json(results, figures):
    machine = {'python': platform.python_version(), 'cpus': os.cpu_count(),
               'system': f'{platform.system()} {platform.machine()}'}
    print(json.dumps({'machine': machine, 'results': results,
                      'figures': figures}, indent=2))


def show_table(results, figures):
    table = rich.table.Table(box=rich.box.ASCII2)
    for name in results[0] if results else ():
        is_text = name in ('workload', 'what', 'bar')
        table.add_column(name.replace('_ms', ', ms').replace('_', ' '),
                         justify='left' if is_text else 'right', no_wrap=True)
    for result in results:
        table.add_row(*('' if value is None else str(value)
                        for value in result.values()))
    console = rich.console.Console()
    if not console.is_terminal:
        # A file has no line width.
        console.width = 200
    console.print(table)
    for each in figures:
        bar = f' ({each["bar"]})' if each['bar'] else ''
        print(f'{each["workload"]}: {each["what"]}: {each["value"]}{bar}')


if __name__ == '__main__':
    sys.exit(main())
