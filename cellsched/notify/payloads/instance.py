# SPDX-License-Identifier: Apache-2.0
"""The payloads of a server, and of a failed conductor task for one.

The fields are those of Nova. A field without a counterpart in this project,
for example ``key_name`` or ``ip_addresses``, is null or empty. ``locked`` is
always false, ``auto_disk_config`` is ``MANUAL``, and the audit period is null.
"""

import traceback
from typing import Any

from cellsched.context import RequestContext
from cellsched import exception
from cellsched.notify.payloads import envelope
from cellsched.notify.payloads import request_spec
from cellsched import objects
from cellsched import urls

State = tuple[str | None, str | None]

#: Fields of every payload of a server.
FIELDS = (
    'uuid', 'user_id', 'reservation_id', 'display_name',
    'display_description', 'host', 'node', 'os_type', 'architecture',
    'availability_zone', 'key_name', 'kernel_id', 'ramdisk_id', 'created_at',
    'launched_at', 'terminated_at', 'deleted_at', 'updated_at', 'task_state',
    'locked_reason')

ACTION = envelope.Form('InstanceActionPayload', '1.8', FIELDS)

REBUILD = envelope.Form('InstanceActionRebuildPayload', '1.9', FIELDS)

UPDATE = envelope.Form('InstanceUpdatePayload', '1.9', FIELDS)

#: Characters of a text, and of the end of a traceback.
TEXT_MAX = 4096
TRACEBACK_MAX = 16384

_POWER_STATES = {0: 'pending', 1: 'running', 3: 'paused', 4: 'shutdown',
                 6: 'crashed', 7: 'suspended'}


def action(
    context: RequestContext, instance: objects.Instance
) -> dict[str, Any]:
    """Return the payload of an action on a server."""
    return _fill(ACTION, context, instance, fault=None)


def rebuild(
    context: RequestContext, instance: objects.Instance
) -> dict[str, Any]:
    """Return the payload of a rebuild."""
    return _fill(REBUILD, context, instance, fault=None,
                 trusted_image_certificates=None)


def update(
    context: RequestContext, instance: objects.Instance,
    old: State, new: State,
) -> dict[str, Any]:
    """Return the payload of a change of state."""
    return _fill(
        UPDATE, context, instance,
        state_update=envelope.wrap(
            'InstanceStateUpdatePayload', '1.0', _states(old, new)),
        audit_period=envelope.wrap(
            'AuditPeriodPayload', '1.0', _audit_period(None)),
        bandwidth=[], old_display_name=None,
        tags=envelope.plain(_fields(instance).get('tags')) or [])


def legacy(instance: objects.Instance) -> dict[str, Any]:
    """Return the unversioned payload of a server."""
    known = _fields(instance)
    flavor = envelope.fields_of(known.get('flavor')) or {}
    return {
        'tenant_id': known.get('project_id'),
        'instance_id': known.get('uuid'),
        **{name: known.get(name) for name in (
            'user_id', 'display_name', 'reservation_id', 'hostname',
            'architecture', 'memory_mb', 'vcpus', 'root_gb', 'ephemeral_gb',
            'host', 'node', 'availability_zone', 'os_type', 'kernel_id',
            'ramdisk_id', 'access_ip_v4', 'access_ip_v6')},
        'disk_gb': (known.get('root_gb') or 0) + (
            known.get('ephemeral_gb') or 0),
        'instance_type': flavor.get('name'),
        'instance_type_id': known.get('instance_type_id'),
        'instance_flavor_id': flavor.get('flavorid'),
        'cell_name': '',
        'created_at': (known.get('created_at') or '').replace(
            'T', ' ').replace('Z', '+00:00'),
        **{name: envelope.legacy_time(known.get(name)) or '' for name in (
            'launched_at', 'terminated_at', 'deleted_at')},
        'progress': '',
        'image_ref_url': known.get('image_ref'),
        'image_meta': {},
        'metadata': {},
        'state': known.get('vm_state'),
        'state_description': known.get('task_state') or '',
    }


def legacy_update(
    instance: objects.Instance, old: State, new: State
) -> dict[str, Any]:
    """Return the unversioned payload of a change of state."""
    return {**legacy(instance), **_states(old, new), **_audit_period(''),
            'bandwidth': {}}


def failed_task(
    instance: objects.Instance, spec: objects.RequestSpec | None,
    reason: Exception, state: str | None,
) -> dict[str, Any]:
    """Return the payload of a failed conductor task.

    :param state: the state of the server after the failure
    :param spec: None if the request was deleted
    """
    return envelope.wrap('ComputeTaskPayload', '1.0', {
        'instance_uuid': instance.uuid,
        'request_spec': spec and request_spec.versioned(
            spec, [instance.uuid]),
        'state': state,
        'reason': versioned_exception(reason),
    })


def legacy_failed_task(
    method: str, instance: objects.Instance,
    spec: objects.RequestSpec | None, reason: Exception, state: str | None,
) -> dict[str, Any]:
    """Return the unversioned payload of a failed conductor task."""
    request = {} if spec is None else request_spec.legacy(
        spec, [instance.uuid])['request_spec']
    return {
        'request_spec': request,
        'instance_properties': request.get('instance_properties', {}),
        'instance_id': instance.uuid,
        'state': state,
        'method': method,
        'reason': exception_text(reason),
    }


def exception_text(reason: BaseException) -> str:
    """Return the text of an error, without passwords."""
    if isinstance(reason, exception.CellschedException):
        value = reason.format_message()
    else:
        value = str(reason) or type(reason).__name__
    return urls.mask_text(value)[:TEXT_MAX]


def versioned_exception(reason: BaseException) -> dict[str, Any]:
    """Return the payload of an error."""
    module = function = 'unknown'
    # The last frame raised the error.
    for frame, _ in traceback.walk_tb(reason.__traceback__):
        module = frame.f_globals.get('__name__', 'unknown')
        function = frame.f_code.co_name
    return envelope.wrap('ExceptionPayload', '1.1', {
        'module_name': module,
        'function_name': function,
        'exception': exception.kind_of(reason),
        'exception_message': exception_text(reason),
        'traceback': urls.mask_text(''.join(
            traceback.format_exception(reason)))[-TRACEBACK_MAX:],
    })


def _fill(
    form: envelope.Form, context: RequestContext,
    instance: objects.Instance, **more: Any,
) -> dict[str, Any]:
    known = _fields(instance)
    # A task of a service itself has a request id that no user has seen.
    is_of_user = context.user_id and context.project_id
    payload = form.fill(
        known,
        tenant_id=known.get('project_id'),
        host_name=known.get('hostname'),
        image_uuid=known.get('image_ref'),
        state=known.get('vm_state'),
        power_state=_POWER_STATES.get(known.get('power_state') or 0),
        flavor=request_spec.FLAVOR.fill(known.get('flavor')),
        progress=0, metadata={}, locked=False, auto_disk_config='MANUAL',
        ip_addresses=[], block_devices=[],
        request_id=context.request_id if is_of_user else None,
        action_initiator_user=context.user_id,
        action_initiator_project=context.project_id,
        **more)
    assert payload is not None
    return payload


def _fields(instance: objects.Instance) -> dict[str, Any]:
    return envelope.fields_of(instance) or {}


def _states(old: State, new: State) -> dict[str, Any]:
    return {'old_state': old[0], 'state': new[0],
            'old_task_state': old[1], 'new_task_state': new[1]}


def _audit_period(empty: Any) -> dict[str, Any]:
    return {'audit_period_beginning': empty, 'audit_period_ending': empty}
