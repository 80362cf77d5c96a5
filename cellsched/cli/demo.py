# SPDX-License-Identifier: Apache-2.0
"""The demonstration: a scenario played in a deployment of its own."""

import argparse
from collections.abc import Iterator
import contextlib
import pathlib
import shutil
import sys
import tempfile
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import terminal
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli.app import Shell
    from cellsched.cli.scenario_player import Play
    from cellsched.standalone.scenario import Scenario

#: Where the scenarios of the project lie, in a checkout and installed.
_PLACES = (pathlib.Path(__file__).parents[2], pathlib.Path(sys.prefix))
_SCENARIOS = pathlib.Path('etc/cellsched/scenarios')
_DEFAULT, _CLUSTER = 'three-cells.yaml', 'cluster.yaml'

#: Exit code when a request ended otherwise than its scenario expects.
UNEXPECTED = 2


class Demo(base.Lister):
    """Play a scenario in cells of its own, all in this process.

    Starts a scheduler, conductors and compute agents as they run in
    production, on SQLite files and an in-process transport; creates the
    servers of the scenario, and shows their final states. Draws the use of
    each cell, and the NUMA cells of the first hosts that have some. Ends with
    2 if a state is not the expected one.

    With ``--cluster`` it starts nothing: it creates the servers in the
    deployment of the configuration files, and deletes them at the end.

    Examples::

        cellsched demo --scenario my-cells.yaml --keep /tmp/demo -f json
        cellsched demo --scenario etc/cellsched/scenarios/numa-cells.yaml
        cellsched --config-file /etc/cellsched/api.conf demo --cluster
    """

    app: 'Shell'
    columns = ('UUID', 'Name', 'Status', 'Cell', 'Host', 'Attempts', 'Reason')
    server_ids = ('UUID',)

    arguments = (
        base.argument(
            '--scenario', type=pathlib.Path, metavar='FILE',
            help='the scenario to play; by default one of three cells that '
                 'shows the possible results of a build'),
        base.argument(
            '--cluster', action='store_true',
            help='play the scenario in the deployment of the configuration '
                 'files; its cells and hosts are used as they are'),
        base.argument(
            '--keep', type=pathlib.Path, metavar='DIR',
            help='leave databases and configuration in this directory, which '
                 'must be new or empty'))

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._unexpected: list[str] = []
        self._bars: list[terminal.Bar] = []
        self._pictures: list[str] = []
        code = super().run(parsed_args)
        # Flush standard output first.
        self.app.stdout.flush()
        terminal.draw(self._bars, self.app.stderr)
        for picture in self._pictures:
            print(picture, file=self.app.stderr)
        for line in self._unexpected:
            self.app.warn(line)
        return code

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        # The help of all commands imports this module, and would import all
        # services.
        from cellsched.cli import scenario_player
        from cellsched.standalone.scenario import load

        if parsed_args.cluster:
            if parsed_args.keep:
                raise exception.InvalidField(
                    where='demo', field='--keep',
                    problem='a cluster keeps its own files',
                    expected='--keep without --cluster')
            scenario = load(
                parsed_args.scenario or _find(_CLUSTER), deploys=False)
            play = scenario_player.Play(
                self.app.sending_api, scenario, self.app.clock)
            try:
                self._run(play, scenario)
            finally:
                play.delete_servers()
            return self.columns, self._rows(play)
        scenario = load(parsed_args.scenario or _find(_DEFAULT))
        with (_directory(parsed_args.keep) as directory,
              scenario_player.started(
                  directory, scenario, self.app) as world):
            play = scenario_player.Play(world.api, scenario, self.app.clock)
            self._run(play, scenario)
            self._pictures = scenario_player.pictures(
                directory, scenario, self.app)
        return self.columns, self._rows(play)

    def _run(self, play: 'Play', scenario: 'Scenario') -> None:
        with terminal.progress(
                'Playing', sum(each.count for each in scenario.requests),
                self.app.stderr, self.app.clock) as advance:
            play.run(advance)
        self._bars = play.usage_bars()

    def _rows(self, play: 'Play') -> list[tuple[Any, ...]]:
        self._unexpected = play.unexpected
        if self._unexpected:
            self.exit_code = UNEXPECTED
        return [
            (found.uuid, found.name, found.status, found.cell or '',
             found.host or '', found.attempts, found.reason)
            for found in play.servers]


def _find(name: str) -> pathlib.Path:
    """Return the path of a scenario of the project."""
    for place in _PLACES:
        if (place / _SCENARIOS / name).exists():
            return place / _SCENARIOS / name
    return _SCENARIOS / name


@contextlib.contextmanager
def _directory(keep: pathlib.Path | None) -> Iterator[pathlib.Path]:
    """Give a directory to work in, which goes afterwards unless it is kept.

    Where something goes wrong there is nothing to keep.
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix='cellsched-') as path:
            yield pathlib.Path(path)
        return
    new = not keep.exists()
    _check_empty(keep)
    try:
        yield keep
    except BaseException:
        for made in keep.iterdir():
            shutil.rmtree(made) if made.is_dir() else made.unlink()
        if new:
            keep.rmdir()
        raise


def _check_empty(keep: pathlib.Path) -> None:
    """Make a directory if it is not there; refuse one that is in use."""
    try:
        keep.mkdir(parents=True, exist_ok=True)
        used = any(keep.iterdir())
    except OSError as exc:
        raise exception.InvalidField(
            where='demo', field='--keep',
            problem=f'{keep} cannot be created: {exc.strerror}',
            expected='a new or empty directory') from None
    if used:
        raise exception.InvalidField(
            where='demo', field='--keep',
            problem=f'{keep} is not empty',
            expected='a new or empty directory')
