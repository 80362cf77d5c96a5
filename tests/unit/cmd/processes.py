# SPDX-License-Identifier: Apache-2.0
"""Running a command as a process of its own."""

import http.client
import os
import socket
import subprocess
import sys

#: Longer than any command takes; one that runs so long has failed.
TIMEOUT_S = 600


def free_port():
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


def get(port, path):
    """Return the status and the body of an answer of a service."""
    connection = http.client.HTTPConnection(
        '127.0.0.1', port, timeout=TIMEOUT_S)
    connection.request('GET', path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


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
