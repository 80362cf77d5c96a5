# SPDX-License-Identifier: Apache-2.0
"""The base of the stories: a deployment on a topology, and its faults."""

from collections.abc import Callable
from collections.abc import Mapping
import json
import os
import re
import statistics
from typing import Any
from typing import ClassVar

from cellsched.conf import loader
from cellsched import exception
from cellsched.wiring import services
from tests.integration import base
from tests.integration import deployment
from tests.integration import processes
from tests.integration import servers
from tests.integration.topologies import example
from tests.integration.topologies import load

#: The file to which figures are appended, if it is set; a line for each fault.
VARIABLE = 'CELLSCHED_TOPOLOGY_FIGURES'

#: The hosts: enough for all servers of a class.
CELLS = {f'cell{cell}': {f'cell{cell}-host': {
    'vcpus': 10_000, 'memory_mb': 2 ** 26, 'local_gb': 10 ** 6}}
    for cell in (1, 2)}

#: Servers of a fault, and the seconds in which they are requested.
SERVERS, SECONDS = 60, 15.0

#: Rounds of a comparison of claims a second, and the seconds of each.
ROUNDS, ROUND_S = 3, 3.0


class Place:
    """Databases or virtual hosts that have the URL of the page.

    :param url: the URL on the page, which ends with a name
    :param create: creates what a URL names, if the page has not
    """

    def __init__(
        self, url: str, create: Callable[[str], object] = lambda name: None,
    ) -> None:
        self._url = url
        self._create = create

    def url(self, name: str) -> str:
        """Return the URL of a part, which is created if it is not there."""
        name = f'cellsched_{name}'
        self._create(name)
        return re.sub(r'/cellsched\w*(?=$|\?)', f'/{name}', self._url)


class Deployment(deployment.Deployment):
    """A deployment with options of the page in all files."""

    def __init__(
        self, broker: Any, database: Any,
        options: Mapping[str, Mapping[str, str]],
    ) -> None:
        super().__init__(broker, database, CELLS, workers=1, controls=2)
        self._options = {
            group: {name: value for name, value in own.items()
                    if name not in ('connection', 'transport_url')}
            for group, own in options.items()}

    def _write(
        self, name: str, groups: Mapping[str, Mapping[str, Any]]
    ) -> None:
        options = {
            group: {**groups.get(group, {}), **self._options.get(group, {})}
            for group in {**groups, **self._options}}
        rabbit = options.get('oslo_messaging_rabbit', {})
        if 'use_queue_manager' in rabbit:
            # Names of queues have the machine, and each file stands for one.
            rabbit['hostname'] = name
        super()._write(name, options)

    def audit(self, *args: str) -> tuple[int, str] | None:
        """Return the exit code and the output of an audit, if it could run."""
        ended = self._commands.end_of(
            ['cellsched-manage', *self._files(['api']), 'audit', *args],
            self.directory)
        return None if ended.code == 3 else (
            ended.code, ended.output)


class Story(base.TestCase):
    """A deployment whose topology is that of a section of the page."""

    #: The heading of the section.
    section: ClassVar[str]
    #: The section with the files that this one does not repeat.
    further: ClassVar[tuple[str, ...]] = ()
    #: What differs from the section, for the report.
    variant: ClassVar[str] = ''
    #: The kinds of servers that are used.
    kinds: ClassVar[tuple[type, ...]]

    page: example.Example
    deployment: Deployment

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.page = cls.of_class(
            example.Example(cls.section, *cls.further))
        cls.options = cls.page.options('cellsched.conf')
        broker, database = cls.start()
        cls.deployment = cls.of_class(
            Deployment(broker, database, cls.options))
        conf = loader.load(files=[
            str(cls.deployment.directory / 'api.conf')], dirs=[])
        cls.parts = services.Components(conf)
        cls.api = services.api(conf, cls.parts)
        cls.addClassCleanup(cls.api.close)

    @classmethod
    def start(cls) -> tuple[Any, Any]:
        """Start the topology; return its brokers and its databases."""
        raise NotImplementedError

    @classmethod
    def plain_broker(cls) -> servers.Part:
        """Return a single broker."""
        return cls.part_of_class(servers.RabbitMQ)

    @classmethod
    def plain_database(cls) -> servers.Part:
        """Return a single database server."""
        return cls.part_of_class(servers.PostgreSQL)

    def assertEndures(
        self, fault: Callable[[], object],
        mend: Callable[[], object] = lambda: None,
    ) -> None:
        """Check builds and claims that go on during a fault.

        Each server is ACTIVE at the end, whatever its caller was answered.
        Nothing that was confirmed is lost, and nothing is over its capacity.

        :param mend: ends the fault, when all builds have ended
        """
        builds = load.Builds(self.api, f'{self._testMethodName}-')
        self.addCleanup(builds.delete)
        with load.Claims(self.parts.claims) as claims:
            try:
                builds.run(SERVERS, SECONDS, fault)
            finally:
                mend()
        figures = {**builds.figures(), **claims.figures(), **claims.judge()}
        claims.remove()
        self.record(figures)
        for name in 'lost', 'came back', 'over', 'miscounted':
            self.assertEqual(0, figures[name], name)
        for exc in [*builds.errors, *claims.errors]:
            self.assertIsInstance(exc, exception.CellschedException)
        self.assertEqual({'ACTIVE'},
                         {each.status for each in builds.servers()})
        self.audit()
        builds.delete()
        self.audit()

    def audit(self) -> None:
        """Check that the audit finds nothing, once it can run."""
        code, output = processes.wait_until(
            self.deployment.audit, 'the audit to run')
        self.assertEqual(0, code, output)

    def record(self, figures: Mapping[str, Any]) -> None:
        """Append figures to the report of ``tools/topologies.sh``."""
        path = os.environ.get(VARIABLE)
        if path:
            with open(path, 'a') as report:
                report.write(json.dumps({
                    'topology': self.section + self.variant,
                    'story': self._testMethodName.removeprefix('test_'),
                    **figures}) + '\n')

    def compare(self, url: str, store: str = 'sql') -> None:
        """Record the claims a second as a ratio to a single server.

        :param url: of the claims in the single server
        """
        path = self.directory / 'single.conf'
        path.write_text(f'[claims]\nstore = {store}\nconnection = {url}\n')
        processes.run(['cellsched-manage', f'--config-file={path}',
                       'claims_db', 'sync'], self.directory)
        single = services.Components(loader.load(files=[str(path)], dirs=[]))
        self.addCleanup(single.close)
        rates: dict[str, list[float]] = {'cluster': [], 'single': []}
        for _ in range(ROUNDS):
            for name, parts in (('cluster', self.parts), ('single', single)):
                rates[name].append(load.rate(parts.claims, ROUND_S))
        cluster, alone = map(statistics.median, rates.values())
        self.record({'claims/s': round(cluster), 'single claims/s':
                     round(alone), 'ratio': round(cluster / alone, 2)})
        self.assertGreater(cluster, 0)
