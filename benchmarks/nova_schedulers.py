# SPDX-License-Identifier: Apache-2.0
"""Nova's schedulers over hosts that all of them want, with Placement.

They run in an environment of their own, see ``peers``.
"""

import contextlib
import json
import pathlib
import subprocess
import sys

import outcomes

# What finds out whether it is installed is good here too.
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

from tests.integration.nova import caller  # noqa: E402
from tests.integration import servers  # noqa: E402

#: Options of Placement, by what such a deployment is called: as they are by
#: default, and with no repetition in the server of what lost to others.
KINDS = {'nova': '', 'nova-no-retry':
         '[placement]\nallocation_conflict_retry_count = 1\n'}


@contextlib.contextmanager
def running(name, size):
    """Yield a function that has schedulers fill the hosts, and a version.

    As that of ``schedulers.py``.

    :raises tests.integration.serving.NotInstalled: something is not there
    """
    python = caller.python()
    servers.PostgreSQL()
    script = pathlib.Path(__file__).parent / 'peers' / 'nova_exactness.py'
    with subprocess.Popen(
            [python, script, '--hosts', str(size.hosts),
             '--schedulers', str(size.schedulers),
             '--clients', str(size.clients), '--options', KINDS[name]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True) as process:
        try:
            yield lambda: fill_up(process), read(process)['version']
        finally:
            # It stops its servers at the end of its input.
            process.stdin.close()
            process.wait(120)


def fill_up(process):
    process.stdin.write('\n')
    process.stdin.flush()
    said = read(process)
    return outcomes.Round(
        [outcomes.Outcome(*each) for each in said['outcomes']],
        said['places'], said['conflicts'], said['oversold'])


def read(process):
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f'Nova failed with {process.wait()}')
    return json.loads(line)
