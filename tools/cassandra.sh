#!/usr/bin/env bash
# Runs Apache Cassandra for tests, on loopback addresses, from its jars alone.
#
#   tools/cassandra.sh fetch              the jars, by Maven, once
#   tools/cassandra.sh start DIR [N]      a node that keeps everything in DIR,
#                                         on 127.0.0.N, or 127.0.0.1
#   tools/cassandra.sh run DIR [N]        the same in the foreground
#   tools/cassandra.sh stop DIR           ends the node that start began
#
# Jars are in $CELLSCHED_CACHE/cassandra-VERSION; without that variable, in
# the directory cellsched of the user's cache. Needs a JDK 17 runtime, and
# Maven to fetch. The environment says, where it is set:
#
#   CASSANDRA_VERSION       of the jars
#   CASSANDRA_PORT          for CQL
#   CASSANDRA_STORAGE_PORT  between nodes
#   CASSANDRA_SEED          the address of a node to join
#   CASSANDRA_SYNC          commitlog_sync: periodic or batch
#   CASSANDRA_HEAP          size of the heap
#   CASSANDRA_YAML          further lines of its configuration
set -eu

version=${CASSANDRA_VERSION:-5.0.6}
cache=${CELLSCHED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cellsched}
lib=$cache/cassandra-$version

main() {
    case ${1:-} in
        fetch) fetch ;;
        start) start "$2" "${3:-1}" ;;
        run) run "$2" "${3:-1}" ;;
        stop) kill "$(cat "$2/pid")" ;;
        *)
            sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
            exit 2
            ;;
    esac
}

fetch() {
    if [ -e "$lib/complete" ]; then
        return
    fi
    command -v mvn >/dev/null || die 'Maven is missing: package maven'
    # The trap comes when the function has returned.
    work=$(mktemp -d)
    trap 'rm -r "$work"' EXIT
    cat >"$work/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>cellsched</groupId>
  <artifactId>server</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.cassandra</groupId>
      <artifactId>cassandra-all</artifactId>
      <version>$version</version>
    </dependency>
  </dependencies>
</project>
POM
    mkdir -p "$lib"
    mvn --quiet --batch-mode -f "$work/pom.xml" \
        org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
        -DoutputDirectory="$lib"
    touch "$lib/complete"
}

start() {
    mkdir -p "$1"
    "$0" run "$1" "$2" >"$1/output" 2>&1 </dev/null &
    echo $! >"$1/pid"
    cat "$1/pid"
}

# What waits for a joining node to hear its seed waits for nobody else.
run() {
    local directory address=127.0.0.$2 seed delay=6000 flags
    [ -e "$lib/complete" ] || die "no jars in $lib: run tools/cassandra.sh fetch"
    seed=${CASSANDRA_SEED:-$address}
    [ "$seed" != "$address" ] || delay=0
    mkdir -p "$1/conf" "$1/triggers" "$1/log"
    directory=$(realpath "$1")
    write_yaml >"$directory/conf/cassandra.yaml"
    write_logback >"$directory/conf/logback.xml"
    flags=$(module_flags)
    cd "$directory"
    # shellcheck disable=SC2086
    exec java -cp "$directory/conf:$lib/*" \
        -javaagent:"$(echo "$lib"/jamm-*.jar)" $flags \
        -Xms"${CASSANDRA_HEAP:-400m}" -Xmx"${CASSANDRA_HEAP:-400m}" \
        -XX:+UseSerialGC ${CASSANDRA_JVM_OPTIONS:--XX:TieredStopAtLevel=1} \
        -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError \
        -Djdk.attach.allowAttachSelf=true \
        -Dio.netty.tryReflectionSetAccessible=true \
        -Dcassandra.storagedir="$directory" \
        -Dcassandra.logdir="$directory/log" \
        -Dcassandra.triggers_dir="$directory/triggers" \
        -Dcassandra.config="file:$directory/conf/cassandra.yaml" \
        -Dlogback.configurationFile=logback.xml \
        -Dcassandra-foreground=yes \
        -Dcassandra.ring_delay_ms="$delay" \
        -Dcassandra.skip_wait_for_gossip_to_settle=0 \
        -Dcassandra.superuser_setup_delay_ms=0 \
        org.apache.cassandra.service.CassandraDaemon
}

# What the server reaches into, of the runtime's modules.
module_flags() {
    local each
    for each in java.base/jdk.internal.misc java.base/java.lang.ref \
        java.management.rmi/com.sun.jmx.remote.internal.rmi \
        java.management/com.sun.jmx.remote.security \
        java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql \
        jdk.unsupported/sun.misc; do
        printf -- '--add-exports %s=ALL-UNNAMED ' "$each"
    done
    for each in java.base/java.lang.module java.base/jdk.internal.loader \
        java.base/jdk.internal.ref java.base/jdk.internal.reflect \
        java.base/jdk.internal.math java.base/jdk.internal.module \
        java.base/jdk.internal.util.jar java.base/sun.nio.ch \
        java.base/java.nio java.base/java.io java.base/java.lang \
        java.base/java.lang.reflect java.base/java.util \
        java.base/java.util.concurrent \
        java.base/java.util.concurrent.atomic \
        jdk.management/com.sun.management.internal; do
        printf -- '--add-opens %s=ALL-UNNAMED ' "$each"
    done
}

write_yaml() {
    local storage=${CASSANDRA_STORAGE_PORT:-7000}
    cat <<YAML
cluster_name: cellsched
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
num_tokens: 4
listen_address: $address
rpc_address: $address
storage_port: $storage
native_transport_port: ${CASSANDRA_PORT:-9042}
start_native_transport: true
endpoint_snitch: SimpleSnitch
paxos_variant: v2
auto_snapshot: false
concurrent_compactors: 1
commitlog_segment_size: 8MiB
commitlog_sync: ${CASSANDRA_SYNC:-periodic}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "$seed:$storage"
YAML
    if [ "${CASSANDRA_SYNC:-periodic}" = periodic ]; then
        echo 'commitlog_sync_period: 10000ms'
    fi
    printf '%s\n' "${CASSANDRA_YAML:-}"
}

write_logback() {
    cat <<XML
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{ISO8601} %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
XML
}

die() {
    echo "$0: $*" >&2
    exit 1
}

main "$@"
