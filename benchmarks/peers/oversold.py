# SPDX-License-Identifier: Apache-2.0
"""The question what Placement has given away above what there is."""

#: How many VCPUs that are, in one state of its database.
OVERSOLD = """
    SELECT coalesce(sum(greatest(taken - has, 0)), 0) FROM (
        SELECT (total - reserved) * allocation_ratio AS has, (
            SELECT coalesce(sum(used), 0) FROM allocations a
            WHERE a.resource_provider_id = i.resource_provider_id
            AND a.resource_class_id = i.resource_class_id) AS taken
        FROM inventories i WHERE i.resource_class_id = (
            SELECT id FROM resource_classes WHERE name = 'VCPU')) each"""
