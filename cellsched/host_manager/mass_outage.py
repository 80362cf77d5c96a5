# SPDX-License-Identifier: Apache-2.0
"""Detection of mass outages: many hosts that went down at one time.

Hosts die one by one, or with their cell. Where nearly all of them go down at
one time, it is rather who reads them that was away, or a clock that is wrong.
"""

import dataclasses

import numpy as np

from cellsched.hosts import cell_health
from cellsched.hosts.table import HostTable

#: The share of the hosts that has to go down at one time. Single ones may be
#: up, such as those that reported just when this one came back.
SHARE = 0.9

#: Fewer hosts than this may go down together, as those of one rack do.
HOSTS_MIN = 10

#: So do those of one cell, whose network or power fails.
CELLS_MIN = 2

#: What is one time: so many times as long as a host may be silent. Hosts that
#: went before are dead, and nobody removed them.
RECENT = 10.0


@dataclasses.dataclass(frozen=True)
class OutageLimits:
    """Limits within which silence is no matter.

    :param down_s: seconds without a report after which a host is down
    :param silence_s: seconds for which a cell may be silent
    """

    down_s: float = 60.0
    silence_s: float = 30.0


@dataclasses.dataclass(frozen=True)
class MassOutage:
    """Hosts that went down at one time.

    :param hosts: how many they are
    :param known: how many there are with those that are up
    :param cells: in how many cells they are
    """

    hosts: int
    known: int
    cells: int


def find(
    table: HostTable, now: float, limits: OutageLimits
) -> MassOutage | None:
    """Return which hosts are down for no reason of theirs, or None.

    That is so where nearly all of them went down at one time, and either in
    several cells, or while no cell was heard without a break.
    """
    seen, codes = table['last_seen_up'], table['cell']
    cells = [table.cells.hearing(uuid, now)
             for uuid in table.encoding('cell').values]
    heard = np.array([each.last for each in cells])[codes]
    enabled = ~(table['service_disabled'] | table['forced_down'])
    up = enabled & (np.abs(now - seen) <= limits.down_s)
    up &= now - heard <= limits.silence_s
    lost = enabled & ~up & (seen >= heard - RECENT * limits.down_s)
    count, known = int(lost.sum()), int(lost.sum() + up.sum())
    if not count or count < SHARE * known:
        return None
    found = MassOutage(count, known, len(np.unique(codes[lost])))
    if found.hosts >= HOSTS_MIN and found.cells >= CELLS_MIN:
        return found
    concerned = np.unique(codes[lost | up])
    broken = [_is_broken(cells[code], now, limits) for code in concerned]
    return found if all(broken) else None


def _is_broken(
    hearing: cell_health.Hearing, now: float, limits: OutageLimits
) -> bool:
    """Return whether a cell was silent so lately that no host was heard."""
    return (now - hearing.last > limits.silence_s
            or now - hearing.since < limits.down_s)
