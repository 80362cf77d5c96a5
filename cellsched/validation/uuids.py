# SPDX-License-Identifier: Apache-2.0
"""The form in which uuids are stored and compared."""

import re
from typing import Any
import uuid

from oslo_utils import uuidutils

#: The form of all uuids in databases, claim stores and messages.
CANONICAL = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')


def canonical(value: Any) -> str | None:
    """Return a uuid in lower case with hyphens, or None for other values.

    Capitals, braces or missing hyphens do not make another uuid, but databases
    and claim stores compare texts.
    """
    if not isinstance(value, str):
        return None
    if CANONICAL.fullmatch(value):
        return value
    return str(uuid.UUID(value)) if uuidutils.is_uuid_like(value) else None
