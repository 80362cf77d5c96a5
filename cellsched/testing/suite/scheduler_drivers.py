# SPDX-License-Identifier: Apache-2.0
"""Tests that every scheduler driver must pass.

::

    class TestMyDriver(scheduler_drivers.SchedulerDriverSuite,
                       unittest.TestCase):

        plugin = my_driver.MyDriver

The hosts are those of a deployment in this process, with SQLite files.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from concurrent import futures
import json
import pathlib
import tempfile
from typing import Any
from typing import ClassVar
import uuid

from cellsched.claims import base as claims_base
from cellsched.conf import enabled
from cellsched import context
from cellsched import exception
from cellsched import objects
from cellsched import plugins
from cellsched.scheduler.drivers import base
from cellsched.standalone import deployment
from cellsched.testing import builders
from cellsched.testing.suite.base import PluginSuite
from cellsched.wiring.components import Components

USER = context.member('user', 'project')

#: The hosts by cell, and the CPUs of each.
HOSTS = {'cell1': ('a1', 'a2'), 'cell2': ('b1', 'b2')}
VCPUS = 2
_CPUS = VCPUS * sum(map(len, HOSTS.values()))

Selections = list[list[objects.Selection]]


class SchedulerDriverSuite(PluginSuite):
    """Tests of a scheduler driver.

    A request is for servers of one CPU. A driver with other needs should
    override :meth:`make_request`.
    """

    #: Options of the deployment by group.
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    #: The deployment.
    world: ClassVar[deployment.Deployment]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.world = deployment.Deployment(
            pathlib.Path(directory.name) / 'deployment', [
                deployment.DeployedCell(cell, [
                    deployment.DeployedHost(name, vcpus=VCPUS)
                    for name in names]) for cell, names in HOSTS.items()],
            # Each request reads the hosts, so no thread has to.
            options={**cls.options, 'scheduler': {
                'refresh_interval': 0, **cls.options.get('scheduler', {})}})
        cls.addClassCleanup(cls.world.stop)
        cls.world.start()

    def setUp(self) -> None:
        super().setUp()
        conf = self.world.conf('api')
        enabled.register_plugin(conf, self.plugin, self.plugin.__name__)
        self.parts = Components(conf)
        self.addCleanup(self.parts.close)
        self.store = self.parts.claims
        self._servers: list[str] = []
        self.addCleanup(lambda: self.store.release(self._servers))
        self.driver: base.SchedulerDriver = self.plugin(conf, self.parts)

    def make_servers(self, count: int = 1) -> list[str]:
        """Return uuids of new servers, whose claims end with the test."""
        made = [str(uuid.uuid4()) for _ in range(count)]
        self._servers += made
        return made

    def make_request(self, servers: list[str]) -> objects.RequestSpec:
        """Return a request that fits on each host."""
        return builders.request(
            instance_uuid=servers[0], num_instances=len(servers))

    def select(
        self, servers: list[str], alternates: int = 0, **options: Any
    ) -> Selections:
        return self.driver.select_destinations(
            USER, self.make_request(servers), servers, alternates, **options)

    def held(
        self, servers: Iterable[str]
    ) -> dict[str, list[claims_base.Claim]]:
        return dict(self.store.claims_of(servers))

    def assertIsClaimed(
        self, servers: list[str], selections: Selections
    ) -> None:
        """Make sure that each server holds what its selection says."""
        self.assertEqual(len(servers), len(selections))
        for server, (first, *_) in zip(servers, selections):
            self.assertTrue(claims_base.is_held(
                claims_base.of_selection(server, first),
                self.held([server])), f'{server} on {first.service_host}')

    def test_entry_point_names_the_driver(self) -> None:
        self.check_entry_point(plugins.DRIVERS, base.SchedulerDriver)

    def test_selected_host_is_claimed(self) -> None:
        servers = self.make_servers()

        selections = self.select(servers)

        [[first]] = selections
        cells = {cell.uuid: cell.name for cell in self.parts.cells.real()}
        self.assertIn(first.service_host, HOSTS[cells[first.cell_uuid]])
        self.assertIsClaimed(servers, selections)

    def test_alternates_are_other_hosts_of_the_cell(self) -> None:
        [server] = self.make_servers()

        [[first, *alternates]] = self.select([server], alternates=9)

        for each in alternates:
            self.assertEqual(first.cell_uuid, each.cell_uuid)
        hosts = [each.service_host for each in (first, *alternates)]
        self.assertEqual(len(set(hosts)), len(hosts))
        # An agent or a conductor claims an alternate as it is.
        [other] = self.make_servers()
        for each in alternates:
            self.store.claim(claims_base.of_selection(other, each))
            self.store.release([other])

    def test_number_of_alternates_respects_the_request(self) -> None:
        for [*places] in self.select(self.make_servers(2), alternates=1):
            self.assertLessEqual(len(places), 2)

    def test_repeated_call_returns_the_same_hosts(self) -> None:
        servers = self.make_servers(3)
        before = self.select(servers)

        again = self.select(servers)

        self.assertEqual([first.service_host for first, *_ in before],
                         [first.service_host for first, *_ in again])
        self.assertIsClaimed(servers, before)

    def test_servers_of_a_request_have_a_host_each_or_none(self) -> None:
        servers = self.make_servers(_CPUS)
        self.assertIsClaimed(servers, self.select(servers))
        self.store.release(servers)
        more = self.make_servers(_CPUS + 1)

        with self.assertRaises(exception.NoValidHost):
            self.select(more)

        self.assertEqual({}, self.held(more))

    def test_full_host_is_not_selected(self) -> None:
        servers = self.make_servers(_CPUS - 1)
        used = [first.service_host for first, *_ in self.select(servers)]
        [rest] = [name for names in HOSTS.values() for name in names
                  if used.count(name) < VCPUS]

        [[first]] = self.select(self.make_servers())

        self.assertEqual(rest, first.service_host)

    def test_host_disabled_by_an_operator_is_not_selected(self) -> None:
        services, admin = self.world.api.services, context.admin()
        first, *names = [name for names in HOSTS.values() for name in names]
        for name in names:
            services.set(admin, name, 'nova-compute', disabled=True)
            self.addCleanup(services.set, admin, name, 'nova-compute',
                            disabled=False)

        [[selection]] = self.select(self.make_servers())

        self.assertEqual(first, selection.service_host)

    def test_concurrent_requests_overcommit_no_host(self) -> None:
        servers = self.make_servers(_CPUS + 4)

        def select(server: str) -> Selections | None:
            try:
                return self.select([server])
            except (exception.ClaimBusy, exception.NoValidHost):
                return None

        with futures.ThreadPoolExecutor(4) as executor:
            found = dict(zip(servers, executor.map(select, servers)))

        for server, selections in found.items():
            if selections is None:
                self.assertEqual({}, self.held([server]))
            else:
                self.assertIsClaimed([server], selections)
        for usage in self.store.usages().usages:
            for name, amount in usage.used.items():
                self.assertLessEqual(amount, usage.capacity[name])

    def test_no_claim_is_made_for_callers_without_claim_management(
        self
    ) -> None:
        servers = self.make_servers()

        self.assertEqual(1, len(self.select(servers, claim=False)))

        self.assertEqual({}, self.held(servers))

    def test_plan_makes_no_claim(self) -> None:
        servers = self.make_servers()
        try:
            places, decision = self.driver.plan(
                USER, self.make_request(servers), servers, 1)
        except exception.ConfigurationInvalid as exc:
            self.skipTest(exc.format_message())

        self.assertEqual(1, len(places))
        self.assertEqual({}, self.held(servers))
        json.dumps(decision.to_dict())

    def test_claim_of_a_server_deleted_from_its_host_is_released(self) -> None:
        servers = self.make_servers()
        [[first]] = self.select(servers)

        self.driver.update_instances(first.service_host, servers, True)
        self.driver.delete_instance(first.service_host, servers[0])

        self.assertEqual({}, self.held(servers))

    def test_update_of_aggregates_is_accepted(self) -> None:
        aggregate = builders.aggregate(1)
        self.driver.update_aggregates([objects.Aggregate(
            id=aggregate.id, uuid=aggregate.uuid, name=aggregate.name,
            hosts=['a1'], metadata={})])
        self.driver.delete_aggregate(aggregate.id)

        self.assertEqual(1, len(self.select(self.make_servers())))

    def test_periodic_functions_run(self) -> None:
        for function, spacing_s in self.driver.periodic():
            function()
            self.assertGreater(spacing_s, 0)

    def test_state_is_for_reports(self) -> None:
        self.select(self.make_servers())

        json.dumps(dict(self.driver.state()))
        self.assertEqual('', self.driver.unready())
