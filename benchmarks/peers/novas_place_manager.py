# SPDX-License-Identifier: Apache-2.0
"""Run Nova's manager, or the one in its place, and measure its requests.

``novas_place.py`` starts this. The first line of the output, an empty list,
reports that the first request was answered. Then each input line is a number,
and the answer is a list of this number of samples. A sample has the seconds of
the ``whole`` request and of ``placement``, which are the HTTP requests that it
waits for. It also has the number of these ``requests``, and the number of HTTP
requests of other threads since the last sample, ``beside``. For this project,
``decision`` is the seconds of the decision on columns alone.
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
        description='Measure requests to a manager; the input has numbers.')
    parser.add_argument('name', choices=managers.NAMES)
    parser.add_argument('file', type=pathlib.Path)
    for name in 'hosts', 'cells', 'instances', 'shapes':
        parser.add_argument(f'--{name}', type=int, required=True)
    return nova_select.print_result(run, parser.parse_args())


def run(args):
    """Answer until the end of the input; return the number of samples."""
    deployment.read(args.file)
    decisions = time_decisions() if args.name == 'ours' else []
    manager = managers.start(
        args.name, contents.make_hosts(
            args.hosts, args.cells, shapes=args.shapes))
    request = nova_select.TELECOM if args.shapes else {}
    calls = PlacementCalls(manager.placement_client)
    nova_select.select(manager, args.instances, **request)
    send([])
    count = 0
    for line in sys.stdin:
        send([sample(manager, calls, args.instances, request, decisions)
             for _ in range(int(line))])
        count += int(line)
    return count


def sample(manager, calls, instances, request, decisions):
    decisions.clear()
    with calls.counted() as counted:
        whole, _ = nova_select.select(manager, instances, **request)
    return {'whole': whole, 'decision': sum(decisions), **counted}


def time_decisions():
    """Return a list that gets the seconds of each decision on columns."""
    from cellsched_nova import decision

    advance, seconds = decision.RequestDecision.advance, []

    def timed(self):
        began_at = time.perf_counter()
        try:
            return advance(self)
        finally:
            seconds.append(time.perf_counter() - began_at)

    decision.RequestDecision.advance = timed
    return seconds


def send(what):
    print(json.dumps(what), flush=True)


class PlacementCalls:
    """Measures the requests of a report client to Placement.

    Requests from other threads than the one that created this are counted
    separately.
    """

    def __init__(self, client):
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._seconds, self._requests, self._beside = 0.0, 0, 0
        # DELETE is left out: allocations are deleted only between samples.
        for name in ('get', 'post', 'put'):
            setattr(client, name, self._timed(getattr(client, name)))

    @contextlib.contextmanager
    def counted(self):
        """Yield a dictionary that is filled at the end of the block."""
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
            if threading.get_ident() == self._thread:
                self._seconds += elapsed_s
                self._requests += 1
            else:
                self._beside += 1


if __name__ == '__main__':
    sys.exit(main())
