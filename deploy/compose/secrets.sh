#!/bin/sh
# Makes the passwords of docker-compose.yml, each random, in files only you can read. Those that exist are kept. Alertmanager's
# configuration is made anew each time, with the web hook whose address you wrote into the file webhook_url beside them.
# Usage: deploy/compose/secrets.sh [DIRECTORY]
set -eu
dir=${1:-$(dirname "$0")/secrets}
umask 077
mkdir -p "$dir"
for name in clickhouse_password clickhouse_reader_password grafana_password api_token; do
    [ -s "$dir/$name" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > "$dir/$name"
    # Each container reads its secret as a user of its own; the directory stays yours alone.
    chmod 0444 "$dir/$name"
done
rm -f "$dir/alertmanager_config"
"$(dirname "$0")/../prometheus/receiver.sh" "$dir/webhook_url" > "$dir/alertmanager_config"
chmod 0444 "$dir/alertmanager_config"
echo "secrets are in $dir; the password of Grafana's admin is in grafana_password"
