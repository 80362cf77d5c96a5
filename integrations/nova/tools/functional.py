# SPDX-License-Identifier: Apache-2.0
"""Run Nova's own functional tests with its scheduler and with this one.

Each test runs unmodified, from Nova's wheel, once with each scheduler. The
table shows by module the tests that passed with both or with one scheduler.
The results are stored, so that a stopped run can be continued. A change of
this checkout's sources invalidates the results with this scheduler.
"""

import argparse
import csv
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading

import environment

HERE = pathlib.Path(__file__).resolve().parent
KNOWN = HERE.parent / 'known-differences.csv'

PREFIX = 'nova.tests.functional.'
SCHEDULERS = ('ours', 'nova')

#: Modules that test the selection of hosts with a scheduler.
MODULES = '''
    test_aggregates test_availability_zones test_boot_from_volume
    test_cold_migrate test_cross_az_attach test_cross_cell_migrate
    test_ephemeral_encryption test_flavor_extraspecs test_instance_actions
    test_json_filter test_multiattach test_report_client test_routed_networks
    test_scheduler test_server_faults test_server_group test_server_rescue
    test_servers test_servers_provider_tree test_servers_resource_request
    test_service compute.test_cache_image compute.test_host_api
    compute.test_init_host compute.test_live_migration
    compute.test_migration_list compute.test_resource_tracker
    libvirt.test_evacuate libvirt.test_live_migration
    libvirt.test_numa_live_migration libvirt.test_numa_servers
    libvirt.test_pci_in_placement libvirt.test_pci_sriov_servers
    libvirt.test_power_manage libvirt.test_report_cpu_traits
    libvirt.test_reshape libvirt.test_rt_servers
    libvirt.test_shared_resource_provider libvirt.test_stateless_firmware
    libvirt.test_uefi libvirt.test_vgpu libvirt.test_vpmem libvirt.test_vtpm
    regressions
'''.split()

#: One test of each kind; a few minutes in total.
SUBSET = '''
    test_json_filter
    test_availability_zones
    test_cold_migrate
    test_scheduler
    test_server_group.ServerGroupTestV21.test_boot_servers_with_affinity
    test_server_group.ServerGroupTestV21.test_evacuate_with_anti_affinity
    test_server_group.ServerGroupTestV264.test_boot_servers_with_affinity
    libvirt.test_numa_servers.NUMAServersTest.test_create_server_with_pcpu
    libvirt.test_pci_sriov_servers.SRIOVServersTest.test_create_server_with_VF
'''.split()

#: Number of tests in one process; its start takes seconds.
_CHUNK = 8

#: Seconds without output after which a process is killed.
_SILENCE_S = 900


def main(argv=None):
    args = parse(argv)
    python = environment.make()
    results = Results(
        args.results or environment.DEFAULT.expanduser() / 'results',
        fingerprint(), args.any_version, args.show)
    names = list_tests(python, args.tests or (
        SUBSET if args.subset else MODULES))
    for scheduler in SCHEDULERS:
        if args.show or args.only not in (None, scheduler):
            continue
        missing = [name for name in names
                   if results.get(scheduler, name) is None
                   and not (args.failed and scheduler == 'nova'
                            and results.outcome('ours', name) != 'failed')]
        run_all(python, scheduler, missing, results, args.workers)
        # Timeouts may fail on a busy machine: repeat the failed tests once.
        failed = [name for name in missing
                  if results.outcome(scheduler, name) == 'failed']
        for name in failed:
            print(f'{scheduler}: {name} failed and runs again',
                  file=sys.stderr)
        run_all(python, scheduler, failed, results, args.workers)
    found = compare(names, results)
    if args.format == 'json':
        json.dump(found, sys.stdout, indent=1)
    else:
        print_table(found)
    return 1 if any(each['unexplained'] for each in found.values()) else 0


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument(
        'tests', nargs='*',
        help='modules, classes or tests below nova.tests.functional')
    parser.add_argument(
        '--subset', action='store_true',
        help='run a small selection of a few minutes')
    parser.add_argument('-f', '--format', choices=('table', 'json'),
                        default='table')
    parser.add_argument('--workers', type=int, default=2)
    parser.add_argument(
        '--only', choices=SCHEDULERS,
        help='run with this scheduler only, and show stored results of the '
             'other')
    parser.add_argument(
        '--failed', action='store_true',
        help="with Nova's scheduler, run only the tests that failed with "
             'this one')
    parser.add_argument(
        '--show', action='store_true',
        help='run no test, show the stored results')
    parser.add_argument(
        '--any-version', action='store_true',
        help='do not repeat passed tests after a change of the sources')
    parser.add_argument(
        '--results', type=pathlib.Path, help='directory of the results')
    return parser.parse_args(argv)


