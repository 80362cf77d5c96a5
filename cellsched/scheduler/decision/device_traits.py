# SPDX-License-Identifier: Apache-2.0
"""Traits that a request requires for a device that flavor or image name."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Set
from typing import Any
from typing import TypeVar

from oslo_utils import strutils

from cellsched import objects
from cellsched.scheduler.decision import required_traits

_Value = TypeVar('_Value')

_FORMATS = {each: f'COMPUTE_EPHEMERAL_ENCRYPTION_{each.upper()}'
            for each in ('plain', 'luks', 'luksv2')}

_SOUND_MODELS = {each: f'COMPUTE_SOUND_MODEL_{each.upper()}' for each in (
    'sb16', 'es1370', 'pcspk', 'ac97', 'ich6', 'ich9', 'usb', 'virtio')}

_TPM_VERSIONS = {'1.2': 'COMPUTE_SECURITY_TPM_1_2',
                 '2.0': 'COMPUTE_SECURITY_TPM_2_0'}

_TPM_MODELS = {'tpm-tis': 'COMPUTE_SECURITY_TPM_TIS',
               'tpm-crb': 'COMPUTE_SECURITY_TPM_CRB'}

#: Who can read the secret of a TPM.
_TPM_SECRETS = {
    each: f'COMPUTE_SECURITY_TPM_SECRET_SECURITY_{each.upper()}'
    for each in ('user', 'host', 'deployment')}


def _names(*names: str) -> frozenset[str]:
    return frozenset(
        name for each in names for name in (
            f'flavor.extra_specs.hw:{each}', f'image.properties.hw_{each}'))


class _DeviceTraits(required_traits.RequiredTraits):
    """Rejects hosts without a device; see the classes below."""

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(self.required(request))


class PackedVirtqueue(_DeviceTraits):
    """Reject hosts without packed virtqueues, where they are asked for.

    ``hw:virtio_packed_ring`` or ``hw_virtio_packed_ring`` asks.
    """

    reason = 'has no packed virtqueues'
    reads = _names('virtio_packed_ring')

    def required(self, request: objects.RequestSpec) -> Set[str]:
        wanted = _agreed(request, 'virtio_packed_ring', _truth)
        if not wanted:
            return required_traits.NONE
        return {'COMPUTE_NET_VIRTIO_PACKED'}


class EphemeralEncryption(_DeviceTraits):
    """Reject hosts that cannot encrypt the disks that they make.

    ``hw:ephemeral_encryption`` or ``hw_ephemeral_encryption`` asks for it,
    and ``…_format`` for ``plain``, ``luks`` or ``luksv2``.
    """

    reason = 'cannot encrypt disks as asked'
    reads = _names('ephemeral_encryption', 'ephemeral_encryption_format')

    def required(self, request: objects.RequestSpec) -> Set[str]:
        if not _agreed(request, 'ephemeral_encryption', _truth):
            return required_traits.NONE
        return {'COMPUTE_EPHEMERAL_ENCRYPTION'} | _chosen(
            request, 'ephemeral_encryption_format', _FORMATS)


class VirtioSound(_DeviceTraits):
    """Reject hosts without virtio sound devices, where one is asked for.

    ``hw:sound_model`` or ``hw_sound_model`` asks, as ``virtio``. Of other
    models nothing is required.
    """

    reason = 'has no virtio sound devices'
    reads = _names('sound_model')

    def required(self, request: objects.RequestSpec) -> Set[str]:
        model = _chosen(request, 'sound_model', _SOUND_MODELS)
        return model & {_SOUND_MODELS['virtio']}


class VTPM(_DeviceTraits):
    """Reject hosts that cannot emulate the TPM that is asked for.

    ``hw:tpm_version`` or ``hw_tpm_version`` asks for one, ``1.2`` or ``2.0``;
    ``…_model`` is ``tpm-tis`` unless it says ``tpm-crb``. The extra spec
    ``hw:tpm_secret_security`` says who can read its secret: ``user``, the
    default, ``host`` or ``deployment``.
    """

    reason = 'cannot emulate the TPM'
    reads = _names('tpm_version', 'tpm_model') | {
        'flavor.extra_specs.hw:tpm_secret_security'}

    def required(self, request: objects.RequestSpec) -> Set[str]:
        device = tpm(request)
        if not device:
            return device
        name = 'hw:tpm_secret_security'
        specs = request.flavor.get('extra_specs') or {}
        return device | {_choice(
            f'flavor.extra_specs.{name}', specs.get(name) or 'user',
            _TPM_SECRETS)}


def tpm(request: objects.RequestSpec) -> Set[str]:
    """Return the traits of the TPM that is asked for; none without one.

    :raises cellsched.exception.InvalidField: there is no such TPM
    """
    version = _chosen(request, 'tpm_version', _TPM_VERSIONS)
    if not version:
        return version
    model = _chosen(request, 'tpm_model', _TPM_MODELS)
    if _TPM_MODELS['tpm-crb'] in model and _TPM_VERSIONS['1.2'] in version:
        raise required_traits.refuse(
            'flavor.extra_specs.hw:tpm_model',
            'tpm-tis, as tpm-crb is of TPM 2.0')
    return version | (model or {_TPM_MODELS['tpm-tis']})


def _chosen(
    request: objects.RequestSpec, name: str, choices: Mapping[str, str]
) -> Set[str]:
    """Return the trait of what flavor or image choose, if they do."""
    value = _agreed(
        request, name, lambda field, said: _choice(field, said, choices))
    return required_traits.NONE if value is None else {value}


def _agreed(
    request: objects.RequestSpec, name: str,
    read: Callable[[str, Any], _Value],
) -> _Value | None:
    """Return what flavor and image say; None where neither says anything.

    :param read: takes the name of a field and what it says
    """
    specs = request.flavor.get('extra_specs') or {}
    pair = specs.get(f'hw:{name}'), request.image_property(f'hw_{name}')
    if pair == (None, None):
        return None
    of_image = f'image.properties.hw_{name}'
    said = [read(field, value) for field, value in zip(
        (f'flavor.extra_specs.hw:{name}', of_image), pair)
        if value is not None and value != '']
    if len(said) > 1 and said[0] != said[1]:
        raise required_traits.refuse(
            of_image, f'what hw:{name} of the flavor says')
    return said[0] if said else None


def _truth(field: str, value: Any) -> bool:
    try:
        return strutils.bool_from_string(value, strict=True)
    except ValueError:
        raise required_traits.refuse(field, 'true or false') from None


def _choice(field: str, value: Any, choices: Mapping[str, str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise required_traits.refuse(
            field, f'one of {", ".join(sorted(choices))}')
    return choices[value]
