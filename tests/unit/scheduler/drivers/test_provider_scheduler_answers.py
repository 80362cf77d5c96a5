# SPDX-License-Identifier: Apache-2.0
"""Both drivers answer the same on the same state, whatever that is."""

import hypothesis

from cellsched import exception
from tests import profile
from tests.unit import base
from tests.unit.db import samples
from tests.unit.hosts import world as hosts
from tests.unit.scheduler.drivers import random_states as states


def places_of(places):
    """Return what is told of places: hosts and what each provider gives."""
    return [[(each.service_host, each.nodename, each.cell_uuid,
              each.availability_zone, each.requested()) for each in place]
            for place in places]


class TestAnswers(base.TestCase):

    @profile.few_examples
    @hypothesis.given(states.STATES, states.REQUESTS)
    def test_answers_equal_filter_scheduler_answers(self, state, requests):
        with states.World(*states.CELLS) as world:
            deployment = states.Deployment(
                world, self.temporary_directory(), state)
            try:
                self.compare(deployment, requests)
            finally:
                deployment.close()

    def compare(self, deployment, requests):
        before, last = [], None
        for said in requests:
            uuids = samples.uuids(said['count'])
            request = states.request_of(said, uuids, before)
            if said['again'] and last is not None:
                request, uuids = last
            drivers = ('filter_scheduler', 'provider_scheduler')
            planned, answer = (
                self.answer(deployment, name, 'plan', request, uuids,
                            said['alternates']) for name in drivers)
            self.assertEqual(planned, answer)
            answers = [
                self.answer(deployment, name, 'select_destinations', request,
                            uuids, said['alternates'])
                # Who gets places has taken them.
                for name in drivers[bool(planned[0]):]]
            self.assertEqual(
                [planned if planned[0] else answers[0]] * len(answers),
                answers)
            if planned[0]:
                before += uuids
                last = request, uuids

    def answer(self, deployment, name, method, request, uuids, alternates):
        """Return the places, and over how many hosts was decided, if none."""
        driver = deployment.driver(name)
        try:
            found = getattr(driver, method)(
                hosts.CONTEXT, request, uuids, alternates)
        except exception.NoValidHost as exc:
            return [], sum(each['hosts'] for each in exc.rejections)
        except (exception.HostStateUncertain, exception.InvalidField) as exc:
            # A plan has no doubt.
            return [], type(exc)
        if method == 'plan':
            places, decision = found
            return places_of(places), None if places else sum(
                each['hosts'] for each in decision.rejections)
        return places_of(found), None
