# SPDX-License-Identifier: Apache-2.0
"""Detection of mass outages: most hosts went down at the same time.

Real failures stop one host, or the hosts of one cell. If nearly all hosts go
down at the same time, the likely cause is a scheduler that did not read its
cells for a while, or a wrong clock.
"""

from typing import NamedTuple

import numpy as np

from cellsched.hosts.table import HostTable

#: The least share of the hosts that goes down in a mass outage. A few hosts
#: may be up, because they reported just when this scheduler came back.
SHARE = 0.9

#: Fewer hosts may go down together for a real reason, such as one rack.
HOSTS_MIN = 10

#: The hosts of one cell may go down together, if its network or power fails.
CELLS_MIN = 2

#: The outage is recent within this multiple of the time that a host may be
#: silent. A host that went down earlier is dead and was not removed.
RECENT = 10.0


class OutageLimits(NamedTuple):
    """The longest silence of hosts and cells that are up.

    :param down_s: seconds without a report after which a host is down
    :param silence_s: seconds for which a cell may be silent
    """

    down_s: float = 60.0
    silence_s: float = 30.0


#: The condition that there is one, in the log.
CONDITION = 'Suspected clock skew'


class MassOutage(NamedTuple):
    """Hosts that went down at the same time.

    :param hosts: the number of these hosts
    :param known: the number of these hosts and of all hosts that are up
    :param cells: the number of cells that these hosts are in
    """

    hosts: int
    known: int
    cells: int

    @property
    def text(self) -> str:
        """The outage in words, for the log."""
        return (f'{self.hosts} of {self.known} hosts in {self.cells} cells '
                'went down at the same time; requests that need them are '
                'rejected with HostStateUncertain')


def find(
    table: HostTable, now: float, limits: OutageLimits
) -> MassOutage | None:
    """Return the mass outage at this time, or None.

    There is one if nearly all hosts went down at the same time, and either
    the hosts are in several cells, or every cell was silent for a while.
    """
    seen, codes = table['last_seen_up'], table['cell']
    cells = [table.cells.hearing(uuid, now)
             for uuid in table.encoding('cell').values]
    heard = np.array([each.last for each in cells])[codes]
    enabled = ~(table['service_disabled'] | table['forced_down'])
    disabled = np.array([uuid in table.cells.disabled for uuid in
                         table.encoding('cell').values], dtype=bool)
    enabled &= ~disabled[codes]
    up = enabled & (np.abs(now - seen) <= limits.down_s)
    up &= now - heard <= limits.silence_s
    lost = enabled & ~up & (seen >= heard - RECENT * limits.down_s)
    count, known = int(lost.sum()), int(lost.sum() + up.sum())
    if not count or count < SHARE * known:
        return None
    found = MassOutage(count, known, len(np.unique(codes[lost])))
    if found.hosts >= HOSTS_MIN and found.cells >= CELLS_MIN:
        return found
    # A recent silence of a cell explains its lost hosts.
    concerned = [cells[code] for code in np.unique(codes[lost | up])]
    return found if all(
        now - hearing.last > limits.silence_s
        or now - hearing.since < limits.down_s
        for hearing in concerned) else None
