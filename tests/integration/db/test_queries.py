# SPDX-License-Identifier: Apache-2.0
"""What holds of queries on SQLite holds of them on PostgreSQL.

There transactions run at the same time, so races are real.
"""

from tests.integration.db import base
from tests.unit.compute import test_progress
from tests.unit.db.api import test_aggregates
from tests.unit.db.api import test_audit_queries as test_api_queries
from tests.unit.db.api import test_build_requests
from tests.unit.db.api import test_cell_mappings
from tests.unit.db.api import test_decisions
from tests.unit.db.api import test_flavors
from tests.unit.db.api import test_host_mappings
from tests.unit.db.api import test_instance_groups
from tests.unit.db.api import test_instance_mappings
from tests.unit.db.api import test_leases
from tests.unit.db.cell import test_archive as test_cell_archive
from tests.unit.db.cell import test_audit_queries as test_cell_queries
from tests.unit.db.cell import test_compute_nodes
from tests.unit.db.cell import test_hosts
from tests.unit.db.cell import test_instance_children
from tests.unit.db.cell import test_instance_history
from tests.unit.db.cell import test_instances
from tests.unit.db.cell import test_on_host
from tests.unit.db.cell import test_services
from tests.unit.db import test_statements

#: Unit tests that run here too, by the schema of their database.
API_TESTS = (
    test_statements.TestDeleteCounted, test_aggregates.TestAggregates,
    test_aggregates.TestChanges, test_build_requests.TestBuildRequests,
    test_build_requests.TestLease, test_leases.TestBatches,
    test_leases.TestOverdue, test_leases.TestClaim, test_leases.TestExtend,
    test_build_requests.TestRevise, test_build_requests.TestKept,
    test_cell_mappings.TestCellMappings, test_cell_mappings.TestCreateApart,
    test_decisions.TestDecisions, test_flavors.TestFlavors,
    test_host_mappings.TestHostMappings,
    test_instance_groups.TestInstanceGroups,
    test_instance_mappings.TestInstanceMappings,
    test_instance_mappings.TestForget,
    test_build_requests.TestRequestSpecs, test_api_queries.TestSurveying)
CELL_TESTS = (
    test_instance_children.TestBelongings,
    test_instance_children.TestBlockDevices, test_instance_children.TestTags,
    test_compute_nodes.TestComputeNodes, test_hosts.TestChanges,
    test_instance_history.TestInstanceActions,
    test_instance_history.TestInstanceFaults, test_progress.TestProgress,
    test_instances.TestCreate, test_instances.TestRead,
    test_instances.TestUpdate, test_instances.TestFail,
    test_instances.TestDelete, test_instances.TestPurge,
    test_services.TestServices, test_cell_queries.TestSurveying,
    test_cell_archive.TestServers, test_cell_archive.TestOtherRows,
    test_cell_archive.TestPurge, test_on_host.TestOnHost)


def cases(module, *bases):
    """Return a test class of a module for each class of unit tests, by name.

    :param bases: classes that come first, such as that of another server
    """
    made = {}
    for case, kinds in ((base.APITestCase, API_TESTS),
                        (base.CellTestCase, CELL_TESTS)):
        for kind in kinds:
            # Two packages have modules of the same name.
            name = '_'.join([*kind.__module__.split('.')[-2:], kind.__name__])
            made[name] = type(
                name, (*bases, case, kind), {'__module__': module})
    return made


class TestStatements(
        base.APITestCase, test_statements.TestInsertMissing):
    pass


class TestInList(base.APITestCase, test_statements.TestInList):
    pass


globals().update(cases(__name__))
