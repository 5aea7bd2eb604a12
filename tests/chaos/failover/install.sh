#!/bin/sh
# Installs the servers that the tests of failover run, from Debian, or says what it cannot. Starts none of them.
set -u

needed() {
    for pair in patroni:patroni etcd:etcd-server pgbouncer:pgbouncer faketime:faketime; do
        PATH="$PATH:/usr/sbin" command -v "${pair%%:*}" >/dev/null || printf '%s ' "${pair#*:}"
    done
}

missing=$(needed)
if [ -z "$missing" ]; then
    echo "patroni, etcd, pgbouncer and faketime are there."
    exit 0
fi
command="apt-get install -y --no-install-recommends $missing python3-etcd"
if ! command -v apt-get >/dev/null; then
    echo "missing: $missing. There is no apt-get here; install them as your system does. PostgreSQL comes with 'make setup'."
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "missing: $missing. Only root can install them:"
    echo "  sudo $command"
    echo "Debian starts them as services; stop them with: sudo systemctl disable --now etcd patroni pgbouncer"
    exit 1
fi
# Debian starts what it installs, unless this file says no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
# shellcheck disable=SC2086
export DEBIAN_FRONTEND=noninteractive
$command >/dev/null || { apt-get update -qq && $command >/dev/null; }
missing=$(needed)
if [ -n "$missing" ]; then
    echo "could not install: $missing. 'make chaos-failover' fails where it needs them, and says so."
    exit 1
fi
echo "installed; none of them was started."
