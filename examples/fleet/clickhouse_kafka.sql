-- ClickHouse reads the rows of `netmeter export` from a topic of Kafka into the tables of
-- clickhouse.sql. A message is a row. Kafka may deliver a row twice: the newest version counts.
USE netmeter;
CREATE TABLE rows_of_kafka AS rows
ENGINE = Kafka
SETTINGS kafka_broker_list = 'kafka.example:9092',
         kafka_topic_list = 'netmeter.rows',
         kafka_group_name = 'netmeter',
         kafka_format = 'JSONEachRow',
         input_format_skip_unknown_fields = 1,
         date_time_input_format = 'best_effort';

CREATE MATERIALIZED VIEW rows_from_kafka TO rows AS SELECT * FROM rows_of_kafka;
