# SPDX-License-Identifier: Apache-2.0
"""Rules that others are made of, under the names that Nova has for them."""

from collections.abc import Mapping

from oslo_policy import policy

CONTEXT_IS_ADMIN = 'context_is_admin'

ADMIN = 'rule:admin_api'
PROJECT_MEMBER_OR_ADMIN = 'rule:project_member_or_admin'
PROJECT_READER_OR_ADMIN = 'rule:project_reader_or_admin'

RULES = [
    policy.RuleDefault(
        CONTEXT_IS_ADMIN, 'role:admin',
        description='Who is an administrator, who sees and changes what is '
                    'of any project. A front end may also say so in the '
                    'context.'),
    policy.RuleDefault(
        'admin_api', 'is_admin:True',
        description='For administrators, as context_is_admin tells them.'),
    policy.RuleDefault(
        'project_manager_api',
        'role:manager and project_id:%(project_id)s',
        description='For managers of the project whose it is; no rule here '
                    'refers to it.'),
    policy.RuleDefault(
        'project_member_api',
        'role:member and project_id:%(project_id)s',
        description='For members of the project whose it is.'),
    policy.RuleDefault(
        'project_reader_api',
        'role:reader and project_id:%(project_id)s',
        description='For readers in the project whose it is.'),
    policy.RuleDefault(
        'project_manager_or_admin',
        'rule:project_manager_api or rule:admin_api',
        description='For managers of the project, and administrators; no '
                    'rule here refers to it.'),
    policy.RuleDefault(
        'project_member_or_admin',
        'rule:project_member_api or rule:admin_api',
        description='For members of the project, and administrators.'),
    policy.RuleDefault(
        'project_reader_or_admin',
        'rule:project_reader_api or rule:admin_api',
        description='For readers in the project, and administrators.'),
]


def rules(
    check: str, descriptions: Mapping[str, str]
) -> list[policy.RuleDefault]:
    """Return rules of one check, by their names and descriptions."""
    return [policy.RuleDefault(
        name, check, description=description, scope_types=['project'])
        for name, description in descriptions.items()]
