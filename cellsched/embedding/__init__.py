# SPDX-License-Identifier: Apache-2.0
"""A conductor above the cells, for services of other projects.

:class:`EmbeddedConductor` builds servers in the process of another service,
and takes up builds that it or another process left lying. It is made from an
oslo.config configuration: the service's own, in which :func:`register_opts`
registered what is read here, or one that :func:`configuration` makes of plain
arguments. Several in one process share nothing.

``parts`` has what it is made of, ``mappings`` the cells, and where hosts and
servers are in them, ``acceptance`` what is kept of a server until it is
built, and ``schemas`` the creation of databases.
"""

from cellsched.embedding.conductor import EmbeddedConductor
from cellsched.embedding.options import configuration
from cellsched.embedding.options import register_opts
from cellsched.embedding.parts import ConductorParts
from cellsched.embedding.schemas import create_schemas

__all__ = ['ConductorParts', 'EmbeddedConductor', 'configuration',
           'create_schemas', 'register_opts']