class Results:
    """Results of tests, stored in a file for each scheduler.

    :param version: version of this checkout's sources
    :param any_version: whether passed tests of other versions count
    :param all_outcomes: whether failed tests of other versions count too
    """

    def __init__(self, directory, version, any_version=False,
                 all_outcomes=False):
        self._all_outcomes = all_outcomes
        self._version = version
        self._any_version = any_version
        self._directory = pathlib.Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._known = {}
        for scheduler in SCHEDULERS:
            self.read(scheduler)

    def path(self, scheduler):
        return self._directory / f'{scheduler}.jsonl'

    def read(self, scheduler):
        """Read the results from the file."""
        known = self._known[scheduler] = {}
        path = self.path(scheduler)
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                result = json.loads(line)
            except ValueError:
                # The writer was killed during the write.
                continue
            if (scheduler == 'nova' or result['version'] == self._version
                    or self._any_version and (
                        self._all_outcomes or result['outcome'] != 'failed')):
                known[result['test']] = result

    def add(self, scheduler, outcomes):
        with open(self.path(scheduler), 'a') as stream:
            for outcome in outcomes:
                json.dump({**outcome, 'version': self._version}, stream)
                stream.write('\n')

    def outcome(self, scheduler, test):
        return (self.get(scheduler, test) or {}).get('outcome')

    def get(self, scheduler, test):
        return self._known[scheduler].get(test)


def fingerprint():
    """Return a digest of the sources."""
    digest = hashlib.sha256()
    for directory in ('cellsched', 'integrations/nova/cellsched_nova'):
        for path in sorted((environment.ROOT / directory).rglob('*.py')):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def paths_of(python):
    """Return the directories in PYTHONPATH for the python of a release."""
    return environment.paths(pathlib.Path(python).parents[1])


def call(python, *arguments, **options):
    """Start ``runner.py``; return the process."""
    env = {name: value for name, value in os.environ.items()
           if name not in ('PYTHONPATH', 'PYTHONDONTWRITEBYTECODE')}
    env |= {'PYTHONPATH': os.pathsep.join(paths_of(python)),
            'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true',
            'OS_STDOUT_CAPTURE': '1', 'OS_STDERR_CAPTURE': '1'}
    return subprocess.Popen(
        [str(python), str(HERE / 'runner.py'), *map(str, arguments)],
        env=env, text=True, cwd=pathlib.Path(python).parents[1], **options)


def list_tests(python, parts):
    """Return the names of the tests of modules, classes and packages."""
    names = []
    for each in parts:
        package = paths_of(python)[0] / pathlib.Path(
            'nova/tests/functional', each)
        names += ([f'{PREFIX}{each}.{path.stem}'
                   for path in sorted(package.glob('test_*.py'))]
                  if package.is_dir() else [PREFIX + each])
    with call(python, 'list', *names, stdout=subprocess.PIPE,
              stderr=subprocess.DEVNULL) as child:
        listed = child.stdout.read().split()
    if child.returncode:
        raise SystemExit(f'no tests can be listed of {" ".join(names)}')
    return list(dict.fromkeys(
        name for name in listed if name.startswith(PREFIX)))


