# SPDX-License-Identifier: Apache-2.0
"""Measure Nova's select_destinations on hosts with child providers.

Run this with the Python that ``environment.py`` prints, and with a file from
``providers.py``: ``hosts`` is a list for each cell, ``size`` the flavor of
every request, and ``requests`` the extra specs of each request by name.
``nova_select.py`` describes what runs.

It prints one JSON object, a list of samples by request. A sample has the
seconds of the ``whole`` request, of ``candidates``, which is the query to
Placement, and of ``claim``. It also has the ``chosen`` host, the ``hosts``
that Placement returned, and whether these are ``all`` matching hosts.
"""

import native  # noqa: F401

import argparse
import json
import pathlib
import sys
import time

import nova_select


def main(argv=None):
    parser = argparse.ArgumentParser(
        description="Measure Nova's select_destinations on given hosts.")
    parser.add_argument('file', type=pathlib.Path)
    parser.add_argument('--repeat', type=int, default=3, metavar='N',
                        help='samples of each request (default 3)')
    parser.add_argument(
        '--placement-results', type=int, default=1000, metavar='N',
        help="limit of allocation candidates (default 1000, as in Nova)")
    return nova_select.print_result(run, parser.parse_args(argv))


def run(args):
    given = json.loads(args.file.read_text(encoding='utf-8'))
    hosts = given['hosts']
    with nova_select.managing(
            hosts, args.placement_results, custom(hosts)) as manager:
        calls = Calls(manager.placement_client)
        # The first request opens all connections.
        nova_select.select(manager, 1, **given['size'])
        samples = {}
        for name, specs in given['requests'].items():
            flavor = {**given['size'], 'extra_specs': specs}
            samples[name] = [sample(args, manager, calls, hosts, flavor)
                             for _ in range(args.repeat)]
        return samples


def custom(hosts):
    """Return the custom classes and traits to create in Placement."""
    children = [child for members in hosts for host in members
                for child in host['children']]
    named = {'resource_classes': 'inventories', 'traits': 'traits'}
    return {kind: sorted({name for child in children for name in child[field]
                          if name.startswith('CUSTOM_')})
            for kind, field in named.items()}


def sample(args, manager, calls, hosts, flavor):
    calls.seconds.clear()
    whole, [chosen] = nova_select.select(manager, 1, **flavor)
    found, *_ = calls.result['get_allocation_candidates']
    named = {uuid for each in found for uuid in each['allocations']}
    return {'whole': whole, 'chosen': chosen,
            'candidates': calls.seconds['get_allocation_candidates'],
            'claim': calls.seconds['claim_resources'],
            'hosts': [host['host'] for members in hosts for host in members
                      if host['uuid'] in named],
            'all': len(found) < args.placement_results}


class Calls:
    """Measures calls of Placement's client, and stores their results."""

    def __init__(self, client):
        self.seconds, self.result = {}, {}
        for name in ('get_allocation_candidates', 'claim_resources'):
            setattr(client, name, self._timed(name, getattr(client, name)))

    def _timed(self, name, method):
        def call(*args, **kwargs):
            start = time.perf_counter()
            self.result[name] = method(*args, **kwargs)
            # A refused claim is retried on another host.
            self.seconds[name] = (self.seconds.get(name, 0.0)
                                  + time.perf_counter() - start)
            return self.result[name]
        return call


if __name__ == '__main__':
    sys.exit(main())
