# SPDX-License-Identifier: Apache-2.0
"""A conductor above the cells, for services of other projects.

:class:`EmbeddedConductor` builds servers in the process of another service,
and continues builds that were interrupted. It reads an oslo.config
configuration: that of the service, after :func:`register_opts`, or one that
:func:`configuration` makes of arguments. :class:`Components` are the objects
that it uses; :class:`Mappings` reads the mappings of the API database. Two
conductors in one process share nothing.
"""

from cellsched.embedding.conductor import EmbeddedConductor
from cellsched.embedding.conductor import Mappings
from cellsched.embedding.options import configuration
from cellsched.embedding.options import create_schemas
from cellsched.embedding.options import register_opts
from cellsched.wiring.components import Components

__all__ = ['Components', 'EmbeddedConductor', 'Mappings', 'configuration',
           'create_schemas', 'register_opts']
