# SPDX-License-Identifier: Apache-2.0
"""Running a command as a process of its own."""

import os
import subprocess
import sys

#: Longer than any command takes; one that runs so long has failed.
TIMEOUT_S = 600


def run(module, *argv, before='', **options):
    """Run a module's ``main``, after some lines of Python."""
    code = '\n'.join([
        f'import sys; sys.argv[0] = {module!r}', before,
        f'from cellsched.cmd import {module}', f'{module}.main()'])
    env = {name: value for name, value in os.environ.items()
           if name != 'PYTHONWARNINGS'}
    return subprocess.run(
        [sys.executable, '-c', code, *argv], text=True,
        timeout=TIMEOUT_S, **{'stdout': subprocess.PIPE, 'env': env,
                              'stderr': subprocess.PIPE, **options})
