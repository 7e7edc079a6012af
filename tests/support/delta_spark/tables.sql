CREATE TABLE delta.`FOLDER/plain` (at timestamp, v bigint, kind string)
USING delta PARTITIONED BY (kind) TBLPROPERTIES (delta.checkpointInterval = 2);

INSERT INTO delta.`FOLDER/plain` VALUES (timestamp'2024-01-01 00:00:01', 1, 'a b'), (timestamp'2024-01-01 00:00:02', 2, 'c%d');
INSERT INTO delta.`FOLDER/plain` VALUES (timestamp'2024-01-01 00:00:03', 3, null);
INSERT INTO delta.`FOLDER/plain` VALUES (timestamp'2024-01-01 00:00:04', 4, 'a b');
OPTIMIZE delta.`FOLDER/plain`;
INSERT INTO delta.`FOLDER/plain` VALUES (timestamp'2024-01-01 00:00:05', 5, 'a b');

CREATE TABLE delta.`FOLDER/vectors` (at timestamp, v bigint) USING delta
TBLPROPERTIES (delta.enableDeletionVectors = true);
INSERT INTO delta.`FOLDER/vectors` SELECT /*+ COALESCE(1) */ timestamp_seconds(id), id FROM range(10);
DELETE FROM delta.`FOLDER/vectors` WHERE v = 3;

CREATE TABLE delta.`FOLDER/mapped` (at timestamp, v bigint) USING delta
TBLPROPERTIES (delta.columnMapping.mode = 'name');
INSERT INTO delta.`FOLDER/mapped` VALUES (timestamp'2024-01-01 00:00:01', 1);

CREATE TABLE delta.`FOLDER/second` (at timestamp, v bigint) USING delta
TBLPROPERTIES (delta.checkpointPolicy = 'v2', delta.checkpointInterval = 1);
INSERT INTO delta.`FOLDER/second` VALUES (timestamp'2024-01-01 00:00:01', 1);

CREATE TABLE delta.`FOLDER/clustered` (match_id string) USING delta CLUSTER BY (match_id);
CREATE TABLE delta.`FOLDER/tracked` (match_id string) USING delta TBLPROPERTIES (delta.enableRowTracking = true);
CREATE TABLE delta.`FOLDER/generated` (match_id string, n int GENERATED ALWAYS AS (length(match_id))) USING delta;
