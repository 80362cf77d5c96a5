#!/usr/bin/env bash
# Runs parts of the tests in another release of Debian, with its Python and
# its servers.
#
#   tools/on_debian.sh 12|13 [full] [PART…]
#
# Parts are those of tools/test.sh; without one, style, unit, functional and
# integration. Needs root, and Debian's package debootstrap, which is installed
# if it is missing.
#
# The release is made once, in $CELLSCHED_CACHE/debian-NUMBER; without that
# variable, in the directory cellsched of the user's cache. The tests run there
# in a clone of the last commit. The tests use ports of this machine's loopback
# interface. Mounts end with this script. To make the release anew, remove its
# directory.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
cache=${CELLSCHED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cellsched}

packages='ca-certificates etcd-server git haproxy iproute2 mariadb-server
    openssl pgbouncer postgresql procps python3 python3-venv rabbitmq-server'

die() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    exit 1
}

main() {
    local codename root
    case ${1:-} in
        12) codename=bookworm ;;
        13) codename=trixie ;;
        *)
            sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
            exit 2
            ;;
    esac
    root=$cache/debian-$1
    shift
    [ "$(id -u)" = 0 ] || die 'it mounts and changes its root; expected root'
    if [ -z "${ON_DEBIAN_MOUNTS:-}" ]; then
        # Mounts that only this script and its children see.
        exec env ON_DEBIAN_MOUNTS=own unshare --mount "$0" \
            "${root##*-}" "$@"
    fi
    [ -e "$root/.complete" ] || make_release "$codename" "$root"
    mount_system "$root"
    clone "$root"
    [ $# -gt 0 ] || set -- style unit functional integration
    [ "$*" != full ] || set -- full style unit functional integration
    exec chroot "$root" env -i HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        CELLSCHED_REQUIRE_SERVERS="${CELLSCHED_REQUIRE_SERVERS:-}" \
        CI=true /checkout/tools/test.sh "$@"
}

make_release() {
    local codename=$1 root=$2
    command -v debootstrap >/dev/null ||
        apt-get -qq install --no-install-recommends debootstrap >&2 ||
        die 'debootstrap is missing: package debootstrap'
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase "$codename" "$root" >&2 ||
        die "debootstrap could not make $root"
    # Servers do not start by themselves.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    mount_system "$root"
    # shellcheck disable=SC2086
    chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -c \
        'apt-get -qq update && apt-get -qq install --no-install-recommends "$@"' \
        sh $packages </dev/null >&2 || die "packages are missing in $root"
    touch "$root/.complete"
}

# mount_system ROOT: what programs expect, and the host's view of the network
mount_system() {
    local root=$1 name
    mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
    mountpoint -q "$root/dev" || mount --rbind /dev "$root/dev"
    for name in resolv.conf hosts; do
        cp "/etc/$name" "$root/etc/$name"
    done
    # Authorities that this machine trusts sign what pip downloads from.
    if [ -e "$root/.complete" ]; then
        mount --bind /etc/ssl/certs "$root/etc/ssl/certs"
    fi
}

# clone ROOT: have the last commit in ROOT/checkout, whose .venv is kept
clone() {
    local root=$1
    [ -e "$root/checkout/.git" ] || git clone -q "$top" "$root/checkout"
    git -C "$root/checkout" fetch -q "$top" HEAD
    git -C "$root/checkout" checkout -q --force --detach FETCH_HEAD
    [ -z "$(git -C "$top" status --porcelain)" ] ||
        echo 'Changes that are not committed are not tested.' >&2
}

main "$@"
