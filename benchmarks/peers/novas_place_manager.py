# SPDX-License-Identifier: Apache-2.0
"""Be Nova's manager, or the one in its place, and time its requests.

``novas_place.py`` starts this. The first line that it prints, an empty list,
says that a first request was answered; then, for each line of the input, a
number, it prints so many samples: the seconds of the ``whole``, and of
``placement``, which are those of all HTTP requests that the request itself
waits for; how many ``requests`` these were; and how many other threads sent
``beside``, since the last sample.
"""

import native  # noqa: F401

import argparse
import contextlib
import json
import pathlib
import sys
import threading
import time

import contents
import deployment
import managers
import nova_select


def main():
    parser = argparse.ArgumentParser(
        description='Time requests to a manager, as the input says.')
    parser.add_argument('name', choices=managers.NAMES)
    parser.add_argument('file', type=pathlib.Path)
    for name in 'hosts', 'cells', 'instances':
        parser.add_argument(f'--{name}', type=int, required=True)
    return nova_select.tell(run, parser.parse_args())


def run(args):
    """Answer until the end of the input; return the number of samples."""
    deployment.read(args.file)
    manager = managers.start(
        args.name, contents.make_hosts(args.hosts, args.cells))
    calls = PlacementCalls(manager.placement_client)
    nova_select.select(manager, args.instances)
    say([])
    count = 0
    for line in sys.stdin:
        say([sample(manager, calls, args.instances)
             for _ in range(int(line))])
        count += int(line)
    return count


def sample(manager, calls, instances):
    with calls.counted() as counted:
        whole, _ = nova_select.select(manager, instances)
    return {'whole': whole, **counted}


def say(what):
    print(json.dumps(what), flush=True)


class PlacementCalls:
    """Times what a report client asks Placement.

    What threads ask that are not the one which made this counts as beside.
    """

    def __init__(self, client):
        self._lock = threading.Lock()
        self._mine = threading.get_ident()
        self._seconds, self._requests, self._beside = 0.0, 0, 0
        # Allocations are deleted between samples alone.
        for name in ('get', 'post', 'put'):
            setattr(client, name, self._timed(getattr(client, name)))

    @contextlib.contextmanager
    def counted(self):
        """Yield a dictionary that says afterwards what there was."""
        found = {}
        self._seconds, self._requests = 0.0, 0
        yield found
        with self._lock:
            found.update(placement=self._seconds, requests=self._requests,
                         beside=self._beside)
            self._beside = 0

    def _timed(self, method):
        def call(*args, **kwargs):
            began_at = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self._count(time.perf_counter() - began_at)
        return call

    def _count(self, elapsed_s):
        with self._lock:
            if threading.get_ident() == self._mine:
                self._seconds += elapsed_s
                self._requests += 1
            else:
                self._beside += 1


if __name__ == '__main__':
    sys.exit(main())
