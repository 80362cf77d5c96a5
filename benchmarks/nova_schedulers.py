# SPDX-License-Identifier: Apache-2.0
"""Nova's schedulers with Placement, which compete for the same hosts.

They run in their own environment; see ``peers``. So do the schedulers in their
place.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import outcomes

# The test suite has the code to find out what is installed.
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

from integrations.nova.tools import environment  # noqa: E402
from tests.integration.nova import caller  # noqa: E402
from tests.integration import servers  # noqa: E402
from tests.integration import serving  # noqa: E402

#: Options with which Placement does not repeat a conflicting update.
_NO_RETRY = '[placement]\nallocation_conflict_retry_count = 1\n'


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of deployment of Nova.

    :param managers: the managers of the schedulers, in turn
    :param options: options of Placement that are not the default
    """

    managers: tuple = ('nova',)
    options: str = ''


#: The deployments by name.
KINDS = {
    'nova': Kind(),
    'nova-no-retry': Kind(options=_NO_RETRY),
    'novas-place': Kind(('ours',)),
    'novas-place-and-nova': Kind(('ours', 'nova')),
    'novas-place-and-nova-no-retry': Kind(('ours', 'nova'), _NO_RETRY),
}


@contextlib.contextmanager
def running(name, size):
    """Yield a function that lets schedulers fill the hosts, and a version.

    It works like the function of ``schedulers.py``.

    :raises tests.integration.serving.NotInstalled: a requirement is missing
    """
    kind, python = KINDS[name], caller.python()
    servers.PostgreSQL()
    script = pathlib.Path(__file__).parent / 'peers' / 'nova_exactness.py'
    with subprocess.Popen(
            [python, script, '--hosts', str(size.hosts),
             '--schedulers', str(size.schedulers),
             '--clients', str(size.clients), '--options', kind.options,
             '--managers', ','.join(kind.managers)],
            env=variables(kind), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True) as process:
        try:
            yield lambda: fill_up(process), read(process)['version']
        finally:
            # The script stops its servers at the end of its input.
            process.stdin.close()
            process.wait(120)


def variables(kind):
    """Return the environment variables for the managers of a kind.

    :raises tests.integration.serving.NotInstalled: a requirement is missing
    """
    if 'ours' not in kind.managers:
        return None
    try:
        # This also creates the entry points of this checkout's plug-ins.
        environment.make()
    except subprocess.CalledProcessError as exc:
        raise serving.NotInstalled(
            f'What tests of Nova need cannot be installed: {exc.output}'
        ) from None
    return {**os.environ,
            'PYTHONPATH': os.pathsep.join(environment.paths())}


def fill_up(process):
    process.stdin.write('\n')
    process.stdin.flush()
    answer = read(process)
    return outcomes.Round(
        [outcomes.Outcome(*each) for each in answer['outcomes']],
        answer['places'], answer['conflicts'], answer['oversold'])


def read(process):
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f'Nova failed with {process.wait()}')
    return json.loads(line)
