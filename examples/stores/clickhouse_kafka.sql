-- ClickHouse reads the flows from a topic of Kafka, in which each message is a line of
-- `netmeter flows --follow --json` (rsyslog-kafka.conf puts them there), into the table of
-- clickhouse.sql. A field of a newer netmeter is left out.
CREATE TABLE flows_of_kafka AS flows
ENGINE = Kafka
SETTINGS kafka_broker_list = 'kafka.example:9092',
         kafka_topic_list = 'netmeter.flows',
         kafka_group_name = 'netmeter',
         kafka_format = 'JSONEachRow',
         input_format_skip_unknown_fields = 1;

CREATE MATERIALIZED VIEW flows_from_kafka TO flows AS
SELECT * FROM flows_of_kafka WHERE record = 'flow';
