# SPDX-License-Identifier: Apache-2.0
"""Runs simulations: ``python -m cellsched.simulator --seed N --count M``."""

import argparse
import logging
import sys

from cellsched import clock

try:
    from cellsched.simulator.promises import faults
    from cellsched.simulator.promises import harness
    from cellsched.simulator.promises import simulation
    from cellsched.simulator import servers
except ModuleNotFoundError as exc:
    if exc.name != 'greenlet':
        raise
    sys.exit('simulator: greenlet is not installed; expected greenlet, which '
             'cellsched[simulate] installs')


def main() -> int:
    """Run the seeds of the arguments; return 1 if one of them fails."""
    arguments = _arguments()
    if not arguments.logs:
        logging.disable(logging.CRITICAL)
    now = clock.Clock().monotonic
    shared = harness.Harness(arguments.hardware)
    claims = (servers.KINDS[arguments.claims]
              if arguments.claims else None)
    began, steps, failed = now(), 0, 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        outcome = simulation.Simulation(
            shared, seed, arguments.faults, arguments.rate, claims).run()
        steps += outcome.steps
        if outcome.failure or arguments.trace:
            print(outcome.text(arguments.last))
        failed += outcome.failure is not None
        done = seed - arguments.seed + 1
        if not done % 500:
            print(f'{done} of {arguments.count}, {failed} failed', flush=True)
    took_s = now() - began
    print(f'{arguments.count} simulations, {failed} failed, {steps} steps, '
          f'{arguments.count / took_s:.1f} a second')
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='tools/test.sh simulation')
    parser.add_argument('--seed', type=int, default=0, help='the first seed')
    parser.add_argument('--count', type=int, default=1,
                        help='how many seeds to run')
    parser.add_argument(
        '--faults', type=lambda text: [kind for kind in text.split(',')
                                       if kind],
        help='the faults, in place of those of the seed: '
             + ', '.join((
                 *faults.KINDS, *faults.EVENTS, *faults.SERVER_KINDS)))
    parser.add_argument('--claims', choices=sorted(servers.KINDS),
                        help='the claim store, on a model of its server')
    parser.add_argument('--hardware', action='store_true',
                        help='servers with dedicated CPUs, pages and devices')
    parser.add_argument('--rate', type=float,
                        help='how often, between 0 and 1, likewise')
    parser.add_argument('--trace', action='store_true',
                        help='tell all steps, even if nothing fails')
    parser.add_argument('--last', type=int,
                        help='tell only so many of the last steps')
    parser.add_argument('--logs', action='store_true',
                        help='let the services log')
    return parser.parse_args()


if __name__ == '__main__':
    sys.exit(main())
