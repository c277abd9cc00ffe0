-- A fleet's rows of `netmeter export`, once each: docs/fleet-bill.md.
CREATE DATABASE IF NOT EXISTS netmeter;
USE netmeter;

-- Takes every kind of row as it comes and keeps none: the views below do.
CREATE TABLE rows (
  row LowCardinality(String), host_id FixedString(32), host String,
  labels Map(LowCardinality(String), String), version Int64,
  -- hour, day
  day Date, hour DateTime('UTC'), uplink LowCardinality(String), kind LowCardinality(String),
  service LowCardinality(String), destination LowCardinality(String),
  transport LowCardinality(String), path LowCardinality(String),
  tx_bytes Int64, rx_bytes Int64, tx_packets Int64, rx_packets Int64,
  tx_payload_bytes Int64, rx_payload_bytes Int64, tx_retransmit_bytes Int64,
  -- sample, gap
  start DateTime('UTC'), end DateTime('UTC'), number Int64, what LowCardinality(String),
  -- host
  meter Int64, boot_id String, started DateTime('UTC'), recorded DateTime('UTC'), netmeter String,
  -- budget, cost
  budget String, plan String, `from` Date, `to` Date, limit_bytes Int64, used_bytes Int64,
  percent Float64, currency LowCardinality(String), cost_micros Int64, billed_bytes Int64
) ENGINE = Null;

-- Hours, and days whose hours are gone (`hour` is 0). The newest version of a key stays.
CREATE TABLE traffic (
  day Date CODEC(Delta, ZSTD), host_id FixedString(32) CODEC(ZSTD),
  uplink LowCardinality(String) CODEC(ZSTD), kind LowCardinality(String) CODEC(ZSTD),
  service LowCardinality(String) CODEC(ZSTD), destination LowCardinality(String) CODEC(ZSTD),
  transport LowCardinality(String) CODEC(ZSTD), path LowCardinality(String) CODEC(ZSTD),
  hour DateTime('UTC') CODEC(Delta, ZSTD), version Int64 CODEC(Delta, ZSTD),
  tx_bytes Int64 CODEC(T64, ZSTD), rx_bytes Int64 CODEC(T64, ZSTD),
  tx_packets Int64 CODEC(T64, ZSTD), rx_packets Int64 CODEC(T64, ZSTD),
  tx_payload_bytes Int64 CODEC(T64, ZSTD), rx_payload_bytes Int64 CODEC(T64, ZSTD),
  tx_retransmit_bytes Int64 CODEC(T64, ZSTD)
) ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(day)
ORDER BY (day, host_id, uplink, kind, service, destination, transport, path, hour);
CREATE MATERIALIZED VIEW to_traffic TO traffic AS
SELECT day, host_id, uplink, kind, service, destination, transport, path, hour, version, tx_bytes,
       rx_bytes, tx_packets, rx_packets, tx_payload_bytes, rx_payload_bytes, tx_retransmit_bytes
FROM rows WHERE row IN ('hour', 'day');

CREATE TABLE samples (
  day Date CODEC(Delta, ZSTD), host_id FixedString(32) CODEC(ZSTD),
  uplink LowCardinality(String) CODEC(ZSTD), start DateTime('UTC') CODEC(Delta, ZSTD),
  version Int64 CODEC(Delta, ZSTD),
  tx_bytes Int64 CODEC(T64, ZSTD), rx_bytes Int64 CODEC(T64, ZSTD)
) ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(start)
ORDER BY (host_id, uplink, start);
CREATE MATERIALIZED VIEW to_samples TO samples AS
SELECT day, host_id, uplink, start, version, tx_bytes, rx_bytes FROM rows WHERE row = 'sample';

CREATE TABLE gaps (
  host_id FixedString(32), number Int64, version Int64, start DateTime('UTC'), end DateTime('UTC'),
  what LowCardinality(String)
) ENGINE = ReplacingMergeTree(version) ORDER BY (host_id, number);
CREATE MATERIALIZED VIEW to_gaps TO gaps AS
SELECT host_id, number, version, start, end, what FROM rows WHERE row = 'gap';

-- Each meter of each history. Two boots of one meter are a clone that nobody noticed.
CREATE TABLE meters (
  host_id FixedString(32), meter Int64, boot_id String, started DateTime('UTC'), version Int64,
  host String, labels Map(LowCardinality(String), String), recorded DateTime('UTC'), netmeter String
) ENGINE = ReplacingMergeTree(version) ORDER BY (host_id, meter, boot_id, started);
CREATE MATERIALIZED VIEW to_meters TO meters AS
SELECT host_id, meter, boot_id, started, version, host, labels, recorded, netmeter
FROM rows WHERE row = 'host';
CREATE VIEW hosts AS
SELECT host_id, argMax(host, version) AS host, argMax(labels, version) AS labels,
       argMax(netmeter, version) AS netmeter, max(recorded) AS last_record
FROM meters GROUP BY host_id;

CREATE TABLE budgets (
  host_id FixedString(32), budget String, `from` Date, `to` Date, version Int64,
  uplink LowCardinality(String), limit_bytes Int64, used_bytes Int64, percent Float64
) ENGINE = ReplacingMergeTree(version) ORDER BY (host_id, budget, `from`, `to`);
CREATE MATERIALIZED VIEW to_budgets TO budgets AS
SELECT host_id, budget, `from`, `to`, version, uplink, limit_bytes, used_bytes, percent
FROM rows WHERE row = 'budget';

