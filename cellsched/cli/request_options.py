# SPDX-License-Identifier: Apache-2.0
"""Options that make up a request, for commands that decide on it."""

import argparse
from collections.abc import Iterable
import pathlib
from typing import TYPE_CHECKING

from cellsched.cli import request_file
from cellsched.cli import server
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli.app import Shell
    from cellsched import objects

#: The largest amount of anything.
_SIZE_MAX = 2 ** 31 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is wanted."""
    parser.add_argument('--flavor', metavar='FLAVOR',
                        help='id or name of the flavor')
    for name, unit, what in (('--vcpus', 'NUMBER', 'virtual CPUs'),
                             ('--ram', 'MB', 'memory'),
                             ('--disk', 'GB', 'disk')):
        parser.add_argument(name, type=int, metavar=unit,
                            help=f'{what}; in place of a flavor')
    for name, what in (
            ('--extra-spec', 'an extra spec that the flavor is to have'),
            ('--image-property', 'a property of the image'),
            ('--hint', 'a scheduler hint; the same one may be given several '
                       'values')):
        parser.add_argument(name, metavar='KEY=VALUE', action='append',
                            default=[], help=what)
    parser.add_argument('--availability-zone', metavar='ZONE',
                        help='the zone to build in')
    parser.add_argument('--project', metavar='ID',
                        help='the project; by default --os-project-id')
    parser.add_argument('--group', metavar='UUID',
                        help='the server group that they would join')
    for name, what in (('--force-host', 'consider this host, and others that '
                        'are forced, and ask no filter'),
                       ('--ignore-host', 'leave this host out')):
        parser.add_argument(name, metavar='HOST', action='append',
                            default=[], help=what)
    parser.add_argument(
        '--request', metavar='FILE', type=pathlib.Path,
        help='a request in JSON: a RequestSpec as it is sent, or its fields '
             'alone; options come on top of it')
    parser.add_argument(
        '--snapshot', metavar='FILE', type=pathlib.Path,
        help='decide on the hosts of this file, from cellsched host export')


def made(
    app: 'Shell', args: argparse.Namespace, count: int = 1
) -> 'objects.RequestSpec':
    """Return what is asked for, of the file and the options.

    What an API or a scheduler would refuse is refused.

    :param count: how many servers are
    :raises cellsched.exception.InvalidField: names the option, or the file
        and its field
    """
    from cellsched import objects

    request = objects.RequestSpec(
        image=None, availability_zone=None, ignore_hosts=None,
        force_hosts=None, force_nodes=None, retry=None, limits=None,
        instance_group=None, scheduler_hints={}, is_bfv=False,
        project_id=app.context().project_id, user_id=app.context().user_id)
    if args.request is not None:
        said = request_file.read(args.request)
        for name in said.fields:
            if said.obj_attr_is_set(name):
                setattr(request, name, getattr(said, name))
    _add_flavor(app, request, args)
    properties = pairs('--image-property', args.image_property)
    if properties:
        image = request.image or objects.ImageMeta()
        before = dict(image.properties.items()) if image.get(
            'properties') else {}
        image.properties = objects.ImageMetaProps(**{**before, **properties})
        request.image = image
    if args.availability_zone is not None:
        request.availability_zone = args.availability_zone
    if args.project is not None:
        request.project_id = args.project
    if args.hint:
        request.scheduler_hints = {
            **(request.scheduler_hints or {}),
            **server.read_hints(args.hint)}
    for name in ('force', 'ignore'):
        hosts = getattr(args, f'{name}_host')
        if hosts:
            setattr(request, f'{name}_hosts', hosts)
    _add_group(app, request, args)
    _check(app, request, args, count)
    return request


def _add_flavor(
    app: 'Shell', request: 'objects.RequestSpec',
    args: argparse.Namespace,
) -> None:
    from cellsched import objects

    sizes = {'vcpus': args.vcpus, 'memory_mb': args.ram, 'root_gb': args.disk}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    if args.flavor is not None:
        if sizes:
            raise _invalid('--flavor', 'a flavor, or its sizes alone')
        request.flavor = app.deployment.flavor(args.flavor)
    elif sizes or not request.obj_attr_is_set('flavor'):
        flavor = request.get('flavor') or objects.Flavor(
            name='', root_gb=0, ephemeral_gb=0, swap=0, extra_specs={})
        for name, size in sizes.items():
            setattr(flavor, name, size)
        request.flavor = flavor
    flavor = request.flavor
    flavor.extra_specs = {**(flavor.get('extra_specs') or {}),
                          **pairs('--extra-spec', args.extra_spec)}


def _add_group(
    app: 'Shell', request: 'objects.RequestSpec',
    args: argparse.Namespace,
) -> None:
    if args.group is None:
        return
    if args.snapshot is not None:
        raise _invalid(
            '--group', 'none with --snapshot, which does not say where '
            'servers are')
    request.instance_group = app.deployment.server_group(args.group)


def _check(
    app: 'Shell', request: 'objects.RequestSpec',
    args: argparse.Namespace, count: int,
) -> None:
    from cellsched.api import validation

    conf, flavor = app.conf, request.flavor
    for option, field, least in (('--vcpus', 'vcpus', 1),
                                 ('--ram', 'memory_mb', 1),
                                 ('--disk', 'root_gb', 0)):
        if flavor.get(field) is None:
            raise _invalid('--flavor', f'a flavor, or {option}')
        validation.check_count(
            'options', option, flavor.get(field), _SIZE_MAX, least)
    validation.ServerRequest(
        'plan', flavor.get('name') or 'sizes', None,
        request.availability_zone, request.scheduler_hints or {}, count, count,
    ).check(validation.ServerBounds(
        conf.scheduler.max_instances_per_request, conf.api.max_limit,
        lambda: app.deployment.hints))
    for name in ('--force-host', '--ignore-host'):
        for host in getattr(args, name[2:].replace('-', '_')):
            validation.check_text('options', name, host)


def pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Return the keys of an option with their values."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition('=')
        if not equals or not key or key in found:
            raise exception.InvalidField(
                where='options', field=option,
                expected=f'KEY=VALUE, each key once, not {ascii(text):.80}')
        found[key] = value
    return found


def _invalid(option: str, expected: str) -> exception.InvalidField:
    return exception.InvalidField(
        where='options', field=option, expected=expected)
