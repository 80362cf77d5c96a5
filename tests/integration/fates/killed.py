# SPDX-License-Identifier: Apache-2.0
"""A deployment to be hurt, and what must have become of its servers."""

from collections.abc import Callable
import unittest

from tests.integration import base
from tests.integration.fates import world
from tests.integration import processes
from tests.integration import servers

installed = base.installed

#: The deployments of the module that runs, by the function that made them.
_worlds: dict[Callable[..., world.World], world.World] = {}


class Killed(base.TestCase):
    """Kills services of one deployment, which other ones replace.

    The classes of a module that make the same deployment share it.
    """

    world: world.World

    #: Fixtures of the deployment end with the module.
    addClassCleanup = unittest.addModuleCleanup

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        make = cls.make_world.__func__
        if make not in _worlds:
            cls.addClassCleanup(_worlds.clear)
            _worlds[make] = cls.of_class(cls.make_world())
        cls.world = _worlds[make]

    @classmethod
    def make_world(cls) -> world.World:
        return world.World(
            cls.part_of_class(servers.RabbitMQ),
            cls.part_of_class(servers.PostgreSQL))

    def create(self, name: str, flavor: str = 'small', count: int = 1):
        uuids = self.world.api.servers.create(
            world.USER, name, flavor, min_count=count)
        self.addCleanup(self.discard, uuids)
        return uuids

    def discard(self, uuids) -> None:
        """Leave nothing to the next test, if this one has failed."""
        for uuid in uuids:
            self.world.delete(uuid)

    def start(self, *args, **options) -> world.Child:
        child = self.world.start(*args, **options)
        self.addCleanup(child.kill)
        child.wait('started')
        return child

    def assertEnds(self, uuid: str, *statuses: str | None) -> None:
        """It ends in one of these, in one place, and holds what it should."""
        def ended():
            status = self.world.status(uuid)
            # What is given back is given back last.
            return (status,) if status in statuses and (
                status == 'ACTIVE' or not self.world.held(uuid)) else None

        try:
            [status] = processes.wait_until(
                ended, f'{uuid} to be one of {statuses}')
        except TimeoutError as exc:
            raise TimeoutError(f'{exc}: {self.world.describe(uuid)}') from exc
        rows = self.world.rows(uuid)
        self.assertFalse(self.world.requested(uuid))
        if status is None:
            self.assertEqual({}, rows)
        else:
            self.assertEqual([self.world.mapped(uuid)], [*rows])
        self.assertEqual(
            status == 'ACTIVE', bool(self.world.held(uuid)), status)

    def remove(self, *uuids: str) -> None:
        """Delete servers, and wait until nothing of them is left."""
        for uuid in uuids:
            self.world.delete(uuid)
        for uuid in uuids:
            self.assertEnds(uuid, None)
