# SPDX-License-Identifier: Apache-2.0
"""Run Placement over PostgreSQL until the end of the input.

Run this by the python that ``environment.py`` prints. Once it answers, a line
of JSON says the ``url`` of Placement, where the token ``admin`` may all, that
of its ``database``, and the ``version`` of both. A commit waits for the disk;
for the rest options are as they are by default, or as they are told.
"""

import argparse
import json
import sys

import servers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--options', default='', help='those of Placement')
    args = parser.parse_args()
    with servers.placement(options=args.options) as (_, postgres, placement):
        print(json.dumps({
            'url': placement.url, 'database': postgres.url('placement'),
            'version': f'{placement.version()}, {postgres.version()}'}),
            flush=True)
        sys.stdin.read()


if __name__ == '__main__':
    sys.exit(main())
