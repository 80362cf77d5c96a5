# SPDX-License-Identifier: Apache-2.0
"""What holds of queries on SQLite holds of them on PostgreSQL.

There transactions run at the same time, so races are real.
"""

from tests.integration.db import base
from tests.unit.compute import test_progress
from tests.unit.db.api import test_aggregates
from tests.unit.db.api import test_archive as test_api_archive
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


class TestStatements(
        base.APITestCase, test_statements.TestInsertMissing):
    pass


class TestInList(base.APITestCase, test_statements.TestInList):
    pass


class TestDeleteCounted(
        base.APITestCase, test_statements.TestDeleteCounted):
    pass


class TestAggregates(base.APITestCase, test_aggregates.TestAggregates):
    pass


class TestAggregateChanges(base.APITestCase, test_aggregates.TestChanges):
    pass


class TestBuildRequests(
        base.APITestCase, test_build_requests.TestBuildRequests):
    pass


class TestLease(base.APITestCase, test_build_requests.TestLease):
    pass


class TestBatches(base.APITestCase, test_leases.TestBatches):
    pass


class TestOverdue(base.APITestCase, test_leases.TestOverdue):
    pass


class TestClaim(base.APITestCase, test_leases.TestClaim):
    pass


class TestExtend(base.APITestCase, test_leases.TestExtend):
    pass


class TestRevise(base.APITestCase, test_build_requests.TestRevise):
    pass


class TestKept(base.APITestCase, test_build_requests.TestKept):
    pass


class TestCellMappings(
        base.APITestCase, test_cell_mappings.TestCellMappings):
    pass


class TestCreateApart(
        base.APITestCase, test_cell_mappings.TestCreateApart):
    pass


class TestDecisions(base.APITestCase, test_decisions.TestDecisions):
    pass


class TestFlavors(base.APITestCase, test_flavors.TestFlavors):
    pass


class TestHostMappings(
        base.APITestCase, test_host_mappings.TestHostMappings):
    pass


class TestInstanceGroups(
        base.APITestCase, test_instance_groups.TestInstanceGroups):
    pass


class TestInstanceMappings(
        base.APITestCase, test_instance_mappings.TestInstanceMappings):
    pass


class TestRequestSpecs(
        base.APITestCase, test_build_requests.TestRequestSpecs):
    pass


class TestBelongings(
        base.CellTestCase, test_instance_children.TestBelongings):
    pass


class TestBlockDevices(
        base.CellTestCase, test_instance_children.TestBlockDevices):
    pass


class TestTags(base.CellTestCase, test_instance_children.TestTags):
    pass


class TestComputeNodes(
        base.CellTestCase, test_compute_nodes.TestComputeNodes):
    pass


class TestHostChanges(base.CellTestCase, test_hosts.TestChanges):
    pass


class TestInstanceActions(
        base.CellTestCase, test_instance_history.TestInstanceActions):
    pass


class TestInstanceFaults(
        base.CellTestCase, test_instance_history.TestInstanceFaults):
    pass


class TestProgress(base.CellTestCase, test_progress.TestProgress):
    pass


class TestCreate(base.CellTestCase, test_instances.TestCreate):
    pass


class TestRead(base.CellTestCase, test_instances.TestRead):
    pass


class TestUpdate(base.CellTestCase, test_instances.TestUpdate):
    pass


class TestFail(base.CellTestCase, test_instances.TestFail):
    pass


class TestDelete(base.CellTestCase, test_instances.TestDelete):
    pass


class TestPurge(base.CellTestCase, test_instances.TestPurge):
    pass


class TestServices(base.CellTestCase, test_services.TestServices):
    pass


class TestAPISurveying(base.APITestCase, test_api_queries.TestSurveying):
    pass


class TestCellSurveying(base.CellTestCase, test_cell_queries.TestSurveying):
    pass


class TestForget(base.APITestCase, test_api_archive.TestForget):
    pass


class TestArchiveServers(base.CellTestCase, test_cell_archive.TestServers):
    pass


class TestArchiveOtherRows(base.CellTestCase, test_cell_archive.TestOtherRows):
    pass


class TestArchivePurge(base.CellTestCase, test_cell_archive.TestPurge):
    pass


class TestOnHost(base.CellTestCase, test_on_host.TestOnHost):
    pass
