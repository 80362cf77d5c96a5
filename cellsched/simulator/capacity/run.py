# SPDX-License-Identifier: Apache-2.0
"""One run of a scenario, with its faults."""

import collections
from collections.abc import Callable
from collections.abc import Mapping
import json
import logging
import pathlib
from typing import Any

import numpy as np

from cellsched.simulator.capacity import cloud
from cellsched.simulator.capacity import faults
from cellsched.simulator.capacity.scenario import bundled
from cellsched.simulator.capacity.scenario import DOCUMENT
from cellsched.simulator.capacity.scenario import load as load_scenario
from cellsched.simulator.capacity.scenario import Scenario
from cellsched.validation.json_schema import check
from cellsched.validation.json_schema import invalid

#: Steps of the progress of a run.
STEPS = 200

#: Shows a number of steps that are done, of a total.
Progress = Callable[[int, int], None]


class Run(cloud.Cloud):
    """A deployment with the faults of its scenario."""

    def go(self, progress: Progress = lambda done, total: None) -> (
            dict[str, Any]):
        """Run to the end of the scenario, and return the document."""
        # Logs of production would cost more than the decisions.
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            self.begin()
            faults.schedule(self)
            self.sample()
            for step in range(STEPS):
                progress(step, STEPS)
                self.engine.run(self.end_s * (step + 1) / STEPS)
        finally:
            logging.disable(before)
            self.engine.close()
        progress(STEPS, STEPS)
        document = self.recorder.document(collections.Counter(
            each.flavor for each in self.servers))
        document['checks'] = self.checks()
        return document

    def checks(self) -> dict[str, int]:
        """Return what a claim store must prevent, with its number.

        ``oversold`` are the servers that got a place which did not exist, and
        ``unaccounted`` the hosts whose claims are not those of their servers.
        """
        used = np.zeros_like(self.deployment.used)
        for server in self.servers:
            used[server.row] += server.flavor[1:]
        unaccounted = (used > self.deployment.used).any(axis=1)
        return {'oversold': self.oversold,
                'unaccounted': int(unaccounted.sum())}


#: The functions that read and list scenarios.
read, scenarios = load_scenario, bundled


def read_document(path: pathlib.Path) -> dict[str, Any]:
    """Return the document of another run.

    :raises cellsched.exception.InvalidField: the file has none
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as exc:
        raise invalid(
            path, (), 'a readable file',
            f'the file cannot be read: {exc.strerror}') from None
    except ValueError:
        raise invalid(path, (), 'the JSON of a run',
                      'it is not valid JSON') from None
    check(path, document, DOCUMENT)
    return dict(document)


def run(
    scenario: Scenario, progress: Progress = lambda done, total: None
) -> dict[str, Any]:
    """Run a scenario, and return its document."""
    return Run(scenario).go(progress)


def compare(
    this: Mapping[str, Any], other: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the figures of two runs beside each other.

    ``change`` is the difference in proportion to the other run; None if it is
    0 or a figure is missing.
    """
    rows = []
    for name in {**this['summary'], **other['summary']}:
        new, old = this['summary'].get(name), other['summary'].get(name)
        rows.append({
            'figure': name, 'this': new, 'other': old,
            'change': None if new is None or not old
            else float(f'{(new - old) / abs(old):.6g}')})
    return rows
