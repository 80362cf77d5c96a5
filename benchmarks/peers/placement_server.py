# SPDX-License-Identifier: Apache-2.0
"""Run Placement over PostgreSQL until the end of the input.

Run this with the Python that ``environment.py`` prints. When Placement
answers, it prints a line of JSON with the ``url`` of Placement, the URL of its
``database``, and the ``version`` of both. The token ``admin`` has all rights.
Commits wait for the disk. Other options have their defaults unless
``--options`` sets them.
"""

import argparse
import json
import sys

import servers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--options', default='', help='options of Placement')
    args = parser.parse_args()
    with servers.placement(options=args.options) as (_, postgres, placement):
        print(json.dumps({
            'url': placement.url, 'database': postgres.url('placement'),
            'version': f'{placement.version()}, {postgres.version()}'}),
            flush=True)
        sys.stdin.read()


if __name__ == '__main__':
    sys.exit(main())
