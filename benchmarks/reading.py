# SPDX-License-Identifier: Apache-2.0
"""Reading a request as Nova's conductor sends it.

Parameter: ``request``, a name in ``workloads/nova-request.json``, which says
how its requests were made. What is timed is from the decoded message to the
object that a scheduler decides on; the floor is to decode its JSON.
"""

import json
import pathlib

import decision

from cellsched import objects
from cellsched.rpc import serializer

REQUESTS = (pathlib.Path(__file__).resolve().parent
            / 'workloads' / 'nova-request.json')

#: Readings of one sample, which has to be long beside the clock.
TIMES = 20


def run(parameters, repeat):
    """Return the samples of readings and of their floor, taken in turns."""
    message = json.loads(REQUESTS.read_text())[parameters['request']]
    text = json.dumps(message)
    read = serializer.Serializer().deserialize_entity
    if not isinstance(read(None, message), objects.RequestSpec):
        raise RuntimeError('no request was read: this times nothing')
    samples = {'reading': [], 'floor': []}
    for _ in range(repeat):
        samples['reading'].append(
            decision.timed(repeated, read, None, message) / TIMES)
        samples['floor'].append(
            decision.timed(repeated, json.loads, text) / TIMES)
    return samples


def repeated(function, *args):
    for _ in range(TIMES):
        function(*args)
