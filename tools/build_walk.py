# SPDX-License-Identifier: Apache-2.0
"""Counts the modules that a build passes through.

    tools/build_walk.py [--list]

One server is built in a deployment of two cells in this process, after one
that fills caches, and again with the scheduler's decision counted alone.
Functions are counted once; a change of module is a call from a function of
the package to one in another of its modules, each time that it is made. What
services do of their own meanwhile is left out. --list says which modules.
"""

import argparse
import collections
import pathlib
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cellsched import context  # noqa: E402
from cellsched.standalone import deployment  # noqa: E402

PACKAGE = str(ROOT / 'cellsched')

#: What stands between a thread of ours and a function that is periodic, and
#: what a thread does for one: a build itself asks no cells.
PERIODIC = ('Service._task.<locals>.task', 'Gatherer.gather.<locals>.ask')


class Walk:
    """What was called while it is counted.

    :param within: the name of a function; calls below it are counted only
    """

    def __init__(self, within=None):
        self._within = within
        self._active = False
        self._local = threading.local()
        self.functions = collections.Counter()
        self.changes = 0

    def __enter__(self):
        self._active = True
        return self

    def __exit__(self, *exc):
        self._active = False

    def profile(self, frame, event, _):
        code = frame.f_code
        if event not in ('call', 'return') or (
                not code.co_filename.startswith(PACKAGE)):
            return
        local = self._local.__dict__
        name = code.co_qualname
        step = 1 if event == 'call' else -1
        if name in PERIODIC:
            local['periodic'] = local.get('periodic', 0) + step
        if name == self._within:
            local['within'] = max(local.get('within', 0) + step, 0)
        if event == 'return' or not self._active or local.get('periodic'):
            return
        if self._within and not local.get('within'):
            return
        self.functions[code.co_filename, name] += 1
        caller = frame.f_back
        while caller and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller and caller.f_code.co_filename != code.co_filename:
            self.changes += 1

    @property
    def modules(self):
        return sorted({
            str(pathlib.Path(path).relative_to(ROOT).with_suffix(''))
            for path, _ in self.functions})


USER = context.member('user', 'project')

#: Seconds in which a build is at its end, and nobody looks.
BUILT_S = 2


def build(api):
    """Build a server; return its uuid."""
    [uuid] = api.servers.create(USER, 'walk', 'small')
    time.sleep(BUILT_S)
    return uuid


def check(api, uuid):
    status = api.servers.get(USER, uuid).status
    if status != 'ACTIVE':
        raise SystemExit(f'The server is not built after {BUILT_S} s: '
                         f'it is {status}.')


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--list', action='store_true')
    args = parser.parse_args()
    whole, decision = Walk(), Walk('Scheduler.select_destinations')

    def reached(_):
        """Take the place of the deployment, which is no part of a build."""

    def profile(*event):
        whole.profile(*event)
        decision.profile(*event)

    threading.setprofile(profile)
    sys.setprofile(profile)
    with tempfile.TemporaryDirectory() as directory:
        hosts = [deployment.DeployedHost(f'host{number}')
                 for number in range(4)]
        with deployment.Deployment(pathlib.Path(directory), [
                deployment.DeployedCell('cell1', hosts[:2]),
                deployment.DeployedCell('cell2', hosts[2:])],
                reached=reached) as world:
            api = world.api
            api.flavors.create(context.admin(), 'small', 1, 512)
            check(api, build(api))
            with whole, decision:
                uuid = build(api)
            check(api, uuid)
    sys.setprofile(None)
    threading.setprofile(None)
    for title, walk in ('build', whole), ('decision', decision):
        print(f'{title}: {len(walk.functions)} functions in '
              f'{len(walk.modules)} modules, {walk.changes} changes of module')
        if args.list:
            print('\n'.join(f'    {name}' for name in walk.modules))


if __name__ == '__main__':
    main()
