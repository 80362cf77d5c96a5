# SPDX-License-Identifier: Apache-2.0
"""Round trips of ``select_destinations`` over RabbitMQ.

Parameters: ``hosts``, ``cells``, the number of ``callers``, ``calls``, the
number of requests that each caller sends in sequence in a round, and
``queues``, which is ``classic`` or ``quorum``.

The scheduler runs its own command with one worker. Its claims are in
PostgreSQL, used with psycopg 3. Callers are processes, like conductors, and
collect garbage as rarely. A sample is the time of a round divided by its
calls.

The floor is the same with calls of an empty method that returns None. Its
process uses oslo.messaging's server and client unchanged, on the same broker
with the same configuration.

Each answer must name the node that the claim store has for the request. Claims
are released after each round.
"""

import contextlib
import json
import multiprocessing
import pathlib
import sys
import time
import uuid

import oslo_messaging
from oslo_messaging.rpc import dispatcher

import host_databases
import reading

from cellsched import clock
from cellsched.cmd import launch
from cellsched.conf import loader
from cellsched import context
from cellsched.rpc import scheduler
from cellsched.rpc import serializer
from cellsched.rpc import transport

# The test suite has the code to start the servers.
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

from tests.integration import processes  # noqa: E402
from tests.integration import servers  # noqa: E402

OPTIONS = """\
[DEFAULT]
# No agent reports; hosts must stay up for as long as the benchmark takes.
service_down_time = 1000000
[scheduler]
workers = 1
[oslo_messaging_rabbit]
rabbit_quorum_queue = {quorum}
rabbit_transient_quorum_queue = {quorum}
rabbit_stream_fanout = {quorum}
"""

QUORUM = {'classic': False, 'quorum': True}

NOTHING = oslo_messaging.Target(topic='nothing', version='1.0')

#: Starts processes without the state of this one, but with imported modules.
FORKED = multiprocessing.get_context('forkserver')
FORKED.set_forkserver_preload(['cellsched.wiring.services'])


def run(parameters, repeat):
    """Return the samples of requests and of their floor, in alternation."""
    samples = {'select_destinations': [], 'floor': []}
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(
            servers.part_of(servers.RabbitMQ)).url('calls')
        database = servers.by_psycopg(stack.enter_context(servers.part_of(
            servers.PostgreSQL, durable=True)).url('api'))
        options = OPTIONS.format(
            quorum=QUORUM[parameters.get('queues', 'classic')])
        parts = stack.enter_context(host_databases.parts(
            parameters['hosts'], parameters['cells'], database, options))
        directory = pathlib.Path(parts.conf.config_file[0]).parent
        broker = directory / 'broker.conf'
        broker.write_text(f'[DEFAULT]\ntransport_url = {url}\n')
        files = [*parts.conf.config_file, str(broker)]
        stack.enter_context(processes.Process(
            ['cellsched-scheduler', *(word for file in files
                                      for word in ('--config-file', file))],
            directory, ready='cellsched-scheduler has started'))
        stack.enter_context(child(serve_nothing, files))
        callers = [stack.enter_context(child(call, files))
                   for _ in range(parameters['callers'])]
        for number in range(repeat + 1):
            ours = select(parts, callers, parameters['calls'])
            floor = call_nothing(callers, parameters['calls'])
            # Round 0 is not timed: callers connect.
            if number:
                samples['select_destinations'].append(ours)
                samples['floor'].append(floor)
    return samples


def select(parts, callers, calls):
    """Return the seconds per request of a round."""
    uuids = [[str(uuid.uuid4()) for _ in range(calls)] for _ in callers]
    seconds, answers = ask(callers, uuids)
    held = {consumer: claims[0].provider for consumer, claims
            in parts.claims.claims_of(sum(uuids, [])).items()}
    if held != {consumer: node for answer in answers
                for consumer, node in answer.items()}:
        raise RuntimeError('the answers differ from the claims')
    if len(held) != len(callers) * calls:
        raise RuntimeError(
            f'{len(held)} of {len(callers) * calls} requests have hosts')
    parts.claims.release(held)
    return seconds


