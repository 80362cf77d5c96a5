# SPDX-License-Identifier: Apache-2.0
"""Traits that a request requires of its host, by name or by its image."""

import abc
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
from typing import Any
from typing import TypeVar

import numpy as np
from oslo_utils import strutils

from cellsched import exception
from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import keys
from cellsched.objects.request_groups import is_trait
from cellsched.objects.request_groups import standard_traits

#: Prefix of the keys in flavors, images and aggregates that name traits.
TRAIT = 'trait:'

#: No traits.
NONE: Set[str] = frozenset()

_IMAGE_TYPE = 'COMPUTE_IMAGE_TYPE_'

#: Prefixes of trait names, by the image property with the rest of the name.
_PROPERTIES = {
    'hw_cdrom_bus': 'COMPUTE_STORAGE_BUS_',
    'hw_disk_bus': 'COMPUTE_STORAGE_BUS_',
    'hw_video_model': 'COMPUTE_GRAPHICS_MODEL_',
    'hw_vif_model': 'COMPUTE_NET_VIF_MODEL_',
    'hw_architecture': 'HW_ARCH_',
    'hw_emulation_architecture': 'COMPUTE_ARCH_',
    'hw_viommu_model': 'COMPUTE_VIOMMU_MODEL_',
}


class RequiredTraits(base.Filter):
    """A stage that rejects hosts without a trait."""

    run_filter_once_per_request = True
    local = True

    @abc.abstractmethod
    def required(self, request: objects.RequestSpec) -> Set[str]:
        """Return the traits that a host must have.

        :raises cellsched.exception.InvalidField: a field of the request is
            invalid
        """

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(self.required(request))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        required = self.required(request)
        return hosts.each('traits', lambda has: required <= has)


