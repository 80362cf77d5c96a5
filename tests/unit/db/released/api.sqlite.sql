CREATE TABLE aggregate_lanes (
	lane INTEGER NOT NULL, 
	position BIGINT NOT NULL, 
	PRIMARY KEY (lane)
);
CREATE TABLE aggregates (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	uuid VARCHAR(36), 
	name VARCHAR(255), 
	lane INTEGER, 
	position BIGINT, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_aggregate0name UNIQUE (name)
);
CREATE INDEX aggregate_uuid_idx ON aggregates (uuid);
CREATE INDEX aggregates_lane_position_idx ON aggregates (lane, position);
CREATE TABLE build_requests (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	instance_uuid VARCHAR(36), 
	project_id VARCHAR(255) NOT NULL, 
	instance TEXT, 
	block_device_mappings TEXT, 
	tags TEXT, 
	min_count INTEGER NOT NULL, 
	lease_owner VARCHAR(255), 
	lease_expires_at FLOAT, 
	lease_count INTEGER NOT NULL, 
	revision INTEGER NOT NULL, 
	buried BOOLEAN NOT NULL, 
	failure TEXT, 
	quota TEXT, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_build_requests0instance_uuid UNIQUE (instance_uuid)
);
CREATE INDEX build_requests_lease_expires_at_idx ON build_requests (lease_expires_at);
CREATE INDEX build_requests_project_id_idx ON build_requests (project_id);
CREATE TABLE cell_mappings (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	uuid VARCHAR(36) NOT NULL, 
	name VARCHAR(255), 
	transport_url TEXT, 
	database_connection TEXT, 
	disabled BOOLEAN NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_cell_mappings0uuid UNIQUE (uuid)
);
CREATE TABLE flavors (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	memory_mb INTEGER NOT NULL, 
	vcpus INTEGER NOT NULL, 
	root_gb INTEGER, 
	ephemeral_gb INTEGER, 
	flavorid VARCHAR(255) NOT NULL, 
	swap INTEGER NOT NULL, 
	rxtx_factor FLOAT, 
	vcpu_weight INTEGER, 
	disabled BOOLEAN, 
	is_public BOOLEAN, 
	description TEXT, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_flavors0flavorid UNIQUE (flavorid), 
	CONSTRAINT uniq_flavors0name UNIQUE (name)
);
CREATE TABLE instance_groups (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	user_id VARCHAR(255), 
	project_id VARCHAR(255), 
	uuid VARCHAR(36) NOT NULL, 
	name VARCHAR(255), 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_instance_groups0uuid UNIQUE (uuid)
);
CREATE INDEX instance_groups_project_id_idx ON instance_groups (project_id);
CREATE TABLE leaders (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	owner VARCHAR(255) NOT NULL, 
	expires_at FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_leaders0name UNIQUE (name)
);
CREATE TABLE project_user_quotas (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	user_id VARCHAR(255) NOT NULL, 
	project_id VARCHAR(255) NOT NULL, 
	resource VARCHAR(255) NOT NULL, 
	hard_limit INTEGER, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_project_user_quotas0user_id0project_id0resource UNIQUE (user_id, project_id, resource)
);
CREATE INDEX project_user_quotas_project_id_idx ON project_user_quotas (project_id);
CREATE TABLE quota_classes (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	class_name VARCHAR(255), 
	resource VARCHAR(255), 
	hard_limit INTEGER, 
	PRIMARY KEY (id)
);
CREATE INDEX quota_classes_class_name_idx ON quota_classes (class_name);
CREATE TABLE quota_locks (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	project_id VARCHAR(255) NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_quota_locks0project_id UNIQUE (project_id)
);
CREATE TABLE quotas (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	project_id VARCHAR(255), 
	resource VARCHAR(255) NOT NULL, 
	hard_limit INTEGER, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_quotas0project_id0resource UNIQUE (project_id, resource)
);
CREATE TABLE request_specs (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	instance_uuid VARCHAR(36) NOT NULL, 
	spec TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_request_specs0instance_uuid UNIQUE (instance_uuid)
);
CREATE TABLE scheduler_decisions (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	uuid VARCHAR(36) NOT NULL, 
	request_id VARCHAR(255), 
	decided_at FLOAT NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_scheduler_decisions0uuid UNIQUE (uuid)
);
CREATE INDEX scheduler_decisions_decided_at_idx ON scheduler_decisions (decided_at);
CREATE INDEX scheduler_decisions_request_id_idx ON scheduler_decisions (request_id);
CREATE TABLE shared_providers (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	uuid VARCHAR(36) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	aggregate_uuid VARCHAR(36) NOT NULL, 
	traits TEXT NOT NULL, 
	inventories TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_shared_providers0uuid UNIQUE (uuid), 
	CONSTRAINT uniq_shared_providers0name UNIQUE (name)
);
CREATE INDEX shared_providers_aggregate_uuid_idx ON shared_providers (aggregate_uuid);
CREATE TABLE aggregate_hosts (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	host VARCHAR(255), 
	aggregate_id INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_aggregate_hosts0host0aggregate_id UNIQUE (host, aggregate_id), 
	CONSTRAINT fk_aggregate_hosts_aggregate FOREIGN KEY(aggregate_id) REFERENCES aggregates (id)
);
CREATE TABLE aggregate_metadata (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	aggregate_id INTEGER NOT NULL, 
	"key" VARCHAR(255) NOT NULL, 
	value VARCHAR(255) NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_aggregate_metadata0aggregate_id0key UNIQUE (aggregate_id, "key"), 
	CONSTRAINT fk_aggregate_metadata_aggregate FOREIGN KEY(aggregate_id) REFERENCES aggregates (id)
);
CREATE INDEX aggregate_metadata_key_idx ON aggregate_metadata ("key");
CREATE TABLE decision_instances (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	decision_uuid VARCHAR(36) NOT NULL, 
	instance_uuid VARCHAR(36) NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_decision_instances0decision_uuid0instance_uuid UNIQUE (decision_uuid, instance_uuid), 
	CONSTRAINT fk_decision_instances_decision FOREIGN KEY(decision_uuid) REFERENCES scheduler_decisions (uuid)
);
CREATE INDEX decision_instances_instance_uuid_idx ON decision_instances (instance_uuid);
CREATE TABLE flavor_extra_specs (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	"key" VARCHAR(255) NOT NULL, 
	value VARCHAR(255), 
	flavor_id INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_flavor_extra_specs0flavor_id0key UNIQUE (flavor_id, "key"), 
	CONSTRAINT fk_flavor_extra_specs_flavor FOREIGN KEY(flavor_id) REFERENCES flavors (id)
);
CREATE TABLE host_mappings (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	cell_id INTEGER NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_host_mappings0host UNIQUE (host), 
	CONSTRAINT fk_host_mappings_cell FOREIGN KEY(cell_id) REFERENCES cell_mappings (id)
);
CREATE TABLE instance_group_member (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	instance_uuid VARCHAR(255), 
	group_id INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_instance_group_member0group_id0instance_uuid UNIQUE (group_id, instance_uuid), 
	CONSTRAINT fk_instance_group_member_group FOREIGN KEY(group_id) REFERENCES instance_groups (id)
);
CREATE INDEX instance_group_member_instance_idx ON instance_group_member (instance_uuid);
CREATE TABLE instance_group_policy (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	policy VARCHAR(255), 
	group_id INTEGER NOT NULL, 
	rules TEXT, 
	PRIMARY KEY (id), 
	CONSTRAINT fk_instance_group_policy_group FOREIGN KEY(group_id) REFERENCES instance_groups (id)
);
CREATE INDEX instance_group_policy_group_id_idx ON instance_group_policy (group_id);
CREATE INDEX instance_group_policy_policy_idx ON instance_group_policy (policy);
CREATE TABLE instance_mappings (
	created_at DATETIME, 
	updated_at DATETIME, 
	id INTEGER NOT NULL, 
	instance_uuid VARCHAR(36) NOT NULL, 
	cell_id INTEGER, 
	project_id VARCHAR(255) NOT NULL, 
	user_id VARCHAR(255), 
	queued_for_delete BOOLEAN, 
	vcpus INTEGER, 
	memory_mb INTEGER, 
	PRIMARY KEY (id), 
	CONSTRAINT uniq_instance_mappings0instance_uuid UNIQUE (instance_uuid), 
	CONSTRAINT fk_instance_mappings_cell FOREIGN KEY(cell_id) REFERENCES cell_mappings (id)
);
CREATE INDEX instance_mappings_project_id_idx ON instance_mappings (project_id);
CREATE INDEX instance_mappings_user_id_project_id_idx ON instance_mappings (user_id, project_id);
