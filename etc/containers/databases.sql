-- PostgreSQL's image runs this once, as the account cellsched.
CREATE DATABASE cellsched_api;
CREATE DATABASE cellsched_api_cell0;
CREATE DATABASE cellsched_claims;
CREATE DATABASE cellsched_cell1;
CREATE DATABASE cellsched_cell2;
CREATE DATABASE cellsched_cell3;