CREATE TABLE costs (
  host_id FixedString(32), plan String, `from` Date, `to` Date, uplink LowCardinality(String),
  version Int64, currency LowCardinality(String), cost_micros Int64, billed_bytes Int64,
  used_bytes Int64
) ENGINE = ReplacingMergeTree(version) ORDER BY (host_id, plan, `from`, `to`, uplink);
CREATE MATERIALIZED VIEW to_costs TO costs AS
SELECT host_id, plan, `from`, `to`, uplink, version, currency, cost_micros, billed_bytes, used_bytes
FROM rows WHERE row = 'cost';

-- Sums of days, for questions about the whole fleet.
CREATE TABLE days (
  day Date CODEC(Delta, ZSTD), host_id FixedString(32) CODEC(ZSTD),
  uplink LowCardinality(String) CODEC(ZSTD), kind LowCardinality(String) CODEC(ZSTD),
  service LowCardinality(String) CODEC(ZSTD), path LowCardinality(String) CODEC(ZSTD),
  arrived DateTime('UTC') CODEC(Delta, ZSTD),
  tx_bytes Int64 CODEC(T64, ZSTD), rx_bytes Int64 CODEC(T64, ZSTD),
  tx_packets Int64 CODEC(T64, ZSTD), rx_packets Int64 CODEC(T64, ZSTD)
) ENGINE = ReplacingMergeTree(arrived) PARTITION BY toYYYYMM(day)
ORDER BY (host_id, uplink, kind, service, path, day);

-- Which days of which gateways had rows, and when these arrived.
CREATE TABLE arrivals (
  arrived DateTime('UTC') DEFAULT now(), day Date, host_id FixedString(32)
) ENGINE = MergeTree ORDER BY arrived TTL arrived + INTERVAL 30 DAY;
CREATE MATERIALIZED VIEW to_arrivals TO arrivals AS
SELECT DISTINCT day, host_id FROM rows WHERE row IN ('hour', 'day');

-- Sums those days anew. It goes an hour further back than the newest sum, so a refresh that
-- failed, or was missed, is made up for by the next. If a day has both hours and a row of the
-- day, the newer of the two counts; a key of the other one gets 0.
CREATE MATERIALIZED VIEW to_days REFRESH EVERY 5 MINUTE APPEND TO days AS
WITH changed AS (
  SELECT day, host_id, max(arrivals.arrived) AS arrived FROM arrivals
  WHERE arrivals.arrived + INTERVAL 1 HOUR >= (SELECT max(arrived) FROM days) GROUP BY day, host_id),
  max(day_version) OVER pair >= max(hour_version) OVER pair AS by_day
SELECT day, host_id, uplink, kind, service, path, arrived,
       if(by_day, day_tx, hour_tx) AS tx_bytes, if(by_day, day_rx, hour_rx) AS rx_bytes,
       if(by_day, day_tx_packets, hour_tx_packets) AS tx_packets,
       if(by_day, day_rx_packets, hour_rx_packets) AS rx_packets
FROM (
  SELECT day, host_id, uplink, kind, service, path,
         maxIf(version, hour = 0) AS day_version, maxIf(version, hour != 0) AS hour_version,
         sumIf(tx_bytes, hour = 0) AS day_tx, sumIf(tx_bytes, hour != 0) AS hour_tx,
         sumIf(rx_bytes, hour = 0) AS day_rx, sumIf(rx_bytes, hour != 0) AS hour_rx,
         sumIf(tx_packets, hour = 0) AS day_tx_packets, sumIf(tx_packets, hour != 0) AS hour_tx_packets,
         sumIf(rx_packets, hour = 0) AS day_rx_packets, sumIf(rx_packets, hour != 0) AS hour_rx_packets
  FROM traffic FINAL WHERE (day, host_id) IN (SELECT day, host_id FROM changed)
  GROUP BY day, host_id, uplink, kind, service, path) AS sums
JOIN changed USING (day, host_id)
WINDOW pair AS (PARTITION BY day, host_id)
SETTINGS do_not_merge_across_partitions_select_final = 1, max_bytes_before_external_group_by = 2000000000;

-- The bill of some local days, such as bill(from = '2026-10-15', to = '2026-11-14'): equal to
-- `netmeter usage` of each gateway. Unnamed traffic below 0 means that the interfaces counted
-- less than the services, and is left out; pending traffic belongs to the service of its name.
CREATE VIEW bill AS
SELECT host_id, uplink, service, arraySort(groupUniqArray(kind)) AS kinds,
       sum(tx) AS tx_bytes, sum(rx) AS rx_bytes, tx_bytes + rx_bytes AS bytes
FROM (
  SELECT host_id, uplink, kind, service,
         greatest(sum(tx_bytes), if(kind = 'unnamed', 0, -9223372036854775807)) AS tx,
         greatest(sum(rx_bytes), if(kind = 'unnamed', 0, -9223372036854775807)) AS rx
  FROM days FINAL WHERE path = 'direct' AND day BETWEEN {from:Date} AND {to:Date}
  GROUP BY host_id, uplink, kind, service)
GROUP BY host_id, uplink, service
SETTINGS do_not_merge_across_partitions_select_final = 1;
