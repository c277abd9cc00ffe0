-- ClickHouse reads the flows from a Kafka topic into the table of clickhouse.sql. Each
-- message is a line of `netmeter flows --follow --json`, sent by rsyslog-kafka.conf.
-- Fields of a newer netmeter are ignored.
CREATE TABLE flows_of_kafka AS flows
ENGINE = Kafka
SETTINGS kafka_broker_list = 'kafka.example:9092',
         kafka_topic_list = 'netmeter.flows',
         kafka_group_name = 'netmeter',
         kafka_format = 'JSONEachRow',
         input_format_skip_unknown_fields = 1;

CREATE MATERIALIZED VIEW flows_from_kafka TO flows AS
SELECT * FROM flows_of_kafka WHERE record = 'flow';
