# SPDX-License-Identifier: Apache-2.0
"""Make the environment that Nova's own functional tests run in.

It sees what is installed in the environment of the peers, and has what tests
need beside. This checkout is put before both when tests run.
"""

import configparser
import fcntl
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]

sys.path.insert(0, str(ROOT))

from benchmarks.peers import environment as peers  # noqa: E402

REQUIREMENTS = HERE / 'test-requirements.txt'
DEFAULT = pathlib.Path('~/.cache/cellsched/nova-34-tests')

#: Written last, with the requirements that were installed.
MARK = 'cellsched-requirements.txt'

#: Metadata by which plug-ins of this checkout are found.
_METADATA = 'Metadata-Version: 2.1\nName: cellsched\nVersion: 0\n'


def make(directory=DEFAULT):
    """Return the python of the environment, which is made if need be.

    Of several processes that ask for the same at once, one makes it.

    :raises subprocess.CalledProcessError: it could not be made
    """
    theirs = peers.make()
    directory = pathlib.Path(directory).expanduser().resolve()
    python = directory / 'bin' / 'python'
    with open(directory.parent / f'.{directory.name}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = f'{REQUIREMENTS.read_text()}\n{theirs}\n'
        mark = directory / MARK
        if not mark.exists() or mark.read_text() != wanted:
            _fill(directory, python, theirs)
            mark.write_text(wanted)
        _link(directory, theirs)
    return python


def _fill(directory, python, theirs):
    kept = directory / 'results'
    aside = directory.parent / f'{directory.name}-results'
    if kept.exists():
        kept.rename(aside)
    venv.create(directory, clear=True, symlinks=True)
    if aside.exists():
        aside.rename(kept)
    (_packages(python) / 'peers.pth').write_text(f'{_packages(theirs)}\n')
    arguments = ['install', '--quiet', '--no-deps', '--requirement',
                 REQUIREMENTS]
    by_uv = subprocess.run(
        [sys.executable, '-m', 'uv', '--no-config', 'pip', *arguments,
         '--python', python], capture_output=True)
    if by_uv.returncode:
        subprocess.run(
            [sys.executable, '-m', 'pip', '--python', python, *arguments],
            check=True, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)


def paths(directory=DEFAULT):
    """Return what is to come first where modules are looked for."""
    directory = pathlib.Path(directory).expanduser().resolve()
    return [str(each) for each in (
        directory / 'nova', directory / 'metadata', ROOT,
        ROOT / 'integrations' / 'nova')]


def _link(directory, theirs):
    """Make what Nova's tests, and this project's plug-ins, are found by.

    Nova's tests look for files beside the package, which its wheel puts
    elsewhere.
    """
    beside = directory / 'nova'
    beside.mkdir(exist_ok=True)
    for name, target in (('nova', _packages(theirs) / 'nova'),
                         ('etc', pathlib.Path(theirs).parents[1] / 'etc')):
        link = beside / name
        if not link.exists():
            link.symlink_to(target)
    said = configparser.ConfigParser(interpolation=None)
    said.optionxform = str
    said.read(ROOT / 'setup.cfg')
    metadata = directory / 'metadata' / 'cellsched-0.dist-info'
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / 'METADATA').write_text(_METADATA)
    (metadata / 'entry_points.txt').write_text(''.join(
        f'[{group}]\n{points.strip()}\n\n'
        for group, points in said['entry_points'].items()))


def _packages(python):
    version = f'python{sys.version_info[0]}.{sys.version_info[1]}'
    return (pathlib.Path(python).parents[1] / 'lib' / version
            / 'site-packages')


if __name__ == '__main__':
    print(make())
