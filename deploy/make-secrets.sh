#!/bin/sh
# Make the secrets that compose.yaml mounts, once; existing files are kept.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
chmod 700 secrets
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
keep() { [ -s "secrets/$1" ] || printf '%s' "$2" > "secrets/$1"; chmod 644 "secrets/$1"; }
keep postgres_password "$(random)"
keep postgres_dsn "postgresql://sluicegate:$(cat secrets/postgres_password)@postgres:5432/sluicegate"
keep auth_token "$(random)"
keep grafana_password "$(random)"
echo "secrets are in deploy/secrets; the token for clients is deploy/secrets/auth_token"
