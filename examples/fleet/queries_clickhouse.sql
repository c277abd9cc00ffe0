-- Questions about the fleet. Days are local days of each gateway; `to` is the last one.
USE netmeter;
SET param_from = '2026-10-15', param_to = '2026-11-14';

-- What is the bill, by gateway, uplink and service?
SELECT host, uplink, service, kinds, tx_bytes, rx_bytes, bytes, host_id
FROM bill(from = {from:Date}, to = {to:Date}) JOIN hosts USING (host_id)
WHERE bytes != 0 ORDER BY host, host_id, uplink, bytes DESC, service;

-- Which gateways are over a budget whose period has not ended?
SELECT host, budget, uplink, `from`, `to`, limit_bytes, used_bytes, percent
FROM budgets FINAL JOIN hosts USING (host_id)
WHERE `to` >= today() AND percent >= 100 ORDER BY percent DESC, host, budget;

-- Which gateways have grown most, against the month before?
SELECT host, sum(now_bytes) AS bytes, sum(before_bytes) AS bytes_before, bytes - bytes_before AS growth
FROM (
  SELECT host_id, bytes AS now_bytes, 0 AS before_bytes
  FROM bill(from = {from:Date}, to = {to:Date})
  UNION ALL
  SELECT host_id, 0, bytes
  FROM bill(from = subtractMonths({from:Date}, 1), to = subtractMonths({to:Date} + 1, 1) - 1)
) AS months JOIN hosts USING (host_id)
GROUP BY host_id, host ORDER BY growth DESC, host LIMIT 20;

-- What is not known exactly (in UTC)?
SELECT host, what, start, end
FROM gaps FINAL JOIN hosts USING (host_id)
WHERE greatest(start, end) >= {from:Date} AND least(start, end) < {to:Date} + 1
ORDER BY host, number;

-- Which gateways have been silent for a day?
SELECT host, last_record, dateDiff('hour', last_record, now()) AS hours, labels, host_id
FROM hosts WHERE last_record < now() - INTERVAL 1 DAY ORDER BY last_record, host;

-- What is the 95th percentile of each uplink, in bits a second, as `netmeter usage --percentile 95`?
-- A sample without a row is 0. `first` and `last` are the first and the last second of the period
-- that the gateway knows; the time zone follows from the samples, whose days are local.
WITH zone AS (
  SELECT host_id, min(toUnixTimestamp(start)) AS oldest,
         ceil(max(toUnixTimestamp(toDateTime(day, 'UTC')) - toUnixTimestamp(start)) / 900) * 900 AS offset
  FROM samples GROUP BY host_id),
counted AS (
  SELECT host_id, host,
         greatest(toUnixTimestamp(toDateTime({from:Date}, 'UTC')) - offset, oldest) AS first,
         least(toUnixTimestamp(toDateTime({to:Date} + 1, 'UTC')) - offset, toUnixTimestamp(last_record)) - 1 AS last,
         toInt64(intDiv(last, 300) - intDiv(first, 300) + 1) AS count,
         count - intDiv(count * 95 + 99, 100) AS higher
  FROM zone JOIN hosts USING (host_id))
SELECT host, uplink, count,
       intDiv(greatest(0, arrayReverseSort(groupArray(tx_bytes))[any(higher) + 1]) * 8, 300) AS tx_bits_a_second,
       intDiv(greatest(0, arrayReverseSort(groupArray(rx_bytes))[any(higher) + 1]) * 8, 300) AS rx_bits_a_second
FROM samples FINAL JOIN counted USING (host_id)
WHERE day BETWEEN {from:Date} AND {to:Date}
GROUP BY host_id, host, uplink, count ORDER BY rx_bits_a_second DESC, host, uplink;

-- Which histories are written by two machines (a clone that `record` did not notice)?
SELECT host_id, meter, groupUniqArray(host) AS hosts, max(recorded) AS last_record
FROM meters FINAL GROUP BY host_id, meter HAVING count() > 1 ORDER BY host_id, meter;

-- What does the fleet cost, for periods that end in these days?
SELECT plan, currency, count() AS gateways, sum(billed_bytes) AS bytes,
       toDecimal128(sum(cost_micros), 6) / 1000000 AS cost
FROM costs FINAL WHERE `to` BETWEEN {from:Date} AND {to:Date}
GROUP BY plan, currency ORDER BY plan, currency;

-- Are the sums of days those of the rows? No row: they are. Slow; for doubts.
SELECT host_id, day, sum(of_days) AS sum_of_days, sum(of_rows) AS sum_of_rows
FROM (
  SELECT host_id, day, tx_bytes + rx_bytes AS of_days, 0 AS of_rows
  FROM days FINAL WHERE day BETWEEN {from:Date} AND {to:Date}
  UNION ALL
  SELECT host_id, day, 0, if(maxIf(version, hour = 0) >= maxIf(version, hour != 0),
         sumIf(tx_bytes + rx_bytes, hour = 0), sumIf(tx_bytes + rx_bytes, hour != 0))
  FROM traffic FINAL WHERE day BETWEEN {from:Date} AND {to:Date} GROUP BY host_id, day)
GROUP BY host_id, day HAVING sum_of_days != sum_of_rows ORDER BY host_id, day;
