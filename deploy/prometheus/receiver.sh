#!/bin/sh
# Writes Alertmanager's configuration to standard output: the routing of alertmanager.yml beside this script, and as the
# receiver the web hook whose address stands in FILE, one line. Without FILE, or with an empty one, alerts are kept and shown
# by Alertmanager and sent to nobody, which is said on standard error.
# Usage: deploy/prometheus/receiver.sh FILE > /etc/prometheus/alertmanager.yml
set -eu
template=$(dirname "$0")/alertmanager.yml
placeholder='      - url: http://127.0.0.1:9099/alerts'
grep -qxF -e "$placeholder" "$template" || { echo "receiver.sh: $template no longer has the line that this script fills in: $placeholder" >&2; exit 1; }
if [ ! -s "${1:?name the file that holds the address of the web hook}" ]; then
    echo "receiver.sh: $1 is missing or empty: alerts are sent to nobody. Write the address of your web hook into it and run this again." >&2
    sed '/^    webhook_configs:$/,$d' "$template"
    exit 0
fi
url=$(tr -d '\r' < "$1")
# What a URL may hold, less the quote; so nothing in it means anything to YAML, sed or this shell.
if [ -n "$(printf %s "$url" | tr '\n' ' ' | sed -E 's|^https?://[]A-Za-z0-9._~:/?#@!$&()*+,;=%[-]+$||')" ]; then
    echo "receiver.sh: $1 does not hold one address that begins with http:// or https://" >&2
    exit 1
fi
sed "s|^$placeholder\$|      - url: '$(printf %s "$url" | sed 's/[&\\]/\\&/g')'|" "$template"
