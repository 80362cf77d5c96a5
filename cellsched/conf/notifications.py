# SPDX-License-Identifier: Apache-2.0
"""Options of notifications: ``[notifications]``."""

from oslo_config import cfg

GROUP = cfg.OptGroup('notifications', title='Notifications')

OPTS = [
    cfg.StrOpt('notification_format', default='unversioned', choices=[
        ('unversioned', 'Dictionaries, as in Nova'),
        ('versioned', 'Objects with a version'),
        ('both', 'Each notification in both forms'),
    ], deprecated_group='DEFAULT', help="""
Format of the notifications that are sent.

New consumers should read versioned notifications.

Related options:

* ``[oslo_messaging_notifications] driver`` sends the notifications; without
  a driver none is sent.
* ``[oslo_messaging_notifications] topics`` has the topics of unversioned
  notifications.
"""),
    cfg.ListOpt('versioned_notifications_topics',
                default=['versioned_notifications'], help="""
Topics of versioned notifications; each is sent to every topic.

Give each consumer that needs all notifications a topic of its own.
"""),
    cfg.StrOpt('notify_on_state_change', choices=[
        (None, 'None'),
        ('vm_state', 'Changes of the state of a server'),
        ('vm_and_task_state', 'Changes of the state or the task of a server'),
    ], deprecated_group='DEFAULT', help="""
State changes of servers for which conductors send a notification.

Each change costs a notification for every server that is built.

Related options:

* ``[oslo_messaging_notifications] driver`` sends the notifications.
"""),
]
