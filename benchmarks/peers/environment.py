# SPDX-License-Identifier: Apache-2.0
"""Make the environment that Nova and Placement run in, and print its python.

It is made once, in a directory outside the checkout, and made again when the
requirements change. It needs nothing but Python.
"""

import argparse
import fcntl
import os
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / 'requirements.txt'
DEFAULT = pathlib.Path('~/.cache/cellsched/nova-34')

#: Written last, with the requirements that were installed.
MARK = 'cellsched-requirements.txt'


def main(argv=None):
    parser = argparse.ArgumentParser(
        description='Make the environment of the peers, print its python.')
    parser.add_argument(
        '--directory', type=pathlib.Path, default=DEFAULT, metavar='DIR',
        help=f'where to keep it (default {DEFAULT})')
    args = parser.parse_args(argv)
    try:
        print(make(args.directory))
    except (OSError, ValueError) as exc:
        print(f'{parser.prog}: {exc}', file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as exc:
        print(f'{parser.prog}: {exc}\n{exc.output}', file=sys.stderr)
        return 1
    return 0


def make(directory=DEFAULT):
    """Return the python of an environment, which is made if it is not there.

    Of several processes that ask for the same at once, one makes it.

    :raises ValueError: the directory is in the checkout, or something else
    :raises subprocess.CalledProcessError: it could not be made
    """
    directory = pathlib.Path(directory).expanduser().resolve()
    checkout = HERE.parent.parent
    if directory == checkout or checkout in directory.parents:
        raise ValueError(f'{directory}: expected a place outside {checkout}')
    python = directory / 'bin' / 'python'
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.parent / f'.{directory.name}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_current(directory):
            fill(directory, python)
    return python


def is_current(directory):
    try:
        installed = (directory / MARK).read_text()
    except FileNotFoundError:
        return False
    return installed == REQUIREMENTS.read_text()


def fill(directory, python):
    if (directory.exists() and any(directory.iterdir())
            and not (directory / 'pyvenv.cfg').exists()):
        # It is about to be emptied.
        raise ValueError(f'{directory}: expected an environment or nothing')
    venv.create(directory, clear=True)
    # Settings of an environment around this one are not for that.
    env = {name: value for name, value in os.environ.items()
           if name not in ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV')}
    # uv does it in a tenth of the time, and reads nothing of pip's
    # configuration: where it is missing or fails, pip does it or says why not.
    by_uv = subprocess.run(
        [sys.executable, '-m', 'uv', '--quiet', '--no-config', 'pip',
         'install', '--python', python, '--requirement', REQUIREMENTS],
        env=env, capture_output=True)
    if by_uv.returncode:
        fill_by_pip(python, env)
    (directory / MARK).write_text(REQUIREMENTS.read_text())


def fill_by_pip(python, env):
    # What is not compiled here is when it is imported, which most is never.
    for args in (['ensurepip'], [
            'pip', 'install', '--quiet', '--no-compile',
            '--disable-pip-version-check', '--requirement', REQUIREMENTS]):
        subprocess.run(
            [python, '-m', *args], env=env, check=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


if __name__ == '__main__':
    sys.exit(main())