def run_all(python, scheduler, tests, results, workers):
    """Run tests in parallel processes, and read their results."""
    chunks = [tests[start:start + _CHUNK]
              for start in range(0, len(tests), _CHUNK)]
    # A stopped run then has results of all modules.
    random.Random(0).shuffle(chunks)

    def work():
        while chunks:
            try:
                chunk = chunks.pop()
            except IndexError:
                return
            run_chunk(python, scheduler, chunk, results)
            print(f'{scheduler}: {len(chunks)} of {len(tests) // _CHUNK + 1} '
                  'chunks left', file=sys.stderr)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.read(scheduler)


def run_chunk(python, scheduler, tests, results):
    with tempfile.TemporaryDirectory() as directory:
        listed = pathlib.Path(directory, 'tests')
        listed.write_text('\n'.join(tests))
        written = pathlib.Path(directory, 'results')
        child = call(python, scheduler, listed, written,
                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            _, problems = child.communicate(timeout=_SILENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            _, problems = child.communicate()
        text = written.read_text() if written.exists() else ''
        outcomes = [json.loads(line) for line in text.splitlines()]
        # A test that killed the process is not repeated.
        missing = set(tests) - {each['test'] for each in outcomes}
        results.add(scheduler, outcomes + [
            {'test': test, 'outcome': 'failed',
             'why': f'the process ended: {problems[-2000:]}'}
            for test in sorted(missing)])


def known_differences():
    """Return the reasons of known differences, by test."""
    with open(KNOWN, newline='') as stream:
        return {PREFIX + row['Test']: row['Reason']
                for row in csv.DictReader(stream)}


def compare(names, results):
    """Return the numbers and names of tests by result, for each module."""
    known, found = known_differences(), {}
    for name in names:
        module = name.rpartition('.')[0].rpartition('.')[0].removeprefix(
            PREFIX)
        if module.startswith('regressions.'):
            module = 'regressions'
        row = found.setdefault(module, {
            'tests': 0, 'both': 0, 'nova_only': [], 'ours_only': [],
            'neither': 0, 'skipped': 0, 'passed_untried': 0, 'not_run': 0,
            'unexplained': []})
        row['tests'] += 1
        ours, novas = (results.outcome(each, name) for each in SCHEDULERS)
        short = name.removeprefix(PREFIX)
        if 'skipped' in (ours, novas):
            row['skipped'] += 1
        elif ours == 'passed' and novas is None:
            row['passed_untried'] += 1
        elif None in (ours, novas):
            row['not_run'] += 1
        elif ours == novas:
            row['both' if ours == 'passed' else 'neither'] += 1
        elif ours == 'passed':
            row['ours_only'].append(short)
        else:
            row['nova_only'].append(
                {'test': short, 'reason': known.get(name)})
            if name not in known:
                row['unexplained'].append(short)
    return found


def print_table(found):
    columns = ('tests', 'both', 'passed_untried', 'nova_only', 'ours_only',
               'neither', 'skipped', 'not_run')
    heads = ('module', 'tests', 'both', 'with ours', "Nova's only",
             'ours only', 'neither', 'skipped', 'not run')
    rows = [(module, *map(_number, (row[name] for name in columns)))
            for module, row in found.items()]
    totals = [sum(row[place] for row in rows)
              for place in range(1, len(heads))]
    width = max(len(row[0]) for row in (*rows, heads))
    for row in (heads, *rows, ('total', *totals)):
        print(row[0].ljust(width), *(
            str(value).rjust(11) for value in row[1:]))
    for module, row in found.items():
        for each in row['nova_only']:
            print(f"Nova's only: {each['test']}: "
                  f"{each['reason'] or 'UNEXPLAINED'}")
        for name in row['ours_only']:
            print(f'ours only: {name}')


def _number(value):
    return value if isinstance(value, int) else len(value)


if __name__ == '__main__':
    sys.exit(main())
