# SPDX-License-Identifier: Apache-2.0
"""Create the environment of Nova and Placement, and print its Python.

It is created once, in a directory outside the checkout, and again when the
requirements change. It needs only Python.
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

#: The file with the installed requirements, which is written last.
MARK = 'cellsched-requirements.txt'


def main(argv=None):
    parser = argparse.ArgumentParser(
        description='Create the environment of the peers; print its Python.')
    parser.add_argument(
        '--directory', type=pathlib.Path, default=DEFAULT, metavar='DIR',
        help=f'directory of the environment (default {DEFAULT})')
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
    """Return the Python of an environment; create it if it is missing.

    If several processes call this at the same time, one creates it.

    :raises ValueError: the directory is in the checkout, or is not an
        environment
    :raises subprocess.CalledProcessError: the installation failed
    """
    directory = pathlib.Path(directory).expanduser().resolve()
    checkout = HERE.parent.parent
    if directory == checkout or checkout in directory.parents:
        raise ValueError(
            f'{directory}: expected a directory outside {checkout}')
    python = directory / 'bin' / 'python'
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.parent / f'.{directory.name}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_current(directory):
            fill(directory, python)
    return python


def is_current(directory):
    """Return whether an environment has the requirements."""
    try:
        installed = (directory / MARK).read_text()
    except FileNotFoundError:
        return False
    return installed == REQUIREMENTS.read_text()


def fill(directory, python):
    if (directory.exists() and any(directory.iterdir())
            and not (directory / 'pyvenv.cfg').exists()):
        # The directory would be emptied.
        raise ValueError(
            f'{directory}: expected an environment or an empty directory')
    venv.create(directory, clear=True)
    # Variables of a surrounding environment must not reach this one.
    env = {name: value for name, value in os.environ.items()
           if name not in ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV')}
    # 1. Install with uv, which takes a tenth of the time but does not read
    #    pip's configuration.
    # 2. If uv is missing or fails, install with pip, which prints the error.
    by_uv = subprocess.run(
        [sys.executable, '-m', 'uv', '--quiet', '--no-config', 'pip',
         'install', '--python', python, '--requirement', REQUIREMENTS],
        env=env, capture_output=True)
    if by_uv.returncode:
        fill_by_pip(python, env)
    (directory / MARK).write_text(REQUIREMENTS.read_text())


def fill_by_pip(python, env):
    # Modules are compiled on import instead; most are never imported.
    for args in (['ensurepip'], [
            'pip', 'install', '--quiet', '--no-compile',
            '--disable-pip-version-check', '--requirement', REQUIREMENTS]):
        subprocess.run(
            [python, '-m', *args], env=env, check=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


if __name__ == '__main__':
    sys.exit(main())
