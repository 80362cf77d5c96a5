# SPDX-License-Identifier: Apache-2.0
"""The suite of scheduler drivers, over ours and over wrong ones."""

from cellsched.scheduler.drivers import chance_scheduler
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.drivers import provider_scheduler
from cellsched.testing.suite import scheduler_drivers as suite
from tests import profile
from tests.unit import base
from tests.unit.testing.suite import runner


@profile.by_default(
    'test_selected_host_is_claimed', 'test_plan_makes_no_claim',
    'test_no_claim_is_made_for_callers_without_claim_management',
    'test_repeated_call_returns_the_same_hosts',
    reason='the tests of the drivers have these facts')
class TestFilterScheduler(suite.SchedulerDriverSuite, base.TestCase):

    plugin = filter_scheduler.FilterScheduler


@profile.full_only('the suite runs over filter_scheduler by default')
class TestChanceScheduler(suite.SchedulerDriverSuite, base.TestCase):

    plugin = chance_scheduler.ChanceScheduler


@profile.full_only('the suite runs over filter_scheduler by default')
class TestProviderScheduler(suite.SchedulerDriverSuite, base.TestCase):

    plugin = provider_scheduler.ProviderScheduler


class Unclaiming(filter_scheduler.FilterScheduler):
    """Claims nothing, and forgets what it selected."""

    def select_destinations(
        self, context, request, instance_uuids, alternates, claim=True
    ):
        return super().select_destinations(
            context, request, instance_uuids, alternates, claim=False)


class Overcommitting(filter_scheduler.FilterScheduler):
    """Claims also for callers that do not manage claims, and in plans."""

    def select_destinations(
        self, context, request, instance_uuids, alternates, claim=True
    ):
        return super().select_destinations(
            context, request, instance_uuids, alternates)

    def plan(self, context, request, instance_uuids, alternates):
        self.select_destinations(context, request, instance_uuids, alternates)
        return super().plan(context, request, instance_uuids, alternates)


class Keeping(filter_scheduler.FilterScheduler):
    """Keeps claims of servers that are gone."""

    def delete_instance(self, host, instance):
        pass


@profile.full_only('wrong drivers')
class TestSuite(base.TestCase):

    def test_wrong_driver_is_found(self):
        for kind, *tests in (
                (Unclaiming, 'test_selected_host_is_claimed',
                 'test_concurrent_requests_overcommit_no_host'),
                (Overcommitting,
                 'test_nothing_is_claimed_for_callers_that_do_not_manage_'
                 'claims', 'test_plan_makes_no_claim'),
                (Keeping,
                 'test_claim_of_a_server_deleted_from_its_host_is_released')):
            found = runner.failures(suite.SchedulerDriverSuite, kind)

            self.assertEqual(set(), set(tests) - found, kind)
            self.assertIn('test_entry_point_names_the_driver', found)
