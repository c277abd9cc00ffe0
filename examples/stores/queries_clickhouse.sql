-- Round trips by destination, in milliseconds: the median and the 95th percentile.
SELECT destination, count(*) AS readings,
       round(quantileExact(0.5)(tcpi_rtt) / 1000.0, 1) AS median_ms,
       round(quantileExact(0.95)(tcpi_rtt) / 1000.0, 1) AS p95_ms
FROM sockets
WHERE protocol = 'tcp' AND state = 'ESTABLISHED' AND tcpi_rtt > 0
GROUP BY destination ORDER BY p95_ms DESC, destination;

-- Retransmitted payload by service: the sum of the growth of each socket's total.
SELECT service, count(*) AS connections, sum(sent) AS sent_bytes, sum(again) AS sent_again_bytes,
       round(100.0 * sum(again) / sum(sent), 2) AS percent
FROM (SELECT service, cookie, max(tcpi_bytes_sent) - min(tcpi_bytes_sent) AS sent,
             max(tcpi_bytes_retrans) - min(tcpi_bytes_retrans) AS again
      FROM sockets WHERE protocol = 'tcp' GROUP BY host, service, cookie)
WHERE sent > 0
GROUP BY service ORDER BY sent_again_bytes DESC, service;

-- Limits of connections by service: the receiver or this host's buffer, in percent of
-- the time with data to send.
SELECT service, round(100.0 * sum(receiver) / sum(busy), 1) AS receiver_percent,
       round(100.0 * sum(buffer) / sum(busy), 1) AS buffer_percent
FROM (SELECT service, cookie, max(tcpi_busy_time) - min(tcpi_busy_time) AS busy,
             max(tcpi_rwnd_limited) - min(tcpi_rwnd_limited) AS receiver,
             max(tcpi_sndbuf_limited) - min(tcpi_sndbuf_limited) AS buffer
      FROM sockets WHERE protocol = 'tcp' GROUP BY host, service, cookie)
WHERE busy > 0
GROUP BY service ORDER BY receiver_percent DESC, service;

-- Sent payload by host. A cookie is of one host only.
SELECT host, count(*) AS connections, sum(sent) AS sent_bytes
FROM (SELECT host, cookie, max(tcpi_bytes_sent) - min(tcpi_bytes_sent) AS sent
      FROM sockets WHERE protocol = 'tcp' GROUP BY host, cookie)
GROUP BY host ORDER BY host;
