# SPDX-License-Identifier: Apache-2.0
"""Options of what is told to whoever listens: ``[notifications]``."""

import copy

from oslo_config import cfg

GROUP = cfg.OptGroup('notifications', title='Notifications')

OPTS = [
    cfg.StrOpt('notification_format', default='unversioned', choices=[
        ('unversioned', 'Dictionaries as they always were'),
        ('versioned', 'Objects whose fields have a version'),
        ('both', 'Each notification in both forms'),
    ], help="""
Form in which notifications are sent.

New consumers should read versioned notifications, and need them to be on.

Related options:

* ``[oslo_messaging_notifications] driver`` says how they are sent; without
  one nothing is.
* ``[oslo_messaging_notifications] topics`` is where unversioned ones go.
"""),
    cfg.ListOpt('versioned_notifications_topics',
                default=['versioned_notifications'], help="""
Topics that each versioned notification is sent to.

Give a consumer that must not share with others a topic of its own.
"""),
    cfg.StrOpt('notify_on_state_change', choices=[
        (None, 'None'),
        ('vm_state', 'Changes of what a server is'),
        ('vm_and_task_state', 'Changes of what is being done with it too'),
    ], help="""
Changes of a server's state that conductors tell of.

Each costs a notification for every server that is built.

Related options:

* ``[oslo_messaging_notifications] driver`` says how it is sent; without one
  nothing is.
"""),
]


def register_opts(conf):
    # A group remembers what is set in it, so each configuration has its own.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts():
    return {GROUP: OPTS}
