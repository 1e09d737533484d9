#!/bin/sh
# Runs once, when the server's data directory is empty: makes the account that dashboards read with.
set -eu
password=$(cat /run/secrets/clickhouse_reader_password)
clickhouse-client --user "$CLICKHOUSE_USER" --password "$(cat "$CLICKHOUSE_PASSWORD_FILE")" --multiquery <<SQL
CREATE USER IF NOT EXISTS reader IDENTIFIED WITH sha256_password BY '$password' SETTINGS readonly = 2, max_execution_time = 30, max_memory_usage = 2000000000;
GRANT SELECT, SHOW, dictGet ON spillway.* TO reader;
SQL