def call_nothing(callers, calls):
    """Return the seconds per empty call of a round."""
    seconds, answers = ask(callers, [calls for _ in callers])
    if answers != [{None}] * len(callers):
        raise RuntimeError('an empty call did not return None')
    return seconds


def ask(callers, questions):
    """Return the seconds per call, and the answers of the callers."""
    for caller, question in zip(callers, questions):
        caller.send(question)
    starts, ends, answers = zip(*(caller.recv() for caller in callers))
    calls = sum(question if isinstance(question, int) else len(question)
                for question in questions)
    return (max(ends) - min(starts)) / calls, list(answers)


@contextlib.contextmanager
def child(function, files):
    """Run a function in another process until its pipe is closed.

    :returns: the pipe to the process, once the process is ready
    """
    with children(function, files, 1) as [pipe]:
        yield pipe


@contextlib.contextmanager
def children(function, files, count):
    """Run a function in several processes, like :func:`child` in one."""
    with contextlib.ExitStack() as stack:
        pipes = [stack.enter_context(process_of(function, files))
                 for _ in range(count)]
        for answer in [pipe.recv() for pipe in pipes]:
            if answer != 'ready':
                raise RuntimeError(f'{function.__name__} fails: {answer}')
        yield pipes


@contextlib.contextmanager
def process_of(function, files):
    ours, theirs = FORKED.Pipe()
    process = FORKED.Process(
        target=run_reporting, args=(function, theirs, files))
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join(30)
        process.kill()


def run_reporting(function, pipe, files):
    """Run a function; send its error to the pipe."""
    try:
        function(pipe, files)
    except Exception as exc:
        with contextlib.suppress(OSError):
            pipe.send(f'{type(exc).__name__}: {exc}')
        raise


def serve_nothing(pipe, files):
    """Answer calls with None."""
    transport_ = plain(files)
    server = oslo_messaging.get_rpc_server(
        transport_, oslo_messaging.Target(
            topic=NOTHING.topic, server='benchmark'), [Nothing()],
        access_policy=dispatcher.DefaultRPCAccessPolicy)
    server.start()
    launch.freeze_objects()
    pipe.send('ready')
    with contextlib.suppress(EOFError):
        pipe.recv()
    server.stop()
    server.wait()
    transport_.cleanup()


class Nothing:

    target = oslo_messaging.Target(version=NOTHING.version)

    def nothing(self, context):
        return None


def call(pipe, files):
    """Make the requested calls; send the start, the end and the answers."""
    transports = connected(files)
    ours = scheduler.SchedulerAPI(transports.get(), clock.Clock().timestamp)
    floor = plain(files)
    nothing = oslo_messaging.get_rpc_client(floor, NOTHING)
    request = serializer.Serializer().deserialize_entity(
        None, json.loads(reading.REQUESTS.read_text())['plain'])
    launch.freeze_objects()
    pipe.send('ready')
    with contextlib.suppress(EOFError):
        while True:
            question = pipe.recv()
            start = time.perf_counter()
            if isinstance(question, int):
                answer = {nothing.call({}, 'nothing')
                          for _ in range(question)}
            else:
                answer = {each: node(ours, request, each)
                          for each in question}
            pipe.send((start, time.perf_counter(), answer))
    transports.close()
    floor.cleanup()


def node(api, request, instance):
    """Return the selected node of an instance."""
    request.instance_uuid = instance
    user = context.member('user', 'project')
    [[chosen, *_]] = api.select_destinations(user, request, [instance])
    return chosen.compute_node_uuid


def connected(files):
    return transport.Transports(loader.load(files=files, dirs=[]))


def plain(files):
    """Return a transport with oslo.messaging's defaults."""
    conf = loader.load(files=files, dirs=[])
    loader.register_messaging(conf)
    return oslo_messaging.get_rpc_transport(conf, conf.transport_url)
