# SPDX-License-Identifier: Apache-2.0
"""Reading a request in the form that Nova's conductor sends.

Parameter: ``request``, a name in ``workloads/nova-request.json``. That file
says how its requests were made. The measured time is from the decoded message
to the object that a scheduler decides on. The floor is the decoding of its
JSON.
"""

import json
import pathlib

import decision

from cellsched import objects
from cellsched.rpc import serializer

REQUESTS = (pathlib.Path(__file__).resolve().parent
            / 'workloads' / 'nova-request.json')

#: Readings in one sample, so that a sample is long enough for the clock.
TIMES = 20


def run(parameters, repeat):
    """Return the samples of readings and of their floor, in alternation."""
    message = json.loads(REQUESTS.read_text())[parameters['request']]
    text = json.dumps(message)
    read = serializer.Serializer().deserialize_entity
    if not isinstance(read(None, message), objects.RequestSpec):
        raise RuntimeError('the message is not a RequestSpec')
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
