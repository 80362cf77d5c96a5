# SPDX-License-Identifier: Apache-2.0
"""A project with servers in cells, and a driver with its quotas."""

from oslo_config import cfg

from cellsched.conf import quota as quota_conf
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import quotas
from cellsched import objects
from cellsched.quota import base as quota
from cellsched.quota import db
from cellsched.testing import clock
from tests.unit.db import samples
from tests.unit import restricted

PROJECT, USER = 'project', 'user'


class Project:
    """Changes of a project's servers, each in a transaction."""

    def __init__(self, database):
        self.database = database
        self.cells = [
            samples.map_cell(database, samples.cell(name)).id
            for name in ('east', 'west')]
        self.cell0 = samples.map_cell(database, samples.cell(
            'cell0', uuid=objects.CELL0_UUID)).id

    def write(self, query, *args, **kwargs):
        with self.database.writer() as connection:
            return query(connection, *args, **kwargs)

    def limit(self, user_id=None, project_id=PROJECT, **limits):
        self.write(quotas.set_limits, project_id, user_id, limits,
                   samples.NOW)

    def accept(self, count=1, vcpus=1, memory_mb=512, decided=True,
               user_id=USER, project_id=PROJECT):
        """Accept servers; by default they have a cell."""
        uuids = samples.uuids(count)
        flavor = samples.flavor(vcpus=vcpus, memory_mb=memory_mb)
        with self.database.writer() as connection:
            build_requests.create(connection, [
                objects.BuildRequest(
                    instance_uuid=uuid, project_id=project_id,
                    instance=samples.instance(uuid)) for uuid in uuids],
                samples.NOW)
            instance_mappings.create(
                connection, uuids, project_id, user_id, samples.NOW, flavor)
            if decided:
                for uuid, cell in zip(uuids, self.cells * count):
                    instance_mappings.decide(
                        connection, [uuid], cell, samples.NOW)
        return [quota.QuotaBuild(uuid, vcpus, memory_mb) for uuid in uuids]

    def admit(self, driver, builds, min_count=1, user_id=USER,
              project_id=PROJECT):
        """Admit builds as a conductor does; return the refused ones."""
        with self.database.writer() as connection:
            refused = driver.admit(
                connection, project_id, user_id, builds, min_count)
            build_requests.delete(connection, [
                build.uuid for build in builds if build.uuid not in refused])
        return refused

    def bury(self, builds):
        uuids = [build.uuid for build in builds]
        for cell in self.cells:
            self.write(instance_mappings.withdraw, uuids, cell, samples.NOW)
        self.write(instance_mappings.decide, uuids, self.cell0, samples.NOW)
        self.write(build_requests.delete, uuids)

    def delete(self, builds):
        uuids = [build.uuid for build in builds]
        with self.database.writer() as connection:
            build_requests.delete(connection, uuids)
            instance_mappings.mark_deleted(connection, uuids, samples.NOW)

    def usage(self, **which):
        """Return the numbers of servers and cores, and the memory in use."""
        with self.database.reader() as connection:
            return instance_mappings.usage(
                connection, PROJECT, **which)[:3]


def options(**values):
    """Return a configuration of quotas, by default without limits."""
    conf = cfg.ConfigOpts()
    conf.register_opts(quota_conf.OPTS, group='quota')
    conf([], default_config_files=[], default_config_dirs=[])
    values = {'instances': -1, 'cores': -1, 'ram': -1, **values}
    for name, value in values.items():
        conf.set_override(name, value, 'quota')
    return conf


def driver(**values):
    """Return the driver of the API database, by default without limits."""
    return db.DbQuotaDriver(options(**values), restricted.Restricted(
        quota.QuotaClock, clock.FakeClock()))
