-- Questions about the fleet. Days are local days of each gateway; `last` is the last one.
SET VARIABLE first = DATE '2026-10-15';
SET VARIABLE last = DATE '2026-11-14';

-- What is the bill, by gateway, uplink and service?
SELECT host, uplink, service, kinds, tx_bytes, rx_bytes, bytes, host_id
FROM bill(getvariable('first'), getvariable('last')) JOIN hosts USING (host_id)
WHERE bytes != 0 ORDER BY host, host_id, uplink, bytes DESC, service;

-- Which gateways are over a budget whose period has not ended?
SELECT host, budget, uplink, "from", "to", limit_bytes, used_bytes, percent
FROM (SELECT * EXCLUDE (host) FROM budgets) JOIN hosts USING (host_id)
WHERE "to" >= current_date AND percent >= 100 ORDER BY percent DESC, host, budget;

-- Which gateways have grown most, against the month before?
SELECT host, sum(now_bytes)::BIGINT AS bytes, sum(before_bytes)::BIGINT AS bytes_before,
       (sum(now_bytes) - sum(before_bytes))::BIGINT AS growth
FROM (
  SELECT host_id, bytes AS now_bytes, 0 AS before_bytes
  FROM bill(getvariable('first'), getvariable('last'))
  UNION ALL
  SELECT host_id, 0, bytes
  FROM bill((getvariable('first') - INTERVAL 1 MONTH)::DATE,
            (getvariable('last') + 1 - INTERVAL 1 MONTH)::DATE - 1)
) JOIN hosts USING (host_id)
GROUP BY host_id, host ORDER BY growth DESC, host LIMIT 20;

-- What is not known exactly (in UTC)?
SELECT host, what, start, "end"
FROM (SELECT * EXCLUDE (host) FROM gaps) JOIN hosts USING (host_id)
WHERE greatest(start, "end") >= getvariable('first') AND least(start, "end") < getvariable('last') + 1
ORDER BY host, number;

-- Which gateways have been silent for a day?
SELECT host, last_record, labels, host_id FROM hosts
WHERE last_record < (now() AT TIME ZONE 'UTC') - INTERVAL 1 DAY ORDER BY last_record, host;

-- What is the 95th percentile of each uplink, in bits a second, as `netmeter usage --percentile 95`?
-- A sample without a row is 0. `first` and `last` are the first and the last second of the period
-- that the gateway knows; the time zone follows from the samples, whose days are local.
WITH zone AS (
  SELECT host_id, epoch(min(start))::BIGINT AS oldest,
         (ceil(max(epoch(day::TIMESTAMP) - epoch(start)) / 900) * 900)::BIGINT AS zone_seconds
  FROM samples GROUP BY host_id),
counted AS (
  SELECT host_id, host,
         greatest(epoch(getvariable('first')::TIMESTAMP)::BIGINT - zone_seconds, oldest) AS first,
         least(epoch((getvariable('last') + 1)::TIMESTAMP)::BIGINT - zone_seconds, epoch(last_record)::BIGINT) - 1 AS last,
         last // 300 - first // 300 + 1 AS count,
         count - (count * 95 + 99) // 100 AS higher
  FROM zone JOIN hosts USING (host_id))
SELECT host, uplink, count,
       greatest(0, coalesce(list_reverse_sort(list(tx_bytes))[any_value(higher) + 1], 0)) * 8 // 300 AS tx_bits_a_second,
       greatest(0, coalesce(list_reverse_sort(list(rx_bytes))[any_value(higher) + 1], 0)) * 8 // 300 AS rx_bits_a_second
FROM (SELECT * EXCLUDE (host) FROM samples) JOIN counted USING (host_id)
WHERE day BETWEEN getvariable('first') AND getvariable('last')
GROUP BY host_id, host, uplink, count ORDER BY rx_bits_a_second DESC, host, uplink;

-- Which histories are written by two machines (a clone that `record` did not notice)?
SELECT host_id, meter, list(DISTINCT host) AS hosts, max(recorded) AS last_record
FROM meters GROUP BY host_id, meter HAVING count(*) > 1 ORDER BY host_id, meter;

-- What does the fleet cost, for periods that end in these days?
SELECT plan, currency, count(*) AS gateways, sum(billed_bytes)::BIGINT AS bytes,
       sum(cost_micros)::DECIMAL(32, 0) * 0.000001 AS cost
FROM costs WHERE "to" BETWEEN getvariable('first') AND getvariable('last')
GROUP BY plan, currency ORDER BY plan, currency;
