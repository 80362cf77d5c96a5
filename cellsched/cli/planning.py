# SPDX-License-Identifier: Apache-2.0
"""Requests made of options and files, and decisions on them.

A command imports this module when it runs: it imports the objects and the
scheduler.
"""

import argparse
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import json
import pathlib
from typing import Any
from typing import NoReturn

from oslo_utils import uuidutils
from oslo_versionedobjects import exception as ovo_exception

from cellsched.api import validation
from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.cli import decision_text
from cellsched.cli.deployment import FILTERING
from cellsched.cli import host_snapshot
from cellsched.cli import server
from cellsched import exception
from cellsched.hardware import aliases
from cellsched import objects
from cellsched.objects import base as objects_base
from cellsched.objects import keys
from cellsched.scheduler.decision import registry
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler import planning
from cellsched.scheduler import request_validation

#: The largest request file.
_BYTES_MAX = 1_000_000

#: The largest amount of a resource.
_AMOUNT_MAX = 2 ** 31 - 1

_PREFIX = 'nova_object.'

#: The classes of fields that are objects, by class and field.
_NESTED = {
    'RequestSpec': {
        'flavor': 'Flavor', 'image': 'ImageMeta', 'limits': 'SchedulerLimits',
        'instance_group': 'InstanceGroup',
        'requested_destination': 'Destination'},
    'ImageMeta': {'properties': 'ImageMetaProps'},
    'Destination': {'cell': 'CellMapping'},
}

_INVALID = (ovo_exception.VersionedObjectsException, AttributeError, KeyError,
            TypeError, ValueError)


