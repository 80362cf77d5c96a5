# SPDX-License-Identifier: Apache-2.0
"""Run Placement over PostgreSQL until the end of the input.

Run this by the python that ``environment.py`` prints. Once it answers, a line
of JSON says the ``url`` of Placement, where the token ``admin`` may all, that
of its ``database``, and the ``version`` of both. A commit waits for the disk;
for the rest options are as they are by default, or as they are told.
"""

import argparse
import contextlib
import json
import pathlib
import signal
import sys
import tempfile

import servers


def main():
    # What was started must be stopped in that case, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser()
    parser.add_argument('--options', default='', help='those of Placement')
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory()))
        # The user that PostgreSQL runs as must reach its directory.
        directory.chmod(0o755)
        postgres = servers.PostgreSQL(directory / 'postgres')
        stack.callback(postgres.stop)
        database = postgres.create('placement')
        placement = servers.Placement(
            directory / 'placement', database, servers.WORKERS,
            servers.THREADS, args.options)
        stack.callback(placement.stop)
        print(json.dumps({
            'url': placement.url, 'database': database,
            'version': f'{placement.version()}, {postgres.version()}'}),
            flush=True)
        sys.stdin.read()


if __name__ == '__main__':
    sys.exit(main())