class Traits(RequiredTraits):
    """Reject hosts without a required trait or with a forbidden one.

    The flavor's extra specs and the image's properties name them:
    ``trait:NAME`` is ``required`` or ``forbidden``. A policy for CPU threads
    and the affinity of PCI devices to sockets ask for traits, too. Services
    can add traits in ``root_required`` and ``root_forbidden``.
    """

    reason = 'lacks a required trait'
    reads = frozenset({
        'flavor.extra_specs.trait:*', 'image.properties.traits_required',
        'request_level_params.root_required',
        'request_level_params.root_forbidden'})

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(self.required(request) or forbidden(request))

    def required(self, request: objects.RequestSpec) -> Set[str]:
        return named(request) | root(request, 'root_required')

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        required, barred = self.required(request), forbidden(request)
        if not hosts.given_by_others(request.resources()):
            return hosts.each('traits', lambda has: (
                required <= has and barred.isdisjoint(has)))
        kept = hosts.each('traits', barred.isdisjoint)
        for _, present in self._present(hosts, request):
            kept &= present
        return kept

    def reasons(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Sequence[base.Reason]:
        checks = [
            (f'has the forbidden trait {trait}', trait,
             hosts.each('traits', lambda has: trait in has))
            for trait in sorted(forbidden(request))] + [
            (f'lacks the trait {trait}', trait, ~present)
            for trait, present in self._present(hosts, request)]
        # Each host counts for the first of its traits.
        found, rest = [], np.ones(len(hosts), bool)
        for reason, trait, failed in checks:
            if is_trait(trait) and (failed & rest).any():
                found.append(base.Reason(reason, failed & rest))
                rest &= ~failed
        if rest.any():
            found.append(base.Reason(self.reason, rest))
        return found

    def _present(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Iterator[tuple[str, view.Mask]]:
        """Yield each required trait, and the hosts that have it."""
        of_root = root(request, 'root_required')
        is_shared = bool(hosts.given_by_others(request.resources()))
        for trait in sorted(self.required(request)):
            present = hosts.each('traits', lambda has: trait in has)
            if is_shared and trait not in of_root:
                present |= _elsewhere(hosts, trait)
            yield trait, present


class ImageTypeSupport(RequiredTraits):
    """Reject hosts that do not support the image's disk format.

    It is enabled by ``query_placement_for_image_type_support``. A server that
    boots from a volume is not restricted, nor is a format without a trait.
    """

    reason = "does not take the image's format"
    reads = frozenset({'image.disk_format'})

    def required(self, request: objects.RequestSpec) -> Set[str]:
        image = request.get('image')
        if image is None or request.get('is_bfv', False):
            return NONE
        trait = _IMAGE_TYPE + (image.get('disk_format') or '').upper()
        return {trait} & standard_traits()


class ImageMetadata(RequiredTraits):
    """Reject hosts without the devices that the image names.

    It is enabled by ``image_metadata_prefilter`` and reads ``hw_cdrom_bus``,
    ``hw_disk_bus``, ``hw_video_model``, ``hw_vif_model``, ``hw_architecture``,
    ``hw_emulation_architecture`` and ``hw_viommu_model``. A value without a
    trait restricts nothing.
    """

    reason = 'lacks a device that the image names'
    reads = frozenset(f'image.properties.{name}' for name in _PROPERTIES)

    def required(self, request: objects.RequestSpec) -> Set[str]:
        image = request.get('image')
        properties = image.get('properties') if image is not None else None
        if properties is None:
            return NONE
        return {prefix + _spelled(name, properties.get(name))
                for name, prefix in _PROPERTIES.items()
                if properties.get(name) is not None} & standard_traits()


def named(request: objects.RequestSpec) -> set[str]:
    """Return the traits that the flavor and the image require by name.

    :raises cellsched.exception.InvalidField: the image's traits are no list of
        strings
    """
    of_flavor = _of_flavor(request, 'required')
    of_image = request.image_property('traits_required')
    if of_image is None:
        return of_flavor
    return of_flavor | _texts('image.properties.traits_required', of_image)


def root(request: objects.RequestSpec, name: str) -> set[str]:
    """Return the traits that services require or forbid.

    :param name: ``root_required`` or ``root_forbidden``
    :raises cellsched.exception.InvalidField: they are no list of strings
    """
    value = request.get('request_level_params')
    data = value.get('nova_object.data', value) if isinstance(
        value, dict) else None
    if not isinstance(data, dict):
        return set()
    return _texts(f'request_level_params.{name}', data.get(name))


def _elsewhere(hosts: view.Hosts, trait: str) -> view.Mask:
    """Return the hosts that have a trait on another of their providers.

    The group stages check whether that provider serves an amount.
    """
    with_it = {uuid for uuid, each in hosts.sharing.items()
               if trait in each.traits}
    found = hosts.each('children', lambda value: any(
        trait in has for _, has in value))
    if with_it:
        found |= hosts.each('sharing', lambda uuids: not with_it.isdisjoint(
            uuids))
    return found


def unnumbered(
    request: objects.RequestSpec
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the required and the forbidden unnumbered traits.

    :raises cellsched.exception.InvalidField: the image's traits are no list of
        strings
    """
    return frozenset(named(request)), frozenset(
        _of_flavor(request, 'forbidden'))


def forbidden(request: objects.RequestSpec) -> set[str]:
    """Return the traits that a host must not have.

    :raises cellsched.exception.InvalidField: they are no list of strings
    """
    return _of_flavor(request, 'forbidden') | root(request, 'root_forbidden')


def refuse(
    field: str, expected: str, problem: str | None = None
) -> exception.InvalidField:
    """Return the error for a field of a request."""
    return exception.InvalidField(
        where='request', field=field, problem=problem, expected=expected)


def _of_flavor(request: objects.RequestSpec, value: str) -> set[str]:
    """Return the traits that have this value in the flavor or by a policy."""
    specs = request.flavor.get('extra_specs') or {}
    found = {key.removeprefix(TRAIT) for key, given in specs.items()
             if given == value and key.startswith(TRAIT)} if specs else set()
    of_policies = request.hardware_traits()
    return found.union(
        trait for trait, kind in of_policies.items() if kind == value
    ) if of_policies else found


def _texts(field: str, value: Any) -> set[str]:
    if value is None:
        return set()
    if not isinstance(value, (list, tuple, set)) or not all(
            isinstance(trait, str) for trait in value):
        raise refuse(field, 'a list of names of traits')
    return set(value)


def _spelled(name: str, value: Any) -> str:
    """Return a property's value in the spelling of trait names."""
    if not isinstance(value, str):
        raise refuse(f'image.properties.{name}', 'a string')
    value = keys.PROPERTIES.canonical(name, value)
    return str(value).replace('-', '_').upper()


_Value = TypeVar('_Value')

_FORMATS = {each: f'COMPUTE_EPHEMERAL_ENCRYPTION_{each.upper()}'
            for each in ('plain', 'luks', 'luksv2')}

_SOUND_MODELS = {each: f'COMPUTE_SOUND_MODEL_{each.upper()}' for each in (
    'sb16', 'es1370', 'pcspk', 'ac97', 'ich6', 'ich9', 'usb', 'virtio')}

_TPM_VERSIONS = {'1.2': 'COMPUTE_SECURITY_TPM_1_2',
                 '2.0': 'COMPUTE_SECURITY_TPM_2_0'}

_TPM_MODELS = {'tpm-tis': 'COMPUTE_SECURITY_TPM_TIS',
               'tpm-crb': 'COMPUTE_SECURITY_TPM_CRB'}

#: The values of ``hw:tpm_secret_security``.
_TPM_SECRETS = {
    each: f'COMPUTE_SECURITY_TPM_SECRET_SECURITY_{each.upper()}'
    for each in ('user', 'host', 'deployment')}


def _names(*names: str) -> frozenset[str]:
    return frozenset(
        name for each in names for name in (
            f'flavor.extra_specs.hw:{each}', f'image.properties.hw_{each}'))


class PackedVirtqueue(RequiredTraits):
    """Reject hosts without packed virtqueues, if requested.

    The extra spec ``hw:virtio_packed_ring`` or the image property
    ``hw_virtio_packed_ring`` requests them.
    """

    reason = 'has no packed virtqueues'
    reads = _names('virtio_packed_ring')

    def required(self, request: objects.RequestSpec) -> Set[str]:
        requested = _agreed(
            request, 'virtio_packed_ring', strutils.bool_from_string)
        if not requested:
            return NONE
        return {'COMPUTE_NET_VIRTIO_PACKED'}


class EphemeralEncryption(RequiredTraits):
    """Reject hosts without encryption of local disks, if requested.

    ``hw:ephemeral_encryption`` or ``hw_ephemeral_encryption`` requests it,
    with ``…_format`` ``plain``, ``luks`` or ``luksv2``.
    """

    reason = 'cannot encrypt disks as asked'
    reads = _names('ephemeral_encryption', 'ephemeral_encryption_format')

    def required(self, request: objects.RequestSpec) -> Set[str]:
        if not _agreed(
                request, 'ephemeral_encryption', strutils.bool_from_string):
            return NONE
        return {'COMPUTE_EPHEMERAL_ENCRYPTION'} | _chosen(
            request, 'ephemeral_encryption_format', _FORMATS)


class VirtioSound(RequiredTraits):
    """Reject hosts without virtio sound devices, if requested.

    ``hw:sound_model`` or ``hw_sound_model`` with ``virtio`` requests one.
    Other models require no trait.
    """

    reason = 'has no virtio sound devices'
    reads = _names('sound_model')

    def required(self, request: objects.RequestSpec) -> Set[str]:
        model = _chosen(request, 'sound_model', _SOUND_MODELS)
        return model & {_SOUND_MODELS['virtio']}


class VTPM(RequiredTraits):
    """Reject hosts that cannot emulate the requested TPM.

    ``hw:tpm_version`` or ``hw_tpm_version`` requests version ``1.2`` or
    ``2.0``; ``…_model`` is ``tpm-tis`` (the default) or ``tpm-crb``. The extra
    spec ``hw:tpm_secret_security`` selects the access to its secret:
    ``user`` (the default), ``host`` or ``deployment``.
    """

    reason = 'cannot emulate the TPM'
    reads = _names('tpm_version', 'tpm_model') | {
        'flavor.extra_specs.hw:tpm_secret_security'}

    def required(self, request: objects.RequestSpec) -> Set[str]:
        device = tpm(request)
        if not device:
            return device
        name = 'hw:tpm_secret_security'
        secret = (request.flavor.get('extra_specs') or {}).get(name) or 'user'
        keys.EXTRA_SPECS.check(
            {name: secret}, 'request', 'flavor.extra_specs')
        return device | {_TPM_SECRETS[secret]}


def tpm(request: objects.RequestSpec) -> Set[str]:
    """Return the traits of the requested TPM; none without a TPM.

    :raises cellsched.exception.InvalidField: the requested TPM is unknown
    """
    version = _chosen(request, 'tpm_version', _TPM_VERSIONS)
    if not version:
        return version
    model = _chosen(request, 'tpm_model', _TPM_MODELS)
    if _TPM_MODELS['tpm-crb'] in model and _TPM_VERSIONS['1.2'] in version:
        raise refuse(
            'flavor.extra_specs.hw:tpm_model',
            'tpm-tis', 'tpm-crb needs TPM 2.0')
    return version | (model or {_TPM_MODELS['tpm-tis']})


def _chosen(
    request: objects.RequestSpec, name: str, choices: Mapping[str, str]
) -> Set[str]:
    """Return the trait for the value of the flavor or image, if any."""
    value = _agreed(request, name, choices.__getitem__)
    return NONE if value is None else {value}


def _agreed(
    request: objects.RequestSpec, name: str, read: Callable[[Any], _Value]
) -> _Value | None:
    """Return the value of the flavor or image; None without a value.

    :param read: parses a valid value
    """
    specs = request.flavor.get('extra_specs') or {}
    pair = specs.get(f'hw:{name}'), request.image_property(f'hw_{name}')
    if pair == (None, None):
        return None
    of_flavor, of_image = (None if value == '' else value for value in pair)
    keys.EXTRA_SPECS.check(
        {f'hw:{name}': of_flavor}, 'request', 'flavor.extra_specs')
    keys.PROPERTIES.check(
        {f'hw_{name}': of_image}, 'request', 'image.properties')
    given = [read(value) for value in (of_flavor, of_image)
             if value is not None]
    if len(given) > 1 and given[0] != given[1]:
        raise refuse(
            f'image.properties.hw_{name}',
            f'the value of hw:{name} in the flavor',
            'the flavor has another value')
    return given[0] if given else None
