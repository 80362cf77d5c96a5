CREATE TABLE allocations (
	consumer VARCHAR(36) COLLATE "C" NOT NULL, 
	ordinal INTEGER NOT NULL, 
	provider VARCHAR(36) COLLATE "C" NOT NULL, 
	resource_class VARCHAR(255) COLLATE "C" NOT NULL, 
	amount BIGINT NOT NULL, 
	project_id VARCHAR(255), 
	user_id VARCHAR(255), 
	PRIMARY KEY (consumer, ordinal)
);
CREATE TABLE claim_group_locks (
	number INTEGER NOT NULL, 
	times BIGINT NOT NULL, 
	PRIMARY KEY (number)
);
CREATE TABLE claim_members (
	consumer VARCHAR(36) COLLATE "C" NOT NULL, 
	group_uuid VARCHAR(36) COLLATE "C" NOT NULL, 
	member VARCHAR(36) COLLATE "C" NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	PRIMARY KEY (consumer)
);
CREATE INDEX claim_members_group_uuid_idx ON claim_members (group_uuid);
CREATE TABLE database_tokens (
	token VARCHAR(36) NOT NULL, 
	written_at FLOAT(53) NOT NULL, 
	PRIMARY KEY (token)
);
CREATE TABLE feed_lanes (
	lane INTEGER NOT NULL, 
	position BIGINT NOT NULL, 
	PRIMARY KEY (lane)
);
CREATE TABLE inventories (
	provider VARCHAR(36) COLLATE "C" NOT NULL, 
	resource_class VARCHAR(255) COLLATE "C" NOT NULL, 
	total BIGINT NOT NULL, 
	reserved BIGINT NOT NULL, 
	allocation_ratio DOUBLE PRECISION NOT NULL, 
	min_unit BIGINT NOT NULL, 
	max_unit BIGINT NOT NULL, 
	step_size BIGINT NOT NULL, 
	capacity BIGINT NOT NULL, 
	used BIGINT NOT NULL, 
	PRIMARY KEY (provider, resource_class)
);
CREATE TABLE provider_traits (
	provider VARCHAR(36) COLLATE "C" NOT NULL, 
	trait VARCHAR(255) COLLATE "C" NOT NULL, 
	PRIMARY KEY (provider, trait)
);
CREATE TABLE provider_trees (
	provider VARCHAR(36) COLLATE "C" NOT NULL, 
	root VARCHAR(36) COLLATE "C" NOT NULL, 
	PRIMARY KEY (provider)
);
CREATE INDEX provider_trees_root_idx ON provider_trees (root);
CREATE TABLE providers (
	uuid VARCHAR(36) COLLATE "C" NOT NULL, 
	consumers INTEGER NOT NULL, 
	lane INTEGER NOT NULL, 
	position BIGINT NOT NULL, 
	PRIMARY KEY (uuid)
);
CREATE INDEX providers_lane_position_idx ON providers (lane, position);
