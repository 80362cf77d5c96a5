# SPDX-License-Identifier: Apache-2.0
"""Decisions that change nothing: ``cellsched plan``."""

import argparse
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
from typing import Any
from typing import TYPE_CHECKING

from oslo_utils import uuidutils

from cellsched.cli import decision_text
from cellsched.cli import report
from cellsched.cli import request_options
from cellsched.cli import server
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli import app as app_
    from cellsched import objects

#: Exit code.
FITS_NOWHERE = 2

_ALTERNATES_MAX = 100

#: The largest amount of anything.
_SIZE_MAX = 2 ** 31 - 1


class Plan(report.ReportCommand):
    """Decide where servers would go, and take nothing.

    Decides with the configured filters and weighers, on the hosts as they are
    now, or on a snapshot that ``cellsched host export`` wrote. With a
    snapshot and ``--vcpus``, ``--ram`` and ``--disk``, neither a database nor
    a broker is needed; where servers are is not in it, so hints and groups
    that name servers find none.

    Ends with 2 if they fit nowhere, and shows the reasons.

    Examples::

        cellsched plan --flavor m1.large --count 10
        cellsched plan --flavor m1.large --ignore-host n1 -f json
        cellsched plan --snapshot hosts.json --vcpus 4 --ram 8192
    """

    app: 'app_.Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        request_options.add_arguments(parser)
        parser.add_argument('--count', type=int, metavar='COUNT', default=1,
                            help='how many servers; by default 1')
        parser.add_argument(
            '--alternates', type=int, metavar='COUNT', default=0,
            help='hosts to name for each server beside the chosen one; by '
                 'default 0')
        parser.add_argument(
            '--snapshot', metavar='FILE', type=pathlib.Path,
            help='decide on the hosts of this file')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from cellsched.scheduler.explanation import decision_document
        from cellsched.scheduler import request_validation

        args = parsed_args
        request = self._request(args)
        uuids = [uuidutils.generate_uuid() for _ in range(args.count)]
        request.instance_uuid, request.num_instances = uuids[0], args.count
        request_validation.check(request, uuids, dataclasses.replace(
            request_validation.bounds(self.app.conf.scheduler),
            instances_max=args.count))
        planner, cells = self._planner(args)
        places, decision = planner.plan(
            self.app.context(), request, uuids, args.alternates)
        made = decision_document.of(
            decision, request, uuids, None, self.app.clock.now())
        data = {**made, 'fits': bool(places),
                'why_not_second': decision_text.reason(made),
                'places': [_place(uuid, place, cells)
                           for uuid, place in zip(uuids, places)]}
        self.show(args.format, data, _lines(data, cells))
        return 0 if places else FITS_NOWHERE

    def _planner(
        self, args: argparse.Namespace
    ) -> tuple[Any, Mapping[str, str]]:
        """Return what decides, and the names of cells."""
        app = self.app
        if args.snapshot is not None:
            from cellsched.cli import host
            from cellsched.scheduler import planning

            snapshot = host.read(app, args.snapshot)
            return (planning.on_snapshot(app.conf, snapshot, app.parts.random),
                    snapshot.cells)
        parts = app.parts
        from cellsched.assembly import services as assembly

        planner = assembly.planner(app.conf, parts)
        cells = {cell.uuid: cell.name or cell.uuid
                 for cell in parts.cells.all()}
        return planner, cells

    def _request(self, args: argparse.Namespace) -> 'objects.RequestSpec':
        """Return what is asked for, of the file and the options."""
        from cellsched import objects

        request = objects.RequestSpec(
            image=None, availability_zone=None, ignore_hosts=None,
            force_hosts=None, force_nodes=None, retry=None, limits=None,
            instance_group=None, scheduler_hints={}, is_bfv=False,
            project_id=self.app.context().project_id,
            user_id=self.app.context().user_id)
        if args.request is not None:
            said = request_options.read(args.request)
            for name in said.fields:
                if said.obj_attr_is_set(name):
                    setattr(request, name, getattr(said, name))
        self._add_flavor(request, args)
        properties = request_options.pairs(
            '--image-property', args.image_property)
        if properties:
            image = request.image or objects.ImageMeta()
            before = dict(image.properties.items()) if image.get(
                'properties') else {}
            image.properties = objects.ImageMetaProps(
                **{**before, **properties})
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
        self._add_group(request, args)
        self._check(request, args)
        return request

    def _add_flavor(
        self, request: 'objects.RequestSpec', args: argparse.Namespace
    ) -> None:
        from cellsched import objects

        sizes = {'vcpus': args.vcpus, 'memory_mb': args.ram,
                 'root_gb': args.disk}
        sizes = {name: size for name, size in sizes.items()
                 if size is not None}
        if args.flavor is not None:
            if sizes:
                raise _invalid('--flavor', 'a flavor, or its sizes alone')
            request.flavor = self.app.api.flavors.get(args.flavor)
        elif sizes or not request.obj_attr_is_set('flavor'):
            flavor = request.get('flavor') or objects.Flavor(
                name='', root_gb=0, ephemeral_gb=0, swap=0, extra_specs={})
            for name, size in sizes.items():
                setattr(flavor, name, size)
            request.flavor = flavor
        flavor = request.flavor
        flavor.extra_specs = {**(flavor.get('extra_specs') or {}),
                              **request_options.extra_specs(args)}

    def _add_group(
        self, request: 'objects.RequestSpec', args: argparse.Namespace
    ) -> None:
        if args.group is None:
            return
        if args.snapshot is not None:
            raise _invalid(
                '--group', 'none with --snapshot, which does not say where '
                'servers are')
        request.instance_group = self.app.api.server_groups.get(
            self.app.context(), args.group)

    def _check(
        self, request: 'objects.RequestSpec', args: argparse.Namespace
    ) -> None:
        """Refuse what an API or a scheduler would refuse."""
        from cellsched.api import validation
        from cellsched.filters import registry

        conf, flavor = self.app.conf, request.flavor
        for option, field, least in (('--vcpus', 'vcpus', 1),
                                     ('--ram', 'memory_mb', 1),
                                     ('--disk', 'root_gb', 0)):
            if flavor.get(field) is None:
                raise _invalid('--flavor', f'a flavor, or {option}')
            validation.check_count(
                'options', option, flavor.get(field), _SIZE_MAX, least)
        validation.check_count('options', '--alternates', args.alternates,
                               _ALTERNATES_MAX, 0)
        validation.ServerRequest(
            'plan', flavor.get('name') or 'sizes', None,
            request.availability_zone, request.scheduler_hints or {},
            args.count, args.count,
        ).check(validation.ServerBounds(
            conf.scheduler.max_instances_per_request, conf.api.max_limit,
            registry.hints(conf)))
        for name in ('--force-host', '--ignore-host'):
            for host in getattr(args, name[2:].replace('-', '_')):
                validation.check_text('options', name, host)


def _place(
    uuid: str, place: Sequence['objects.Selection'], cells: Mapping[str, str]
) -> dict[str, Any]:
    first, *others = place
    return {
        'instance': uuid, 'host': first.service_host, 'node': first.nodename,
        'cell': cells.get(first.cell_uuid, first.cell_uuid),
        'availability_zone': first.availability_zone,
        'alternates': [each.service_host for each in others]}


def _lines(data: Mapping[str, Any], cells: Mapping[str, str]) -> Iterator[str]:
    yield from decision_text.lines(data, cells)
    if any(place['alternates'] for place in data['places']):
        yield ''
        yield from decision_text.table(('Server', 'Host', 'Alternates'), [
            (place['instance'], place['host'], place['alternates'])
            for place in data['places']])


def _invalid(option: str, expected: str) -> exception.InvalidField:
    return exception.InvalidField(
        where='options', field=option, expected=expected)
