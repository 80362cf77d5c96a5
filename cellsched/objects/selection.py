# SPDX-License-Identifier: Apache-2.0
"""A place that the scheduler chose."""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
import json
from typing import Any

from oslo_serialization import jsonutils
from oslo_versionedobjects import fields

from cellsched.objects import base


@base.Registry.register
class Selection(base.Object):
    """A (host, node) pair, with what a claim for it takes.

    ``allocation_request`` is a JSON document in Placement's form: what each
    provider is asked for, and which providers each group of the request has.
    """

    VERSION = '1.1'

    fields = {
        'compute_node_uuid': fields.UUIDField(),
        'service_host': fields.StringField(),
        'nodename': fields.StringField(),
        'cell_uuid': fields.UUIDField(),
        'limits': fields.ObjectField('SchedulerLimits', nullable=True),
        'allocation_request': fields.StringField(nullable=True),
        'allocation_request_version': fields.StringField(nullable=True),
        'availability_zone': fields.StringField(nullable=True),
    }

    @staticmethod
    def allocation(
        provider: str, resources: Mapping[str, int]
    ) -> str:
        """Return an allocation request for one provider.

        It has the whole request, which is the group without a name. Nova's
        conductor looks groups up in ``mappings`` and fails without them.
        """
        name = json.dumps(provider)
        return (f'{{"allocations": {{{name}: '
                f'{_asked(tuple(resources.items()))}}}, '
                f'"mappings": {{"": [{name}]}}}}')

    @staticmethod
    def allocations(
        allocations: Mapping[str, Mapping[str, int]],
        mappings: Mapping[str, Sequence[str]],
    ) -> str:
        """Return an allocation request for several providers.

        :param allocations: amounts by resource class, by provider
        :param mappings: the providers of each group, by its suffix; what has
            no number has an empty one
        """
        return json.dumps({
            'allocations': {
                provider: {'resources': dict(amounts)}
                for provider, amounts in allocations.items()},
            'mappings': {suffix: list(providers)
                         for suffix, providers in mappings.items()}})

    def wanted(self) -> dict[str, dict[str, int]]:
        """Return what the allocation request asks for, by provider."""
        request = jsonutils.loads(self.get('allocation_request') or 'null')
        return {provider: dict(asked['resources']) for provider, asked
                in (request or {'allocations': {}})['allocations'].items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the form for callers that do not ask for objects."""
        limits = self.get('limits')
        return {'host': self.service_host, 'nodename': self.nodename,
                'limits': limits.to_dict() if limits else {}}


# Sizes are few, and to write one as JSON takes longer than all else.
@functools.lru_cache(1024)
def _asked(resources: tuple[tuple[str, int], ...]) -> str:
    return json.dumps({'resources': dict(resources)})
