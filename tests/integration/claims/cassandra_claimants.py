# SPDX-License-Identifier: Apache-2.0
"""Processes that claim on the same providers in Cassandra."""

import contextlib
import random
import uuid

from cellsched.claims import base
from cellsched.claims import cassandra
from cellsched.claims.cassandra import client
from cellsched.claims.cassandra import options
from cellsched import clock
from cellsched import exception
from tests.integration.claims import claimants
from tests.integration.claims import test_cassandra


@contextlib.contextmanager
def started(count, url, providers, claims):
    """Run processes; each sends its consumers with claims, and ends.

    :param claims: number of claims that each process tries
    :returns: the processes, and the connections to them
    """
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(claimants.process(
            _claim, url, providers, claims)) for _ in range(count)]


def _claim(pipe, url, providers, claims):
    made = client.CassandraClient(
        options.address(url), test_cassandra.configured(), clock.Clock())
    store = cassandra.CassandraClaims(made, clock.Clock(), random.Random())
    store.check()
    taken = []
    for number in range(claims):
        name = str(uuid.uuid4())
        with contextlib.suppress(exception.ClaimRefused):
            store.claim([base.Claim(
                name, providers[number % len(providers)], {'VCPU': 1})])
            taken.append(name)
    pipe.send(taken)
    made.close()
