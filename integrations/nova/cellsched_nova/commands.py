# SPDX-License-Identifier: Apache-2.0
"""``cellsched-nova``: the product's commands, about a deployment of Nova."""

import functools
import os
from typing import Any
from typing import NoReturn

from nova import monkey_patch

from cellsched.cli import app
from cellsched.cli import capacity
from cellsched.cli import decision
from cellsched.cli import host


class Plan(decision.Plan):
    """Decide where servers of Nova's would go, and take nothing.

    Decides as the scheduler does, by what nova.conf enables, on the hosts as
    they are now: a plain request on columns, another one on Placement's
    allocation candidates. Which way it went is shown. A flavor is read from
    Nova's API database; what it says of NUMA and PCI devices is worked out as
    Nova's API does it, and ports of networks are not known.

    With ``--snapshot`` it decides on the columns of a file that
    ``cellsched-nova host export`` wrote.

    Ends with 2 if they fit nowhere, and shows the reasons.

    Examples::

        cellsched-nova plan --flavor m1.large --count 10
        cellsched-nova plan --vcpus 4 --ram 8192 --ignore-host n1 -f json
    """


class ShowCapacity(capacity.ShowCapacity):
    """Show how many more servers of one kind fit in each cell of Nova's.

    The filters that nova.conf enables say which hosts take one, and these
    are as many as there is room for there. What filters would say of the next
    ones does not count. Servers that take something of child or sharing
    providers, or ask for NUMA or PCI devices, are not counted.

    A bar chart is drawn above the table on a terminal, or with ``--chart``.
    ``--plot`` draws one into a file, and needs ``cellsched[plot]``. Ends with
    2 if none fits.

    Examples::

        cellsched-nova capacity --flavor m1.large
        cellsched-nova capacity --vcpus 4 --ram 8192 --plot room.svg
    """


class Explain(decision.Explain):
    """Show how cellsched-nova-scheduler decided on a server.

    Shows the way that the request went, how many hosts each filter left, and
    for the chosen host and the second how each weigher scored them. Where
    there was no host, shows what rejected how many, what was missing where
    least was missing, and the names of some of these hosts.

    Decisions are kept for ``[cellsched] decision_retention`` seconds, in the
    database that ``[cellsched] records_connection`` names.

    Examples::

        cellsched-nova explain 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
        cellsched-nova explain req-0d1fb7f1-2d9e-4c62-8f3b-0a5c0f6a1c11 --all
    """


class ExportHosts(host.ExportHosts):
    """Write all that a scheduler knows of Nova's hosts to a file.

    ``cellsched-nova plan --snapshot`` decides on it, elsewhere and later. It
    is JSON, has no credentials, and may be edited. A cell that does not answer
    is named, and its hosts are missing.

    Examples::

        cellsched-nova host export hosts.json
        cellsched-nova host export - | gzip > hosts.json.gz
    """


class NovaShell(app.Shell):
    """Plans, room and decisions of a deployment of Nova.

    Reads nova.conf as it is, Nova's databases and Placement, and changes
    nothing.
    """

    NAME = 'cellsched-nova'
    namespace = 'cellsched_nova.cli'

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for name, command in (
                ('capacity', ShowCapacity), ('explain', Explain),
                ('host export', ExportHosts), ('plan', Plan)):
            self.command_manager.add_command(name, command)

    @functools.cached_property
    def deployment(self) -> Any:
        """The deployment of Nova that the configuration names."""
        # To import Nova takes longer than a help needs.
        from cellsched_nova import deployment

        return deployment.NovaDeployment(self.config_options)

    @functools.cached_property
    def conf(self) -> Any:
        """The product's options, as Nova's configuration says them."""
        return self.deployment.conf


def main() -> NoReturn:
    """Run one command for operators of Nova."""
    # Nova would read its configuration at once, and fail in its own way.
    os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'
    # It has to see to its threads before anything else of it is imported.
    monkey_patch.patch(backend='threading')
    app.main(NovaShell)


if __name__ == '__main__':
    main()
