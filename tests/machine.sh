#!/bin/sh
# Runs a command, such as `make unit`, after checking that this machine can run the tests. Checks
# inotify instances, file descriptors, user namespaces, ports, memory and disk. Raises limits where
# possible: for the command only or, as root, in the kernel. If a check fails, prints the problem
# and its remedy, and exits with 1.
set -u
cd "$(dirname "$0")/.." || exit 1
missing=0

lacks() {
  missing=1
  printf 'missing: %s\n' "$1" >&2
}

number() {
  cat "$1" 2>/dev/null || echo "${2:-0}"
}

cpus=$(nproc)
# Tests spend most of their time waiting, so run three per CPU.
threads=$((3 * cpus))

# An agent and its Envoy processes use up to 128 inotify instances. `tests/src/turns.rs` limits the
# number of concurrent agents accordingly.
limit=/proc/sys/fs/inotify/max_user_instances
wanted=$((128 * (threads + 2)))
if [ "$(number $limit)" -lt "$wanted" ]; then
  { echo "$wanted" >$limit; } 2>/dev/null ||
    printf 'slow: fs.inotify.max_user_instances is %s, so few agents run side by side; sysctl fs.inotify.max_user_instances=%s\n' \
      "$(number $limit)" "$wanted" >&2
fi
used=$(find /proc/[0-9]*/fd -user "$(id -u)" -lname 'anon_inode:inotify' 2>/dev/null | wc -l)
free=$(($(number $limit 128) - used))
[ "$free" -ge 100 ] ||
  lacks "100 free inotify instances; other processes of this user have $used of $(number $limit 128): end them, or sysctl fs.inotify.max_user_instances=$wanted"

# Load tests hold thousands of connections.
files=$(ulimit -H -n)
if [ "$files" = unlimited ] || [ "$files" -ge 8192 ]; then
  ulimit -S -n "$files"
else
  lacks "8192 file descriptors per process; the hard limit is $files: ulimit -Hn 8192 as root, or LimitNOFILE= of the service"
fi

unshare --user --map-root-user --net true 2>/dev/null ||
  lacks "user namespaces, in which tests have networks of their own: sysctl kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0"

# Tests listen on ports 12000 to 32000, which the kernel must not use for outgoing connections.
first=$(cut -f 1 /proc/sys/net/ipv4/ip_local_port_range)
[ "$first" -ge 32000 ] ||
  lacks "ports 12000 to 32000, because outgoing connections use ports from $first: sysctl net.ipv4.ip_local_port_range='32768 60999'"

# kilobytes DIRECTORY: prints the directory's free space in kilobytes.
kilobytes() {
  df -Pk "$1" | awk 'NR == 2 { print $4 }'
}
mkdir -p target
disk=$(kilobytes target)
# A complete build takes 8 GB.
built=$(du -sk target | cut -f 1)
room=$((built > 7000000 ? 2000000 : 9000000 - built))
[ "$disk" -ge "$room" ] ||
  lacks "$((room / 1000)) MB of disk for target/; $((disk / 1000)) MB are free: remove files, or set CARGO_TARGET_DIR to another disk"
[ "$(kilobytes /tmp)" -ge 1000000 ] || lacks "1 GB of disk in /tmp, where agents under test have their files"
[ "$(kilobytes /dev/shm)" -ge 60000 ] || lacks "60 MB in /dev/shm, which Envoys share when they restart: mount -o remount,size=256m /dev/shm"

memory=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
[ "$memory" -ge 3000000 ] || lacks "3 GB of free memory; $((memory / 1000)) MB are free"
# A test with an API server takes almost 1 GB.
most=$((memory / 1000000))
[ "$threads" -le "$most" ] || threads=$most

[ "$missing" = 0 ] || exit 1
export NEXTEST_TEST_THREADS="${NEXTEST_TEST_THREADS:-$threads}"
exec "$@"
