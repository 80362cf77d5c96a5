# SPDX-License-Identifier: Apache-2.0
"""``cellsched-nova``: the product's commands for a deployment of Nova."""

import functools
import os
from typing import Any
from typing import NoReturn

from cellsched.interrupts import ended_by_interrupts

with ended_by_interrupts():
    from nova import monkey_patch

    from cellsched.cli import app
    from cellsched.cli import decision
    from cellsched.cli import host


class Plan(decision.Plan):
    """Decide on hosts for servers of Nova, and claim nothing.

    The command uses the filters and weighers of nova.conf, on the hosts as
    they are now. A plain request is decided on columns, and all other requests
    on Placement's allocation candidates; the output names the way. The flavor
    comes from Nova's API database. NUMA topologies and PCI devices are
    computed as in Nova's API. Ports of networks are not known.

    With ``--snapshot``, the command decides on the columns of a file from
    ``cellsched-nova host export``.

    Ends with 2 if the servers fit on no host, and shows the reasons.

    Examples::

        cellsched-nova plan --flavor m1.large --count 10
        cellsched-nova plan --vcpus 4 --ram 8192 --ignore-host n1 -f json
    """


class ShowCapacity(decision.ShowCapacity):
    """Show how many more servers of one kind fit in each cell of Nova.

    The filters of nova.conf select the hosts, and the number of servers that
    fit on each of them is counted. The filters do not run again for further
    servers. Servers with resources of child or sharing providers, NUMA
    topologies or PCI devices cannot be counted.

    ``Unusable Percent`` is the part of the free vCPUs and memory that the
    flavors in ``[filter_scheduler] fragmentation_flavors`` cannot use.

    On a terminal, or with ``--chart``, a bar chart is drawn above the table.
    ``--plot`` draws a chart to a file, and requires ``cellsched[plot]``. Ends
    with 2 if no server fits.

    Examples::

        cellsched-nova capacity --flavor m1.large
        cellsched-nova capacity --vcpus 4 --ram 8192 --plot room.svg
    """


class Explain(decision.Explain):
    """Show how cellsched-nova-scheduler decided on a server.

    Shows the way of the request, how many hosts each filter left, and the
    score of each weigher for the selected host and the second best. If no
    host was found, shows how many hosts each filter rejected, the smallest
    shortage, and the names of some rejected hosts.

    Decisions are kept for ``[cellsched] decision_retention`` seconds, in the
    database that ``[cellsched] records_connection`` names.

    Examples::

        cellsched-nova explain 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
        cellsched-nova explain req-0d1fb7f1-2d9e-4c62-8f3b-0a5c0f6a1c11 --all
    """


class Replay(decision.Replay):
    """Decide recorded requests of Nova again, and show what would change.

    The workers of cellsched-nova-scheduler record their decisions to the files
    that ``[cellsched] record`` names. The command makes them again on the
    recorded hosts, with the filters and weighers of nova.conf. Options of the
    command change these one by one. Nothing is claimed, and no server of Nova
    is needed. Requests that were decided on Placement's allocation candidates
    are skipped.

    A decision sees the servers that earlier ones placed on other hosts than
    recorded, unless ``--independent`` is given.

    Ends with 1 if any server changes and ``--fail-on-change`` is given.

    Examples::

        cellsched-nova replay /var/lib/nova/decisions
        cellsched-nova --config-file new.conf replay decisions -f csv
        cellsched-nova replay decisions --weight-multiplier RAMWeigher=-1
    """


class ExportHosts(host.ExportHosts):
    """Write the hosts of Nova that a scheduler knows to a file.

    ``cellsched-nova plan --snapshot`` makes decisions on the file, on another
    machine or at another time. The file is JSON, has no credentials, and may
    be edited. If a cell does not answer, a warning names it and its hosts are
    missing.

    Examples::

        cellsched-nova host export hosts.json
        cellsched-nova host export - | gzip > hosts.json.gz
    """


class NovaShell(app.Shell):
    """Plans, capacity and decisions of a deployment of Nova.

    Reads nova.conf, Nova's databases and Placement, and changes nothing.
    """

    NAME = 'cellsched-nova'
    namespace = 'cellsched_nova.cli'

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for name, command in (
                ('capacity', ShowCapacity), ('explain', Explain),
                ('host export', ExportHosts), ('plan', Plan),
                ('replay', Replay)):
            self.command_manager.add_command(name, command)

    @functools.cached_property
    def deployment(self) -> Any:
        """The deployment of Nova that the configuration names."""
        # An import of Nova would slow down the output of --help.
        from cellsched_nova import deployment

        return deployment.NovaDeployment(self.config_options)

    @functools.cached_property
    def conf(self) -> Any:
        """The product's options, with the values of Nova's configuration."""
        return self.deployment.conf


def main() -> NoReturn:
    """Run one command for operators of Nova."""
    # Without this, Nova reads its configuration during the patch and fails
    # with its own errors.
    os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'
    # Nova must patch the threads before any other module of it is imported.
    with ended_by_interrupts():
        monkey_patch.patch()
    app.main(NovaShell)


if __name__ == '__main__':
    main()
