# SPDX-License-Identifier: Apache-2.0
"""Random hosts as rows of plain Python, which a column form must agree with.
"""

from hypothesis import strategies

from cellsched.testing import builders

#: Few values for each, so that equals and limits are met often.
ROW = strategies.fixed_dictionaries({
    'availability_zone': strategies.sampled_from(['east', 'west', 'nova']),
    'cell': strategies.sampled_from(['a', 'b']),
    'cpu_allocation_ratio': strategies.sampled_from([0.5, 1.0, 4.0, 16.0]),
    'forced_down': strategies.booleans(),
    'free_disk_mb': strategies.integers(-2048, 8192),
    'free_ram_mb': strategies.integers(-2048, 8192),
    'last_seen_up': strategies.sampled_from(
        [builders.NOW + ago for ago in (-3600, -61, -60, -1, 0, 60, 61)]),
    'num_instances': strategies.integers(0, 4),
    'service_disabled': strategies.booleans(),
    'vcpus_total': strategies.integers(0, 8),
    'vcpus_used': strategies.integers(0, 80),
})

ROWS = strategies.lists(ROW, max_size=12)


def hosts(rows, **kwargs):
    """Return these rows as a table."""
    columns = {name: [row[name] for row in rows]
               for name in (rows[0] if rows else ())}
    return builders.hosts(len(rows), **columns, **kwargs)
