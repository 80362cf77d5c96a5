#!/usr/bin/env bash
# With foreign_key_checks = 0, MariaDB still refuses to change the collation of
# columns of a foreign key: ALTER TABLE ... MODIFY fails with the errors 1833
# for the column that is referred to and 1832 for the one that refers, and so
# does CONVERT TO CHARACTER SET of a whole table. A migration has to drop the
# foreign key and to create it again, in one ALTER TABLE for each table.
#
# Guess, logged before the run: foreign_key_checks = 0 lets ALTER TABLE change
# the collation of both columns, as it lets tables be dropped in any order.
# Seen: MariaDB 10.11.19 (Debian 12): each of the three changes is refused, and
# both columns keep their collation.
#
# Needs Debian 12's package mariadb-server. As root, the server runs as mysql.
set -eu

for program in mariadbd mariadb-install-db mariadb; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || {
        echo "$program is not installed"
        exit 77
    }
done
PATH=$PATH:/usr/sbin
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
cd "$folder"
as_user=''
if [ "$(id -u)" = 0 ]; then
    as_user='setpriv --reuid=mysql --regid=mysql --clear-groups'
    chown mysql "$folder"
fi
$as_user mariadb-install-db --no-defaults --skip-test-db \
    --datadir="$folder/data" --auth-root-authentication-method=normal >install.log 2>&1
$as_user mariadbd --no-defaults --datadir="$folder/data" --skip-networking \
    --socket="$folder/socket" --pid-file="$folder/pid" >server.log 2>&1 &

# execute STATEMENTS: print rows, or the number of the error
execute() {
    mariadb --no-defaults --socket="$folder/socket" --user=root \
        --skip-column-names --execute "$1" "${2:-mysql}" 2>error &&
        return
    sed -n 's/^ERROR \([0-9]*\).*/\1/p' error
}

for _ in $(seq 300); do
    [ "$(execute 'SELECT 1')" != 1 ] || break
    sleep 0.1
done
execute 'SELECT version()'
execute 'CREATE DATABASE example COLLATE utf8mb4_general_ci'
execute 'CREATE TABLE parent (id varchar(36) PRIMARY KEY);
         CREATE TABLE child (id varchar(36),
                             FOREIGN KEY (id) REFERENCES parent (id))' example
new='COLLATE utf8mb4_nopad_bin'
seen=$(
    for change in \
        "parent MODIFY id varchar(36) $new" \
        "child MODIFY id varchar(36) $new" \
        "parent CONVERT TO CHARACTER SET utf8mb4 $new"
    do
        printf '%s: ' "$change"
        error=$(execute "SET foreign_key_checks = 0; ALTER TABLE $change" \
            example)
        echo "${error:-done}"
    done
    execute "SELECT table_name, collation_name FROM information_schema.columns
             WHERE table_schema = 'example' ORDER BY table_name"
)
echo "$seen"
[ "$seen" = "parent MODIFY id varchar(36) $new: 1833
child MODIFY id varchar(36) $new: 1832
parent CONVERT TO CHARACTER SET utf8mb4 $new: 1833
child	utf8mb4_general_ci
parent	utf8mb4_general_ci" ] || {
    echo 'This differs from what the comment says.'
    exit 1
}
