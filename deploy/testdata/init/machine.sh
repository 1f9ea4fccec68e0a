#!/bin/sh
# Boots systemd as the first process of a machine of its own: with the files of this machine, whose
# changes stay in memory, and with a network, processes and a control group of its own.
#
#	unshare --mount machine.sh DIR
#
# It runs DIR/shared/trial.sh there, with its output in DIR/shared/out, and ends.
set -e
if [ "$2" = "" ]; then
	mount --make-rprivate /
	mkdir -p "$1/groups"
	mount -t cgroup2 cgroup2 "$1/groups"
	group=$(mktemp -d "$1/groups/countmill-test-XXXXXX")
	trap 'find "$group" -depth -type d -exec rmdir {} +' EXIT
	# The shell stays outside, so that it can remove the group.
	sh -c 'echo $$ >"$1/cgroup.procs" && exec unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child "$0" "$2" inside' \
		"$0" "$group" "$1"
	exit
fi
dir=$1 root=$1/root
mkdir -p "$root" "$dir/files"
mount -t tmpfs tmpfs "$dir/files"
mkdir "$dir/files/up" "$dir/files/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/files/up,workdir=$dir/files/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir -p "$root/dev/shm" "$root/dev/pts" "$root/mnt/shared"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
mount --bind "$dir/shared" "$root/mnt/shared"
cat >"$root/etc/systemd/system/trial.service" <<'UNIT'
[Service]
Type=oneshot
ExecStart=/bin/bash /mnt/shared/trial.sh
ExecStopPost=/bin/systemctl exit --force --force
StandardOutput=append:/mnt/shared/out
StandardError=append:/mnt/shared/out
UNIT
ip link set lo up
# Not chroot: in a changed root the kernel makes no user namespace, which PrivateUsers= needs.
mkdir "$root/old"
cd "$root"
pivot_root . old
umount -l /old
cd /
exec env -i container=lxc PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=trial.service
