# SPDX-License-Identifier: Apache-2.0
"""Create the environment of Nova and Placement, and print its Python.

It is created once, in a directory outside the checkout, and again when the
requirements change. It needs only Python.
"""

import argparse
import fcntl
import os
import pathlib
import re
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / 'requirements.txt'
DEFAULT = pathlib.Path('~/.cache/cellsched/nova-34')

#: The versions of Nova by release. Older versions of Placement do not run with
#: the libraries that are installed.
RELEASES = {'34': '34.0.0', '33': '33.0.2', '32': '32.2.1'}

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


def make(directory=DEFAULT, release='34'):
    """Return the Python of an environment; create it if it is missing.

    If several processes call this at the same time, one creates it.

    :param release: a key of ``RELEASES``
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
        requirements = requirements_of(release)
        if not is_current(directory, requirements):
            fill(directory, python, requirements)
    return python


def requirements_of(release):
    """Return the text of the requirements for a release of Nova."""
    return re.sub('(?m)^nova==.*', f'nova=={RELEASES[release]}',
                  REQUIREMENTS.read_text())


def is_current(directory, requirements=None):
    """Return whether an environment has these requirements, or the usual."""
    try:
        installed = (directory / MARK).read_text()
    except FileNotFoundError:
        return False
    return installed == (requirements or REQUIREMENTS.read_text())


def fill(directory, python, requirements):
    if (directory.exists() and any(directory.iterdir())
            and not (directory / 'pyvenv.cfg').exists()):
        # The directory would be emptied.
        raise ValueError(
            f'{directory}: expected an environment or an empty directory')
    venv.create(directory, clear=True)
    listed = directory / 'requirements.txt'
    listed.write_text(requirements)
    # Variables of a surrounding environment must not reach this one.
    env = {name: value for name, value in os.environ.items()
           if name not in ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV')}
    # 1. Install with uv, which takes a tenth of the time but does not read
    #    pip's configuration.
    # 2. If uv is missing or fails, install with pip, which prints the error.
    by_uv = subprocess.run(
        [sys.executable, '-m', 'uv', '--quiet', '--no-config', 'pip',
         'install', '--python', python, '--requirement', listed],
        env=env, capture_output=True)
    if by_uv.returncode:
        fill_by_pip(python, env, listed)
    (directory / MARK).write_text(requirements)


def fill_by_pip(python, env, listed):
    # Modules are compiled on import instead; most are never imported.
    for args in (['ensurepip'], [
            'pip', 'install', '--quiet', '--no-compile',
            '--disable-pip-version-check', '--requirement', listed]):
        subprocess.run(
            [python, '-m', *args], env=env, check=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


if __name__ == '__main__':
    sys.exit(main())
