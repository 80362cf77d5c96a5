# SPDX-License-Identifier: Apache-2.0
"""Create the environment for Nova's own functional tests.

It contains the packages of the tests, and uses the packages in the environment
of the peers. The tests find this checkout before both.
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

#: Written last, with the installed requirements.
MARK = 'cellsched-requirements.txt'

#: Package metadata, to find the plug-ins of this checkout.
_METADATA = 'Metadata-Version: 2.1\nName: cellsched\nVersion: 0\n'


def make(directory=DEFAULT):
    """Return the python of the environment, which is created if necessary.

    A lock prevents that several processes create it at the same time.

    :raises subprocess.CalledProcessError: the creation failed
    """
    peer_python = peers.make()
    directory = pathlib.Path(directory).expanduser().resolve()
    python = directory / 'bin' / 'python'
    with open(directory.parent / f'.{directory.name}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = f'{REQUIREMENTS.read_text()}\n{peer_python}\n'
        mark = directory / MARK
        if not mark.exists() or mark.read_text() != content:
            _fill(directory, python, peer_python)
            mark.write_text(content)
        _link(directory, peer_python)
    return python


def _fill(directory, python, peer_python):
    kept = directory / 'results'
    aside = directory.parent / f'{directory.name}-results'
    if kept.exists():
        kept.rename(aside)
    venv.create(directory, clear=True, symlinks=True)
    if aside.exists():
        aside.rename(kept)
    (_packages(python) / 'peers.pth').write_text(f'{_packages(peer_python)}\n')
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
    """Return the directories that must come first in PYTHONPATH."""
    directory = pathlib.Path(directory).expanduser().resolve()
    return [str(each) for each in (
        directory / 'nova', directory / 'metadata', ROOT,
        ROOT / 'integrations' / 'nova')]


def _link(directory, peer_python):
    """Link the files that Nova's tests read, and write the metadata.

    Nova's tests read files beside the package, but the wheel installs them in
    another directory.
    """
    beside = directory / 'nova'
    beside.mkdir(exist_ok=True)
    for name, target in (('nova', _packages(peer_python) / 'nova'),
                         ('etc', pathlib.Path(
                             peer_python).parents[1] / 'etc')):
        link = beside / name
        if not link.exists():
            link.symlink_to(target)
    setup = configparser.ConfigParser(interpolation=None)
    setup.optionxform = str
    setup.read(ROOT / 'setup.cfg')
    metadata = directory / 'metadata' / 'cellsched-0.dist-info'
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / 'METADATA').write_text(_METADATA)
    (metadata / 'entry_points.txt').write_text(''.join(
        f'[{group}]\n{points.strip()}\n\n'
        for group, points in setup['entry_points'].items()))


def _packages(python):
    version = f'python{sys.version_info[0]}.{sys.version_info[1]}'
    return (pathlib.Path(python).parents[1] / 'lib' / version
            / 'site-packages')


if __name__ == '__main__':
    print(make())
