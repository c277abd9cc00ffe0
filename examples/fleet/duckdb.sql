-- A small fleet's rows of `netmeter export` in DuckDB: docs/fleet-bill.md. Rows are added as they
-- come, and the views have the newest version of each key, so a file may be loaded twice.
CREATE TABLE rows (
  row VARCHAR, host_id VARCHAR, host VARCHAR, labels MAP(VARCHAR, VARCHAR), version BIGINT,
  day DATE, hour TIMESTAMP, uplink VARCHAR, kind VARCHAR, service VARCHAR, destination VARCHAR,
  transport VARCHAR, path VARCHAR, tx_bytes BIGINT, rx_bytes BIGINT, tx_packets BIGINT,
  rx_packets BIGINT, tx_payload_bytes BIGINT, rx_payload_bytes BIGINT, tx_retransmit_bytes BIGINT,
  start TIMESTAMP, "end" TIMESTAMP, number BIGINT, what VARCHAR,
  meter BIGINT, boot_id VARCHAR, started TIMESTAMP, recorded TIMESTAMP, netmeter VARCHAR,
  budget VARCHAR, plan VARCHAR, "from" DATE, "to" DATE, limit_bytes BIGINT, used_bytes BIGINT,
  percent DOUBLE, currency VARCHAR, cost_micros BIGINT, billed_bytes BIGINT);

CREATE VIEW samples AS SELECT * FROM rows WHERE row = 'sample'
QUALIFY row_number() OVER (PARTITION BY host_id, uplink, start ORDER BY version DESC) = 1;
CREATE VIEW gaps AS SELECT * FROM rows WHERE row = 'gap'
QUALIFY row_number() OVER (PARTITION BY host_id, number ORDER BY version DESC) = 1;
CREATE VIEW meters AS SELECT * FROM rows WHERE row = 'host'
QUALIFY row_number() OVER (PARTITION BY host_id, meter, boot_id, started ORDER BY version DESC) = 1;
CREATE VIEW budgets AS SELECT * FROM rows WHERE row = 'budget'
QUALIFY row_number() OVER (PARTITION BY host_id, budget, "from", "to" ORDER BY version DESC) = 1;
CREATE VIEW costs AS SELECT * FROM rows WHERE row = 'cost'
QUALIFY row_number() OVER (PARTITION BY host_id, plan, "from", "to", uplink ORDER BY version DESC) = 1;
CREATE VIEW hosts AS
SELECT host_id, arg_max(host, version) AS host, arg_max(labels, version) AS labels,
       arg_max(netmeter, version) AS netmeter, max(recorded) AS last_record
FROM meters GROUP BY host_id;

-- If a day has both hours and a row of the day, the newer of the two counts.
CREATE MACRO days(first_day, last_day) AS TABLE
WITH newest AS (
  SELECT * FROM rows WHERE row IN ('hour', 'day') AND day BETWEEN first_day AND last_day
  QUALIFY row_number() OVER (PARTITION BY host_id, day, hour, uplink, kind, service, destination,
                                          transport, path ORDER BY version DESC) = 1)
SELECT * FROM newest
WINDOW pair AS (PARTITION BY host_id, day)
QUALIFY (row = 'day') = (coalesce(max(version) FILTER (WHERE row = 'day') OVER pair, -1)
                         >= coalesce(max(version) FILTER (WHERE row = 'hour') OVER pair, -1));

-- The bill of some local days, equal to `netmeter usage` of each gateway. Unnamed traffic below 0
-- means that the interfaces counted less than the services, and is left out; pending traffic
-- belongs to the service of its name.
CREATE MACRO bill(first_day, last_day) AS TABLE
SELECT host_id, uplink, service, list_sort(list(DISTINCT kind)) AS kinds, sum(tx)::BIGINT AS tx_bytes,
       sum(rx)::BIGINT AS rx_bytes, (sum(tx) + sum(rx))::BIGINT AS bytes
FROM (
  SELECT host_id, uplink, kind, service,
         CASE WHEN kind = 'unnamed' THEN greatest(sum(tx_bytes), 0) ELSE sum(tx_bytes) END AS tx,
         CASE WHEN kind = 'unnamed' THEN greatest(sum(rx_bytes), 0) ELSE sum(rx_bytes) END AS rx
  FROM days(first_day, last_day) WHERE path = 'direct' GROUP BY host_id, uplink, kind, service)
GROUP BY host_id, uplink, service;
