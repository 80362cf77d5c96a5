# Makes the environment that demo.sh and test.sh run in; they source this with
# $top set to the checkout. Everything that it says goes to standard error.

die() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    exit 1
}

# Without a checkout, the environment would be made in another directory.
if ! [ -e "${top:-}/tools/environment.sh" ]; then
    # An interactive shell is not ended.
    case $- in *i*) end=return ;; *) end=exit ;; esac
    printf "%s: top is '%s'; expected the path of the checkout\n" \
        environment.sh "${top:-}" >&2
    $end 1
fi
environment=$top/.venv

# make_environment project|tests|lowest|mutation
#
# With lowest, libraries have the lowest versions that requirements.txt allows,
# and $environment has to be another one.
#
# Does nothing if what is wanted was installed before from the same files. An
# environment that is broken, or was left half made, is made anew. That of
# another user is used if it is complete, and never changed.
make_environment() {
    local wanted=$1
    local stamp=$environment/.installed-$wanted
    local half_made=$environment/.half-made
    local state
    state=$(cd "$top" && cat requirements.txt test-requirements.txt \
        upper-constraints.txt setup.cfg setup.py pyproject.toml \
        tools/lowest.py tools/mutation/requirements.txt | cksum)
    state="$state $top"

    if [ -e "$environment" ] && ! is_own "$environment"; then
        [ ! -e "$half_made" ] && "$environment/bin/python" -c '' 2>/dev/null &&
            [ "$(cat "$stamp" 2>/dev/null)" = "$state" ] ||
            die "$environment belongs to $(owner "$environment") and is not\
 complete or not current; expected a checkout of your own, or this user"
        return
    fi
    if [ -e "$half_made" ] || ! "$environment/bin/python" -c \
            'import pip, sys; sys.exit(sys.prefix == sys.base_prefix)' \
            2>/dev/null; then
        create_environment "$half_made"
    elif [ "$(cat "$stamp" 2>/dev/null)" = "$state" ]; then
        return
    fi
    : >"$half_made"
    show "Installing into $environment" install_project "$wanted" ||
        die 'the installation failed; what pip said is above'
    # What tests need includes what the project needs.
    printf '%s\n' "$state" >"$environment/.installed-project"
    printf '%s\n' "$state" >"$stamp"
    rm -f "$half_made"
}

# Whether a file belongs to the user that runs this.
is_own() {
    [ -O "$1" ]
}

owner() {
    ls -ld "$1" | awk '{ print $3 }'
}

# show WHAT COMMAND…: say what is done, and on a terminal for how long
show() {
    local what=$1 begin=$SECONDS ticker='' status=0
    shift
    printf '%s …' "$what" >&2
    if [ -t 2 ]; then
        # It ends with this shell, however that comes about.
        while kill -0 "$$" 2>/dev/null; do
            printf '\r%s … %s s ' "$what" $((SECONDS - begin)) >&2
            sleep 1
        done &
        ticker=$!
    else
        printf '\n' >&2
    fi
    "$@" >&2 || status=$?
    if [ -n "$ticker" ]; then
        kill "$ticker" 2>/dev/null || true
        wait "$ticker" 2>/dev/null || true
        printf '\n' >&2
    fi
    return $status
}

create_environment() {
    local half_made=$1 python=${PYTHON:-python3} version
    version=$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")' \
        2>/dev/null) || die "$python is missing; Python 3.11 or later is needed"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "$python is Python $version; Python 3.11 or later is needed"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python lacks venv; Debian has it in the package python3-venv"
    rm -rf "$environment"
    mkdir "$environment" 2>/dev/null ||
        die "$environment cannot be created by $(id -un); expected a checkout\
 of your own"
    : >"$half_made"
    show "Making $environment" "$python" -m venv "$environment" ||
        die "$python cannot make an environment in $environment"
}

install_project() {
    local constraints=upper-constraints.txt requirements=''
    local extras='[cassandra,etcd,html,limit,mysql,otel,placement,plot,postgresql,psycopg2,simulate]'
    cd "$top" || return
    # pbr asks git for the version; an export of the tree has none to ask.
    if ! [ -e .git ] || ! git rev-parse --git-dir >/dev/null 2>&1; then
        export PBR_VERSION=${PBR_VERSION:-0.0.0}
    fi
    # Without isolation, pip builds with what the constraints say, too.
    pip_install setuptools pbr || return
    case $1 in
        project) extras='' ;;
        tests) requirements='--requirement test-requirements.txt' ;;
        mutation)
            requirements='--requirement test-requirements.txt
                --requirement tools/mutation/requirements.txt'
            ;;
        lowest)
            # A test reads what the documentation lists.
            requirements='fixtures hypothesis sphinx stestr testtools'
            pip_install packaging &&
                "$environment/bin/python" tools/lowest.py requirements.txt \
                    setup.cfg upper-constraints.txt \
                    >"$environment/constraints.txt" || return
            constraints=$environment/constraints.txt
            ;;
    esac
    pip_install --no-build-isolation $requirements --editable ".$extras"
}

# pip_install ARGUMENT…: with the constraints of the caller
#
# uv does it in a tenth of the time. It reads nothing of pip's configuration:
# where it cannot be had or fails, pip does it, and says what is wrong.
pip_install() {
    local python=$environment/bin/python
    "$python" -c 'import uv' 2>/dev/null || "$python" -m pip --quiet \
        --disable-pip-version-check install --constraint \
        "$top/upper-constraints.txt" uv >/dev/null 2>&1 || true
    "$python" -m uv --quiet --no-config pip install --python "$python" \
        --constraint "$constraints" "$@" 2>/dev/null ||
        "$python" -m pip --quiet --disable-pip-version-check \
            install --constraint "$constraints" "$@"
}
