# SPDX-License-Identifier: Apache-2.0
"""Machines that keep their guests while their agents and names change."""

import json

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.virt import fake
from cellsched.wiring import services
from tests.functional import base
from tests.functional import moving

COMPUTE = 'nova-compute'


class TestCase(moving.TestCase):

    def begin(self, cells, **options):
        """Start a deployment in which agents look for guests each second."""
        defaults = {'resume_interval': 1, 'report_interval': 1,
                    **options.pop('DEFAULT', {})}
        self.start({cell: self.hosts(*hosts)
                    for cell, hosts in cells.items()},
                   DEFAULT=defaults, **options)

    def stop_agent(self, host, down=True):
        """Stop an agent; return the driver of the machine, with its guests.

        :param down: whether the host counts as down at once
        """
        agent = self.world.agents.pop(host)
        agent.stop()
        if down:
            self.world.api.services.set(
                base.ADMIN, host, COMPUTE, forced_down=True)
        return agent.parts.driver

    def conf_of(self, cell, machine, **options):
        """Return the configuration of an agent, with other options."""
        conf = self.world.conf(cell, f'hosts/{machine}')
        for name, value in options.items():
            conf.set_override(
                name, value, 'compute' if name == 'adopt_guests' else None)
        return conf

    def start_agent(self, driver, conf):
        """Start an agent on a machine; raise what its start raises."""
        parts = services.Components(conf)
        # The name of the node is that of the host.
        driver.nodes = fake.FakeDriver(conf, base.CLOCK).nodes
        parts.driver = driver
        try:
            agent = services.compute(conf, parts)
        except BaseException:
            parts.close()
            raise
        agent.start()
        self.addCleanup(agent.stop)
        self.world.agents[conf.host] = agent
        return agent

    def restart(self, driver, cell, host, name=None, **options):
        """Start the agent of a machine again, perhaps under another name."""
        return self.start_agent(driver, self.conf_of(
            cell, host, host=name or host, **options))

    def other_directory(self):
        """Return the state directory of another machine."""
        return str(self.temporary_directory())

    def reported(self, host, cell='cell1'):
        """Return the guests and the servers that a host has reported."""
        table = models.services
        [[text]] = self.query(cell, sa.select(table.c.guests).where(
            table.c.host == host, table.c.deleted == 0,
            table.c.binary == COMPUTE))
        value = json.loads(text or '{}')
        return {uuid: (fate, name) for uuid, fate, name
                in value.get('unexplained', ())}, value.get('missing', [])

    def awaits_report(self, host, unexplained, missing=(), cell='cell1'):
        """Wait until a host reports exactly these."""
        self.soon(lambda: self.assertEqual(
            (unexplained, list(missing)), self.reported(host, cell)))

    def audited(self):
        """Return the kinds of an audit's findings, and what they are of."""
        auditor = services.auditor(self.world.api.parts)
        return {(each.kind, each.of)
                for each in auditor.run(settle_s=0).remaining}

    def report(self, host):
        """Let an agent report now."""
        for function, _, _ in self.world.agents[host].periodic:
            if function.__name__ == 'report':
                function()

    def provider_of(self, host, cell='cell1', node=None):
        table = models.compute_nodes
        return [row.uuid for row in self.query(cell, sa.select(
            table.c.uuid).where(
                table.c.host == host, table.c.deleted == 0,
                table.c.hypervisor_hostname == (node or host)))]
