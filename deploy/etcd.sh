#!/bin/sh
# etcd, where Patroni keeps who is the leader. One member here; in production three, on three machines, so that one may fail.
#
#   DATA_DIR=/var/lib/etcd CLIENT_URL=http://10.0.0.21:2379 PEER_URL=http://10.0.0.21:2380 deploy/etcd.sh
#
# For three: MEMBER=e1 (e2, e3), and on each the same
#   CLUSTER=e1=http://10.0.0.21:2380,e2=http://10.0.0.22:2380,e3=http://10.0.0.23:2380
# Only Patroni's machines may reach it: it asks nobody who they are. With TLS: --cert-file, --key-file, --client-cert-auth.
set -eu

: "${DATA_DIR:?where it keeps its data}"
MEMBER=${MEMBER:-e1}
CLIENT_URL=${CLIENT_URL:-http://127.0.0.1:2379}
PEER_URL=${PEER_URL:-http://127.0.0.1:2380}

# Heartbeats of 100 ms and elections after a second are right within a data centre; between distant ones use 10 times that.
exec etcd \
    --name "$MEMBER" \
    --data-dir "$DATA_DIR" \
    --listen-client-urls "$CLIENT_URL" --advertise-client-urls "$CLIENT_URL" \
    --listen-peer-urls "$PEER_URL" --initial-advertise-peer-urls "$PEER_URL" \
    --initial-cluster "${CLUSTER:-$MEMBER=$PEER_URL}" \
    --heartbeat-interval 100 --election-timeout 1000 \
    --auto-compaction-retention 1 \
    --logger zap --log-level warn
