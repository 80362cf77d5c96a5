# SPDX-License-Identifier: Apache-2.0
"""How the documentation is built; see "Testing" in the contributor guide."""

import importlib.metadata
import pathlib
import sys

from oslo_service import backend

from cellsched import silence_eventlet  # noqa: F401

# What lists the options of libraries imports them, and one of those picks a
# back end if nobody has.
backend.init_backend(backend.BackendType.THREADING)

SOURCE = pathlib.Path(__file__).resolve().parent
ROOT = SOURCE.parents[1]
sys.path.insert(0, str(ROOT / 'doc' / 'ext'))

# Where the sample configuration is generated; git keeps no empty directory.
(SOURCE / '_static').mkdir(exist_ok=True)

project = 'cellsched'
copyright = 'cellsched developers'
version = release = importlib.metadata.version('cellsched')

extensions = [
    'sphinx.ext.autodoc',
    'oslo_config.sphinxconfiggen',
    'oslo_config.sphinxext',
    'oslo_policy.sphinxpolicygen',
    'reno.sphinxext',
    'architecture',
    'commands',
    'exactness',
    'nova_options',
    'plugin_lists',
]

# Two dashes are two dashes: they begin options.
smartquotes_action = 'qe'

html_theme = 'furo'
html_title = f'cellsched {version}'
html_static_path = ['_static']

# reno reads the whole history, which an export or a shallow clone has not.
if not (ROOT / '.git').exists() or (ROOT / '.git' / 'shallow').exists():
    exclude_patterns = ['release-notes.rst']
    suppress_warnings = ['toc.excluded']

# The same pages as manual pages.
man_pages = [
    (f'reference/commands/{name}', name, description, ['cellsched developers'],
     1) for name, description in (
        ('cellsched', 'servers, flavors, hosts and decisions'),
        ('cellsched-manage', 'databases, cells and the audit'),
        ('cellsched-status', 'checks before an upgrade'),
        ('cellsched-scheduler', 'choose and claim hosts in all cells'),
        ('cellsched-conductor', 'take builds to cells and retry them'),
        ('cellsched-compute', 'build the servers of a host'))]
man_show_urls = False

autoprogram_cliff_app_dist_name = 'cellsched'

autodoc_member_order = 'bysource'
autodoc_typehints = 'signature'

config_generator_config_file = [
    ('../../etc/cellsched/config-generator.conf', '_static/cellsched'),
]

policy_generator_config_file = [
    ('../../etc/cellsched/policy-generator.conf', '_static/cellsched'),
]
