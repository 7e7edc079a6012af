#!/usr/bin/env bash
# Makes the environment that `make demo` and `make test` run in: Java for Spark, .venv with the locked packages, Ensue itself.
# Run by make, and only when .venv/.ready is older than the lock file, pyproject.toml or this script.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# apt_install PACKAGE WHY: installs a Debian package when we may, else says how.
apt_install() {
    local command="apt-get install -y --no-install-recommends $1"
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        fail "$2 is missing. Install it and run make again, on Debian with:  sudo $command"
    fi
    say "$2 is missing, installing $1"
    export DEBIAN_FRONTEND=noninteractive
    $command -qq >/dev/null 2>&1 || { apt-get update -qq && $command -qq >/dev/null; } ||
        fail "could not install $1; run:  apt-get update && $command"
    hash -r
}

java_works() { "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version >/dev/null 2>&1; }

command -v "$python" >/dev/null || fail "no $python here; Ensue needs Python 3.11 or newer (make PYTHON=/path/to/python)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old; Ensue needs 3.11 or newer (make PYTHON=/path/to/python)"
java_works || apt_install openjdk-17-jre-headless "Java 17 (Spark runs on it)"
java_works || fail "java does not start; see what 'java -version' says${JAVA_HOME:+ (JAVA_HOME is $JAVA_HOME)}"
"$python" -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv "Python's venv module"

say "installing the packages of requirements.lock into .venv (once, a minute or two)"
[ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv
# Bytecode is compiled on first use: most modules of these packages are never imported.
install="env PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip install --quiet --no-compile"
# Only files with a hash that the lock file names are installed.
$install --require-hashes --requirement requirements.lock
$install --no-deps --no-build-isolation --editable .
touch .venv/.ready
say "ready"
