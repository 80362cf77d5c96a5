# SPDX-License-Identifier: Apache-2.0
"""The two sizes of the test suite, and all that differs between them.

``CELLSCHED_TEST_PROFILE`` selects one:

``default``
    Each fact once, at a size that finds most faults, in ten minutes.
``full``
    Second proofs as well: other drivers and servers, more seeds, more
    examples, a process killed at each step, and tests that need a real clock.

A test asks this module how many seeds, claims, clients or examples it uses,
and marks what only the full profile runs. Nothing else reads the variable.
"""

from collections.abc import Callable
import os
from typing import Any
from typing import TypeVar
import unittest

import hypothesis

VARIABLE = 'CELLSCHED_TEST_PROFILE'

NAMES = ('default', 'full')

#: Begins the reason of each test that the default profile leaves out.
LEFT_OUT = 'full profile: '

AnyTest = TypeVar('AnyTest', bound=Callable[..., Any])
AnyClass = TypeVar('AnyClass', bound=type[unittest.TestCase])


def _selected() -> str:
    name = os.environ.get(VARIABLE) or 'default'
    if name not in NAMES:
        raise ValueError(f'{VARIABLE}={name}: unknown profile; expected '
                         f'{" or ".join(NAMES)}')
    return name


NAME = _selected()
FULL = NAME == 'full'


def size(default: int, full: int) -> int:
    """Return one of two sizes of a test, by the profile."""
    return full if FULL else default


#: Seeds of the simulation, and of each claim store's in it.
SIMULATION_SEEDS = size(12, 1000)
STORE_SEEDS = size(2, 60)

#: Seeds of the changes of a host table that is recorded and read again.
RECORDED_SEEDS = size(40, 400)

#: Seeds whose trace is compared between processes.
TRACED_SEEDS = size(1, 10)

#: Seeds of the simulation for each kind of fault alone.
SINGLE_FAULT_SEEDS = size(1, 3)

#: Seeds of models of claim stores whose servers or clients fail.
FAULT_SEEDS = size(10, 60)
COSTLY_FAULT_SEEDS = size(4, 12)

#: Of the combinations in which a client dies, the distance of those tried.
DEATH_STEP = size(3, 1)

#: How often messages are delivered.
DELIVERIES = (1, 2, 5) if FULL else (2,)

#: Seeds that are tried, in either profile, until one finds a fault.
SEEDS_TO_FAIL = 300

#: Claims of processes that race in a store; fewer where one takes long.
RACING_CLAIMS = size(40, 400)
SLOW_RACING_CLAIMS = size(40, 80)
SLOWEST_RACING_CLAIMS = size(20, 40)

#: Rounds of transactions that race for rows.
RACING_ROUNDS = size(4, 10)

#: Modules through which the libraries are imported that warn.
ENTRANCES = size(2, 10)

#: Requests that a model and the real server are compared with.
COMPARED_REQUESTS = size(60, 500)

#: Examples that hypothesis tries where a test has no decorator of its own.
EXAMPLES = size(20, 100)

#: Checks of Hypothesis that depend on time; on a busy machine they fail.
TIMED = [hypothesis.HealthCheck.too_slow]

#: The same for a test that many classes inherit.
SHARED = [*TIMED, hypothesis.HealthCheck.differing_executors]

# Hypothesis has loaded a profile for CI or for work by hand; this adds to it.
hypothesis.settings.register_profile(
    NAME, hypothesis.settings(), max_examples=EXAMPLES, deadline=None,
    suppress_health_check=TIMED)
hypothesis.settings.load_profile(NAME)

#: For tests whose examples take long: whole decisions, databases, servers.
few_examples = hypothesis.settings(max_examples=size(10, 50))

#: For tests whose examples are cheap and whose inputs are many.
many_examples = hypothesis.settings(max_examples=size(20, 300))


def full_only(reason: str) -> Callable[[AnyTest], AnyTest]:
    """Have only the full profile run a test or the tests of a class.

    Servers and fixtures of a class are not started for them.

    :param reason: where the fact is tested by default, or why a default run
        cannot test it
    """
    if FULL:
        return lambda test: test
    return unittest.skip(LEFT_OUT + reason)


def by_default(
    *names: str, reason: str, own: bool = False
) -> Callable[[AnyClass], AnyClass]:
    """Have only the full profile run the tests of a class, except some.

    :param names: tests of the class, or inherited ones, that run by default
    :param own: run by default what the class itself defines, too
    :param reason: as that of :func:`full_only`
    """
    def mark(cls: AnyClass) -> AnyClass:
        tests = unittest.defaultTestLoader.getTestCaseNames(cls)
        unknown = set(names).difference(tests)
        if unknown:
            raise ValueError(f'{cls.__name__} has no {min(unknown)}')
        kept = {*names, *(vars(cls) if own else ())}
        for name in set(tests) - kept:
            # The class that it is inherited from keeps it.
            setattr(cls, name, full_only(reason)(getattr(cls, name)))
        return cls

    return mark