def plan(
    app: Shell, args: argparse.Namespace
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Make a decision that claims nothing.

    :returns: the document of the decision, and the names of cells by uuid
    """
    # 1. Make the request, and check it as a scheduler does.
    request = build(app, args, args.count)
    uuids = [uuidutils.generate_uuid() for _ in range(args.count)]
    request.instance_uuid, request.num_instances = uuids[0], args.count
    request_validation.check(request, uuids, request_validation.bounds(
        app.conf.scheduler)._replace(instances_max=args.count))
    # 2. Decide, on a snapshot or on the hosts as they are now.
    deployment = app.deployment
    if args.snapshot is None:
        planner, cells = deployment.planner(), deployment.cells()
    else:
        snapshot = host_snapshot.read(app, args.snapshot)
        planner, cells = deployment.planner(snapshot), snapshot.cells
    places, decision = planner.plan(
        app.context(), request, uuids, args.alternates)
    if decision.slow:
        app.warn('warning: a slow plug-in delays other requests: ' + ', '.join(
            f'{kind} {name} took {seconds:.1f} seconds'
            for kind, name, seconds in decision.slow))
    for problem in registry.skipped_weighers(
            app.conf, app.conf.filter_scheduler.weight_classes):
        app.warn(f'warning: skipped a weigher: {problem.format_message()}')
    # 3. Describe the decision.
    document = decision_record.document_of(
        decision, request, uuids, None, app.clock.now())
    return {**document, 'fits': bool(places),
            'why_not_second': decision_text.reason(document),
            'may_differ': list(_differences(app, document)),
            'places': [_place(uuid, place, cells)
                       for uuid, place in zip(uuids, places)]}, cells


def _differences(
    app: Shell, document: Mapping[str, Any]
) -> Iterator[str]:
    """Yield why a scheduler may select other hosts than a plan."""
    picks, conf = document['picks'], app.conf
    if not any(pick['candidates'] > 1 for pick in picks):
        return
    options, driver = conf.filter_scheduler, conf.scheduler.driver
    if driver not in FILTERING:
        yield f'the driver {driver} may decide by chance'
    width = options.host_subset_size
    if width > 1:
        yield (f'it takes one of the {width} best hosts by chance, as '
               '[filter_scheduler] host_subset_size says')
    if len(picks) > 1 or decision_text.is_tied(document):
        if options.shuffle_best_same_weighed_hosts:
            yield 'it takes one of the hosts of equal weight by chance'
        elif options.rotate_best_same_weighed_hosts:
            yield ('of hosts of equal weight, each scheduler process prefers '
                   'another one')
    yield 'it counts its own builds as in progress until their hosts report'
    if driver != 'provider_scheduler' and conf.scheduler.refresh_interval:
        yield ('it may have read the hosts up to '
               f'{conf.scheduler.refresh_interval:g} s earlier')


def room(
    app: Shell, args: argparse.Namespace
) -> tuple[planning.Capacity, Mapping[str, str]]:
    """Return how many more servers fit, and the names of cells by uuid."""
    request = build(app, args)
    snapshot = host_snapshot.of(app, args.snapshot)
    return app.deployment.capacity(snapshot, request), snapshot.cells


def build(
    app: Shell, args: argparse.Namespace, count: int = 1
) -> objects.RequestSpec:
    """Return the request that a file and options describe.

    The options override the fields of the file.

    :param count: the number of servers
    :raises cellsched.exception.Invalid: an API or a scheduler would reject the
        request; names the option, or the file and its field
    """
    context = app.context()
    request = objects.RequestSpec(
        image=None, availability_zone=None, ignore_hosts=None,
        force_hosts=None, force_nodes=None, retry=None, limits=None,
        instance_group=None, scheduler_hints={}, is_bfv=False,
        project_id=context.project_id, user_id=context.user_id)
    if args.request is not None:
        given = read(args.request)
        for name in given.fields:
            if given.obj_attr_is_set(name):
                setattr(request, name, getattr(given, name))
    _set_flavor(app, request, args)
    properties = base.pairs('--image-property', args.image_property)
    if properties:
        image = request.image or objects.ImageMeta()
        present = dict(image.properties.items()) if image.get(
            'properties') else {}
        image.properties = objects.ImageMetaProps(**{**present, **properties})
        request.image = image
    if args.project is not None:
        request.project_id = args.project
    if args.hint:
        request.scheduler_hints = {
            **(request.scheduler_hints or {}), **server.read_hints(args.hint)}
    _set_hosts(app, request, args)
    if args.group is not None:
        if args.snapshot is not None:
            raise base.invalid(
                '--group', 'a snapshot does not have the members of groups',
                '--group or --snapshot, not both')
        request.instance_group = app.deployment.server_group(args.group)
    _check(app, request, count)
    keys.check_request(request, 'plan', 'request')
    request.add_hardware(aliases.by_name(app.conf.pci.alias))
    return request


def _set_hosts(
    app: Shell, request: objects.RequestSpec, args: argparse.Namespace
) -> None:
    if args.availability_zone is not None:
        zone, host, node = validation.parse_zone(args.availability_zone)
        request.availability_zone = zone
        request.force_hosts = host and [host]
        request.force_nodes = node and [node]
    if args.host or args.hypervisor_hostname:
        destination = request.get('requested_destination') or (
            objects.Destination())
        for field, value in (('host', args.host),
                             ('node', args.hypervisor_hostname)):
            if value:
                setattr(destination, field, value)
        request.requested_destination = destination
    if args.force_host:
        request.force_hosts = args.force_host
    if args.ignore_host:
        request.ignore_hosts = args.ignore_host
    if request.availability_zone is None and not (
            request.force_hosts or request.force_nodes):
        request.availability_zone = app.conf.default_schedule_zone or None


def _set_flavor(
    app: Shell, request: objects.RequestSpec, args: argparse.Namespace
) -> None:
    sizes = {'vcpus': args.vcpus, 'memory_mb': args.ram, 'root_gb': args.disk}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    if args.flavor is not None:
        if sizes:
            raise base.invalid(
                '--flavor', 'a flavor and sizes are given',
                'a flavor, or sizes alone')
        request.flavor = app.deployment.flavor(args.flavor)
    elif sizes or not request.obj_attr_is_set('flavor'):
        flavor = request.get('flavor') or objects.Flavor(
            name='', root_gb=0, ephemeral_gb=0, swap=0, extra_specs={})
        for name, size in sizes.items():
            setattr(flavor, name, size)
        request.flavor = flavor
    flavor = request.flavor
    flavor.extra_specs = {**(flavor.get('extra_specs') or {}),
                          **base.pairs('--extra-spec', args.extra_spec)}


def _check(app: Shell, request: objects.RequestSpec, count: int) -> None:
    conf, flavor = app.conf, request.flavor
    for option, field, least in (('--vcpus', 'vcpus', 1),
                                 ('--ram', 'memory_mb', 1),
                                 ('--disk', 'root_gb', 0)):
        if flavor.get(field) is None:
            raise base.invalid(
                '--flavor', f'neither a flavor nor {option} is given',
                f'a flavor, or {option}')
        validation.check_count(
            'options', option, flavor.get(field), _AMOUNT_MAX, least)
    validation.ServerRequest(
        'plan', flavor.get('name') or 'sizes', None,
        request.availability_zone, request.scheduler_hints or {}, count, count,
    ).check(validation.ServerBounds(
        conf.scheduler.max_instances_per_request, conf.api.max_limit,
        lambda: app.deployment.hints))


def _place(
    uuid: str, place: Sequence[objects.Selection], cells: Mapping[str, str]
) -> dict[str, Any]:
    first, *alternates = place
    return {
        'instance': uuid, 'host': first.service_host, 'node': first.nodename,
        'cell': cells.get(first.cell_uuid, first.cell_uuid),
        'availability_zone': first.availability_zone,
        'alternates': [each.service_host for each in alternates]}


def read(path: pathlib.Path) -> objects.RequestSpec:
    """Return the request in a file: a RequestSpec, or its fields alone.

    :raises cellsched.exception.InvalidField: names the file and the field
    """
    try:
        with path.open('rb') as file:
            text = file.read(_BYTES_MAX + 1)
    except OSError as exc:
        raise _invalid(path, 'document', f'cannot be read: {exc.strerror}',
                       'a readable file') from None
    if len(text) > _BYTES_MAX:
        raise _invalid(path, 'document', 'it is too large',
                       f'at most {_BYTES_MAX} bytes')

    def refuse(constant: str) -> NoReturn:
        raise _invalid(path, 'document', f'{constant} is not a JSON number',
                       'a RequestSpec in JSON')

    try:
        given = json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise _invalid(path, 'document', 'it is nested too deeply',
                       'a RequestSpec in JSON') from None
    except json.JSONDecodeError as exc:
        raise _invalid(
            path, 'document',
            f'it is not valid JSON at line {exc.lineno}, column {exc.colno}',
            'a RequestSpec in JSON') from None
    except ValueError:
        raise _invalid(path, 'document', 'it is not valid JSON in UTF-8',
                       'a RequestSpec in JSON') from None
    return _made(path, given)


def _made(path: pathlib.Path, given: Any) -> objects.RequestSpec:
    if not isinstance(given, dict):
        raise _invalid(path, 'document', 'it is not an object',
                       'a RequestSpec in JSON')
    if f'{_PREFIX}name' not in given:
        given = _enveloped(path, 'RequestSpec', given, '')
    if given[f'{_PREFIX}name'] != 'RequestSpec':
        raise _invalid(path, f'{_PREFIX}name', 'unknown object', 'RequestSpec')
    try:
        return objects.RequestSpec.obj_from_primitive(given)
    except exception.InvalidField as exc:
        raise exception.InvalidField(
            where=str(path), field=f'{exc.where}.{exc.field}',
            **{name: text[:200] for name, text in exc.reasons.items()}
        ) from None
    except _INVALID:
        raise _invalid(
            path, _first_invalid(given), 'invalid value',
            'a RequestSpec as it is sent in messages') from None


def _first_invalid(given: dict[str, Any]) -> str:
    """Return the first field of a request that cannot be read by itself."""
    data = given.get(f'{_PREFIX}data')
    if isinstance(data, dict):
        for field, value in data.items():
            try:
                objects.RequestSpec.obj_from_primitive(
                    {**given, f'{_PREFIX}data': {field: value}})
            except (exception.InvalidField, *_INVALID):
                return str(field)
    return 'document'


def _enveloped(
    path: pathlib.Path, name: str, given: Any, where: str
) -> dict[str, Any]:
    """Return plain fields as an object with its name and version."""
    if not isinstance(given, Mapping):
        raise _invalid(path, where.rstrip('.') or 'document',
                       'it is not an object', f'the fields of {name}')
    if f'{_PREFIX}name' in given:
        return dict(given)
    kind = objects_base.Registry.obj_classes()[name][0]
    data = {}
    for field, value in given.items():
        if field == 'rules' and '_rules' in kind.fields:
            field = '_rules'
        if kind.fields and field not in kind.fields:
            raise _invalid(
                path, f'{where}{field!s:.80}', 'unknown field',
                f'a field of {name}: {", ".join(kind.fields)}')
        nested = _NESTED.get(name, {}).get(field)
        if nested is not None and value is not None:
            value = _enveloped(path, nested, value, f'{where}{field}.')
        data[field] = value
    return {f'{_PREFIX}name': name, f'{_PREFIX}namespace': 'nova',
            f'{_PREFIX}version': kind.VERSION, f'{_PREFIX}data': data}


def _invalid(
    path: pathlib.Path, field: str, problem: str, expected: str
) -> exception.InvalidField:
    return exception.InvalidField(
        where=str(path), field=field, problem=problem, expected=expected)
