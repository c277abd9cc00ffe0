-- ClickHouse reads flows and sockets from Kafka topics into the tables of clickhouse.sql.
-- Each message is a line of `netmeter flows --follow --json` or of
-- `netmeter sockets --interval 10 --json`, sent by rsyslog-kafka.conf. Fields of a newer
-- netmeter are ignored.
CREATE TABLE flows_of_kafka AS flows
ENGINE = Kafka
SETTINGS kafka_broker_list = 'kafka.example:9092',
         kafka_topic_list = 'netmeter.flows',
         kafka_group_name = 'netmeter',
         kafka_format = 'JSONEachRow',
         input_format_skip_unknown_fields = 1;

CREATE MATERIALIZED VIEW flows_from_kafka TO flows AS
SELECT * FROM flows_of_kafka WHERE record = 'flow';

CREATE TABLE sockets_of_kafka AS sockets
ENGINE = Kafka
SETTINGS kafka_broker_list = 'kafka.example:9092',
         kafka_topic_list = 'netmeter.sockets',
         kafka_group_name = 'netmeter',
         kafka_format = 'JSONEachRow',
         input_format_skip_unknown_fields = 1;

CREATE MATERIALIZED VIEW sockets_from_kafka TO sockets AS
SELECT * FROM sockets_of_kafka;
