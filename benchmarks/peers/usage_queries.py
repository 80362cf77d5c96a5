# SPDX-License-Identifier: Apache-2.0
"""The query for usage above the capacity in Placement's database."""

#: The number of oversold VCPUs, in one state of the database.
OVERSOLD = """
    SELECT coalesce(sum(greatest(taken - has, 0)), 0) FROM (
        SELECT (total - reserved) * allocation_ratio AS has, (
            SELECT coalesce(sum(used), 0) FROM allocations a
            WHERE a.resource_provider_id = i.resource_provider_id
            AND a.resource_class_id = i.resource_class_id) AS taken
        FROM inventories i WHERE i.resource_class_id = (
            SELECT id FROM resource_classes WHERE name = 'VCPU')) each"""
