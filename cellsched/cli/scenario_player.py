# SPDX-License-Identifier: Apache-2.0
"""The player of a scenario, in a deployment that it starts.

Only ``cellsched demo`` imports this module: it imports all services.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import itertools
import pathlib
from typing import TYPE_CHECKING

from cellsched.cli import backend
from cellsched.cli import base
from cellsched.cli import host_cells
from cellsched.cli import server_watch
from cellsched.cli import terminal
from cellsched.clock import Clock
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.hardware import units
from cellsched.listing import server
from cellsched.standalone import deployment
from cellsched.standalone.scenario import Request
from cellsched.standalone.scenario import Scenario
from cellsched.wiring.api import API

if TYPE_CHECKING:
    from cellsched.cli.app import Shell

#: Seconds to wait for the fate of one request, and of each of its servers.
_TIMEOUT_S = 60.0
_TIMEOUT_EACH_S = 0.1

#: The most hosts whose NUMA cells are drawn.
_DRAWN_MAX = 4

#: Seconds between the first two queries of the state of servers.
_LOOK_S = 0.02


@contextlib.contextmanager
def started(
    directory: pathlib.Path, scenario: Scenario, app: 'Shell'
) -> Iterator[deployment.Deployment]:
    """Run the cells of a scenario.

    An error in a configuration file is one in the scenario's options.
    """
    hosts = sum(len(cell.hosts) for cell in scenario.cells)
    done = itertools.count(1)
    with terminal.progress(
            'Starting hosts', hosts, app.stderr,
            app.clock) as advance:
        world = deployment.Deployment(
            directory, scenario.cells, scenario.aggregates,
            scenario.options, groups_agents=True,
            started=lambda: advance(next(done)),
            sharing=scenario.sharing)
        try:
            world.start()
        except exception.ConfigurationInvalid as exc:
            raise exception.InvalidField(
                where=str(scenario.path), field='options',
                problem=exc.format_message().rpartition('.conf: ')[2]
            ) from None
    try:
        yield world
    finally:
        world.stop()


def pictures(
    directory: pathlib.Path, scenario: Scenario, app: 'Shell'
) -> list[str]:
    """Return pictures of the first hosts with NUMA cells.

    :param directory: that of the deployment
    """
    if not any('hardware' in host.behaviour for cell in scenario.cells
               for host in cell.hosts):
        return []
    deployed = backend.Backend(
        [f'--config-file={directory / "etc" / "api.conf"}'], base.DECISIONS,
        False, app.clock, app.stderr)
    try:
        return [*itertools.islice(host_cells.pictures(deployed), _DRAWN_MAX)]
    finally:
        deployed.close()


class Play:
    """Runs the requests of a scenario, one by one.

    :param api: the deployment. Flavors that it has are used as they are
    :ivar servers: the final state of each server
    :ivar unexpected: a line for each request with another result
    """

    def __init__(
        self, api: API, scenario: Scenario, clock: Clock,
    ) -> None:
        self._api = api
        self._scenario = scenario
        self._clock = clock
        self._context = RequestContext(
            user_id='demo', project_id='demo', is_admin=True)
        self.servers: list[server.Server] = []
        self.unexpected: list[str] = []

    def run(self, advance: Callable[[int], None]) -> None:
        """Play it; ``advance`` gets the number of servers in a final state.

        :raises cellsched.exception.InvalidField: a request cannot be taken
        """
        for flavor in self._scenario.flavors:
            try:
                self._api.flavors.create(
                    self._context, flavor['name'], flavor['vcpus'],
                    flavor['ram'], flavor.get('disk', 0),
                    flavor.get('ephemeral', 0), flavor.get('swap', 0))
            except exception.FlavorExists:
                continue
            if flavor.get('extra_specs'):
                self._api.flavors.set_extra_specs(
                    self._context, flavor['name'], flavor['extra_specs'])
        for number, request in enumerate(self._scenario.requests):
            try:
                uuids = self._create(request)
            except exception.InvalidField as exc:
                raise exception.InvalidField(
                    where=str(self._scenario.path),
                    field=f'requests[{number}].{exc.field}',
                    **exc.reasons) from None
            before = len(self.servers)
            found = self._play(
                request, uuids, lambda done: advance(before + done))
            self.servers += found
            wrong = _compare(request, found)
            if wrong:
                self.unexpected.append(f'{request.name}: {wrong}')

    def delete_servers(self) -> None:
        """Delete the servers that were created, and wait until they are."""
        uuids = [each.uuid for each in self.servers
                 if each.status != 'DELETED']
        for uuid in uuids:
            self._api.servers.delete(self._context, uuid)
        server_watch.Watch(
            self._api.servers, self._context, uuids, _LOOK_S).wait(
                _is_gone, _TIMEOUT_S, self._clock, lambda gone: None)

    def usage_bars(self) -> list[terminal.Bar]:
        """Return a bar for each resource of cells and sharing providers."""
        totals: dict[tuple[str, str], list[int]] = collections.defaultdict(
            lambda: [0, 0])
        for each in self._api.providers.list(admin()).providers:
            for resource, has in units.plain(each.inventories).items():
                total = totals[each.cell or each.name, resource]
                total[0] += has.used
                total[1] += has.inventory.capacity
        return [terminal.resource_bar(where, resource, used, capacity)
                for (where, resource), (used, capacity)
                in sorted(totals.items())]

    def _create(self, request: Request) -> list[str]:
        return self._api.servers.create(
            self._context, request.name, request.flavor,
            availability_zone=request.availability_zone,
            hints=request.hints, max_count=request.count,
            min_count=request.min_count or request.count)

    def _play(
        self, request: Request, uuids: list[str],
        advance: Callable[[int], None],
    ) -> list[server.Server]:
        watch = server_watch.Watch(
            self._api.servers, self._context, uuids, _LOOK_S)
        settled = (_is_building if request.delete == 'while-building'
                   else _has_fate)
        timeout_s = _TIMEOUT_S + _TIMEOUT_EACH_S * len(uuids)
        watch.wait(settled, timeout_s, self._clock, advance)
        if request.delete:
            for uuid in uuids:
                self._api.servers.delete(self._context, uuid)
            watch.wait(_is_gone, timeout_s, self._clock, lambda gone: None)
        return list(watch.found.values())


def _is_building(found: server.Server) -> bool:
    return found.task_state == 'spawning' or _has_fate(found)


def _is_gone(found: server.Server) -> bool:
    return found.status == 'DELETED'


def _has_fate(found: server.Server) -> bool:
    return found.status in ('ACTIVE', 'ERROR')


def _compare(request: Request, found: list[server.Server]) -> str | None:
    """Return the difference from the expected result, or None."""
    expect = {'status': 'ACTIVE', **request.expect}
    for name in ('status', 'cell', 'host', 'attempts'):
        values = sorted({str(getattr(each, name)) for each in found})
        if name in expect and values != [str(expect[name])]:
            return f'expected {name} {expect[name]}, got {", ".join(values)}'
    cells = {each.cell for each in found}
    if len(cells) < expect.get('cells', 1):
        return f'expected {expect["cells"]} cells, got {len(cells)}'
    reasons = [each.reason for each in found]
    if not all(expect.get('reason', '') in reason for reason in reasons):
        return f'expected the reason {expect["reason"]!r}, got {reasons[0]!r}'
    return None
